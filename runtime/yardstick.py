"""How fast the processor is just now: what a small computation takes that is always the same.

Clocks change with load and temperature, and on a rented machine with what others do beside it: by a tenth and more
within minutes. A yardstick beside each measurement tells that apart from what was to be measured. It counts the time of
its own thread, so that a limited share of a processor, or another program that takes turns, does not show.
"""

from __future__ import annotations

import time

import numpy as np

from runtime.aligned import zeros

SIZE, TIMES, BURSTS = 4096, 200, 45
"""Floats, which fit into the nearest cache; multiplications in a row; and how often: about 5 ms in all on a PC."""


def yardstick_s() -> float:
    """Seconds of one multiplication of so many floats, the median of some bursts."""
    numbers = zeros((SIZE,), "float32")
    return sorted(_burst_s(numbers) for _ in range(BURSTS))[BURSTS // 2]


def _burst_s(numbers: np.ndarray) -> float:
    began = time.thread_time()
    for _ in range(TIMES):
        np.multiply(numbers, numbers, out=numbers)
    return (time.thread_time() - began) / TIMES
