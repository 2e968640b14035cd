"""The processor cores of this machine, as Open MPI counts them: one is one, however many threads it runs at a time."""

from __future__ import annotations

import os
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")
"""What Linux tells of the hardware threads, which it calls cpus."""


def cores() -> int:
    """How many cores this process may use; where nothing is known of them, how many hardware threads."""
    allowed = os.sched_getaffinity(0)
    try:
        return len({(CPUS / f"cpu{number}/topology/thread_siblings_list").read_text() for number in allowed})
    except OSError:
        return len(allowed)
