"""From a lowered mapping to the events of its programs: the plan that a bundle executes, simulated.

Tasks are what ranks and links do. A device works through its program, a straight one: it waits for what a segment (see
``model.mappings.planning``) needs, computes it, and hands over what it sends. A message then occupies the sender's link
and, ``latency`` later, the receiver's, each first come, first served; it is cut through, so free links take the time of
one. Its costs are those of LogGP (``model.cost.message_time``). While it leaves for another host its sender's processor
attends to it, too: kernel and MPI cut it into packets. What the device computes is later by that, unless it waits
longer anyway.

Frames that follow one another are in ``model.simulator.streaming``.

Times are whole, see ``model.simulator.ticks``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from model.compiled import allocating, inlined, kernel
from model.cost.costs import PART, CostArrays
from model.cost.ledger import BUFFERS, COMMUNICATE, COMPUTE, Ledger
from model.cost.message_time import handling_s
from model.cost.rest import claims, most_chilled
from model.cost.settling import settle
from model.cost.spending import join, spend
from model.mappings.arrays import Floats, GraphArrays, Ints, ix
from model.mappings.lowering import Messages, Room, Shards
from model.simulator import events
from model.simulator.events import PLAIN, State, Tasks, Times
from model.simulator.ticks import (
    TICK_S,
    attend_ticks,
    enter_ticks,
    lag_ticks,
    leave_ticks,
    message_ticks,
    receive_ticks,
    send_ticks,
    step_ticks,
    ticks,
    wake_ticks,
    waking_ticks,
)

LONGEST_S = 4500.0
"""Frames that take longer together cannot be counted in ticks; they are not simulated."""
UNCOUNTABLE = -1.0
SEND, LEAVE, ENTER, ATTEND = range(4)
"""Tasks of a message: it is handed over, then on the sender's link, on the receiver's; and while it leaves the sender's
processor has to do with it, unless nobody has (``CostArrays.stages``)."""


class Stage(NamedTuple):
    """Working memory of a simulation: the tasks, their state, and what building them takes. ``D`` devices.

    segment: (S,) task of a shard; handed: (M,) first task of a message
    begin, last: (D,) first and last task of a device's program; -1: it has none
    free: (D,) ticks, when a device is done with a shard, or what it computes in all (scratch)
    taken: (n,) ticks that a task's messages take its device while they come (scratch)
    rests: (D,) the part of what rest saves in a frame alone that it saves in a stream, too; owed: (D,) seconds by which
           messages make a frame of a stream longer, as their device has not waited as long
    """

    tasks: Tasks
    state: State
    segment: Ints
    handed: Ints
    begin: Ints
    last: Ints
    free: Times
    taken: Times
    rests: Floats
    owed: Floats


@allocating()
def stage(r: Room, c: CostArrays, frames: int) -> Stage:
    """Room for mappings as large as ``r`` says, and so many frames."""
    i = np.int32
    n = r.shards + c.stages * r.messages + r.devices
    edges = 2 * n + r.messages
    zero = np.int64(0)
    tasks = Tasks(
        np.full(n, zero),
        np.full(n, -1, i),
        np.full(n, zero - 1),
        np.zeros((3, n), i),
        np.zeros(n + 1, i),
        np.zeros(edges, i),
        np.zeros(edges, i),
        np.ones(c.links, i),
    )
    return Stage(
        tasks,
        events.state(n * frames, c.links, frames, zero),
        np.zeros(r.shards, i),
        np.zeros(r.messages, i),
        np.zeros(r.devices, i),
        np.zeros(r.devices, i),
        np.full(r.devices, zero),
        np.full(n, zero),
        np.zeros(r.devices),
        np.zeros(r.devices),
    )


@kernel()
def simulate(g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger, w: Stage) -> float:
    """Fill ``out``; returns the latency in seconds: one frame alone, from first input to last output.

    UNCOUNTABLE where it could take more than ``LONGEST_S``. One frame comes after another, so that none is shorter than
    what a device claims of its processor, see ``longest_claim``: a frame that is begins later by that, as if its
    devices rested first.
    """
    spend(g, s, m, c, out)
    if not countable(c, out, 1):
        return UNCOUNTABLE
    n = build(g, s, m, c, out, w)
    one = np.int64(1)  # not the constant, which would compile the core once more
    ended = events.simulate(w.tasks, n, one, PLAIN, w.state)
    stop = w.state.stop[w.state.order[ended - 1]]
    latency = max(stop, longest_claim(s, m, c, out, np.int64(s.ptr[len(g.size)]), w.free))
    for row in range(n if latency > stop else 0):
        w.state.start[ix(row)] += latency - stop
        w.state.stop[ix(row)] += latency - stop
    _note(g, s, m, c, out, w)
    settle(c, out, latency * TICK_S)
    return latency * TICK_S


@kernel()
def longest_claim(s: Shards, m: Messages, c: CostArrays, out: Ledger, shards: int, busy: Times) -> np.int64:
    """Ticks that the busiest device claims of its processor, of those that rest saves something; busy: (D,) is filled
    with what each does. A message claims what it makes a stream's frame longer by, the first that a segment waits for
    what waking takes, a segment its step.
    """
    busy[:] = 0
    for shard in range(shards):
        here = ix(s.device[ix(shard)])
        if c.rested[here, PART] > 0:
            busy[here] += ticks(claims(c, out, shard, here, True))
            if out.begins[ix(shard)]:
                busy[here] += step_ticks(c, here)
            if _waits(m, out, shard):
                busy[here] += waking_ticks(c, here)
        for message in range(m.out_ptr[ix(shard)], m.out_ptr[ix(shard + 1)]):
            target, size = ix(m.device[ix(message)]), out.size[ix(message)]
            busy[here] += message_ticks(c, here, size)
            busy[target] += message_ticks(c, target, size)
    return longest(busy)


@inlined
def _waits(m: Messages, out: Ledger, shard: int) -> bool:
    """Whether a shard is the first to wait for a message."""
    waits = False
    for k in range(m.in_ptr[ix(shard)], m.in_ptr[ix(shard + 1)]):
        waits = waits or out.reader[ix(m.in_message[ix(k)])] == shard
    return waits


@inlined
def longest(times: Times) -> np.int64:
    """The longest of the times of some devices, at least 0."""
    most = np.int64(0)
    for time in times:
        most = max(most, time)
    return most


@inlined
def countable(c: CostArrays, out: Ledger, frames: int) -> bool:
    """Whether frames can be counted: they take no longer than all that is done in them, one thing after the other,
    by devices that do not rest, and whose caches are cold.

    A processor attends to a message no longer than it leaves, and takes it in no longer: as much again at most.
    """
    spent = 0.0
    for device in range(len(out.account)):
        tired = out.account[device, COMPUTE] / (1 - c.rested[device, PART])
        spent += most_chilled(c, device, tired, out.segments[ix(device)]) + out.account[device, COMMUNICATE]
        spent += c.turn[ix(device), 0] + np.sum(c.fill[ix(device)]) + c.step[ix(device)] * out.segments[device]
        spent += handling_s(c, device, out.messages[device], out.account[device, BUFFERS])
    return spent * frames < LONGEST_S


@kernel()
def build(g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger, w: Stage) -> int:
    """Tasks of one frame from a ledger that ``spend`` has filled; returns how many there are."""
    shards = s.ptr[len(g.size)]
    for device in range(len(w.last)):
        w.begin[device] = w.last[device] = -1
    n = 0
    for shard in range(shards):
        here = ix(s.device[ix(shard)])
        if out.begins[ix(shard)]:
            _next(w, here, n)
            n += 1
        w.segment[ix(shard)] = w.last[here]
        so_far = w.tasks.duration[ix(w.last[here])]
        w.tasks.duration[ix(w.last[here])] = max(0, so_far + ticks(out.seconds[ix(shard)]))
        if out.begins[ix(shard)]:
            w.tasks.duration[ix(w.last[here])] += step_ticks(c, here)
            _receive(m, c, out, w, shard, here)
        for message in range(m.out_ptr[ix(shard)], m.out_ptr[ix(shard + 1)]):
            _send(m, c, out, w, here, message, n)
            n += c.stages
        if c.stages > ATTEND:
            for message in range(m.out_ptr[ix(shard)], m.out_ptr[ix(shard + 1)]):
                _attend(m, c, out, w, here, message)
    w.tasks.first[n] = 2 * n
    return n


@inlined
def _task(t: Tasks, task: int, resource: int, duration: np.int64, needs: int) -> None:
    """A task that releases nothing yet, but may release two others."""
    t.duration[ix(task)] = duration
    t.resource[ix(task)] = resource
    t.lag[ix(task)] = -1
    t.needs[0, ix(task)] = needs
    t.first[ix(task)] = 2 * task
    t.to[ix(2 * task)] = t.to[ix(2 * task + 1)] = -1
    t.distance[ix(2 * task)] = t.distance[ix(2 * task + 1)] = 0


@inlined
def _next(w: Stage, device: int, task: int) -> None:
    """The next thing that a device does."""
    before = w.last[ix(device)]
    _task(w.tasks, task, -1, 0, 0 if before < 0 else 1)
    if before < 0:
        w.begin[ix(device)] = task
    else:
        w.tasks.to[ix(2 * before)] = task
    w.last[ix(device)] = task


@inlined
def _receive(m: Messages, c: CostArrays, out: Ledger, w: Stage, shard: int, device: int) -> None:
    """The segment that begins with a shard waits for messages."""
    task, waits = ix(w.segment[ix(shard)]), False
    for k in range(m.in_ptr[ix(shard)], m.in_ptr[ix(shard + 1)]):
        message = ix(m.in_message[ix(k)])
        edge = ix(2 * (w.handed[message] + ENTER))
        if out.reader[message] == shard and w.tasks.to[edge] < 0:
            if not waits:
                w.tasks.duration[task] += wake_ticks(c, device)
            waits = True
            w.tasks.to[edge] = task
            w.tasks.needs[0, task] += 1
            w.tasks.duration[task] += receive_ticks(c, device, out.size[message])


@inlined
def _send(m: Messages, c: CostArrays, out: Ledger, w: Stage, source: int, message: int, first: int) -> None:
    """A message on its way: its tasks from number ``first``."""
    t, target, size = w.tasks, ix(m.device[ix(message)]), out.size[ix(message)]
    w.handed[ix(message)] = first
    _next(w, source, first + SEND)
    t.duration[ix(first + SEND)] = send_ticks(c, source, size)
    t.to[ix(2 * (first + SEND) + 1)] = first + LEAVE
    _task(t, first + LEAVE, c.leave[source, target], leave_ticks(c, source, target, size), 1)
    t.lag[ix(first + LEAVE)] = lag_ticks(c, source, target, size)
    t.to[ix(2 * (first + LEAVE))] = first + ENTER
    _task(t, first + ENTER, c.enter[source, target], enter_ticks(c, source, target, size), 1)


@inlined
def _attend(m: Messages, c: CostArrays, out: Ledger, w: Stage, source: int, message: int) -> None:
    """The sender attends to a message when all have been handed over."""
    task = w.handed[ix(message)] + ATTEND
    _next(w, source, task)
    w.tasks.duration[ix(task)] = attend_ticks(c, source, ix(m.device[ix(message)]), out.size[ix(message)])


@inlined
def _note(g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger, w: Stage) -> None:
    """When things happened, in seconds, and how long joins waited."""
    start, stop = w.state.start, w.state.stop
    done = SEND if c.stages <= ATTEND else ATTEND
    shards = s.ptr[len(g.size)]
    for message in range(m.out_ptr[shards]):
        handed = w.handed[ix(message)]
        out.depart[ix(message)] = start[ix(handed + LEAVE)] * TICK_S
        out.arrive[ix(message)] = stop[ix(handed + ENTER)] * TICK_S
    w.free[:] = 0
    for shard in range(shards):
        device = ix(s.device[ix(shard)])
        join(m, out, shard, device, w.free[device] * TICK_S)
        begin, lasts = max(w.free[device], start[ix(w.segment[ix(shard)])]), ticks(out.seconds[ix(shard)])
        out.start[ix(shard)] = begin * TICK_S
        out.stop[ix(shard)] = (begin + lasts) * TICK_S
        w.free[device] = begin + lasts
        sent = m.out_ptr[ix(shard + 1)]
        if sent > m.out_ptr[ix(shard)]:
            w.free[device] = stop[ix(w.handed[ix(sent - 1)] + done)]
