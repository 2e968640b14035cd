"""Pricing: latency and period of a lowered mapping by the analytical model (section 4.3 of the thesis).

Every device works through its shards in topological order; a shard starts when its device is free and its pieces are
there. A message (Eq. 4.8) occupies the sending and the receiving side of its way: the network cards of two hosts, or
the copy engines of two units of one host; a medium that hosts share may be both. Messages are served in topological
order, whichever is ready first; ``model.simulator.simulation`` knows better.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from model.compiled import allocating, inlined, kernel
from model.cost.costs import PART, UNKNOWN, CostArrays
from model.cost.lag import lag_of
from model.cost.ledger import BUSY, COMMUNICATE, COMPUTE, Ledger
from model.cost.rest import sum_of_rest
from model.cost.spending import join, settle, spend, turn_s
from model.mappings.arrays import Floats, GraphArrays, ix
from model.mappings.lowering import Messages, Shards


class Desk(NamedTuple):
    """Working memory of prices.

    free: (D,) when a device is free; link: (links,) when a link is
    rest: (D,) seconds of a frame that a device saves by it
    """

    free: Floats
    link: Floats
    rest: Floats


@allocating()
def desk(c: CostArrays) -> Desk:
    """Working memory for one thread."""
    return Desk(np.zeros(len(c.pool)), np.zeros(c.links), np.zeros(len(c.pool)))


@kernel()
def price(g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger, w: Desk) -> tuple[float, float]:
    """Fill ``out``; returns latency and period in seconds.

    Latency: one frame alone, first input to last output. Period: the busiest device or link of a steady pipeline. The
    busiest device never rests, so neither is less than what it claims of its processor.
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
    """Seconds that a device claims of its processor: for what it computes, and for messages what they make a stream's
    frame longer by."""
    messages = c.turn[device, 1] * out.messages[device]
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
        out.start[ix(shard)] = join(m, out, shard, device, w.free[device]) + out.woken[ix(shard)]
        out.stop[ix(shard)] = w.free[device] = out.start[ix(shard)] + out.seconds[ix(shard)]
        for message in range(m.out_ptr[ix(shard)], m.out_ptr[ix(shard + 1)]):
            _transfer(s, m, c, out, w, message)
    latency = 0.0
    for done in w.free:
        latency = max(latency, done)
    return latency


@inlined
def _transfer(s: Shards, m: Messages, c: CostArrays, out: Ledger, w: Desk, message: int) -> None:
    """Send a message when it exists and the links on both sides are free."""
    k, sender = ix(message), ix(m.shard[ix(message)])
    source, target = ix(s.device[sender]), ix(m.device[k])
    here = ix(c.leave[source, target])
    there = here if c.enter[source, target] < 0 else ix(c.enter[source, target])
    begin = max(out.stop[sender], w.link[here], w.link[there])
    end = begin + out.size[k] / c.bandwidth[source, target]
    out.depart[k] = begin
    w.link[here] = w.link[there] = end
    out.arrive[k] = end + lag_of(c, source, target, out.size[k])


@kernel()
def busiest(g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger, w: Desk) -> float:
    """Seconds a frame of the busiest device or link.

    A device counts as busy while it communicates, too, so a pipeline that computes meanwhile can be faster.
    """
    w.link[:] = 0
    sum_of_rest(s, c, out, s.ptr[len(g.size)], w.rest)
    sent = m.out_ptr[s.ptr[len(g.size)]]
    for message in range(sent):
        source, target = ix(s.device[ix(m.shard[ix(message)])]), ix(m.device[ix(message)])
        seconds = out.size[ix(message)] / c.bandwidth[source, target]
        w.link[ix(c.leave[source, target])] += seconds
        if c.enter[source, target] >= 0:
            w.link[ix(c.enter[source, target])] += seconds
    busy = 0.0
    for device in range(len(c.pool)):
        turn = turn_s(c, out, device) if out.segments[device] + out.messages[device] > 0 else 0.0
        compute = out.account[device, COMPUTE] + w.rest[device]
        busy = max(busy, compute + out.account[device, COMMUNICATE] + turn)
    for link in range(c.links):
        busy = max(busy, w.link[link])
    return busy
