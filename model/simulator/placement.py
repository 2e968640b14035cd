"""Placements: a graph of operators, each whole on one device, as papers on device placement have it.

Devices are joined by channels, each of which moves one tensor at a time. An output goes to a device once, however many
operators need it there; gradients flow the other way, one for each operand, those for one device in one transfer.
Everything becomes tasks of ``model.simulator.events``: operators have the numbers 0 .. n, those of the backward pass
follow, then come the transfers. Devices are the first resources, channels the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.compiled import allocating, inlined, kernel
from model.mappings.arrays import Ints, ix
from model.simulator.events import Tasks, Times

Bytes = NDArray[np.int64]


class Work(NamedTuple):
    """What is placed, and on what: ``n`` operators in topological order, ``E`` edges, ``D`` devices, ``R`` resources.

    child_ptr, child:   (n + 1,), (E,) readers of an operator's output
    parent_ptr, parent: (n + 1,), (E,) operands
    time:     (passes, n, D) of an operator on a device; one pass: inference; a second one: training, its backward pass
    size:     (n,) of an operator's output (and of its gradient) where it moves, in any unit
    pace, least: (D, D) time that a unit takes from device to device, and that a transfer takes at least
    channel:  (D, D) resource that moves it; -1: one that is never busy; a device: it does nothing else meanwhile
    leave, leave_pace: (D,) resource by which an output leaves its device, once, before it takes its channels, and time
              for a unit; -1: it takes them at once
    resources: (R,) ones
    output, weights: (n,) bytes
    """

    child_ptr: Ints
    child: Ints
    parent_ptr: Ints
    parent: Ints
    time: Times
    size: Times
    pace: Times
    least: Times
    channel: Ints
    leave: Ints
    leave_pace: Times
    resources: Ints
    output: Bytes
    weights: Bytes


class Moves(NamedTuple):
    """Transfers of one frame, numbered from 0, and how they are found. The last of all ``T`` stands for what stays.

    source: (T,) task whose result moves, -1: it leaves its device; device: (T,) where it goes
    uses: (T,) edges that it serves; where it leaves, transfers before it that follow
    carrier: (passes, E) the transfer over an edge
    edge: (T,) where the next of its tasks is noted; last: (D,) the latest transfer to a device
    """

    source: Ints
    device: Ints
    uses: Ints
    carrier: Ints
    edge: Ints
    last: Ints


def work(
    children: Sequence[Sequence[int]],
    parents: Sequence[Sequence[int]],
    time: Times,
    size: Times,
    pace: Times,
    least: Times,
    channel: Ints,
    output: Bytes,
    weights: Bytes,
    leave: Ints | None = None,
    leave_pace: Times | None = None,
) -> Work:
    """Arrays of ``Work``. children, parents: of each operator, in the order in which they are served"""
    channels = np.ascontiguousarray(channel, dtype=np.int32)
    devices = len(channels)
    ways = np.full(devices, -1, dtype=np.int32) if leave is None else np.ascontiguousarray(leave, dtype=np.int32)
    return Work(
        *_rows(children),
        *_rows(parents),
        np.ascontiguousarray(time),
        np.ascontiguousarray(size),
        np.ascontiguousarray(pace),
        np.ascontiguousarray(least),
        channels,
        ways,
        np.zeros(devices, dtype=time.dtype) if leave_pace is None else np.ascontiguousarray(leave_pace),
        np.ones(max(devices, int(channels.max()) + 1, int(ways.max()) + 1), dtype=np.int32),
        np.ascontiguousarray(output, dtype=np.int64),
        np.ascontiguousarray(weights, dtype=np.int64),
    )


def _rows(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Lists one after the other, with where each begins."""
    ends = np.cumsum([0, *map(len, lists)])
    return ends.astype(np.int32), np.array([i for row in lists for i in row], dtype=np.int32)


@allocating()
def room(work: Work) -> tuple[Tasks, Moves]:
    """Memory for the tasks of any placement, with all that is the same for each of them."""
    passes, n, devices = work.time.shape
    edges, i = len(work.child), np.int32
    most = passes * (2 * n + edges)
    needs = np.ones((1, most), dtype=i)
    for op in range(n):
        needs[0, op] = work.parent_ptr[op + 1] - work.parent_ptr[op]
        if passes > 1:
            needs[0, n + op] = max(1, work.child_ptr[op + 1] - work.child_ptr[op])
    zero = work.time[0, 0, 0] * 0
    tasks = Tasks(
        np.full(most + 1, zero),
        np.zeros(most + 1, i),
        np.full(most + 1, zero - 1),
        needs,
        np.zeros(most + 1, i),
        np.zeros(passes * (n + 4 * edges), i),
        np.zeros(passes * (n + 4 * edges), i),
        work.resources,
    )
    moves = passes * (n + edges) + 1
    return tasks, Moves(
        np.zeros(moves, i),
        np.zeros(moves, i),
        np.zeros(moves, i),
        np.zeros((passes, edges), i),
        np.zeros(moves, i),
        np.zeros(devices, i),
    )


