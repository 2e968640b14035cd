"""What was run more than once, minutes apart, and which of it counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, count, takewhile

from dse.calibrate.measure import Job
from model.cost.samples import Run

TURNS = 2
"""How often each network is run on several devices, long after one another: a host that was slow for minutes is seldom
so twice. So many turns count."""
DOUBT = 1.15
"""Turns further apart than by this factor are not of one machine: something ran beside one of them."""


def turns_of(job: Job, there: Mapping[str, Run]) -> list[Run]:
    """What came of a job each time. there: by key"""
    keys = (replace(job, turn=turn).key for turn in count())
    return [there[key] for key in takewhile(there.__contains__, keys)]


def doubtful(turns: Sequence[Run]) -> bool:
    """Whether one more turn has to tell which of two is disturbed."""
    return apart(turns) > DOUBT


def settled(turns: Sequence[Run]) -> tuple[Run, ...]:
    """The turns that count, in order: of all the ``TURNS`` that are nearest to each other."""
    return min(combinations(turns, min(TURNS, len(turns))), key=apart)


def apart(turns: Sequence[Run]) -> float:
    """Factor from the shortest of the turns to the longest, in latency or in period, whichever is more."""
    latencies, periods = [run.time_s for run in turns], [run.period_s for run in turns if run.period_s is not None]
    return max(max(times) / min(times) for times in (latencies, periods) if times)
