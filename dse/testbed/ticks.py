"""Ticks: an instant, 2500 times a second, in which the kernel takes stock of what runs on a core.

By itself it does so 250 times a second on many machines, and a host of 1 ms runs for 4 ms and then stands still for
40. It also does whenever another process takes the core: these are such processes, one a core, of real-time priority.
They take a twentieth of the core.

A program of its own: ``python ticks.py CORE …``
"""

from __future__ import annotations

import os
import sys
import time
from typing import NoReturn

READY = "ready"
"""What each program of a testbed says when it is: here, when there is a process for each core."""
BETWEEN_S = 400e-6
"""A third of the millisecond that a host is given at a time; shorter would take more of the core."""


def tick(core: int) -> NoReturn:
    """Wake up for ever."""
    os.sched_setaffinity(0, {core})
    while True:
        time.sleep(BETWEEN_S)


def main(cores: list[int]) -> NoReturn:
    """A process for each core, this one among them."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError as error:
        sys.exit(f"real-time priority is refused ({error.strerror}); a container needs --privileged")
    mine = next((core for core in cores[1:] if os.fork() == 0), None)
    if mine is None:
        print(READY, flush=True)
    os.close(1)
    tick(cores[0] if mine is None else mine)


if __name__ == "__main__":
    main([int(core) for core in sys.argv[1:]])
