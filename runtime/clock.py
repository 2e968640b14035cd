"""The clocks of the hosts: what time it was on rank 0, for every moment that another rank has noted.

Rank 0 notes its time, asks, is told the other's time, and notes its own again. The other clock was read somewhere in
between: it is ahead by what it showed less the middle of the two, and that is wrong by half the round trip at most
(Cristian, "Probabilistic clock synchronization", Distributed Computing 3, 1989, section 3). Of many exchanges the one
with the shortest round trip counts. They take place before the first frame and after the last; in between a clock is
taken to drift evenly. Ranks of one host share its clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Callable

import numpy as np

from runtime.communicator import Communicator, wait

EXCHANGES = 100
"""With each host. On a host that gives ranks a share of a core in turns of 10 ms they outlast some of the turns."""
TAG = 0
"""Messages of frames may have it, too: none is on its way when clocks are compared."""


def now_s() -> float:
    """Seconds since some moment, by the clock that all ranks of a host share (``CLOCK_MONOTONIC`` of Linux)."""
    return time.perf_counter()


@dataclass(frozen=True)
class Exchange:
    """One look at another clock. sent_s, back_s: when rank 0 asked and had the answer, by its clock; there_s: it"""

    sent_s: float
    there_s: float
    back_s: float

    @property
    def offset_s(self) -> float:
        """By how much the other clock is ahead of rank 0's."""
        return self.there_s - (self.sent_s + self.back_s) / 2

    @property
    def uncertainty_s(self) -> float:
        """By how much ``offset_s`` may be wrong at most, either way."""
        return (self.back_s - self.sent_s) / 2


SAME = Exchange(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Clock:
    """A rank's clock, by what was exchanged before the first frame and after the last."""

    first: Exchange = SAME
    last: Exchange = SAME

    def aligned(self, time_s: float) -> float:
        """A moment of this clock by the clock of rank 0."""
        apart_s = self.last.there_s - self.first.there_s
        share = (time_s - self.first.there_s) / apart_s if apart_s else 0.0
        return time_s - self.first.offset_s - share * (self.last.offset_s - self.first.offset_s)

    @property
    def offset_s(self) -> float:
        """By how much it is ahead of rank 0's, half way between the first frame and the last."""
        return (self.first.offset_s + self.last.offset_s) / 2

    @property
    def uncertainty_s(self) -> float:
        """By how much an aligned moment between the two may be wrong at most, if the drift is even."""
        return max(self.first.uncertainty_s, self.last.uncertainty_s)


def compare(
    communicator: Communicator, count: int = EXCHANGES, now: Callable[[], float] = now_s
) -> dict[int, Exchange]:
    """Look at the clock of every other host. All ranks call it together; rank 0 gets the best exchange by the first
    rank of the host, all others nothing.
    """
    first_ranks = sorted(set(communicator.hosts) - {0})
    if first_ranks:
        communicator.barrier()
    if communicator.rank in first_ranks:
        _answer(communicator, count, now)
    if communicator.rank != 0:
        return {}
    return {rank: min(_ask(communicator, rank, count, now), key=lambda e: e.uncertainty_s) for rank in first_ranks}


def _ask(communicator: Communicator, rank: int, count: int, now: Callable[[], float]) -> list[Exchange]:
    nothing, there_s, found = np.zeros(1), np.zeros(1), []
    question, answer = communicator.sender(nothing, rank, TAG), communicator.receiver(there_s, rank, TAG)
    for _ in range(count):
        answer.start()
        sent_s = now()
        question.start()
        wait(answer.test)
        found.append(Exchange(sent_s, float(there_s[0]), now()))
        wait(question.test)
    return found


def _answer(communicator: Communicator, count: int, now: Callable[[], float]) -> None:
    nothing, there_s = np.zeros(1), np.zeros(1)
    question, answer = communicator.receiver(nothing, 0, TAG), communicator.sender(there_s, 0, TAG)
    for _ in range(count):
        question.start()
        wait(question.test)
        there_s[0] = now()
        answer.start()
        wait(answer.test)
