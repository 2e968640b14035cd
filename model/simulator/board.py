"""A mapping laid out so that layers of it can move (``model.simulator.moves``): programs, messages, and their tasks.

Numbers are spread out, so that none changes: a task has room for the most shards it may get, a shard's piece of a
tensor (a slot) for a message to each device. Of a shard's tasks the segment that begins with it is the first one, then
come its messages, by tensor and device: in that order ``model.simulator.simulation`` numbers them, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.compiled import inlined
from model.cost.costs import PART, CostArrays
from model.cost.rest import begins_rested, claimed
from model.cost.seconds import seconds_of
from model.mappings.arrays import Floats, GraphArrays, Ints, ix
from model.mappings.lowering import Messages, Room, Shards, messages, share_of
from model.simulator import history
from model.simulator.events import Tasks
from model.simulator.history import History, Log, link, put, take_out
from model.simulator.simulation import ATTEND, SEND
from model.simulator.ticks import step_ticks, ticks, wake_ticks

READER, WRITER, DIRTY, CHANGE, TASK, KIND, COUNT, SPENT = range(8)
"""Numbers of a board: devices of the network's inputs and outputs (see ``lowering.place_ends``), how many shards are
dirty, of the change; of the last proposal: its task, and how it was split before, into how many shards;
microseconds that devices spend on computing and messages, one thing after the other."""
AT_MOST_S = 1e6
"""Nothing is counted as longer than this."""


class Board(NamedTuple):
    """A mapping whose layers can be moved. ``T`` tasks, ``S`` shards and ``L`` slots at most, ``D`` devices.

    shards: with room for more
    on:     (S,) device in whose program a shard is; -1: none
    before, after: (S,) in that program; -1: none; begin: (D,) its first shard
    task, number: (S,) of a shard: what it is of, and the number of the segment that begins with it
    work, receives: (S,) ticks that it takes by itself, and that taking the messages it is the first to wait for takes
    claims: (S,) ticks that its device claims of its processor, see ``simulation.longest_claim``; busy: (D,) of all on
            a device
    turns: (S,) ticks that it claims for messages that it sends or is the first to wait for; handed: (L * D,) those of a
           message's sender
    sends, waits: (S,) how many messages
    spent, paid: (S,), (L * D,) microseconds of a shard, of a message
    slot: (N,) first slot of a tensor; first: (L,) number of a slot's first message
    reader: (L * D,) the shard that waits for a message; -1: there is none; size: (L * D,) its bytes
    waiting: (D,) shards that are the first to need the slot in hand; boxes: what they need
    scope: (D,) changes in which a device's messages were looked at last
    dirty, marked: (S,) shards of which something has changed in this change, and the last change they had
    moved:  (T,) tasks whose shards have moved: the layer's, inputs and outputs of the network
    linked, behind: (S,) the last change in which the segment that begins with a shard was linked, and the next one
    kept: (3, most) device, start, stop of the shards before the last proposal
    note: (8,) numbers
    """

    shards: Shards
    on: Ints
    before: Ints
    after: Ints
    begin: Ints
    task: Ints
    number: Ints
    work: Log
    receives: Log
    claims: Log
    busy: Log
    turns: Log
    handed: Log
    sends: Ints
    waits: Ints
    spent: Log
    paid: Log
    slot: Ints
    first: Ints
    reader: Ints
    size: Floats
    waiting: Ints
    boxes: Messages
    scope: Ints
    dirty: Ints
    marked: Ints
    moved: Ints
    linked: Ints
    behind: Ints
    kept: Ints
    note: Log
    history: History


def empty(g: GraphArrays, c: CostArrays, most: NDArray[np.int64], reader: int, writer: int) -> Board:
    """Room for up to ``most[t]`` shards of task ``t``, (T,). reader, writer: as in ``Mapping``"""
    i, n_devices = np.int32, len(c.pool)
    base = np.concatenate(([0], np.cumsum(most)))
    task = np.repeat(np.arange(len(most)), most)
    makes = np.diff(g.tensor_ptr)
    width = 1 + makes * n_devices * c.stages
    number = np.cumsum(width[task]) - width[task]
    slots = most[g.tensor_task]
    slot = np.cumsum(slots) - slots
    nth = np.arange(len(g.tensor_task)) - g.tensor_ptr[g.tensor_task]
    of = np.repeat(np.arange(len(slots)), slots)
    shard = base[g.tensor_task[of]] + np.arange(len(of)) - slot[of]
    return Board(
        shards=Shards(
            base.astype(i), base[:-1].astype(i), np.zeros(len(most), i), *(np.full(len(task), k, i) for k in (-1, 0, 0))
        ),
        on=np.full(len(task), -1, i),
        before=np.full(len(task), -1, i),
        after=np.full(len(task), -1, i),
        begin=np.full(n_devices, -1, i),
        task=task.astype(i),
        number=number.astype(i),
        work=np.zeros(len(task), np.int64),
        receives=np.zeros(len(task), np.int64),
        claims=np.zeros(len(task), np.int64),
        busy=np.zeros(n_devices, np.int64),
        turns=np.zeros(len(task), np.int64),
        handed=np.zeros(len(of) * n_devices, np.int64),
        sends=np.zeros(len(task), i),
        waits=np.zeros(len(task), i),
        spent=np.zeros(len(task), np.int64),
        paid=np.zeros(len(of) * n_devices, np.int64),
        slot=slot.astype(i),
        first=(number[shard] + 1 + nth[of] * n_devices * c.stages).astype(i),
        reader=np.full(len(of) * n_devices, -1, i),
        size=np.zeros(len(of) * n_devices),
        waiting=np.zeros(n_devices, i),
        boxes=messages(Room(0, 0, 0, 0, n_devices)),
        scope=np.zeros(n_devices, i),
        dirty=np.zeros(len(task), i),
        marked=np.zeros(len(task), i),
        moved=np.zeros(len(most), i),
        linked=np.zeros(len(task), i),
        behind=np.zeros(len(task), i),
        kept=np.zeros((3, most.max()), i),
        note=np.array([reader, writer, 0, 0, 0, 0, 0, 0], np.int64),
        history=history.history(_no_tasks(int(width[task].sum()), c.links), 0),
    )


def _no_tasks(n: int, links: int) -> Tasks:
    """Room for tasks with two edges each."""
    i, ticks = np.int32, np.int64
    return Tasks(
        np.zeros(n, ticks),
        np.full(n, -1, i),
        np.full(n, -1, ticks),
        np.zeros((1, n), i),
        2 * np.arange(n + 1, dtype=i),
        np.full(2 * n, -1, i),
        np.zeros(2 * n, i),
        np.ones(links, i),
    )


@inlined
def spend(b: Board, of: Log, k: int, seconds: float) -> None:
    """A shard or a message costs so much."""
    more = np.int64(min(seconds, AT_MOST_S) * 1e6 + 1) - of[k]
    of[k] += more
    b.note[SPENT] += more


@inlined
def mark(b: Board, shard: int) -> None:
    """Something about a shard has changed."""
    if b.marked[ix(shard)] != b.note[CHANGE]:
        b.marked[ix(shard)] = b.note[CHANGE]
        b.dirty[ix(b.note[DIRTY])] = shard
        b.note[DIRTY] += 1


@inlined
def insert(b: Board, shard: int, device: int) -> None:
    """A shard joins a program: those are in the order of the shards."""
    before = _last_on(b, device, shard)
    after = b.begin[ix(device)] if before < 0 else b.after[ix(before)]
    b.on[ix(shard)] = device
    _follow(b, device, before, shard)
    _follow(b, device, shard, after)


@inlined
def _last_on(b: Board, device: int, shard: int) -> int:
    """The last shard before another one that is on a device; -1: there is none."""
    task = b.task[ix(shard)]
    before = shard - 1
    while before >= 0 and b.on[ix(before)] != device:
        before -= 1
        if before < b.shards.ptr[ix(task)]:
            task -= 1
            before = b.shards.end[ix(task)] - 1 if task >= 0 else -1
    return before


@inlined
def pull_out(b: Board, shard: int) -> None:
    """A shard leaves a program."""
    before, after = b.before[ix(shard)], b.after[ix(shard)]
    _follow(b, b.on[ix(shard)], before, after)
    b.on[ix(shard)] = -1
    take_out(b.history, b.number[ix(shard)])
    if before >= 0:
        mark(b, before)
    if after >= 0:
        mark(b, after)


@inlined
def _follow(b: Board, device: int, shard: int, after: int) -> None:
    """One shard after another one in a program; -1: its beginning, or end."""
    if after >= 0:
        b.before[ix(after)] = shard
    if shard >= 0:
        b.after[ix(shard)] = after
    else:
        b.begin[ix(device)] = after


@inlined
def link_around(g: GraphArrays, c: CostArrays, b: Board, shard: int) -> None:
    """Tasks of the segments that a shard and its neighbours are in."""
    if b.on[ix(shard)] >= 0:
        last = max(shard, b.after[ix(shard)])
        head = b.before[ix(shard)] if b.before[ix(shard)] >= 0 else shard
        while not _begins(b, head):
            head = b.before[ix(head)]
        while 0 <= head <= last:
            if b.linked[ix(head)] != b.note[CHANGE]:
                b.linked[ix(head)], b.behind[ix(head)] = b.note[CHANGE], _link_segment(g, c, b, head)
            head = b.behind[ix(head)]


@inlined
def _begins(b: Board, shard: int) -> bool:
    """Whether a segment begins with a shard: it waits for something, or comes after one that sends."""
    return b.before[ix(shard)] < 0 or b.waits[ix(shard)] > 0 or b.sends[ix(b.before[ix(shard)])] > 0


@inlined
def _link_segment(g: GraphArrays, c: CostArrays, b: Board, head: int) -> int:
    """The tasks of a segment, and of what its last shard sends; returns the shard that the next one begins with."""
    shard = head
    work, spent = _ticks_in(g, c, b, shard, head, 0.0)
    duration = work + step_ticks(c, b.on[ix(head)]) + b.receives[ix(head)]
    b.claims[ix(head)] += step_ticks(c, b.on[ix(head)])
    if b.waits[ix(head)] > 0:
        duration += wake_ticks(c, b.on[ix(head)])
    while b.after[ix(shard)] >= 0 and not _begins(b, b.after[ix(shard)]):
        shard = b.after[ix(shard)]
        work, spent = _ticks_in(g, c, b, shard, head, spent)
        duration = max(0, duration + work)
        take_out(b.history, b.number[ix(shard)])
    put(b.history, b.number[ix(head)], -1, duration, -1)
    edge, following = 2 * b.number[ix(head)], b.after[ix(shard)]
    if b.sends[ix(shard)] > 0:
        edge = _link_messages(g, c, b, shard, edge)
    link(b.history, edge, -1 if following < 0 else b.number[ix(following)])
    return following


@inlined
def _ticks_in(g: GraphArrays, c: CostArrays, b: Board, shard: int, head: int, spent: float) -> tuple[int, float]:
    """What a shard adds to the segment that begins with ``head``, and what is spent then."""
    work, before = b.work[ix(shard)], spent
    here, first = b.on[ix(head)], _is_first(g, b, head)
    rests = c.rested[ix(here), PART] > 0
    rested = rests and begins_rested(g, b.shards, here, b.waits[ix(head)] > 0, first)
    cold = rested or not first
    if len(c.beside) > 0 or rests:
        task = b.task[ix(shard)]
        seconds = seconds_of(g, b.shards, c, task, share_of(g, b.shards, task, shard), here, head, spent, rested)
        work, spent = ticks(seconds), spent + seconds
    b.claims[ix(shard)] = work
    if rests and cold:
        b.claims[ix(shard)] = ticks(claimed(c, here, spent, rested, cold) - claimed(c, here, before, rested, cold))
    return work, spent


@inlined
def _is_first(g: GraphArrays, b: Board, shard: int) -> bool:
    """Whether nothing but inputs of the network is before a shard in its device's program."""
    before = b.before[ix(shard)]
    return before < 0 or b.task[ix(before)] < g.n_inputs


@inlined
def _link_messages(g: GraphArrays, c: CostArrays, b: Board, shard: int, edge: int) -> int:
    """A shard hands over its messages, then attends to them, one after the other; returns the edge to what follows."""
    task, n_devices = b.task[ix(shard)], len(b.scope)
    for stage in range(c.stages):
        if stage in (SEND, ATTEND):
            for tensor in range(g.tensor_ptr[ix(task)], g.tensor_ptr[ix(task + 1)]):
                slot = b.slot[ix(tensor)] + shard - b.shards.ptr[ix(task)]
                for device in range(n_devices):
                    if b.reader[ix(slot * n_devices + device)] >= 0:
                        following = b.first[ix(slot)] + c.stages * device + stage
                        link(b.history, edge, following)
                        edge = 2 * following
    return edge
