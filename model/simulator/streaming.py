"""From the events of one frame (``model.simulator.simulation``) to those of a stream, as ``runtime.loop`` has it.

Frames follow one another with two sets of buffers: a device begins a frame when it is done with the last one and all
that it sent in the frame before that has arrived, and a message that is too large to be sent unasked waits until the
other side is done with the frame two before. From one frame to the next it takes a while: it fills its input and begins
anew. Messages come while their receiver does what is before them in its program; that takes it longer by what its
processor has to do with them, unless it waits for them anyway, as in a frame alone.

Who sends ahead of a device that has more to do makes late what earlier frames send by the same link. Where that holds
up the end of the warm-up, later frames only drain: so a stream is no faster than all of its frames after the first.

Each message makes the program of a stream's frame longer (``CostArrays.turn``), unless its device waits anyway. And a
device that has waited for messages computes the next segment in less time (``CostArrays.rested``); in a stream it waits
less. So a stream is simulated as if nobody rested and messages took no more, and then again: idle time pays for what
messages take, and where that is not enough the frame takes longer; what is left is worth some rest.
"""

from __future__ import annotations

import numpy as np

from model.compiled import inlined, kernel
from model.cost.costs import PART, CostArrays
from model.cost.ledger import Ledger
from model.cost.rest import rest_saves, sum_of_rest
from model.cost.spending import message_turns_s, turn_s
from model.mappings.arrays import GraphArrays, ix
from model.mappings.lowering import Messages, Shards
from model.simulator import events
from model.simulator.events import PLAIN
from model.simulator.simulation import ENTER, LEAVE, UNCOUNTABLE, Stage, build, countable
from model.simulator.ticks import TICK_S, take_ticks, ticks


@kernel()
def stream(
    g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger, w: Stage, frames: int, warmup: int
) -> float:
    """Seconds between frames of a stream, from the end of frame ``warmup`` to that of the last of ``frames``, or from
    that of the first where that is more.

    After ``simulate`` of the same mapping, whose ledger stays as it is. UNCOUNTABLE as there.
    """
    if not countable(c, out, frames):
        return UNCOUNTABLE
    w.rests[:] = w.owed[:] = 0
    period = _stream(g, s, m, c, out, w, frames, warmup)
    if _spare(s, c, out, w, s.ptr[len(g.size)], period):
        period = _stream(g, s, m, c, out, w, frames, warmup)
    return period


@kernel()
def _stream(
    g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger, w: Stage, frames: int, warmup: int
) -> float:
    """Of devices that rest so much."""
    n = build(g, s, m, c, out, w)
    _tire(s, c, out, w, s.ptr[len(g.size)])
    n = _link_frames(g, s, m, c, out, w, n)
    ended = events.simulate(w.tasks, n, frames, PLAIN, w.state)
    first = counted = last = np.int64(0)
    for k in range(ended):
        row = w.state.order[k]
        stop = w.state.stop[row]
        last = max(last, stop)
        if row < (warmup + 1) * n:
            counted = max(counted, stop)
        if row < n:
            first = max(first, stop)
    return max((last - counted) / (frames - 1 - warmup), (last - first) / (frames - 1)) * TICK_S


@inlined
def _tire(s: Shards, c: CostArrays, out: Ledger, w: Stage, shards: int) -> None:
    """Segments take longer by what rest saves in a frame alone, but not in a stream."""
    for shard in range(shards):
        device = ix(s.device[ix(shard)])
        saves = (1 - w.rests[device]) * rest_saves(c, out, shard, device)
        task = ix(w.segment[ix(shard)])
        w.tasks.duration[task] = max(np.int64(0), w.tasks.duration[task] + ticks(saves))


@inlined
def _spare(s: Shards, c: CostArrays, out: Ledger, w: Stage, shards: int, period: float) -> bool:
    """What devices owe to messages and save by rest, from a stream in which none did; whether any does.

    A second of idleness that messages leave is worth as much as rest saves of a second of computing.
    """
    sum_of_rest(s, c, out, shards, w.rests)
    some = False
    for device in range(len(w.last)):
        saves, spare = w.rests[device], max(period - _work(w, device) * TICK_S, 0.0) - message_turns_s(c, out, device)
        w.owed[device] = max(-spare, 0.0)
        worth = c.rested[device, PART] * spare
        w.rests[device] = min(1.0, worth / saves) if saves > 0 and worth > 0 else 0.0
        some = some or w.rests[device] > 0 or w.owed[device] > 0
    return some


@inlined
def _work(w: Stage, device: int) -> np.int64:
    """Ticks of a frame in which a device is not idle."""
    task, work = w.begin[device], np.int64(0)
    while task != w.last[device]:
        work += w.tasks.duration[task]
        task = w.tasks.to[2 * task]
    return work + w.tasks.duration[task] + w.tasks.duration[w.tasks.to[2 * task]] if task >= 0 else work


@inlined
def _link_frames(g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger, w: Stage, n: int) -> int:
    """Tie frames to the ones before: a device's program ends in a task more; returns how many tasks there are."""
    t, sent = w.tasks, m.out_ptr[s.ptr[len(g.size)]]
    for task in range(n):
        t.needs[1, task] = t.needs[2, task] = t.needs[0, task]
        w.taken[task] = 0
    for message in range(sent):
        source, target = s.device[m.shard[message]], ix(m.device[message])
        begin, enter = w.begin[source], w.handed[message] + ENTER
        w.taken[t.to[2 * enter]] += take_ticks(c, ix(source), target, out.size[message])
        t.to[2 * enter + 1], t.distance[2 * enter + 1] = begin, 2
        t.needs[2, begin] += 1
    edge = 2 * n
    for device in range(len(w.last)):
        if w.last[device] >= 0:
            _take_in(w, device)
            t.to[2 * w.last[device]] = n
            edge = _end_of_program(s, m, c, out, w, device, sent, n, edge)
            n += 1
    return n


@inlined
def _take_in(w: Stage, device: int) -> None:
    """What a device does before a task takes longer by what comes for that meanwhile."""
    task = w.begin[device]
    while task != w.last[device]:
        following = w.tasks.to[2 * task]
        w.tasks.duration[task] += w.taken[following]
        task = following


@inlined
def _end_of_program(
    s: Shards, m: Messages, c: CostArrays, out: Ledger, w: Stage, device: int, sent: int, task: int, edge: int
) -> int:
    """The task that ends a device's frame, and what it lets go on; returns the number of edges so far."""
    t = w.tasks
    t.duration[task] = w.taken[w.begin[device]] + ticks(turn_s(s, c, device) + w.owed[device])
    t.resource[task] = t.lag[task] = -1
    t.needs[:, task] = 1
    t.first[task] = edge
    t.to[edge], t.distance[edge] = w.begin[device], 1
    t.needs[1, w.begin[device]] += 1
    t.needs[2, w.begin[device]] += 1
    edge += 1
    for message in range(sent):
        if m.device[message] == device and out.size[message] > c.eager[s.device[m.shard[message]], device]:
            leave = w.handed[message] + LEAVE
            t.to[edge], t.distance[edge] = leave, 2
            t.needs[2, leave] += 1
            edge += 1
    t.first[task + 1] = edge
    return edge
