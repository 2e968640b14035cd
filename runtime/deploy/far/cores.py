"""The processor cores of a machine, as Open MPI counts them: one is one, however many threads it runs at a time."""

import contextlib
import os

CPUS = "/sys/devices/system/cpu"
"""What Linux tells of the hardware threads, which it calls cpus."""


def cores() -> int:
    """How many cores this process may use; where nothing is known of them, how many hardware threads."""
    allowed = os.sched_getaffinity(0)
    try:
        return len({_read(f"{CPUS}/cpu{number}/topology/thread_siblings_list") for number in allowed})
    except OSError:
        return len(allowed)


def numbered() -> int:
    """How many cores Open MPI may put ranks on, whichever of them this process may use: it numbers them from 0 on.

    Those are all that are online, and in the cpuset of the process where it has one, whatever Linux calls their threads
    (tried with 5.0: where only cpu 1 is in the cpuset, it is core 0).
    """
    usual = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):  # of all that are asked for it is given those
        os.sched_setaffinity(0, range(os.sysconf("SC_NPROCESSORS_CONF")))
    try:
        return cores()
    finally:
        os.sched_setaffinity(0, usual)


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()
