"""Chromosomes: rows of integers that stand for mappings, decoded by compiled code.

``naive`` (section 4.2.1 and Eq. 4.5 of the thesis): a gene for every layer, the device that computes it, and ``n``
genes for a layer that can be split; the distinct devices named share it.

Split points (section 4.2.2 and Eq. 4.6): ``p`` rows of one gene a device. A gene is the last *anchor* (1-based) that
the device computes in that row, after the anchor where the device before it in the row stopped; 0: takes no part.
Row 1 places everything: layers that are no anchors go with the anchor before them (those before the first, with it).
Further rows add devices among which an anchor is split. ``hybrid`` has the layers that can be split as anchors;
``vertical`` is the same code with every layer an anchor and one row.

Row 1 must cover the network, so the device with its highest split point goes on to the end (the first device takes
all when the row is empty). Of two devices with one split point the first in platform order gets the layers. Other
rows may leave anchors unsplit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.compiled import allocating, inlined, kernel
from model.mappings.arrays import GraphArrays, Ints, ix
from model.mappings.lowering import Shards, place_ends
from model.mappings.mapping import NEIGHBOUR, Mapping, Shard
from model.network.boxes import CHANNELS
from model.network.graph import Graph
from runtime.errors import CleaveError

KINDS = ("naive", "vertical", "hybrid")
SHARES = ("equal", "multiplicity", "speed")
EQUAL, MULTIPLICITY, SPEED = range(3)
NAIVE, POINTS = range(2)


class Decoding(NamedTuple):
    """What decoding needs to know.

    kind: NAIVE or POINTS; rows: p; devices: n; shares: EQUAL, MULTIPLICITY or SPEED
    anchor: (T,) index of the anchor that places a task; is_anchor: (T,) 1 where the task is one
    first_gene: (T,) of a layer, naive only
    speed: (T, n) speed of a device at a task, any unit, for shares by speed
    reader, writer: devices of the network's inputs and outputs, in every mapping; NEIGHBOUR: next to their layers
    """

    kind: int
    rows: int
    devices: int
    shares: int
    anchor: Ints
    is_anchor: Ints
    first_gene: Ints
    speed: NDArray[np.float64]
    reader: int
    writer: int


@dataclass(frozen=True, eq=False)
class Chromosome:
    """An encoding of mappings of one graph on ``devices`` devices.

    upper:  (n_genes,) int array, each gene lies in ``0..upper`` (inclusive)
    coding: for the compiled decoder
    most:   (T,) int64, the most shards that a task can get
    """

    name: str
    g: GraphArrays
    coding: Decoding
    upper: NDArray[np.int64]
    most: NDArray[np.int64]

    @property
    def n_genes(self) -> int:
        """Length of the chromosome (Eq. 4.5 or 4.6)."""
        return len(self.upper)

    @property
    def of_points(self) -> bool:
        """Whether genes are split points, 0: takes no part; else they are device numbers."""
        return self.coding.kind == POINTS

    def decode(self, genes: NDArray[np.integer]) -> Mapping:
        """The mapping that ``(n_genes,)`` genes stand for."""
        shards = room(self.most)
        decode(self.g, self.coding, np.asarray(genes, dtype=np.int32), shards, scratch(self.g, self.coding))
        first, last = self.g.n_inputs, self.g.n_inputs + self.g.n_layers
        shards_of = (
            Shard(task - first, int(shards.start[k]), int(shards.stop[k]), int(shards.device[k]))
            for task in range(first, last)
            for k in range(shards.ptr[task], shards.ptr[task + 1])
        )
        return Mapping.of(shards_of, self.coding.reader, self.coding.writer)

    def chain(self, devices: Sequence[int], work: NDArray[np.float64]) -> NDArray[np.int32]:
        """``(n_genes,)`` genes of a pipeline: consecutive layers, about an equal share of the work to each device.

        devices: distinct and rising; one device gets the whole network. work: (T,) of each task, any unit
        """
        tasks = slice(self.g.n_inputs, self.g.n_inputs + self.g.n_layers)
        anchor = self.coding.anchor[tasks]
        reached = np.cumsum(np.bincount(anchor, work[tasks])) / max(work[tasks].sum(), 1e-300)
        stage = np.minimum((reached * len(devices) * (1 - 1e-9)).astype(int), len(devices) - 1)
        genes = self.encode(np.array(devices)[stage[anchor]])
        assert genes is not None  # consecutive anchors, each stage with its own device
        return genes

    def encode(self, device: NDArray[np.integer], *others: NDArray[np.integer]) -> NDArray[np.int32] | None:
        """``(n_genes,)`` genes of whole layers, each on the device that ``(n_layers,)`` names.

        The inverse of ``decode``; None where no genes stand for that: split points give a device consecutive anchors,
        and layers that are no anchors the device of theirs. others: of the rows after the first, split points only
        """
        tasks = slice(self.g.n_inputs, self.g.n_inputs + self.g.n_layers)
        if self.coding.kind == NAIVE:
            per_layer = np.diff(np.append(self.coding.first_gene[tasks], self.n_genes))
            return np.repeat(device.astype(np.int32), per_layer)
        genes = np.zeros((self.coding.rows, self.coding.devices), dtype=np.int32)
        for row, of in enumerate((device, *others)):
            points = self._points(self.coding.anchor[tasks], of)
            if points is None:
                return None
            genes[row] = points
        return genes.ravel()

    def _points(self, anchor: Ints, device: NDArray[np.integer]) -> Ints | None:
        """``(devices,)`` split points of a row, None where there are none for it."""
        points = np.zeros(self.coding.devices, dtype=np.int32)
        points[device] = anchor + 1  # the last one stays
        stops = np.sort(points[points > 0])
        first = np.array([device[np.flatnonzero(anchor == stop - 1)[0]] for stop in stops])
        follows = np.searchsorted(stops, anchor, side="right")
        return points if len(np.unique(first)) == len(first) and (first[follows] == device).all() else None


def chromosome(
    kind: str,
    graph: Graph,
    g: GraphArrays,
    devices: int,
    rows: int = 2,
    shares: str = "equal",
    time_s: NDArray[np.float64] | None = None,
    reader: int = NEIGHBOUR,
    writer: int = NEIGHBOUR,
) -> Chromosome:
    """An encoding by name.

    rows: p, for ``hybrid``; time_s: (T, D) of ``CostArrays``, for shares by speed
    ``CleaveError`` for an unknown name, p outside 1..devices, or ``hybrid`` where nothing can be split.
    """
    if kind not in KINDS or shares not in SHARES:
        raise CleaveError(f"there is no chromosome '{kind}' with shares '{shares}' (there are {KINDS} and {SHARES})")
    if kind == "hybrid" and not 1 <= rows <= devices:
        raise CleaveError(f"splits must be 1..{devices}, one device each; got {rows}")
    if kind == "hybrid" and not g.heavy.any():
        raise CleaveError(f"'{graph.name}' has no layer that can be split; use --chromosome vertical")
    layers = np.zeros(len(g.size), dtype=bool)
    layers[g.n_inputs : g.n_inputs + g.n_layers] = True
    is_anchor = g.heavy.astype(bool) if kind == "hybrid" else layers
    anchors = int(is_anchor.sum())
    genes = np.where(layers, np.where(g.heavy == 1, devices, 1), 0)
    rows = rows if kind == "hybrid" else 1
    splits = devices if kind == "naive" else rows
    speed = np.ones((len(g.size), devices)) if time_s is None else 1.0 / np.maximum(time_s, 1e-12)
    coding = Decoding(
        kind=NAIVE if kind == "naive" else POINTS,
        rows=rows,
        devices=devices,
        shares=SHARES.index(shares),
        anchor=np.maximum(np.cumsum(is_anchor) - 1, 0).astype(np.int32),
        is_anchor=is_anchor.astype(np.int32),
        first_gene=(np.cumsum(genes) - genes).astype(np.int32),
        speed=speed,
        reader=reader,
        writer=writer,
    )
    upper = np.full(genes.sum(), devices - 1) if kind == "naive" else np.full(rows * devices, anchors)
    return Chromosome(
        kind,
        g,
        coding,
        upper,
        np.where(g.heavy == 1, np.minimum(splits, g.size[:, CHANNELS] // g.grain[:, CHANNELS]), 1),
    )


class Scratch(NamedTuple):
    """Working memory of ``decode``: placed (rows, anchors) devices; order, devices, weights (genes of a layer,)."""

    placed: Ints
    order: Ints
    devices: Ints
    weights: NDArray[np.float64]


@allocating()
def scratch(g: GraphArrays, coding: Decoding) -> Scratch:
    """Working memory for one thread."""
    anchors = coding.anchor.max() + 1
    width = max(coding.devices, coding.rows)
    i = np.int32
    return Scratch(
        np.zeros((coding.rows, anchors), i), np.zeros(coding.devices, i), np.zeros(width, i), np.zeros(width)
    )


@allocating()
def room(most: NDArray[np.int64]) -> Shards:
    """Arrays for the shards of any mapping with at most ``most[t]`` shards of task ``t``."""
    n = most.sum()
    i = np.int32
    ptr = np.zeros(len(most) + 1, i)
    return Shards(ptr, ptr[1:], np.full(len(most), CHANNELS, i), np.zeros(n, i), np.zeros(n, i), np.zeros(n, i))


@kernel()
def decode(g: GraphArrays, c: Decoding, genes: Ints, s: Shards, w: Scratch) -> None:
    """Fill ``s`` with the shards that ``genes`` stand for."""
    if c.kind == POINTS:
        for row in range(c.rows):
            _place_row(c, genes[row * c.devices : (row + 1) * c.devices], row, w)
    at = 0
    s.ptr[0] = 0
    for task in range(len(g.size)):
        at = _split(g, c, task, _named(g, c, genes, task, w), s, at, w)
        s.ptr[task + 1] = at
    place_ends(g, s, c.reader, c.writer)


@inlined
def _place_row(c: Decoding, points: Ints, row: int, w: Scratch) -> None:
    """Fill ``w.placed[row]`` with the device of each anchor, -1 where the row leaves it."""
    anchors = w.placed.shape[1]
    count = 0
    for device in range(c.devices):  # insertion sort by (point, device); 0 takes no part
        if points[device] == 0:
            continue
        k = count
        while k > 0 and points[w.order[k - 1]] > points[device]:
            w.order[k] = w.order[k - 1]
            k -= 1
        w.order[k] = device
        count += 1
    reached = 0
    w.placed[row, :] = -1
    for k in range(count):
        device = w.order[k]
        w.placed[row, reached : points[device]] = device
        reached = max(reached, points[device])
    if row == 0 and reached < anchors:
        w.placed[0, reached:] = _last(w, reached)


@inlined
def _last(w: Scratch, reached: int) -> int:
    """The device that goes on to the end of row 1: the last one placed, or the first of all."""
    return w.placed[0, reached - 1] if reached > 0 else 0


@inlined
def _named(g: GraphArrays, c: Decoding, genes: Ints, task: int, w: Scratch) -> int:
    """Collect the distinct devices of a task, in order of mention, with how often each is named; how many."""
    layer = task - g.n_inputs
    if layer < 0 or layer >= g.n_layers:
        w.devices[0] = 0
        return 1
    mentions = 1
    if g.heavy[ix(task)] == 1 and c.is_anchor[ix(task)] == 1:
        mentions = c.devices if c.kind == NAIVE else c.rows
    count = 0
    for k in range(mentions):
        device = genes[ix(c.first_gene[ix(task)] + k)] if c.kind == NAIVE else w.placed[ix(k), ix(c.anchor[ix(task)])]
        if device >= 0:
            count = _mention(device, count, w)
    return count


@inlined
def _mention(device: int, count: int, w: Scratch) -> int:
    for k in range(count):
        if w.devices[k] == device:
            w.weights[k] += 1
            return count
    w.devices[count] = device
    w.weights[count] = 1
    return count + 1


@inlined
def _split(g: GraphArrays, c: Decoding, task: int, count: int, s: Shards, at: int, w: Scratch) -> int:
    """Divide a task among the first ``count`` named devices; returns the number of shards so far."""
    if count == 1 or g.heavy[ix(task)] == 0:
        s.device[ix(at)], s.start[ix(at)], s.stop[ix(at)] = w.devices[0], 0, g.size[ix(task), CHANNELS]
        return at + 1
    grain = g.grain[task, CHANNELS]
    units = g.size[task, CHANNELS] // grain
    count = min(count, units)
    total = 0.0
    for k in range(count):
        if c.shares == EQUAL:
            w.weights[k] = 1
        elif c.shares == SPEED:
            w.weights[k] = c.speed[task, w.devices[k]]
        total += w.weights[k]
    reached, sum_so_far = 0, 0.0
    for k in range(count):
        sum_so_far += w.weights[k]
        end = units if k == count - 1 else int(units * (sum_so_far / total) + 1e-9)
        if end > reached:
            s.device[at], s.start[at], s.stop[at] = w.devices[k], reached * grain, end * grain
            at += 1
            reached = end
    return at
