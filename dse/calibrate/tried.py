"""Runs on several devices against what is predicted of them: how far a calibration is off where it matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dse.calibrate.command import Lab, Measured
from dse.calibrate.results import Result
from model.coefficients import Coefficients, UnitCost
from model.platform import Platform
from model.simulated import simulated


@dataclass(frozen=True)
class Tried:
    """A network on several devices. messages: of a frame; seconds of a frame alone, simulated and measured"""

    network: str
    devices: int
    messages: int
    predicted_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """Relative; less than 0 where it takes longer than predicted."""
        return self.predicted_s / self.measured_s - 1


def tried(lab: Lab, found: Measured, calibrated: Platform) -> list[Tried]:
    """All runs on several devices, by the platform that came of them."""
    jobs = {job.key: job for job in lab.together()}
    return [
        Tried(
            run.network,
            len(run.ranks),
            len(run.arrivals),
            simulated(jobs[run.key].subject.cnn.graph, calibrated, jobs[run.key].design.mapping, 1, 0).price.latency_s,
            run.time_s,
        )
        for run in found.together
    ]


def corrected(made: Result, tests: Sequence[Tried]) -> Result:
    """With errors of frames to expect: the mean of what one device was off by, held out, and of each test."""
    return replace(made, sets=tuple(_corrected(each, tests) for each in made.sets))


def _corrected(found: Coefficients, tests: Sequence[Tried]) -> Coefficients:
    return replace(found, units={name: _told(unit, tests) for name, unit in found.units.items()})


def _told(unit: UnitCost, tests: Sequence[Tried]) -> UnitCost:
    errors = {
        network: float(np.mean([alone, *(abs(test.error) for test in tests if test.network == network)]))
        for network, alone in unit.frame_errors.items()
    }
    return replace(unit, frame_errors=errors)
