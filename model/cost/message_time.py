"""Seconds of a message, by LogGP (Alexandrov et al., 1995): overhead o of both processors, latency L, G of each byte,
and a gap g of the links between messages; o and g are 0 where they were not measured.

LogGP adds L and what bytes take. That holds where latency is on the way; where it is a receiver that has to be woken,
or the first packets of a message go at once, bytes come meanwhile (``UnitCost.overlap``).
"""

from __future__ import annotations

from model.compiled import inlined
from model.cost.costs import CostArrays
from model.mappings.arrays import ix


@inlined
def lag_s(latency_s: float, overlap: float, bytes_s: float) -> float:
    """Seconds of a message besides ``bytes_s`` of its bytes. overlap: the part of these that comes meanwhile"""
    return max(latency_s - overlap * bytes_s, 0.0)


@inlined
def lag_of(c: CostArrays, source: int, target: int, size: float) -> float:
    """A message begins to occupy the receiver's link so much later than to leave. size: in bytes

    Its last byte comes when the slower link has carried it. A faster one of the receiver is free for others until the
    bytes are there that it takes the rest of that time for.
    """
    bytes_s = size / c.bandwidth[source, target]
    return lag_s(c.latency[source, target], c.overlap[target], bytes_s) + slower_s(c, source, target, size)


@inlined
def slower_s(c: CostArrays, source: int, target: int, size: float) -> float:
    """What the slower link takes longer for a message than the receiver's."""
    return size / c.bandwidth[source, target] - size / c.rate[target, source]


@inlined
def under_way_s(c: CostArrays, source: int, target: int, size: float) -> float:
    """Seconds of such a message, bytes and all, where nothing else is under way."""
    bytes_s = size / c.bandwidth[source, target]
    return bytes_s + lag_s(c.latency[source, target], c.overlap[target], bytes_s)


@inlined
def send_s(c: CostArrays, source: int, size: float) -> float:
    """A device hands over a message."""
    return c.send[source, 0] + c.send[source, 1] * size


@inlined
def leave_s(c: CostArrays, source: int, target: int, size: float) -> float:
    """A message occupies the sender's link."""
    return size / c.rate[source, target] + c.gap[source]


@inlined
def attend_s(c: CostArrays, source: int, target: int, size: float) -> float:
    """A device attends to a message that leaves, at most for as long."""
    return min(c.attend[source, target] * size, leave_s(c, source, target, size))


@inlined
def enter_s(c: CostArrays, source: int, target: int, size: float) -> float:
    """A message occupies the receiver's link."""
    return size / c.rate[target, source] + c.gap[target]


@inlined
def come_s(c: CostArrays, source: int, target: int, size: float) -> float:
    """A message has come so long after it was handed over, where links are free."""
    return enter_s(c, source, target, size) + lag_of(c, source, target, size)


@inlined
def take_s(c: CostArrays, source: int, target: int, size: float) -> float:
    """A device that computes takes in a message meanwhile, at most for as long as it comes."""
    return min(c.take[source, target] * size, enter_s(c, source, target, size))


@inlined
def receive_s(c: CostArrays, device: int, size: float) -> float:
    """A device takes a message."""
    return c.receive[device, 0] + c.receive[device, 1] * size


@inlined
def handling_s(c: CostArrays, device: int, messages: float, size: float) -> float:
    """Seconds of a device for so many messages, of so many bytes together, besides what they are under way, at most: as
    if all were sent and received."""
    k = ix(device)
    of_message, of_byte = c.send[k, 0] + c.receive[k, 0] + c.gap[k], c.send[k, 1] + c.receive[k, 1]
    return messages * of_message + size * of_byte + turns_s(c, device, messages, size)


@inlined
def turns_s(c: CostArrays, device: int, messages: float, size: float) -> float:
    """So many messages, of so many bytes together, make a stream's frame of a device longer, unless it waits anyway."""
    return c.turn[ix(device), 1] * messages + c.turn[ix(device), 2] * size
