"""Bounds for mappings that may split layers, in any order and on any devices: what cannot be avoided, relaxed.

Period: every layer is done once, by parts of devices (a linear program, whose dual gives the bound). Latency: the
longest path, each layer as fast as its parts can be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from dse.place.cnn.kinds import Kinds
from dse.place.cnn.wires import Wires, least
from model.cost.costs import GAIN, HOLD, HOLD_PART, KEPT, QUARTER, RANK, SESSION, WHOLE, CostArrays, split_s
from model.mappings.arrays import Floats, GraphArrays, edges
from model.network.boxes import CHANNELS
from model.network.relayout import SINGLY

HALVINGS = 60
"""Of an interval that holds a bound: to the last bits of a float."""


@dataclass(frozen=True, eq=False)
class Parts:
    """What layers and their parts take. ``L`` layers, ``D`` devices, seconds.

    whole: (L, D); fixed, slope: (L, D) of a part, and what goes with its share
    saved: (L, D) at most, by what is beside
    smallest: (L,) share of a part at least; 1: the layer stays whole
    """

    whole: Floats
    fixed: Floats
    slope: Floats
    saved: Floats
    smallest: Floats

    @property
    def least(self) -> Floats:
        """(L, D) of a layer, if it could be done in parts that take their share of it."""
        in_parts = self.slope + np.minimum(self.fixed, self.fixed / self.smallest[:, None])
        return np.where(self.smallest[:, None] < 1, np.minimum(self.whole, in_parts), self.whole) - self.saved


def parts(g: GraphArrays, c: CostArrays, splits: int) -> Parts:
    """Of mappings that split heavy layers by channels into ``splits`` parts at most."""
    layers = slice(g.n_inputs, g.n_inputs + g.n_layers)
    work, lines = c.work[layers], split_s(c)[layers]
    saved = np.zeros((len(g.size), len(c.pool)))
    if len(c.beside):
        task = np.repeat(np.arange(len(g.size)), np.diff(g.edge_ptr))
        np.add.at(saved, task, np.maximum(c.beside[..., GAIN], 0) + np.maximum(c.beside[..., KEPT], 0))
    smallest = g.grain[layers, CHANNELS] / np.maximum(g.size[layers, CHANNELS], 1)
    divisible = (g.heavy[layers] == 1) & (splits > 1)
    singly = g.grain[layers, CHANNELS][:, None, None] % np.maximum(work[..., [QUARTER]], 1) > 0
    line = np.where(singly, lines[..., [CHANNELS, SINGLY], :].min(axis=2), lines[..., CHANNELS, :])
    fixed, slope = np.moveaxis(line, -1, 0)
    return Parts(work[..., WHOLE], fixed, slope, saved[layers], np.where(divisible, smallest, 1.0))


def work_bound(g: GraphArrays, c: CostArrays, p: Parts, kinds: Kinds) -> float:
    """Seconds a frame of the busiest device at least: all the work, shared out as well as memory lets it."""
    count = np.array([len(kind) for kind in kinds], dtype=np.float64)
    first = [kind[0] for kind in kinds]
    layers = slice(g.n_inputs, g.n_inputs + g.n_layers)
    least_held = c.work[layers][:, first][..., [HOLD, HOLD_PART]].min(axis=2)
    held = (c.cut_bytes + c.kept_bytes)[layers, CHANNELS][:, None] * least_held
    room = count * np.maximum(c.capacity[c.pool[first]] - c.memory[first, RANK] - c.memory[first, SESSION], 0)
    seconds = p.least[:, first]
    price, rent = _prices(seconds, held, count, room)
    limited = np.isfinite(room)
    value = (price * seconds + np.where(limited, rent, 0) * held).min(axis=1).sum()
    return max(0.0, value - float((rent[limited] * room[limited]).sum()))


def _prices(seconds: Floats, held: Floats, count: Floats, room: Floats) -> tuple[Floats, Floats]:
    """Of a second and of a byte of each kind, the best of the dual program; any that are not negative give a bound."""
    n, k = seconds.shape
    limited = np.isfinite(room)
    scale, byte = max(np.abs(seconds).max(), 1e-300), max(held.max(), 1.0)
    rows, kind = np.repeat(np.arange(n), k), np.tile(np.arange(k), n)
    at = np.arange(n * k)
    matrix = scipy.sparse.hstack(
        [
            scipy.sparse.coo_matrix((np.ones(n * k), (at, rows)), (n * k, n)),
            scipy.sparse.coo_matrix((-(seconds / scale).ravel(), (at, kind)), (n * k, k)),
            scipy.sparse.coo_matrix((-(held / byte * limited).ravel(), (at, kind)), (n * k, k)),
        ]
    )
    whole = scipy.sparse.csr_matrix(np.concatenate([np.zeros(n), count, np.zeros(k)])[None, :])
    gain = -np.concatenate([np.ones(n), np.zeros(k), -np.where(limited, room, 0.0) / byte])
    limits = [(None, None)] * n + [(0, None)] * (2 * k)
    found = scipy.optimize.linprog(
        gain, matrix.tocsr(), np.zeros(n * k), scipy.sparse.vstack([whole]), [1.0], limits, method="highs"
    )
    even = np.full(k, 1 / count.sum())
    if found.x is None:
        return even, np.zeros(k)
    price = np.maximum(found.x[n : n + k], 0)
    total = float(price @ count)
    return (price / total if total > 0 else even), np.maximum(found.x[n + k :], 0) * scale / byte


def largest_bound(p: Parts, splits: int) -> float:
    """Seconds a frame of the device that has the largest part of a layer, at least."""
    saves = given_back(p)
    alone = critical(p)
    if (p.smallest < 1).any():
        divided = _soonest_parts(p, splits, Moves.none(p))
        alone = np.where(p.smallest < 1, np.minimum(alone, divided), alone)
    return max(0.0, float((alone + saves.sum() - saves).max()))


def given_back(p: Parts) -> Floats:
    """(L,) seconds, at most 0, by which layers that save others more than they take may shorten what is beside them."""
    return np.minimum(p.least, 0).min(axis=1)


def path_bound(g: GraphArrays, p: Parts, w: Wires, splits: int) -> float:
    """Seconds of a frame at least: the longest path, and whatever its layers' neighbours may save on it."""
    return max(0.0, float(done(g, p, w, splits).max() + given_back(p).sum()))


