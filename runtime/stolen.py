"""Time that the processor of a virtual machine works for other machines: what is measured then takes longer."""

from __future__ import annotations

import os
import time

STAT = "/proc/stat"
STEAL = 8
"""Word of a core's line in /proc/stat, counted from 0 (proc_stat(5))."""


class Stolen:
    """Which part of its cores' time this process cannot have, from ``start`` to ``stop``."""

    def start(self, stat: str = STAT) -> None:
        """Begin."""
        self._stat, self._cores = stat, _cores()
        self._begin_s, self._before_s = time.monotonic(), stolen_s(self._cores, stat)

    def stop(self) -> float | None:
        """0 to 1; None where the system does not tell."""
        after_s, all_s = stolen_s(self._cores, self._stat), (time.monotonic() - self._begin_s) * len(self._cores)
        if self._before_s is None or after_s is None or all_s <= 0:
            return None
        return min(max((after_s - self._before_s) / all_s, 0.0), 1.0)


def stolen_s(cores: set[int], stat: str = STAT) -> float | None:
    """Seconds stolen from some cores since the system started; None where it does not tell."""
    try:
        with open(stat, encoding="ascii", errors="replace") as file:
            lines = [line.split() for line in file if line.startswith("cpu")]
        found = {int(words[0][3:]): int(words[STEAL]) for words in lines if words[0] != "cpu"}
        return sum(found[core] for core in cores) / os.sysconf("SC_CLK_TCK")
    except (OSError, LookupError, ValueError):
        return None


def _cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
