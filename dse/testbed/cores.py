"""What keeps the cores of a testbed as a host's would be, a process a core: they take stock often, and never sleep.

**Ticks** are an instant, 2500 times a second, in which the kernel takes stock of what runs on a core. By itself it does
so 250 times a second on many machines, and a host of 1 ms runs for 4 ms and then stands still for 40. It also does
whenever another process takes the core: these are such processes, of real-time priority. They take a twentieth of the
core.

**Awake** is a core that always has something to do. One of a virtual machine that has nothing to do is given away,
comes back when the machine below gets to it, and computes slower for a while then; a host waits for its next
millisecond hundreds of times a second. These processes only run when nothing else would: they belong into a control
group of which that is said (``limits.idle``), for by its own priority one only gives way to its own session.

A program of its own: ``python cores.py Ticks|Awake CORE …``
"""

from __future__ import annotations

import os
import sys
import time
from typing import NoReturn

READY = "ready"
"""What each program of a testbed says when it is: here, when there is a process for each core."""
TICKS, AWAKE = "Ticks", "Awake"
"""What there is to do; their folders are called so, too, which no host may be."""
BETWEEN_S = 400e-6
"""A third of the millisecond that a host is given at a time; shorter would take more of the core."""


def tick() -> NoReturn:
    """Wake up for ever."""
    while True:
        time.sleep(BETWEEN_S)


def stay_awake() -> NoReturn:
    """Never rest."""
    while True:
        pass


def _come_first() -> None:
    """By real-time priority."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError as error:
        sys.exit(f"real-time priority is refused ({error.strerror}); a container needs --privileged")


def main(what: str, cores: list[int]) -> NoReturn:
    """A process for each core, this one among them."""
    if what == TICKS:
        _come_first()
    mine = next((core for core in cores[1:] if os.fork() == 0), None)
    if mine is None:
        print(READY, flush=True)
    os.close(1)
    os.sched_setaffinity(0, {cores[0] if mine is None else mine})
    if what == TICKS:
        tick()
    stay_awake()


if __name__ == "__main__":
    main(sys.argv[1], [int(core) for core in sys.argv[2:]])
