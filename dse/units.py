"""What objectives are called for a person, and the units that a person reads."""

from __future__ import annotations

import math

UNITS = {
    "latency_s": ("latency", "ms", 1e3),
    "energy_j": ("largest energy of a device", "J", 1.0),
    "memory_bytes": ("largest memory of a device", "MB", 1e-6),
    "period_s": ("period of a pipeline", "ms", 1e3),
}
"""Objective: what it is called for a person, the unit that is shown, and the factor from SI to it."""


def quantity(objective: str) -> str:
    """An objective without its unit: ``latency``."""
    return objective.rpartition("_")[0]


def shown(objective: str, value: float) -> str:
    """A value with the unit that a person reads: ``28.3 ms``."""
    _, unit, factor = UNITS[objective]
    return f"{value * factor:.4g} {unit}"


def enough(objective: str, value: float) -> str:
    """As ``shown``, but never less than the value: a limit that it keeps to."""
    factor = UNITS[objective][2]
    step = 10.0 ** (math.floor(math.log10(value * factor)) - 3) if value > 0 else 1.0
    return shown(objective, math.ceil(value * factor / step) * step / factor)


def many(count: int, what: str) -> str:
    """So many of something: ``1 rank``, ``2 ranks``."""
    return f"{count} {what}{'s' * (count != 1)}"
