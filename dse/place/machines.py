"""Pipelines over machines: links within one are faster than those between (appendix C.3).

Machines are alike and each runs a stretch of the graph, on devices that each run a stretch of that. What a device pays
for a net depends on what else its machine has, so the program is one over stretches: those of machines, and for each
the best pipeline of its devices, in which nets that lead out of it are cut wherever they are touched.

Two things make that short. Links between machines are no faster than those within, so the best split of one large
machine bounds all. And that split, its stages dealt to machines as they come, is one to be better than.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dse.place.ideals import Lattice, ideals
from dse.place.pipeline import Found, Rules, Stage, Watch, best, most_ideals, weights
from dse.place.reduced import Reduced
from dse.place.workload import MARGIN
from model.mappings.arrays import Floats, Ints


@dataclass(frozen=True)
class Machines:
    """count: how many, of the same devices each; slow: how many times as long a transfer between two of them takes"""

    count: int
    slow: float


Dealt = list[list[Stage]]
"""Stages of each machine, in order."""


def dealt(on: Reduced, found: list[Stage], machines: Machines) -> Dealt | None:
    """Stages dealt to machines as they come; none where that takes more machines than there are."""
    each, rows = on.counts // machines.count, list[list[Stage]]()
    left = np.zeros_like(each)
    for stage in found:
        if left[stage[0]] == 0:
            rows.append([])
            left = each.copy()
        if left[stage[0]] == 0 or len(rows) > machines.count:
            return None
        rows[-1].append(stage)
        left[stage[0]] -= 1
    return rows


def devices(on: Reduced, rows: Dealt, machines: Machines) -> Ints:
    """(n,) devices of nodes."""
    each, first = on.counts // machines.count, np.cumsum(on.counts) - on.counts
    found = np.empty(len(on), dtype=np.int32)
    for machine, row in enumerate(rows):
        free = first + machine * each
        for kind, _, nodes in row:
            found[nodes] = free[kind]
            free[kind] += 1
    return found


def stretch(on: Reduced, here: NDArray[np.bool_], machines: Machines) -> Reduced:
    """What one machine runs, on its devices. here: (n,) whether it has a node"""
    rank = np.cumsum(here) - 1
    nets = list(_nets(on, here, machines.slow))
    return replace(
        on,
        edge=rank[on.edge[here[on.edge].all(axis=1)]].astype(np.int32),
        time=on.time[here],
        size=on.size[here],
        cost=np.array([cost for _, _, cost, _ in nets]).reshape(-1, len(on.counts)),
        source=np.array([rank[source] if source >= 0 else -1 for source, *_ in nets], dtype=np.int32),
        pin_ptr=np.cumsum([0, *[len(pins) for _, pins, _, _ in nets]], dtype=np.int32),
        pin=np.array([rank[pin] for _, pins, _, _ in nets for pin in pins], dtype=np.int32),
        counts=on.counts // machines.count,
        outside=np.array([outside for *_, outside in nets], dtype=np.int32),
    )


def _nets(on: Reduced, here: NDArray[np.bool_], slow: float) -> Iterator[tuple[int, list[int], Floats, int]]:
    """Source (-1: elsewhere), nodes, cost, and whether others are elsewhere, of nets within and of those in or out."""
    for net, source in enumerate(on.source.tolist()):
        pins = on.pin[on.pin_ptr[net] : on.pin_ptr[net + 1]]
        inside, cost = pins[here[pins]].tolist(), on.cost[net]
        if here[source] and len(inside) > 1:
            yield source, inside, cost, 0
        if here[source] and len(inside) < len(pins):
            yield source, [source], cost * slow, 1
        if not here[source] and inside:
            yield -1, inside, cost * slow, 1


def spread(on: Reduced, machines: Machines, rules: Rules, under: float, watch: Watch) -> tuple[float, Dealt, bool]:
    """The best split over machines, if less than ``under`` (else inf): its value, and whether all were looked at."""
    of = ideals(len(on), on.edge, most_ideals(on, rules), lambda _: watch(0, 0))
    if of is None:
        return np.inf, [], False
    search = _Search(on, of, machines, rules, under, watch)
    complete = search.run()
    return (*search.answer(), complete)


class _Search:
    """The program over stretches of machines. value: (machines + 1, ideals) largest load with so many; below: of each
    the ideal before its last machine, and that one's stages; known: of stretches, under what limit they were searched
    """

    def __init__(self, on: Reduced, of: Lattice, machines: Machines, rules: Rules, under: float, watch: Watch) -> None:
        self._on, self._of, self._machines, self._rules = on, of, machines, rules
        self._under, self._watch = under, watch
        weight, work = weights(on)
        self._work = np.array([work[of.between(0, k)].sum() for k in range(len(of))])
        self._rate = float((weight * on.counts).sum()) / machines.count * MARGIN
        self._value = np.full((machines.count + 1, len(of)), np.inf)
        self._value[0, 0] = 0.0
        self._below: dict[tuple[int, int], tuple[int, list[Stage]]] = {}
        self._known: dict[tuple[int, int], tuple[float, Found]] = {}

    def run(self) -> bool:
        """Whether it came to its end."""
        count = self._machines.count
        for used in range(count):
            starts = np.flatnonzero(self._value[used] < self._under).tolist()
            for k, low in enumerate(starts):
                for high in self._ends(used, low):
                    if not self._watch(used * len(starts) + k, count * len(starts)):
                        return False
                    self._step(used, low, high)
        return True

    def answer(self) -> tuple[float, Dealt]:
        """The best value, and the stages of each machine."""
        ideal, used, rows = len(self._of) - 1, int(np.argmin(self._value[:, -1])), Dealt()
        value = float(self._value[used, ideal])
        while used and np.isfinite(value):
            ideal, row = self._below[used, ideal]
            rows.append(row)
            used -= 1
        return value, rows[::-1]

    def _ends(self, used: int, low: int) -> list[int]:
        """Ideals that the next machine could reach, with no more left than those after it can do."""
        after = self._machines.count - used - 1
        most = self._under * self._rate
        near = self._work - self._work[low] <= most
        near[: low + 1] = False
        if after:
            near &= self._work[-1] - self._work <= most * after
        else:
            near[:-1] = False
        above = np.flatnonzero(near)
        missing = self._of.member[low] & ~self._of.member[above]
        return above[~missing.any(axis=1)].tolist()

    def _step(self, used: int, low: int, high: int) -> None:
        start, limit = self._value[used, low], min(self._under, self._value[used + 1, high])
        if start >= limit:
            return
        found = self._stretch(low, high, limit)
        value = max(start, found.value)
        if value < limit:
            self._value[used + 1, high] = value
            self._below[used + 1, high] = low, self._named(found, low, high)
            if high == len(self._of) - 1:
                self._under = value

    def _stretch(self, low: int, high: int, limit: float) -> Found:
        """The best pipeline of a machine, as far as that is less than a limit."""
        under, found = self._known.get((low, high), (-1.0, None))
        if found is None or (not found.stages and under < limit):
            here = np.zeros(len(self._on), dtype=np.bool_)
            here[self._of.between(low, high)] = True
            found = best(stretch(self._on, here, self._machines), self._rules, limit)
            self._known[low, high] = limit, found
        return found

    def _named(self, found: Found, low: int, high: int) -> list[Stage]:
        nodes = self._of.between(low, high)
        return [(kind, copies, nodes[inside]) for kind, copies, inside in found.stages]
