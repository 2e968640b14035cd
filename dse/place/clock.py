"""What time it is for work that ends when its time is over: after Ctrl-C it always is."""

from __future__ import annotations

import time
from collections.abc import Iterator

from dse import ending

OVER_S = 1e12
"""Later than any limit."""
USUAL_S = 120.0
"""The limit, where none is given, of methods that seldom come to an end by themselves."""
SLICE = 2**16
"""Steps of a search, between which it looks at the clock."""


def usual(limit_s: float | None) -> float:
    """The limit of such a method, in seconds."""
    return USUAL_S if limit_s is None else limit_s


def due(limit_s: float | None) -> float:
    """When so many seconds are over; None: not before somebody asks for the end."""
    return time.monotonic() + (OVER_S / 2 if limit_s is None else limit_s)


def now() -> float:
    """Seconds of some clock that never goes back."""
    return time.monotonic() + (OVER_S if ending.was_asked() else 0.0)


def slices(steps: int, end: float) -> Iterator[int]:
    """The first of every ``SLICE`` of so many steps, until the end has come."""
    for first in range(0, steps, SLICE):
        if first and now() > end:
            return
        yield first
