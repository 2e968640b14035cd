"""How fast the processor is just now: what a small computation takes that is always the same.

Clocks change with load and temperature, and on a rented machine with what others do beside it: by a tenth and more
within seconds. A yardstick beside each measurement tells that apart from what was to be measured. It counts the time of
its own thread, so that a limited share of a processor, or another program that takes turns, does not show.
"""

from __future__ import annotations

import time
from statistics import median

from runtime.aligned import zeros

SIZE, TIMES = 4096, 200
"""Floats, which fit into the nearest cache; and multiplications in a row: 0.1 ms on a PC."""
ENDS = 15
"""Measurements before the frames, and after them."""


class Yardstick:
    """Seconds of one multiplication of so many floats, measured again and again."""

    def __init__(self) -> None:
        self._numbers = zeros((SIZE,), "float32")
        self._seen: list[float] = []

    def measure(self, times: int = 1) -> None:
        """Now."""
        for _ in range(times):
            began = time.thread_time()
            for _ in range(TIMES):
                self._numbers *= self._numbers
            self._seen.append((time.thread_time() - began) / TIMES)

    @property
    def seconds(self) -> float | None:
        """The middle one; None: nobody has measured."""
        return round(median(self._seen), 12) if self._seen else None
