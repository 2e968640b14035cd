"""Runs as they would have been on processors as fast as they usually were during the calibration.

What a clock, the temperature or other programs on a machine do for a minute would else be taken for a property of the
kernels that were measured in that minute. ``runtime.yardstick`` beside each run tells how fast its processor was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import copysign, exp, log
from statistics import median

from model.samples import Run

ITSELF = 0.03
"""By so much, relative, yardsticks vary while kernels do not."""
YARDSTICKS = "yardsticks_s"
"""In ``Coefficients.measured``: unit → seconds of the yardstick on its usual processor."""


def usual_s(runs: Iterable[Run]) -> dict[str, float]:
    """Device → seconds of its yardstick, the median of its runs; without devices that told none."""
    found = defaultdict[str, list[float]](list)
    for rank in (rank for run in runs for rank in run.ranks):
        if rank.yardstick_s:
            found[rank.device].append(rank.yardstick_s)
    return {device: median(times_s) for device, times_s in found.items()}


def slower(run: Run, usual: Mapping[str, float]) -> dict[str, float]:
    """Device → how many times as long its processor took as usually; without devices of which that is not known."""
    known = [(rank.device, rank.yardstick_s) for rank in run.ranks if rank.yardstick_s]
    return {device: ratio(time_s, usual[device]) for device, time_s in known if device in usual}


def ratio(now_s: float, usual_s: float) -> float:
    """How many times as long a yardstick takes as usually, as far as that is more than it varies by itself."""
    off = log(now_s / usual_s)
    return exp(copysign(max(0.0, abs(off) - ITSELF), off))


def as_usual(runs: Iterable[Run], usual: Mapping[str, float]) -> list[Run]:
    """Runs, the seconds of each segment divided by how much slower its processor was than usual."""
    return [_as_usual(run, slower(run, usual)) for run in runs]


def _as_usual(run: Run, by: Mapping[str, float]) -> Run:
    return replace(run, samples=tuple(sample.scaled(1 / by.get(sample.device, 1.0)) for sample in run.samples))
