"""The yardstick tells how fast a processor is, and nothing else."""

from __future__ import annotations

import threading
import time

import pytest

from runtime.yardstick import Yardstick


def measured() -> float:
    """The best of some."""
    yardsticks = [Yardstick() for _ in range(5)]
    for yardstick in yardsticks:
        yardstick.measure(15)
    return min(yardstick.seconds or 0.0 for yardstick in yardsticks)


def test_time_that_others_take_does_not_count() -> None:
    """Beside threads that take turns with it, it takes several times as long by the clock, but not by its own time."""
    alone = measured()
    stop = threading.Event()
    others = [threading.Thread(target=lambda: [time.sleep(0) for _ in iter(stop.is_set, True)]) for _ in range(3)]
    for other in others:
        other.start()
    try:
        beside = measured()
    finally:
        stop.set()
        for other in others:
            other.join()
    assert beside == pytest.approx(alone, rel=1.0)


def test_who_has_not_measured_knows_nothing() -> None:
    assert Yardstick().seconds is None
    assert measured() > 0
