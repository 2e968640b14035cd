"""What a stretch of layers costs its device at least, where others may do parts of its heavy layers.

In a mapping by split points the first row gives every device one stretch. The device does all that cannot be split
there, and the first part of what can; sharing a layer takes a message with all that it reads, and one with the result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dse.chromosomes import EQUAL, Decoding
from dse.place.cnn.relaxed import Parts, partly, parts
from dse.place.cnn.stretches import crossing, positions
from dse.place.cnn.wires import Wires
from model.compiled import allocating
from model.cost.costs import CostArrays
from model.mappings.arrays import Floats, GraphArrays, Ints, edges

WEIGHINGS = ((1.0, 0.0), (0.0, 1.0), (0.5, 0.5))
"""Of what goes out and comes in: a stretch takes at least any mean of the two."""


class Layers(NamedTuple):
    """What sharing a layer means, ``L`` layers; positions are indices of cuts.

    at: (L,) position; kept: (L,) share of a layer that its device does at least, 1: it is not shared
    maker, last: (L,) position of what a part elsewhere must be sent, and of its last reader; maker -1: of nothing
    out: (L, 2) that message, and its bytes; reader: (L,) position of the first that needs the whole result; back: (L,)
    bytes that come back for it
    """

    at: Ints
    kept: Floats
    maker: Ints
    last: Ints
    out: Floats
    reader: Ints
    back: Floats


def layers(g: GraphArrays, coding: Decoding, p: Parts, cuts: Ints) -> Layers:
    """Of mappings by split points, cut where these may be."""
    n = g.n_layers
    at = positions(g, cuts)
    none = np.full(n, -1, dtype=np.int32)
    found = Layers(
        at, _kept(g, coding, p), none, none.copy(), np.zeros((n, 2)), np.full(n, len(cuts), np.int32), np.zeros(n)
    )
    even = 1 - _even(p, 2) if coding.shares == EQUAL else np.zeros(n)
    heavy_readers = _heavy_readers(g, p)
    for edge, maker, reader in edges(g):
        tensor = g.edge_tensor[edge]
        if partly(g, p, edge, reader):
            continue
        if p.smallest[maker] == 1 and p.smallest[reader] < 1 and g.tensor_bytes[tensor] > found.out[reader, 1]:
            found.maker[reader], found.last[reader] = at[maker], at[_last_reader(g, tensor)]
            found.out[reader] = np.array([1.0, g.tensor_bytes[tensor]]) / heavy_readers[tensor]
        if p.smallest[maker] < 1 and found.kept[reader] > 0:
            found.reader[maker] = min(found.reader[maker], at[reader])
            found.back[maker] = g.tensor_bytes[tensor] * even[maker]
    return found


def _even(p: Parts, parts: int) -> Floats:
    """(L,) share of the first of so many even parts."""
    units = np.rint(1 / p.smallest)
    return np.floor(units / parts) / units


def _kept(g: GraphArrays, coding: Decoding, p: Parts) -> Floats:
    smallest = _even(p, coding.rows) if coding.shares == EQUAL else np.zeros(g.n_layers)
    return np.where(p.smallest < 1, smallest, 1.0)


def _heavy_readers(g: GraphArrays, p: Parts) -> dict[int, int]:
    """How many layers that may be shared read a tensor."""
    found: dict[int, set[int]] = {}
    for edge, _, reader in edges(g):
        if p.smallest[reader] < 1:
            found.setdefault(int(g.edge_tensor[edge]), set()).add(reader)
    return {tensor: len(readers) for tensor, readers in found.items()}


def _last_reader(g: GraphArrays, tensor: int) -> int:
    """The last layer that reads a tensor."""
    uses = g.use_task[g.use_ptr[tensor] : g.use_ptr[tensor + 1]] - g.n_inputs
    return int(uses[uses < g.n_layers].max())


def _crossing(g: GraphArrays, p: Parts, of: Layers, cuts: int) -> tuple[Floats, Floats]:
    """What comes into a stretch and goes out of it at least."""
    over = (
        (edge, maker, reader)
        for edge, maker, reader in edges(g)
        if of.kept[reader] > 0 and of.kept[maker] > 0 and not partly(g, p, edge, reader)
    )
    return crossing(g, of.at, of.kept, cuts, over)


def shared_loads(g: GraphArrays, coding: Decoding, p: Parts, w: Wires, cuts: Ints, devices: list[int]) -> Floats:
    """(C, m+1, m+1) seconds a frame that a device or its link is busy with a stretch, at least."""
    of = layers(g, coding, p, cuts)
    into, out = _crossing(g, p, of, len(cuts))
    return np.array([_loads(p, w, of, cuts, into, out, device) for device in devices])


def _loads(p: Parts, w: Wires, of: Layers, cuts: Ints, into: Floats, out: Floats, device: int) -> Floats:
    whole = p.whole[:, device] - p.saved[:, device]
    busy, saves = _between(cuts, whole), _saves(p, of, device)
    back = np.stack([(of.back > 0).astype(float), of.back], axis=1)
    busy = w.turn[device] + busy + into @ w.take[device] + out @ w.hand[device]
    leave, enter = out @ w.leave[device], into @ w.enter[device]
    sends, takes = of.out @ w.leave[device], back @ w.enter[device]
    weighings = ((1.0, 1.0),) if w.once[device] else WEIGHINGS
    means = [_each(of, cuts, saves, a * sends, b * takes, busy, a * leave + b * enter) for a, b in weighings]
    return np.maximum.reduce(means)


def pair_loads(g: GraphArrays, coding: Decoding, w: Wires, c: CostArrays, cuts: Ints, devices: list[int]) -> Floats:
    """(C, m+1, m+1) seconds a frame of two devices that share every heavy layer of a stretch evenly, about.

    No bound: what crosses the borders of a stretch is counted as if nothing at them were shared.
    """
    p = parts(g, c, 2)
    of = layers(g, coding._replace(rows=2), p, cuts)
    into, out = _crossing(g, p, of, len(cuts))
    return np.array([_pair(p, w, of, cuts, into, out, device) for device in devices])


def _pair(p: Parts, w: Wires, of: Layers, cuts: Ints, into: Floats, out: Floats, device: int) -> Floats:
    heavy = p.smallest < 1
    half = np.where(heavy, p.fixed[:, device] + (p.slope[:, device] - p.saved[:, device]) * (1 - of.kept), 0.0)
    own = np.where(heavy, half, p.whole[:, device] - p.saved[:, device])
    back = np.stack([(of.back > 0).astype(float), of.back], axis=1)
    first, second, sent, brought = (_between(cuts, of_layers) for of_layers in (own, half, of.out, back))
    leave, enter = (out + sent) @ w.leave[device], (into + brought) @ w.enter[device]
    return np.maximum.reduce([first, second, leave + enter if w.once[device] else np.maximum(leave, enter)])


def _between(cuts: Ints, of: Floats) -> Floats:
    """(m+1, m+1, …) sums over the layers of stretches. of: (L, …)"""
    so_far = np.concatenate((np.zeros((1, *of.shape[1:])), np.cumsum(of, axis=0)))[cuts]
    found: Floats = so_far[None] - so_far[:, None]
    return found


def _saves(p: Parts, of: Layers, device: int) -> Floats:
    """(L,) seconds that a device is spared at most where others do their parts of a layer."""
    whole, fixed, slope, saved = (table[:, device] for table in (p.whole, p.fixed, p.slope, p.saved))
    shares = np.stack([of.kept, 1 - p.smallest])
    part = np.where(shares > 0, fixed + (slope - saved) * shares, 0.0).min(axis=0)
    return np.where(p.smallest < 1, np.maximum(whole - saved - part, 0.0), 0.0)


def _each(of: Layers, cuts: Ints, saves: Floats, sends: Floats, takes: Floats, busy: Floats, links: Floats) -> Floats:
    found = np.full(busy.shape, np.inf)
    heavy = np.flatnonzero(saves > 0)
    fields = (of.at, of.maker, of.last, of.reader, saves, sends, takes)
    _least(*(np.ascontiguousarray(field[heavy]) for field in fields), busy, links, found)
    return found


@allocating()
def _least(
    at: Ints,
    maker: Ints,
    last: Ints,
    reader: Ints,
    saves: Floats,
    sends: Floats,
    takes: Floats,
    busy: Floats,
    links: Floats,
    found: Floats,
) -> None:
    """Fill ``found``: the larger of the device's and the link's seconds, layers shared in part."""
    cuts = len(busy)
    ratio, cost = np.empty(len(at)), np.empty(len(at))
    for a in range(cuts - 1):
        for b in range(a + 1, cuts):
            begin, end = np.searchsorted(at, a), np.searchsorted(at, b)
            for k in range(begin, end):
                cost[k] = 0.0
                if maker[k] >= a and last[k] < b:
                    cost[k] += sends[k]
                if reader[k] < b:
                    cost[k] += takes[k]
                ratio[k] = -saves[k] / max(cost[k], 1e-300)
            device, link = busy[a, b], links[a, b]
            for k in begin + np.argsort(ratio[begin:end]):
                if device <= link:
                    break
                part = min(1.0, (device - link) / (saves[k] + cost[k]))
                device -= part * saves[k]
                link += part * cost[k]
            found[a, b] = max(device, link)
