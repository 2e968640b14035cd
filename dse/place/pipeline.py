"""The best pipeline of a graph: each device runs one stretch of it, and the largest load is least.

Any graph, classes of devices and links that ``Reduced`` can tell. ``linear`` is the same on a path, which bounds the
search and answers where there is no time for it; ``period`` is what workloads are split with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse.place import stages
from dse.place.ideals import Lattice, ideals
from dse.place.reduced import Reduced
from dse.place.split import MODES, SUM
from model.mappings.arrays import Floats, Ints
from runtime.errors import CleaveError

PAIRS = 2_000_000
"""Pairs of ideals between two looks at the clock."""
PARTS = (0.5, 0.75, 0.875, 0.9375)
"""Of the way from what no split is better than to what is known: where searches stop one after the other."""
MOST_BYTES = 2 << 30
"""Of ideals and their states together."""

Watch = Callable[[int, int], bool]
"""Told how much of how much is done, 0 of 0 while ideals are counted; whether to go on."""


def _always(_done: int, _of: int) -> bool:
    return True


Stage = tuple[int, int, NDArray[np.intp]]
"""Class of devices, how many of them share it, its nodes."""


@dataclass(frozen=True)
class Rules:
    """How devices work. mode: of ``split.MODES``; bandwidth: bytes per unit of time by which copies of a stage keep
    their weights equal, None: a stage has one device"""

    mode: str = SUM
    bandwidth: float | None = None


ALONE = Rules()
"""Each stage on one device, which transfers and computes in turn."""


@dataclass(frozen=True, eq=False)
class Found:
    """value: largest load, inf: no split was found that is better than what was known; bound: none is better than that;
    stages: class, copies and nodes of each, in order; ideals: how many, 0: not known; complete: whether all of them
    were looked at; crowded: not, as they are too many"""

    value: float
    bound: float
    stages: list[Stage]
    ideals: int
    complete: bool
    crowded: bool = False


def best(on: Reduced, rules: Rules = ALONE, under: float = np.inf, watch: Watch = _always) -> Found:
    """The split with the smallest largest load, if that is less than ``under``.

    ``CleaveError`` where there are too many devices.
    """
    _check_devices(on, rules)
    of = ideals(len(on), on.edge, most_ideals(on, rules), lambda _: watch(0, 0))
    if of is None:
        return Found(np.inf, min(floor(on, rules), under), [], 0, False, crowded=watch(0, 0))
    program = costs(on, rules)
    bound = min(floor(on, rules), under)
    table = None
    for limit in _limits(bound, under):
        del table  # before there is another one
        table = _table(len(of), len(program.used), limit)
        complete = _swept(program, of, table, watch)
        value, found = _read(program, of, table)
        bound = min(value, limit) if complete else bound
        if found or not complete:
            break
    return Found(value, bound, found, len(of), complete)


def _limits(bound: float, under: float) -> Iterator[float]:
    """Values that a search is to stay under, one after the other until something is found.

    The nearer to the best value it is, the less there is to search; and where nothing is found, it is a bound.
    """
    for part in PARTS:
        yield bound + part * (under - bound) if np.isfinite(under) else bound / (1 - part)
    yield under


def floor(on: Reduced, rules: Rules = ALONE) -> float:
    """What no split is better than: all work shared without a gap, that of one class alone, the longest node."""
    weight, work = weights(on)
    there, runs = on.counts > 0, np.isfinite(on.time)
    alone = runs & (runs[:, there].sum(axis=1) == 1)[:, None]
    own = np.where(alone, on.time, 0.0).sum(axis=0)[there] / on.counts[there]
    copies = 1 if rules.bandwidth is None else np.maximum(1, on.counts)
    longest = np.where(there, on.time / copies, np.inf).min(axis=1)
    return float(max(work.sum() / (weight * on.counts).sum(), own.max(initial=0.0), longest.max(initial=0.0)))


def _swept(on: stages.Costs, of: Lattice, table: stages.Table, watch: Watch) -> bool:
    walk, at, end = stages.walk(on), 0, len(of) - 1
    while at < end:
        at, _ = stages.sweep(on, of, table, walk, at, PAIRS)
        if at < end and not watch(at, end):
            return False
    return True


def _read(on: stages.Costs, of: Lattice, table: stages.Table) -> tuple[float, list[Stage]]:
    """The value and the stages of the best whole split."""
    ideal, cell = len(of) - 1, int(np.argmin(table.value[-1]))
    value, found = float(table.value[ideal, cell]), []
    while ideal and np.isfinite(value):
        below, number = int(table.below[ideal, cell]), int(table.stage[ideal, cell])
        copies, of_class = number // len(on.counts) + 1, number % len(on.counts)
        found.append((of_class, copies, of.between(below, ideal)))
        ideal, cell = below, cell - copies * int(on.stride[of_class])
    return value, found[::-1]


def _table(ideals: int, cells: int, under: float) -> stages.Table:
    value = np.full((ideals, cells), np.inf)
    value[0, 0] = 0.0
    below, stage = np.zeros((ideals, cells), dtype=np.int32), np.zeros((ideals, cells), dtype=np.int16)
    return stages.Table(value, below, stage, np.array([under]))


def most_ideals(on: Reduced, rules: Rules) -> int:
    """Ideals that there is memory for: members, hashes and steps while they are found; values of states."""
    fixed, each = _bytes(on, rules)
    return max(0, MOST_BYTES - fixed) // (2 * (len(on) // 8 + 64) + each)


def _bytes(on: Reduced, rules: Rules) -> tuple[int, int]:
    """Of states: those that a walk lists, and those of an ideal."""
    counts = _counts(on, rules).tolist()
    cells, copies = math.prod(count + 1 for count in counts), _copies(on, rules)
    return cells * (9 + len(counts) * (4 + 12 * copies)), 14 * cells


def _check_devices(on: Reduced, rules: Rules) -> None:
    """``CleaveError`` where there is no memory for states of as many ideals as a path has, the least there can be."""
    fixed, each = _bytes(on, rules)
    if fixed + each * (len(on) + 1) > MOST_BYTES:
        way = "take --method local-search" if rules.bandwidth is None else "leave --replicate out"
        raise CleaveError(
            f"{on.counts.sum():,} devices are too many: there is no memory for a table of all numbers of them that "
            f"could be in use; take fewer, or {way}"
        )


def _counts(on: Reduced, rules: Rules) -> Ints:
    """Devices of each class that can be of use."""
    return on.counts if rules.bandwidth else np.minimum(on.counts, len(on)).astype(np.int32)


def _copies(on: Reduced, rules: Rules) -> int:
    """Devices that a stage can have."""
    return 1 if rules.bandwidth is None else max(1, int(on.counts.max()))


def costs(on: Reduced, rules: Rules) -> stages.Costs:
    """It, as the kernels want it."""
    counts = _counts(on, rules)
    used = np.ascontiguousarray(np.indices((counts + 1).tolist(), dtype=np.int32).reshape(len(counts), -1).T)
    stride = np.array([np.prod(counts[c + 1 :] + 1, dtype=np.int64) for c in range(len(counts))], dtype=np.int32)
    outside = np.zeros(len(on.source), dtype=np.int32) if on.outside is None else on.outside
    net_ptr, net = _by_node(on)
    return stages.Costs(
        np.ascontiguousarray(on.time),
        on.size,
        np.ascontiguousarray(on.cost),
        on.source,
        counts,
        on.memory,
        np.diff(on.pin_ptr) + outside,
        outside,
        net_ptr,
        net,
        used,
        stride,
        *weights(on),
        MODES.index(rules.mode),
        0.0 if rules.bandwidth is None else 1 / rules.bandwidth,
        _copies(on, rules),
    )


def _by_node(on: Reduced) -> tuple[Ints, Ints]:
    net = np.repeat(np.arange(len(on.source), dtype=np.int32), np.diff(on.pin_ptr))
    order = np.argsort(on.pin, kind="stable")
    pointers = np.concatenate([[0], np.cumsum(np.bincount(on.pin, minlength=len(on)))])
    return pointers.astype(np.int32), net[order]


def weights(on: Reduced) -> tuple[Floats, Floats]:
    """Weights of a second of each class, and the least weighted time of each node.

    Devices that do at most T each do at most T times the sum of their weights, whatever the weights are. That is least
    when a class that is slower by some factor weighs less by it.
    """
    there = on.counts > 0
    on_all = np.isfinite(on.time[:, there]).all(axis=1)
    total = on.time[on_all].sum(axis=0)
    fastest = total[there].min(initial=np.inf)
    weight = np.ones(len(on.counts))
    if np.isfinite(fastest) and fastest > 0:
        weight[there] = fastest / total[there]
    return weight, (on.time[:, there] * weight[there]).min(axis=1, initial=np.inf)
