"""Runs on several devices against what is predicted of them: how far a calibration is off where it matters."""

from __future__ import annotations

from dataclasses import dataclass

from dse.calibrate.command import Lab, Measured
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
