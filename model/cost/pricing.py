"""Pricing: latency and period of a lowered mapping by the analytical model (section 4.3 of the thesis).

Every device works through its shards in topological order; a shard starts when its device is free and its pieces are
there. A message (Eq. 4.8) occupies the sending side of its way, at the rate of that, and a latency later the receiving
side: the network cards of two hosts, or the copy engines of two units of one host; a medium that hosts share may be
both. Messages are served in topological order, whichever is ready first; ``model.simulator.simulation`` knows better.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from model.compiled import allocating, inlined, kernel
from model.cost.costs import PART, UNKNOWN, CostArrays
from model.cost.cycles import Cycles, cycles, longest_cycle
from model.cost.ledger import BUSY, COMPUTE, Ledger
from model.cost.message_time import come_s, enter_s, lag_of, leave_s, send_s, take_s
from model.cost.rest import sum_of_rest
from model.cost.settling import settle
from model.cost.spending import attended_s, join, message_turns_s, spend, turn_s
from model.mappings.arrays import Floats, GraphArrays, ix
from model.mappings.lowering import Messages, Room, Shards


class Desk(NamedTuple):
    """Working memory of prices.

    free: (D,) when a device is free; link: (links,) when a link is
    rest: (D,) seconds of a frame that a device saves by it, and not in a stream
    cycles: see there
    """

    free: Floats
    link: Floats
    rest: Floats
    cycles: Cycles


@allocating()
def desk(r: Room, c: CostArrays) -> Desk:
    """Working memory for one thread, and mappings as large as ``r`` says."""
    return Desk(np.zeros(r.devices), np.zeros(c.links), np.zeros(r.devices), cycles(r))


@kernel()
def price(g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger, w: Desk) -> tuple[float, float]:
    """Fill ``out``; returns latency and period in seconds.

    Latency: one frame alone, first input to last output. Period: of a steady pipeline, see ``busiest``. The busiest
    device never rests, so neither is less than what it claims of its processor.
    """
    spend(g, s, m, c, out)
    latency = _one_frame(g, s, m, c, out, w)
    period = busiest(g, s, m, c, out, w)
    for device in range(len(c.pool)):
        if c.rested[device, PART] > 0:
            latency = max(latency, _claims(c, out, w, device))
    settle(c, out, latency)
    return latency, period


@inlined
def _claims(c: CostArrays, out: Ledger, w: Desk, device: int) -> float:
    """Seconds that a device claims of its processor: for what it computes, segment by segment, and for messages what
    they make a stream's frame longer by."""
    messages = message_turns_s(c, out, device) + c.step[device] * out.segments[device]
    if c.busy[device, PART] == UNKNOWN:
        return out.account[device, COMPUTE] + w.rest[device] + messages
    return out.account[device, BUSY] / c.busy[device, PART] + messages


@inlined
def _one_frame(g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger, w: Desk) -> float:
    """When each shard runs and each message is under way; returns when the last device is done. That is not when the
    last shard stops: one that saves what others took before it in its segment ends earlier than these would alone.
    """
    w.free[:] = 0
    w.link[:] = 0
    for shard in range(s.ptr[len(g.size)]):
        device = ix(s.device[ix(shard)])
        out.start[ix(shard)] = join(m, out, shard, device, w.free[device]) + out.ready[ix(shard)]
        out.stop[ix(shard)] = w.free[device] = out.start[ix(shard)] + out.seconds[ix(shard)]
        for message in range(m.out_ptr[ix(shard)], m.out_ptr[ix(shard + 1)]):
            w.free[device] += send_s(c, device, out.size[ix(message)])
            _transfer(m, c, out, w, message, device)
        w.free[device] += attended_s(m, c, out, shard, device)
    latency = 0.0
    for done in w.free:
        latency = max(latency, done)
    return latency


@inlined
def _transfer(m: Messages, c: CostArrays, out: Ledger, w: Desk, message: int, source: int) -> None:
    """A message leaves when it has been handed over and the sender's link is free, and comes when the receiver's is."""
    k, target = ix(message), ix(m.device[ix(message)])
    size, link = out.size[k], ix(c.leave[source, target])
    out.depart[k] = max(w.free[source], w.link[link])
    w.link[link] = out.depart[k] + leave_s(c, source, target, size)
    comes = out.depart[k] + lag_of(c, source, target, size)
    if c.enter[source, target] < 0:  # it is on one link
        out.arrive[k] = comes + enter_s(c, source, target, size)
    else:
        link = ix(c.enter[source, target])
        out.arrive[k] = w.link[link] = max(comes, w.link[link]) + enter_s(c, source, target, size)


@kernel()
def busiest(g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger, w: Desk) -> float:
    """Seconds a frame of the busiest device or link, or of the longest cycle. Bytes under way are the links' alone.

    After a frame alone, whose times are in the ledger.
    """
    longest = 0.0
    sum_of_rest(s, c, out, s.ptr[len(g.size)], w.rest)
    w.free[:] = 0
    w.link[:] = 0
    for shard in range(s.ptr[len(g.size)]):
        device = ix(s.device[ix(shard)])
        w.free[device] += out.ready[ix(shard)] + out.seconds[ix(shard)]
        for message in range(m.out_ptr[ix(shard)], m.out_ptr[ix(shard + 1)]):
            longest = max(longest, _hand_over(m, c, out, w, message, device))
        w.free[device] += attended_s(m, c, out, shard, device)
    for d in range(len(c.pool)):
        turn = turn_s(s, c, d) if out.segments[d] + out.messages[d] > 0 else 0.0
        longest = max(longest, w.free[d] + w.rest[d] + turn + message_turns_s(c, out, d))
    for link in range(c.links):
        longest = max(longest, w.link[link])
    return longest_cycle(g, s, m, c, out, w.cycles, longest)


@inlined
def _hand_over(m: Messages, c: CostArrays, out: Ledger, w: Desk, message: int, source: int) -> float:
    """What a message takes of devices and links; returns the mean of two frames, after which it must have come: there
    are two sets of buffers.
    """
    target, size = ix(m.device[ix(message)]), out.size[ix(message)]
    w.free[source] += send_s(c, source, size)
    come = w.free[source] + come_s(c, source, target, size)
    w.free[target] += take_s(c, source, target, size)
    w.link[ix(c.leave[source, target])] += leave_s(c, source, target, size)
    if c.enter[source, target] >= 0:
        w.link[ix(c.enter[source, target])] += enter_s(c, source, target, size)
    return come / 2
