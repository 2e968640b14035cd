"""Rest: who has waited computes the next segment in less time (``CostArrays.rested``).

It has a share of the processor left over, or a cooler one. The processor is at it as long as it would be otherwise
(``CostArrays.busy``), and longer, since its caches are cold (``CostArrays.cold``). So who rests briefly rests as
little: what the processor is at in a frame takes its time, however that is shared out.
"""

from __future__ import annotations

import numpy as np

from model.compiled import inlined
from model.cost.costs import MEAN, MOST, PART, UNKNOWN, CostArrays
from model.cost.ledger import Ledger
from model.mappings.arrays import Floats, GraphArrays, ix
from model.mappings.lowering import Shards

WARM_S = 3e-3
"""Seconds of processor time after which caches are as warm as they get."""


@inlined
def begins_rested(g: GraphArrays, s: Shards, device: int, waits: bool, first: bool) -> bool:
    """Whether a device has rested before a segment: it waits for messages, or it is the first one of a frame, and some
    other device ends the frame before.
    """
    return waits or (first and s.device[s.ptr[ix(len(g.size) - 1)]] != device)


@inlined
def saved(c: CostArrays, device: int, seconds: float) -> float:
    """What a segment of so many seconds takes less where it has waited."""
    return min(c.rested[ix(device), PART] * seconds, c.rested[ix(device), MOST])


def unrested_s(seconds: float, rested_part: float, rested_s: float) -> float:
    """What a segment that has waited would take, had it not. seconds: that it takes; rested_part, rested_s: rest saves
    so large a part of that, so many seconds at most (``UnitCost``)"""
    return min(seconds / (1 - rested_part), seconds + rested_s)


_unrested_s = inlined(unrested_s)


@inlined
def unrested(c: CostArrays, device: int, seconds: float) -> float:
    """The same on a device."""
    return float(_unrested_s(seconds, c.rested[ix(device), PART], c.rested[ix(device), MOST]))


@inlined
def busy_after(c: CostArrays, device: int, before: float, seconds: float, rested: bool, cold: bool) -> float:
    """Seconds in which a processor is at a part of a segment that takes so long. before: what is before it takes"""
    part = c.busy[ix(device), PART]
    if part == UNKNOWN:
        return seconds
    return part * (claimed(c, device, before + seconds, rested, cold) - claimed(c, device, before, rested, cold))


@inlined
def claimed(c: CostArrays, device: int, seconds: float, rested: bool, cold: bool) -> float:
    """Seconds that a device claims of its processor, for the first seconds of a segment: as if it had not rested, and
    more where its caches are cold: what a segment reads again grows less than its time, until they are full."""
    tired, part = unrested(c, device, seconds) if rested else seconds, c.busy[ix(device), PART]
    if not cold or part == UNKNOWN:
        return tired
    return tired + np.sqrt(c.cold[ix(device), MEAN] * min(tired * part, WARM_S)) / part


@inlined
def most_chilled(c: CostArrays, device: int, seconds: float, segments: int) -> float:
    """At least what so many segments claim that take so long in all and whose caches are cold: a geometric mean is no
    more than the mean."""
    cold_s, part = c.cold[ix(device), MEAN], c.busy[ix(device), PART]
    if cold_s == 0 or part == UNKNOWN:
        return seconds
    return seconds + (seconds + segments * cold_s / part) / 2


@inlined
def claims(c: CostArrays, out: Ledger, shard: int, device: int, cold: bool) -> float:
    """Seconds that a device claims of its processor for a shard; cold: whether it is longer where caches are cold.
    Shards come in order, from the first on.
    """
    if out.begins[ix(shard)]:
        out.since[device], out.spent[device] = shard, 0.0
    head, before = ix(out.since[device]), out.spent[device]
    rested, cold = out.rested[head] == 1, cold and out.cold[head] == 1
    if not (rested or cold):
        return out.seconds[ix(shard)]
    out.spent[device] += out.seconds[ix(shard)]
    return claimed(c, device, out.spent[device], rested, cold) - claimed(c, device, before, rested, cold)


@inlined
def rest_saves(c: CostArrays, out: Ledger, shard: int, device: int) -> float:
    """Seconds that a shard takes less because its segment has rested; as ``claims``."""
    return claims(c, out, shard, device, False) - out.seconds[ix(shard)]


@inlined
def sum_of_rest(s: Shards, c: CostArrays, out: Ledger, shards: int, saves: Floats) -> None:
    """Fill in what each device saves of a frame by rest, (D,) seconds."""
    saves[:] = 0
    for shard in range(shards):
        here = ix(s.device[ix(shard)])
        saves[here] += rest_saves(c, out, shard, here)