@kernel()
def lower(work: Work, place: Ints, t: Tasks, m: Moves) -> int:
    """The tasks of a placement: operators, then transfers; returns how many there are."""
    passes, n, _ = work.time.shape
    m.last[:] = -1
    edge, moves = 0, 0
    for p in range(passes):
        ptr, near = (work.parent_ptr, work.parent) if p else (work.child_ptr, work.child)
        for op in range(n):
            task, device = p * n + op, place[op]
            t.duration[task], t.resource[task], t.first[task] = work.time[p, op, ix(device)], device, edge
            before = moves
            edge, moves = _hand_on(work, place, t, m, p, op, ptr, near, edge, moves)
            if moves > before and work.leave[ix(device)] >= 0:
                size = work.size[op] if p == 0 else _elsewhere(work, place, ptr, near, op)
                edge, moves = _leave(work, t, m, task, size, edge, before, moves)
            if p == 0 and passes > 1 and ptr[op] == ptr[op + 1]:
                t.to[edge] = n + op
                edge += 1
    _deliver(work, t, m, edge, moves)
    return passes * n + moves


@inlined
def _hand_on(
    work: Work, place: Ints, t: Tasks, m: Moves, p: int, op: int, ptr: Ints, near: Ints, edge: int, moves: int
) -> tuple[int, int]:
    """A result is used on its device, or moves to those where it is: one transfer each.

    An output moves once, of the gradients in the second pass each one does. What stays is written as a transfer, too,
    the last there is room for: who is where cannot be guessed, so a branch would cost more.
    """
    passes, n, _ = work.time.shape
    before, here, stays = moves, place[op], len(m.source) - 1
    m.last[ix(here)] = stays
    for use in range(ptr[op], ptr[op + 1]):
        user = near[use]
        there = place[ix(user)]
        fresh = m.last[ix(there)] < before
        move = moves if fresh else m.last[ix(there)]
        task = passes * n + move
        time = max(work.least[ix(here), ix(there)], work.size[ix(user if p else op)] * work.pace[ix(here), ix(there)])
        if p:
            time += 0 if fresh else t.duration[ix(task)]
        t.duration[ix(task)], t.resource[ix(task)] = time, work.channel[ix(here), ix(there)]
        m.source[ix(move)], m.device[ix(move)], m.last[ix(there)] = p * n + op, there, move
        m.uses[ix(move)] = 1 if fresh else m.uses[ix(move)] + 1
        m.carrier[p, use] = move
        t.to[ix(edge)] = p * n + user if there == here else task
        edge += int(fresh) | int(there == here)
        moves += int(fresh)
    m.last[ix(here)] = -1
    return edge, moves


@inlined
def _leave(work: Work, t: Tasks, m: Moves, task: int, size: Any, edge: int, before: int, moves: int) -> tuple[int, int]:
    """What moves leaves the device first: one transfer more, behind those that follow it."""
    operators = work.time.shape[0] * work.time.shape[1]
    end, edge = edge, t.first[task]
    for k in range(edge, end):
        if t.to[k] < operators:
            t.to[edge] = t.to[k]
            edge += 1
    device = t.resource[task]
    t.to[edge] = operators + moves
    t.duration[operators + moves], t.resource[operators + moves] = size * work.leave_pace[device], work.leave[device]
    m.source[moves], m.device[moves], m.uses[moves] = -1, device, moves - before
    return edge + 1, moves + 1


@inlined
def _elsewhere(work: Work, place: Ints, ptr: Ints, near: Ints, op: int) -> Any:
    """Size of all gradients that are used on other devices."""
    size = work.size[op] * 0
    for use in range(ptr[op], ptr[op + 1]):
        if place[near[use]] != place[op]:
            size += work.size[near[use]]
    return size


@inlined
def _deliver(work: Work, t: Tasks, m: Moves, edge: int, moves: int) -> None:
    """What a transfer brings is used by the operators that it is for; what stays is put behind all edges."""
    passes, n, _ = work.time.shape
    for move in range(moves):
        t.first[ix(passes * n + move)] = m.edge[ix(move)] = edge
        if m.source[ix(move)] < 0:
            for k in range(m.uses[ix(move)]):
                t.to[edge + k] = passes * n + move - m.uses[ix(move)] + k
        edge += m.uses[ix(move)]
    t.first[passes * n + moves] = m.edge[len(m.edge) - 1] = edge
    for p in range(passes):
        near = work.parent if p else work.child
        for use in range(len(near)):
            move = m.carrier[p, use]
            t.to[ix(m.edge[ix(move)])] = p * n + near[use]
            m.edge[ix(move)] += 1
