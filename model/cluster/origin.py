"""Where measured coefficients come from: what a calibration writes of itself beside its figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Origin:
    """Where, when, how and with what a set was measured, and what was left over.

    date: of the first run and of the last, ISO 8601
    hosts, devices: that were measured, and those that the set is for
    commands: what ran there
    samples: the file with all that was measured
    declared: the set that what was not measured is taken from: a name, or an absolute path
    networks: name → BLAKE3 of its file
    conditions: what times depend on, as text: versions, kernel, clock
    providers: unit → execution provider
    residuals: device → what its fit says of itself
    """

    date: tuple[str, str]
    hosts: tuple[str, ...]
    devices: tuple[str, ...]
    commands: tuple[str, ...]
    samples: str
    declared: str
    networks: dict[str, str] = field(default_factory=dict)
    conditions: dict[str, str] = field(default_factory=dict)
    providers: dict[str, str] = field(default_factory=dict)
    residuals: dict[str, Any] = field(default_factory=dict)
