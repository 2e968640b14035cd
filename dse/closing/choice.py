"""Which mappings are worth a measurement: those that seem best, those that may be better, those that models dispute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from dse.evaluation import OBJECTIVES
from model.mappings.arrays import Floats

LATENCY, ENERGY, MEMORY = (OBJECTIVES.index(name) for name in ("latency_s", "energy_j", "memory_bytes"))


def choose(
    scores: Floats,
    deviation: Floats,
    dispute: Floats,
    objectives: Sequence[int],
    learnt: Sequence[int],
    free: NDArray[np.bool_],
    count: int,
) -> list[int]:
    """At most ``count`` of ``n`` mappings, by number, those that come first the most urgent.

    First the one with the lowest expected value of each objective: what would be shipped now, unless it is measured.
    Then in turn the one whose value may be the lowest (the expected value less one standard deviation, a lower
    confidence bound) of each objective that measurements tell of, and the one of which least is known: where the
    models are farthest apart, with the uncertainty of what corrects them.

    scores: (n, 4) expected; deviation: (n, 4) relative; dispute: (n,) of the latency, relative
    objectives: columns that are searched for; learnt: of these the ones that can be measured
    free: (n,) which may be chosen
    """
    picks: list[int] = []
    for best in (int(np.argmin(scores[:, k])) for k in objectives):
        if free[best] and best not in picks:
            picks.append(best)
    bounds = scores * np.exp(-deviation)
    unknown = dispute + deviation[:, LATENCY]
    orders = [np.argsort(bounds[:, k], kind="stable") for k in learnt] + [np.argsort(-unknown, kind="stable")]
    for order in _turns(orders, len(scores)):
        if len(picks) >= min(count, int(free.sum())):
            break
        picks += [int(i) for i in order if free[i] and i not in picks][:1]
    return picks[:count]


def _turns(orders: list[NDArray[np.intp]], times: int) -> Iterator[NDArray[np.intp]]:
    for order, _ in zip(cycle(orders), range(times * len(orders)), strict=False):
        yield order


def dispute(analytical: Floats, simulated: Floats) -> Floats:
    """(n,) how far two models' ``(n, 4)`` scores are apart in the latency, as the logarithm of a ratio."""
    return np.asarray(np.abs(np.log(simulated[:, LATENCY] / analytical[:, LATENCY])))