def critical(p: Parts) -> Floats:
    """(L,) seconds of whole layers at least."""
    return (p.whole - p.saved).min(axis=1)


@dataclass(frozen=True, eq=False)
class Moves:
    """(L, D) seconds of messages of parts: before one begins, after it ends, and besides for a share of 1."""

    before: Floats
    after: Floats
    share: Floats

    @staticmethod
    def none(p: Parts) -> Moves:
        """Nothing moves."""
        return Moves(*(np.zeros_like(p.whole) for _ in range(3)))


def _soonest_parts(p: Parts, splits: int, m: Moves) -> Floats:
    """(L,) seconds in which layers can be done in two parts or more, at the soonest.

    One device at most has what is read, and one at most is where the result is read as a whole.
    """
    low = np.full(len(p.whole), -p.saved.max() - np.abs(p.fixed).max() - 1.0)
    high = (m.before + m.after + m.share + np.abs(p.fixed) + np.abs(p.slope)).max(axis=1) + 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = _done(p, splits, m, middle) >= 1
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return low


def _done(p: Parts, splits: int, m: Moves, limit: Floats) -> Floats:
    """(L,) of layers at most within a limit (L,): one device is at both ends, others away, or two are at one each."""
    none = np.zeros_like(m.before)
    both, end = _part(p, none, none, limit), _part(p, m.before, none, limit)
    begin, away = _part(p, m.after, m.share, limit), _part(p, m.before + m.after, m.share, limit)
    others = np.cumsum(np.hstack([np.zeros((len(limit), 1)), -np.sort(-away, axis=1)]), axis=1)
    one = both.max(axis=1) + others[:, splits - 1]
    two = begin.max(axis=1) + end.max(axis=1) + others[:, splits - 2]
    return np.maximum(one, two)


