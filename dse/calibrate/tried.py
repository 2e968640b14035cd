"""Runs on several devices against what is predicted of them: how far a calibration is off where it matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

import numpy as np

from dse.calibrate.command import Lab, Measured
from dse.calibrate.measure import WARMUP, Job
from dse.calibrate.results import Result
from model.cluster.coefficients import Coefficients, UnitCost
from model.cluster.platform import Platform
from model.cost.samples import Run
from model.simulator.simulated import simulated


class Figure(NamedTuple):
    """A time that was predicted and measured."""

    what: str
    predicted_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """Relative; less than 0 where it takes longer than predicted."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True)
class Tried:
    """A network on several devices. messages: of a frame

    predicted_s, measured_s: of a frame alone, simulated, and measured in the mean of all turns; predicted_period_s,
    measured_period_s: of a stream, None where there was none
    """

    network: str
    devices: int
    messages: int
    predicted_s: float
    measured_s: float
    predicted_period_s: float | None = None
    measured_period_s: float | None = None

    @property
    def error(self) -> float:
        """Relative; less than 0 where it takes longer than predicted."""
        return self.figures[0].error

    @property
    def period_error(self) -> float | None:
        """The same of the stream."""
        return self.figures[1].error if len(self.figures) > 1 else None

    @property
    def figures(self) -> list[Figure]:
        """Of a frame alone, and of the stream if there was one."""
        alone = Figure("latency", self.predicted_s, self.measured_s)
        if self.predicted_period_s is None or self.measured_period_s is None:
            return [alone]
        return [alone, Figure("period", self.predicted_period_s, self.measured_period_s)]


def tried(lab: Lab, found: Measured, calibrated: Platform) -> list[Tried]:
    """All runs on several devices, by the platform that came of them."""
    return [_tried(runs, job, calibrated) for runs, job in zip(found.turns, lab.together(0), strict=True)]


def _tried(runs: Sequence[Run], job: Job, calibrated: Platform) -> Tried:
    periods = [run.period_s for run in runs if run.period_s is not None]
    stream, frames = bool(periods), len(runs[0].latencies_s)
    graph, mapping = job.subject.cnn.graph, job.design.mapping
    found = simulated(graph, calibrated, mapping, frames if stream else 1, WARMUP if stream else 0).price
    return Tried(
        network=graph.name,
        devices=len(runs[0].ranks),
        messages=len(runs[0].arrivals),
        predicted_s=found.latency_s,
        measured_s=fmean(run.time_s for run in runs),
        predicted_period_s=found.period_s if stream else None,
        measured_period_s=fmean(periods) if stream else None,
    )


def corrected(made: Result, tests: Sequence[Tried], apart: float) -> Result:
    """With errors of frames to expect: the mean of what one device was off by, held out, and of each test; and that
    times are others minutes later. apart: by so much, relative
    """
    return replace(made, sets=tuple(_corrected(each, tests, apart) for each in made.sets))


def _corrected(found: Coefficients, tests: Sequence[Tried], apart: float) -> Coefficients:
    return replace(found, units={name: _told(unit, tests, apart) for name, unit in found.units.items()})


def _told(unit: UnitCost, tests: Sequence[Tried], apart: float) -> UnitCost:
    off: dict[str, list[float]] = {network: [alone] for network, alone in unit.frame_errors.items()}
    for test in tests:
        if test.network in off:
            off[test.network] += [abs(figure.error) for figure in test.figures]
    return replace(unit, frame_errors={net: float(np.hypot(np.mean(errors), apart)) for net, errors in off.items()})
