"""Measurements of links, and what was found: plain data between what measures and what fits (``model.fit.links``).

==========  ===========================================================  =============================
probe       what is done with messages of one size                       what it shows
==========  ===========================================================  =============================
``WAY``     one is sent to a rank that waits for it                      o, O; L at small n, G at large
``LATE``    one comes while its receiver computes, and is taken then     o', O'
``BURST``   several are sent one after the other                         g
``BOTH``    two ranks send to one another at once                        whether directions share
``TWO``     two ranks send to a third one at once                        whether senders share
==========  ===========================================================  =============================
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = WAY, LATE, BURST, BOTH, TWO = ("way", "late", "burst", "both", "two")
COVERED = 0.95
"""The part of repetitions of a fit that an interval holds."""
FASTEST_BYTES_PER_S = 1e12
"""What is said of a link where bytes cost nothing that can be seen."""


@dataclass(frozen=True)
class LinkSample:
    """A probe of messages of one size from one device to another.

    local:   whether both devices are of one host
    send_s:  seconds of each frame in which the sender hands a message over, mean of the messages
    times_s: of each frame. ``WAY``: from the beginning of sending until the receiver has it; ``BURST``: the same of the
             first and the last; ``LATE``: that the receiver takes for it; ``BOTH``, ``TWO``: from the beginning of
             either until both are there
    there_s: of ``LATE``: how long after it was sent the receiver looked
    count:   messages; also: of ``TWO``, the other sender
    """

    kind: str
    source: str
    target: str
    local: bool
    size_bytes: int
    send_s: tuple[float, ...]
    times_s: tuple[float, ...]
    there_s: tuple[float, ...] = ()
    count: int = 1
    also: str = ""


@dataclass(frozen=True)
class Estimate:
    """A figure, and the interval that holds it in ``COVERED`` of all repetitions."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Overheads:
    """What messages cost a device: fields of ``coefficients.UnitCost``."""

    send_s: Estimate
    send_s_per_byte: Estimate
    receive_s: Estimate
    receive_s_per_byte: Estimate
    gap_s: Estimate
    overlap: Estimate


@dataclass(frozen=True)
class Path:
    """The way from one device to another.

    bandwidth_bytes_per_s: at most ``FASTEST_BYTES_PER_S``
    latency_s: 0 on one host, as `Platform.latency` has it
    step_s: that a message takes longer if it asks before it goes, beyond its size (``EAGER_BYTES``); told,
            not used
    errors: size → the time of a message by these figures over what was measured, less 1
    """

    source: str
    target: str
    local: bool
    bandwidth_bytes_per_s: Estimate
    latency_s: Estimate
    step_s: Estimate
    errors: dict[int, float]


@dataclass(frozen=True)
class Sharing:
    """Two messages at once, ``BOTH`` or ``TWO``.

    share: 0: neither holds the other up; 1: one goes after the other
    """

    kind: str
    source: str
    target: str
    also: str
    share: Estimate


@dataclass(frozen=True)
class LinkCosts:
    """All that was found. devices: by type; the others in the order of their probes"""

    devices: dict[str, Overheads]
    paths: tuple[Path, ...]
    sharing: tuple[Sharing, ...]
