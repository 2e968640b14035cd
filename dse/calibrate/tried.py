"""Runs on several devices against what is predicted of them: how far a calibration is off where it matters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from statistics import fmean
from typing import NamedTuple

import numpy as np

from dse.calibrate.command import Lab, Measured
from dse.calibrate.measure import WARMUP, Job
from dse.calibrate.results import Result
from model.cluster.coefficients import Coefficients, FrameError, UnitCost
from model.cluster.platform import Platform
from model.cost.ledger import BUSY
from model.cost.samples import Run
from model.simulator.simulated import simulated


class Figure(NamedTuple):
    """A time that was predicted and measured. what: a field of ``FrameError``"""

    what: str
    predicted_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """Relative; less than 0 where it takes longer than predicted."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True)
class Tried:
    """A network on several devices, simulated, and measured in the mean of all turns.

    messages: of a frame; figures: of a frame alone, of a stream if there was one, and of what those processors computed
    that told
    """

    network: str
    devices: int
    messages: int
    figures: tuple[Figure, ...]


def tried(lab: Lab, found: Measured, calibrated: Platform) -> list[Tried]:
    """All runs on several devices, by the platform that came of them."""
    return [_tried(runs, job, calibrated) for runs, job in zip(found.turns, lab.together(0), strict=True)]


def _tried(runs: Sequence[Run], job: Job, calibrated: Platform) -> Tried:
    periods = [run.period_s for run in runs if run.period_s is not None]
    telling = frozenset.intersection(*(run.telling for run in runs))
    computed = [sum(s.busy_s or 0.0 for s in run.samples if s.device in telling) for run in runs] if telling else []
    stream, frames = bool(periods), len(runs[0].latencies_s)
    graph, mapping = job.subject.cnn.graph, job.design.mapping
    found = simulated(graph, calibrated, mapping, frames if stream else 1, WARMUP if stream else 0).price
    tells = [device.name in telling for device in calibrated.devices]
    predicted = (found.latency_s, found.period_s, float(found.account[tells, BUSY].sum()))
    measured = ([run.time_s for run in runs], periods, computed)
    figures = [
        Figure(each.name, said, fmean(seen))
        for each, said, seen in zip(fields(FrameError), predicted, measured, strict=True)
        if seen
    ]
    return Tried(graph.name, len(runs[0].ranks), len(runs[0].arrivals), tuple(figures))


def corrected(made: Result, tests: Sequence[Tried], apart: float) -> Result:
    """With errors of frames to expect: the mean of what one device was off by, held out, and of each test; and that
    times are others minutes later. What messages cost was fitted to the tests, too. apart: by so much, relative
    """
    return replace(made, sets=tuple(_corrected(each, tests, apart) for each in made.sets))


def _corrected(found: Coefficients, tests: Sequence[Tried], apart: float) -> Coefficients:
    return replace(found, units={name: _told(unit, tests, apart) for name, unit in found.units.items()})


def _told(unit: UnitCost, tests: Sequence[Tried], apart: float) -> UnitCost:
    off = {name: {what: [alone] for what, alone in asdict(error).items()} for name, error in unit.frame_errors.items()}
    for test in tests:
        for figure in test.figures if test.network in off else ():
            off[test.network][figure.what].append(abs(figure.error))
    return replace(unit, frame_errors={name: _mean(errors, apart) for name, errors in off.items()})


def _mean(errors: Mapping[str, Sequence[float]], apart: float) -> FrameError:
    return FrameError(**{what: float(np.hypot(np.mean(each), apart)) for what, each in errors.items()})
