"""What is left of a link's latency when the bytes of a message take their time, too.

LogGP adds both (Alexandrov et al., 1995). That holds where latency is on the way; where it is a receiver that has to be
woken, or the first packets of a message go at once, bytes come meanwhile (``UnitCost.overlap``).
"""

from __future__ import annotations

from model.compiled import inlined
from model.cost.costs import CostArrays


@inlined
def lag_s(latency_s: float, overlap: float, bytes_s: float) -> float:
    """Seconds of a message besides ``bytes_s`` of its bytes. overlap: the part of these that comes meanwhile"""
    return max(latency_s - overlap * bytes_s, 0.0)


@inlined
def lag_of(c: CostArrays, source: int, target: int, size: float) -> float:
    """The same of a message from one device to another. size: in bytes"""
    return lag_s(c.latency[source, target], c.overlap[target], size / c.bandwidth[source, target])


@inlined
def under_way_s(c: CostArrays, source: int, target: int, size: float) -> float:
    """Seconds of such a message, bytes and all, where nothing else is under way."""
    return size / c.bandwidth[source, target] + lag_of(c, source, target, size)
