"""The critical path of a simulation: what its end was waiting for, and what that was waiting for, back to the start.

A task begins when the last thing that it needs happens: a task before it ends, or has run for its lag; or its resource
is done with the task before it in the queue. Walking back from the end along whatever that was gives a chain without
a gap, whose length is that of the simulation; nothing else has to be faster for it to end earlier.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.simulator.events import State, Tasks

Rows = NDArray[np.int64]
NOTHING = -1


class Stretch(NamedTuple):
    """A part of the path: ``row`` (see ``State``) held up the end from ``start`` to ``stop``, when the next one began.

    lag: that was when its lag was over, not its end
    """

    row: int
    start: int
    stop: int
    lag: bool


class Causes:
    """What each of the first ``n`` tasks of some simulated frames waited for. Times must be ticks: sums are exact."""

    def __init__(self, t: Tasks, n: int, frames: int, state: State) -> None:
        self._n, self._start, self._stop, self._lag = n, state.start, state.stop, t.lag
        self._resource = t.resource
        self._order = state.order[: n * frames].astype(np.int64)
        self._ended = np.argsort(self._order)
        self._before = _edges_by_target(t, n)
        self._served = _by_resource(t, n, self._order)

    def path(self, since: int = 0) -> list[Stretch]:
        """From ``since``, a time, to the end; in the order of time. What began before is cut off there."""
        found: list[Stretch] = []
        row, stop, lag = int(self._order[-1]), int(self._stop[self._order[-1]]), False
        while row >= 0 and stop > since:
            start = int(self._start[row])
            found.append(Stretch(row, max(start, since), stop, lag))
            row, lag = self._cause(row)
            stop = start
        return found[::-1]

    def _cause(self, row: int) -> tuple[int, bool]:
        """The row that let one begin, and whether by its lag; where several did, one that it needs comes first."""
        frame, task = divmod(row, self._n)
        pointers, sources, distances = self._before
        for edge in range(pointers[task], pointers[task + 1]):
            source, earlier = int(sources[edge]), frame - int(distances[edge])
            other, lag = source + earlier * self._n, bool(self._lag[source] >= 0)
            if earlier >= 0 and self._released(other, source, lag) == self._start[row]:
                return other, lag
        return self._ahead(row, int(self._resource[task])), False

    def _released(self, row: int, task: int, lag: bool) -> int:
        """When a row let go on what needs it."""
        return int(self._start[row] + self._lag[task] if lag else self._stop[row])

    def _ahead(self, row: int, resource: int) -> int:
        """The row that a resource served until it began with this one."""
        if resource >= 0:
            rows = self._served[resource]
            at = int(np.searchsorted(self._ended[rows], self._ended[row])) - 1
            while at >= 0 and self._stop[rows[at]] >= self._start[row]:
                if self._stop[rows[at]] == self._start[row]:
                    return int(rows[at])
                at -= 1
        return NOTHING


def _edges_by_target(t: Tasks, n: int) -> tuple[Rows, Rows, Rows]:
    """Pointers ``(n + 1,)``, then for each edge where it comes from and its distance, by the task that it goes to."""
    first = t.first[: n + 1].astype(np.int64)
    source = np.repeat(np.arange(n), np.diff(first))
    target, distance = t.to[: first[-1]].astype(np.int64), t.distance[: first[-1]].astype(np.int64)
    by_target = np.argsort(target, kind="stable")
    by_target = by_target[target[by_target] >= 0]
    pointers = np.searchsorted(target[by_target], np.arange(n + 1))
    return pointers.astype(np.int64), source[by_target], distance[by_target]


def _by_resource(t: Tasks, n: int, order: Rows) -> list[Rows]:
    """The rows of each resource in the order in which they ended."""
    resource = t.resource[:n][order % n]
    return [order[resource == k] for k in range(len(t.lanes))]
