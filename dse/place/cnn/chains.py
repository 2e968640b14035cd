"""The best way to cut a network into stretches, each on a device of its own: dynamic programming over where the network
is cut and how many devices of each kind are taken.

PipeDream's program (Narayanan et al., 2019) with kinds of devices, whose stages are those of Tarnawski et al. (2020,
section 5.1.1) along one topological order: the order that every program of a bundle follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.compiled import kernel
from model.mappings.arrays import Floats

Stages = list[tuple[int, int, int]]
"""Of a chain, in order: first cut, last cut, kind of the device."""


class Team(NamedTuple):
    """Every choice of so many devices of each kind. ``S`` choices, ``C`` kinds; the first choice is nobody.

    without: (S, C) the choice with one device less of a kind, -1: it has none; taken: (S,) how many devices
    """

    without: NDArray[np.int64]
    taken: NDArray[np.int64]


def team(counts: Sequence[int]) -> Team:
    """Of ``counts`` devices of each kind at most."""
    of = np.array(list(np.ndindex(*(count + 1 for count in counts))), dtype=np.int64)
    weight = np.concatenate((np.cumprod([count + 1 for count in counts[:0:-1]])[::-1], [1])).astype(np.int64)
    return Team(np.where(of > 0, np.arange(len(of))[:, None] - weight, -1), of.sum(axis=1))


def in_pairs(kinds: Team) -> Team:
    """The same choices, of devices alone and, as kinds after those, of two of a kind that work together."""
    once = kinds.without
    twice = np.where(once < 0, -1, np.take_along_axis(once, np.maximum(once, 0), axis=0))
    return Team(np.hstack([once, twice]), kinds.taken)


class Table(NamedTuple):
    """Best values of a choice of devices up to a cut, (S, m+1), and how: ``kind * (m + 1) + cut before``, -1: none."""

    value: Floats
    how: NDArray[np.int64]

    def stages(self, choice: int, kinds: Team) -> Stages:
        """How the whole network is cut."""
        found: Stages = []
        cuts = self.value.shape[1]
        at = cuts - 1
        while at > 0:
            kind, before = divmod(int(self.how[choice, at]), cuts)
            found.append((before, at, kind))
            choice, at = int(kinds.without[choice, kind]), before
        return found[::-1]

    def best(self, kinds: Team) -> Iterator[Stages]:
        """For each number of devices the best chain, where there is one."""
        for taken in range(1, int(kinds.taken.max()) + 1):
            choices = np.flatnonzero(kinds.taken == taken)
            choice = int(choices[np.argmin(self.value[choices, -1])])
            if np.isfinite(self.value[choice, -1]):
                yield self.stages(choice, kinds)


def chains(cost: Floats, kinds: Team, add: bool) -> Table:
    """The least sum (``add``) or maximum of the ``cost`` (C, m+1, m+1) of stretches, inf where one is not possible."""
    shape = len(kinds.taken), cost.shape[1]
    table = Table(np.full(shape, np.inf), np.full(shape, -1, dtype=np.int64))
    table.value[0, 0] = 0.0
    _fill(cost, kinds.without, add, table.value, table.how)
    return table


@kernel()
def _fill(cost: Floats, without: NDArray[np.int64], add: bool, value: Floats, how: NDArray[np.int64]) -> None:
    choices, cuts = value.shape
    for choice in range(1, choices):
        for kind in range(without.shape[1]):
            rest = without[choice, kind]
            if rest < 0:
                continue
            for a in range(cuts - 1):
                so_far = value[rest, a]
                if so_far == np.inf:
                    continue
                for b in range(a + 1, cuts):
                    found = so_far + cost[kind, a, b] if add else max(so_far, cost[kind, a, b])
                    if found < value[choice, b]:
                        value[choice, b] = found
                        how[choice, b] = kind * cuts + a


def soonest(
    seconds: Floats, until: Floats, arrives: Floats, ready: Floats, rest: Floats, kinds: Team, limit: float
) -> Table:
    """When a stretch could begin at the soonest, if everything is to be done by ``limit`` seconds.

    seconds, until: of ``Stretches``; arrives: (m+1,) seconds until the result of the layer that is read last is there
    ready: (m+1,) seconds before which the layer behind a cut cannot begin; rest: (m+1,) that follow the one before it
    """
    shape = len(kinds.taken), len(ready)
    table = Table(np.full(shape, np.inf), np.full(shape, -1, dtype=np.int64))
    table.value[0, 0] = 0.0
    _hurry(seconds, until, arrives, ready, rest, kinds.without, limit, table.value, table.how)
    return table


@kernel()
def _hurry(
    seconds: Floats,
    until: Floats,
    arrives: Floats,
    ready: Floats,
    rest: Floats,
    without: NDArray[np.int64],
    limit: float,
    value: Floats,
    how: NDArray[np.int64],
) -> None:
    choices, cuts = value.shape
    for choice in range(1, choices):
        for kind in range(without.shape[1]):
            before = without[choice, kind]
            if before < 0:
                continue
            for a in range(cuts - 1):
                begins = value[before, a]
                if begins > limit:
                    continue
                for b in range(a + 1, cuts):
                    if begins + seconds[kind, a, b] + rest[b] > limit:
                        continue
                    found = ready[b]
                    if until[kind, a, b] > 0:
                        found = max(found, begins + until[kind, a, b] + arrives[b])
                    if found < value[choice, b]:
                        value[choice, b] = found
                        how[choice, b] = kind * cuts + a