def _part(p: Parts, wait: Floats, bring: Floats, limit: Floats) -> Floats:
    """(L, D) share of a layer that a device can do within a limit (L,)."""
    slope, time = p.slope - p.saved + bring, limit[:, None] - wait - p.fixed
    most = np.broadcast_to(1 - p.smallest[:, None], slope.shape)
    falling = np.where(time >= slope * most, most, 0.0)
    return np.where(slope > 0, np.clip(time / np.where(slope > 0, slope, 1.0), 0, most), falling)


@dataclass(frozen=True, eq=False)
class Took:
    """(L,) seconds from when all that a layer reads is there, at least; 0 where it would be less, see ``given_back``.

    whole: until it can be read as a whole; made: until all of it is made; part: until some part of it is
    """

    whole: Floats
    made: Floats
    part: Floats


def took(g: GraphArrays, p: Parts, w: Wires, splits: int) -> Took:
    """Of each layer, whole or in parts, whichever is sooner."""
    alone = np.maximum(critical(p), 0)
    divisible = p.smallest < 1
    if not divisible.any():
        return Took(alone, alone, alone)
    ends = (p.fixed + (p.slope - p.saved) * share[:, None] for share in (p.smallest, 1 - p.smallest))
    smallest = np.minimum(*ends).min(axis=1)
    in_parts = (_soonest_parts(p, splits, m) for m in (_moves(g, p, w), Moves.none(p)))
    return Took(*(np.where(divisible, np.clip(sooner, 0, alone), alone) for sooner in (*in_parts, smallest)))


def done(g: GraphArrays, p: Parts, w: Wires, splits: int) -> Floats:
    """(L,) seconds until a layer can be read as a whole, at least, but for what layers before it have given back."""
    takes = took(g, p, w, splits)
    whole, made = takes.whole.copy(), takes.made.copy()
    for edge, maker, reader in edges(g):
        if p.smallest[maker] < 1 and partly(g, p, edge, reader):
            whole[reader] = max(whole[reader], made[maker] + takes.part[reader])
            made[reader] = max(made[reader], made[maker] + takes.part[reader])
        else:
            whole[reader] = max(whole[reader], whole[maker] + takes.whole[reader])
            made[reader] = max(made[reader], whole[maker] + takes.made[reader])
    return whole


def partly(g: GraphArrays, p: Parts, edge: int, layer: int) -> bool:
    """Whether a part of a layer may need a part only of what comes over an edge."""
    return bool(p.smallest[layer] < 1 and g.edge_need[edge, CHANNELS, 0] >= 0)


def _moves(g: GraphArrays, p: Parts, w: Wires) -> Moves:
    """What parts send and receive at least, where everything they read is whole on one device."""
    m = Moves.none(p)
    for layer in np.flatnonzero(p.smallest < 1).tolist():
        task, tensor = g.n_inputs + layer, g.tensor_ptr[g.n_inputs + layer]
        for edge in range(g.edge_ptr[task], g.edge_ptr[task + 1]):
            read = g.edge_tensor[edge]
            maker = g.tensor_task[read] - g.n_inputs
            if not partly(g, p, edge, layer) and (maker < 0 or p.smallest[maker] == 1):
                m.before[layer] = np.maximum(m.before[layer], least(w.into, g.tensor_bytes[read]))
        if g.use_ptr[tensor + 1] > g.use_ptr[tensor]:
            m.after[layer], m.share[layer] = w.out[:, 0], w.out[:, 1] * g.tensor_bytes[tensor]
    return m
