"""How far predictions of segments are off that the fit has not seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from model.cluster.coefficients import UnitCost
from model.cost.samples import Run
from model.cost.segment_time import Clock, Network
from model.fit.kinds import relative_error
from model.fit.segments import TELLING, pace

FOLDS = 5

Fit = Callable[[Mapping[str, Network], Sequence[Run]], UnitCost]


@dataclass(frozen=True)
class Score:
    """Errors of a network's times, relative, each of all the time together; None: there is nothing to tell it by.

    fitted:   of the segments that the fit has seen
    held_out: of segments of several layers whose runs it has not seen; it has seen layers alone
    frame:    of all segments of such a run together, mean over runs
    """

    fitted: float
    held_out: float | None
    frame: float | None


@dataclass(frozen=True)
class Judged:
    """A run, predicted. Seconds of its segments, and how many parts each has."""

    run: Run
    predicted: tuple[float, ...]
    seconds: tuple[float, ...]
    parts: tuple[int, ...]

    @property
    def pace(self) -> float | None:
        """By how much all of the run was slower than expected; None: it has too few segments to tell."""
        return pace(np.array(self.predicted), np.array(self.seconds)) if len(self.seconds) >= TELLING else None

    @property
    def frame_error(self) -> float:
        """Of all segments together."""
        return abs(sum(self.predicted) / sum(self.seconds) - 1)


def judged(network: Network, run: Run, unit: UnitCost) -> Judged:
    """A run as a unit's coefficients predict it."""
    clock, divided = Clock(network, unit), network.divided(part for sample in run.samples for part in sample.parts)
    return Judged(
        run,
        tuple(clock.seconds(sample.parts, divided) for sample in run.samples),
        tuple(sample.time_s for sample in run.samples),
        tuple(len(sample.parts) for sample in run.samples),
    )


def scores(networks: Mapping[str, Network], runs: Sequence[Run], unit: UnitCost, fit: Fit) -> dict[str, Score]:
    """A score of each network. unit: what ``fit`` makes of all runs"""
    held_out = cross_validated(networks, runs, fit)
    found = {}
    for name, network in networks.items():
        mine = [each for each in held_out if each.run.network == name]
        fitted = error_of([judged(network, run, unit) for run in runs if run.network == name])
        frames = [each.frame_error for each in mine]
        found[name] = Score(fitted or 0.0, error_of(mine, 2), float(np.mean(frames)) if frames else None)
    return found


def paces(networks: Mapping[str, Network], runs: Sequence[Run], unit: UnitCost) -> dict[str, float]:
    """By key of a run, by how much all of it was slower than a unit's coefficients say; runs with enough segments."""
    found = {run.key: judged(networks[run.network], run, unit).pace for run in runs}
    return {key: pace for key, pace in found.items() if pace is not None}


def error_of(runs: Sequence[Judged], least: int = 1) -> float | None:
    """Relative error of segments of at least so many parts; None: there are none."""
    pairs = [
        (predicted, seconds)
        for run in runs
        for predicted, seconds, parts in zip(run.predicted, run.seconds, run.parts, strict=True)
        if parts >= least
    ]
    return relative_error(*np.array(pairs).T) if pairs else None


def cross_validated(networks: Mapping[str, Network], runs: Sequence[Run], fit: Fit) -> list[Judged]:
    """Runs with segments of several layers, each predicted by a fit that has not seen these.

    What a run tells about layers alone is left in: that is the table, which no other run could make up for.
    """
    telling = [k for k, run in enumerate(runs) if any(len(sample.parts) > 1 for sample in run.samples)]
    folds = [set(telling[first::FOLDS]) for first in range(min(FOLDS, len(telling)))] if len(telling) > 1 else []
    found = []
    for fold in folds:
        unit = fit(networks, [_alone(run) if k in fold else run for k, run in enumerate(runs)])
        found += [judged(networks[runs[k].network], runs[k], unit) for k in sorted(fold)]
    return found


def _alone(run: Run) -> Run:
    return replace(run, samples=tuple(sample for sample in run.samples if len(sample.parts) == 1))
