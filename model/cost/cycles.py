"""How soon frames can follow one another where devices wait for one another within a frame.

A device begins a frame when it is done with the last one. So no stream is faster than a frame takes from the first
thing that a device does to its last one, along whatever waits for that first thing: in max-plus algebra the period is
the largest mean of all cycles (Baccelli, Cohen, Olsder and Quadrat, 1992, Synchronization and Linearity, section 2.4).
Those of several devices and frames are left out, and links are as free here as if there were no messages but of the
device that sends: its own leave one after the other. What messages take a device of a stream's frame besides, it does
while it waits: that makes it busier, and its circle no longer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from model.compiled import allocating, inlined
from model.cost.costs import ROUNDING, CostArrays
from model.cost.ledger import Ledger
from model.cost.message_time import come_s, leave_s, send_s
from model.cost.spending import attended_s, turn_s
from model.mappings.arrays import Floats, GraphArrays, Ints, ix
from model.mappings.lowering import Messages, Room, Shards


class Cycles(NamedTuple):
    """Working memory.

    free: (D,), came: (M,) seconds from the first thing of a device on, when another one is free and a message has come;
    -inf: that waits for nothing of it; left: (D, 2) when its last message within its host, and to another, has left
    span: (D,) seconds that no cycle of a device is longer than; first, last: (D,) its shards; head: (D,) that its last
    segment begins with
    """

    free: Floats
    came: Floats
    left: Floats
    span: Floats
    first: Ints
    last: Ints
    head: Ints


@allocating()
def cycles(r: Room) -> Cycles:
    """Working memory for mappings as large as ``r`` says."""
    d, i = r.devices, np.int32
    return Cycles(
        np.zeros(d), np.zeros(r.messages), np.zeros((d, 2)), np.zeros(d), np.zeros(d, i), np.zeros(d, i), np.zeros(d, i)
    )


@inlined
def longest_cycle(
    g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger, w: Cycles, longer: float
) -> float:
    """Seconds a frame, of cycles that take ``longer`` than so many; else these.

    The ledger has the times of a frame alone: no cycle is longer than what its device takes there from its first thing
    to its last one.
    """
    _spans(g, s, m, c, out, w)
    longest = longer
    for _ in range(len(w.span)):
        origin = ix(np.argmax(w.span))
        if w.span[origin] * (1 + ROUNDING) <= longest:
            break
        longest = max(longest, _cycle(s, m, c, out, w, origin))
        w.span[origin] = 0
    return longest


@inlined
def _spans(g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger, w: Cycles) -> None:
    """First and last shards of devices, and the time between."""
    w.first[:] = -1
    for shard in range(s.ptr[len(g.size)]):
        here = ix(s.device[ix(shard)])
        w.last[here] = shard
        if w.first[here] < 0:
            w.first[here] = w.head[here] = shard
        if out.begins[ix(shard)]:
            w.head[here] = shard
    for device in range(len(w.span)):
        w.span[device] = _span(s, m, c, out, w, device) if w.first[device] >= 0 else 0.0


@inlined
def _span(s: Shards, m: Messages, c: CostArrays, out: Ledger, w: Cycles, device: int) -> float:
    """From the first thing of a device until it can begin again, at most: what it waits for takes it a while, of which
    the analytical model has a shard begin later, the simulator the segment last longer."""
    first, head, last = ix(w.first[device]), ix(w.head[device]), w.last[device]
    span = out.stop[ix(last)] - out.start[first] + out.ready[first] + (out.ready[head] if head != first else 0.0)
    for message in range(m.out_ptr[ix(last)], m.out_ptr[ix(last + 1)]):
        span += send_s(c, device, out.size[ix(message)])
    return span + attended_s(m, c, out, last, device) + turn_s(s, c, device)


@inlined
def _cycle(s: Shards, m: Messages, c: CostArrays, out: Ledger, w: Cycles, origin: int) -> float:
    """The longest one of a device."""
    free, came, first = w.free, w.came, w.first[origin]
    free[:] = -np.inf
    w.left[:] = -np.inf
    free[origin] = 0
    for shard in range(first, w.last[origin] + 1):
        device = ix(s.device[ix(shard)])
        for k in range(m.in_ptr[ix(shard)], m.in_ptr[ix(shard + 1)]):
            awaited = ix(m.in_message[ix(k)])
            if m.shard[awaited] >= first:  # else it does not wait for anything of the device's
                free[device] = max(free[device], came[awaited])
        free[device] += out.ready[ix(shard)] + out.seconds[ix(shard)]
        for message in range(m.out_ptr[ix(shard)], m.out_ptr[ix(shard + 1)]):
            target, size = ix(m.device[ix(message)]), out.size[ix(message)]
            free[device] += send_s(c, device, size)
            away = int(c.leave[device, target] != c.leave[device, device])
            begin = max(free[device], w.left[device, away])
            w.left[device, away] = begin + leave_s(c, device, target, size)
            came[ix(message)] = begin + come_s(c, device, target, size)
        free[device] += attended_s(m, c, out, shard, device)
    return free[origin] + turn_s(s, c, origin)
