"""What time it is for work that ends when its time is over: after Ctrl-C it always is."""

from __future__ import annotations

import time

from dse import ending

OVER_S = 1e12
"""Later than any limit."""
USUAL_S = 120.0
"""The limit, where none is given, of methods that seldom come to an end by themselves."""


def usual(limit_s: float | None) -> float:
    """The limit of such a method, in seconds."""
    return USUAL_S if limit_s is None else limit_s


def due(limit_s: float | None) -> float:
    """When so many seconds are over; None: not before somebody asks for the end."""
    return time.monotonic() + (OVER_S / 2 if limit_s is None else limit_s)


def now() -> float:
    """Seconds of some clock that never goes back."""
    return time.monotonic() + (OVER_S if ending.was_asked() else 0.0)
