"""How ranks talk: what a communicator offers, and how to wait without taking a core from a neighbour.

What that costs and saves, two ranks on two cores of which one computes while the other waits, against polling without
a pause, in one run (``python -m tests.bench.waiting``): DenseNet-121, 55 ms a frame: latency x 0.98, processor time of
both ranks x 0.71; SqueezeNet, 5 ms: x 1.02 and x 0.82. MPI's own wait polls, too: latency x 1.02 and x 1.00, processor
time x 1.01 and x 1.00. So sleeping costs 2 % of a short frame, 3 in another run. Processor time beyond the latency,
which one rank or the other always computes, is 11 % of a wait of 25 ms and half of one of 2.7 ms, instead of all of it.

Ranks that wait often and briefly poll again when a message is near (``NEAR_S``): ShuffleNet in random pieces, 15 ms a
frame, latency x 0.98 and processor time x 0.94 of polling all the time; asleep until the message is there 1.18 and 0.99
(``--pieces``; in another run 0.82 times the latency of those asleep, DenseNet-121 0.94, SqueezeNet 0.95).

Where a control group holds ranks to a share of a core they look less often (``LOOKS``). ShuffleNet with layers split
between 11 and 45 % of a core: latency x 0.50 and processor time x 0.48 of what they are with looks as often as on whole
cores (``python -m tests.bench.limited``).

Sleeping by the time waited so far, without a thought of the wait a frame ago (*forgetful* there), took 0.9 to 2.7 %
longer a frame than this and up to 5 % more processor time (the same two networks and AlexNet, four runs).
"""

from __future__ import annotations

import time
from typing import Any, Callable, Protocol

import numpy as np

from runtime.quota import core_share

PREFIX = "cleave: "
"""Before the one line on standard error that says why a rank gave up, among what mpirun says."""

SPIN_S = 100e-6
"""A wait polls without a pause for this long: most messages of a well balanced plan arrive by then."""
SHARE = 1 / 32
"""After that it sleeps for this share of how far it is from the time that the last such wait took: what comes when it
came last is noticed at once, and what does not, later by 3 % of the difference at most ..."""
SHORTEST_S, LONGEST_S = 20e-6, 1e-3
"""... within these bounds. At 1 ms a waiting rank takes 1 to 2 % of a core."""
NEAR_S = 100e-6
"""From so long before that time until so long after it a wait polls again: to wake up takes some 40 us, by which every
message would be late. Who is held to a share of a core has none to spare for that."""
LOOKS = 4
"""A rank that is held to a share *s* of a core polls for that share of ``SPIN_S`` only, and then sleeps at least
LOOKS · (1/s - 1) times as long as its last look took of the processor, up to ``LONGEST_S``. Else it would spend its
share on looks, and learn of a message, or begin to compute, only with the next one."""
EAGER_BYTES = 2**20
"""Messages to another host up to this size are sent at once. A larger one asks its receiver first, who may be asleep,
and so may the sender when the answer comes: up to a millisecond each. Open MPI's own figure is 2**16; with that
ShuffleNet split by channels over four hosts (1 Gbit/s) takes 86 ms a frame instead of 76, in up to 0.7 MB less."""


class Request(Protocol):
    """A message that is made ready once, and goes its way once a frame."""

    def start(self) -> None:
        """Send it, or have it received. Not again before ``test`` has been true."""

    def test(self) -> bool:
        """Let messages move on; true once this one has arrived (or has left, for a send)."""


class Communicator(Protocol):
    """What the harness needs of MPI. Arrays are C-contiguous and stay untouched until their request is done.

    hosts: for each rank the first rank on its host
    """

    rank: int
    size: int
    hosts: list[int]

    def receiver(self, array: np.ndarray, source: int, tag: int) -> Request:
        """A message that fills ``array``."""

    def sender(self, array: np.ndarray, dest: int, tag: int) -> Request:
        """A message with what is in ``array`` when it starts."""

    def arrive(self) -> Request:
        """Say that this rank is here; started already, and done when every rank has said so."""

    def barrier(self) -> None:
        """Wait until every rank is here."""

    def gather(self, value: Any) -> list[Any] | None:
        """The values of all ranks, in order, on rank 0; ``None`` elsewhere."""

    def progress(self, active: bool) -> None:
        """Whether messages have to move on although this thread is about to compute for a while."""

    def abort(self, message: str) -> None:
        """End every rank; ``message`` is one line that says why."""


def wait(test: Callable[[], bool], last_s: float = 0.0) -> float:
    """Return once ``test()`` is true: poll briefly, then sleep, and the shorter the nearer that is thought to be, and
    poll when it is near.

    last_s: what this has returned of the last such wait, a frame ago; 0: nothing is known of it
    Returns the seconds until ``test()`` was last false.
    """
    if test():
        return 0.0
    share = core_share()
    near_s = NEAR_S if share == 1 else 0.0
    begin, waited, looked_s = time.perf_counter(), 0.0, time.thread_time()
    while not test():
        waited = time.perf_counter() - begin
        off_s = abs(waited - last_s)
        if waited > SPIN_S * share and off_s > near_s:
            before_s, looked_s = looked_s, time.thread_time()
            frugal_s = (looked_s - before_s) * LOOKS * (1 / share - 1)
            time.sleep(min(max(off_s * SHARE, SHORTEST_S, frugal_s), LONGEST_S))
    return waited


def as_bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of a C-contiguous array, in place. MPI knows no float16 and no bool; it need not."""
    if not array.flags.c_contiguous:
        raise ValueError("an array that is sent or received must be contiguous")
    return array.reshape(-1).view(np.uint8)
