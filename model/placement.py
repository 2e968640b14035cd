"""Placements: a graph of operators, each whole on one device, as papers on device placement have it.

Devices are joined by channels, each of which moves one tensor at a time. An output goes to a device once, however many
operators need it there; gradients flow the other way, one for each operand, those for one device in one transfer.
Everything becomes tasks of ``model.events``: operators have the numbers 0 .. n, those of the backward pass follow,
then come the transfers. Devices are the first resources, channels the others.

Memory is counted after the simulation, along the order in which its tasks ended. It follows Andreassen (Optimizing
device placement, 2020, section 3.1): weights stay; an output lies on its device until it has been sent and all that
read it there are done, for good where nothing follows in time; a backward operator needs its operands again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from model.arrays import Ints
from model.compiled import allocating, inlined, kernel
from model.events import Rules, Tasks, Times, ix, simulate, state

Bytes = NDArray[np.int64]

CHUNK = 64
"""Placements that share one thread's working memory."""


class Work(NamedTuple):
    """What is placed, and on what: ``n`` operators in topological order, ``E`` edges, ``D`` devices, ``R`` resources.

    child_ptr, child:   (n + 1,), (E,) readers of an operator's output
    parent_ptr, parent: (n + 1,), (E,) operands
    time:     (passes, n, D) of an operator on a device; one pass: inference; a second one: training, its backward pass
    size:     (n,) of an operator's output (and of its gradient) where it moves, in any unit
    pace, least: (D, D) time that a unit takes from device to device, and that a transfer takes at least
    channel:  (D, D) resource that moves it, D .. R; -1: one that is never busy
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
    resources: Ints
    output: Bytes
    weights: Bytes


class Moves(NamedTuple):
    """Transfers of one frame, numbered from 0, and how they are found. The last of all ``T`` stands for what stays.

    source: (T,) task whose result moves; device: (T,) where it goes; uses: (T,) edges that it serves
    carrier: (passes, E) the transfer over an edge
    edge: (T,) where the next of its tasks is noted; last: (D,) the latest transfer to a device
    """

    source: Ints
    device: Ints
    uses: Ints
    carrier: Ints
    edge: Ints
    last: Ints


class Usage(NamedTuple):
    """Memory: ``held`` (frames * n, D) future uses of an output on a device, ``now`` and ``peak`` (D,) bytes."""

    held: Ints
    now: Bytes
    peak: Bytes


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
) -> Work:
    """Arrays of ``Work``. children, parents: of each operator, in the order in which they are served"""
    channels = np.ascontiguousarray(channel, dtype=np.int32)
    devices = len(channels)
    return Work(
        *_rows(children),
        *_rows(parents),
        np.ascontiguousarray(time),
        np.ascontiguousarray(size),
        np.ascontiguousarray(pace),
        np.ascontiguousarray(least),
        channels,
        np.ones(max(devices, int(channels.max()) + 1), dtype=np.int32),
        np.ascontiguousarray(output, dtype=np.int64),
        np.ascontiguousarray(weights, dtype=np.int64),
    )


def _rows(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Lists one after the other, with where each begins."""
    ends = np.cumsum([0, *map(len, lists)])
    return ends.astype(np.int32), np.array([i for row in lists for i in row], dtype=np.int32)


def admitting(work: Work, in_flight: int, heap_ties: bool = False, wakeups: bool = False) -> Rules:
    """``Rules`` for so many frames at once; one is let in when devices of operators without operands are idle."""
    entry = np.flatnonzero(np.diff(work.parent_ptr) == 0).astype(np.int32)
    return Rules(heap_ties, wakeups, in_flight, entry)


def evaluate(work: Work, placements: Ints, rules: Rules, frames: int = 1, memory: bool = True) -> tuple[Times, Bytes]:
    """Simulate each of ``(B, n)`` placements (a device for each operator) on all cores.

    Returns (B,) time until all of the frames are done, and (B, D) bytes of the fullest moment of each device, (0, D)
    without ``memory``. Equal placements give equal bits on any number of threads.
    """
    placements = np.ascontiguousarray(placements, dtype=np.int32)
    times = np.empty(len(placements), dtype=work.time.dtype)
    peaks = np.empty((len(placements) if memory else 0, len(work.channel)), dtype=np.int64)
    _evaluate(work, placements, rules, frames, times, peaks)
    return times, peaks


@allocating(parallel=True)
def _evaluate(work: Work, placements: Ints, rules: Rules, frames: int, times: Times, peaks: Bytes) -> None:
    for chunk in prange((len(placements) + CHUNK - 1) // CHUNK):
        tasks, moves = room(work)
        desk = state(frames * len(tasks.lag), len(tasks.lanes), frames, work.time[0, 0, 0] * 0)
        lies = usage(work, frames)
        for i in range(chunk * CHUNK, min(len(placements), (chunk + 1) * CHUNK)):
            n = lower(work, placements[i], tasks, moves)
            ended = simulate(tasks, n, frames, rules, desk)
            times[i] = desk.stop[desk.order[ended - 1]]
            if len(peaks):
                walk(work, placements[i], moves, desk.order[:ended], n, lies)
                peaks[i] = lies.peak


@allocating()
def room(work: Work) -> tuple[Tasks, Moves]:
    """Memory for the tasks of any placement, with all that is the same for each of them."""
    passes, n, devices = work.time.shape
    edges, i = len(work.child), np.int32
    most = passes * (n + edges)
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
        np.zeros(passes * (n + 3 * edges), i),
        np.zeros(passes * (n + 3 * edges), i),
        work.resources,
    )
    moves = passes * edges + 1
    return tasks, Moves(
        np.zeros(moves, i),
        np.zeros(moves, i),
        np.zeros(moves, i),
        np.zeros((passes, edges), i),
        np.zeros(moves, i),
        np.zeros(devices, i),
    )


@allocating()
def usage(work: Work, frames: int) -> Usage:
    """Memory to count memory in."""
    _, n, devices = work.time.shape
    return Usage(np.zeros((frames * n, devices), np.int32), np.zeros(devices, np.int64), np.zeros(devices, np.int64))


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
            edge, moves = _hand_on(work, place, t, m, p, op, ptr, near, edge, moves)
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
def _deliver(work: Work, t: Tasks, m: Moves, edge: int, moves: int) -> None:
    """What a transfer brings is used by the operators that it is for; what stays is put behind all edges."""
    passes, n, _ = work.time.shape
    for move in range(moves):
        t.first[ix(passes * n + move)] = m.edge[ix(move)] = edge
        edge += m.uses[ix(move)]
    t.first[passes * n + moves] = m.edge[len(m.edge) - 1] = edge
    for p in range(passes):
        near = work.parent if p else work.child
        for use in range(len(near)):
            move = m.carrier[p, use]
            t.to[ix(m.edge[ix(move)])] = p * n + near[use]
            m.edge[ix(move)] += 1


@kernel()
def walk(work: Work, place: Ints, m: Moves, order: Ints, n: int, u: Usage) -> None:
    """Fill ``u.peak``: bytes of the fullest moment of each device. order: rows of ``n`` tasks a frame, as they ended"""
    passes, ops, _ = work.time.shape
    u.held[:], u.now[:] = 0, 0
    for op in range(ops):
        u.now[place[op]] += work.weights[op]
    for device in range(len(u.now)):
        u.peak[device] = u.now[device]
    for row in order:
        frame = row // n
        task = row - frame * n
        first = frame * ops
        if task < ops:
            _forward(work, place, u, first, task)
        elif task < passes * ops:
            _backward(work, place, u, first, task - ops)
        else:
            _move(work, place, m, u, first, task - passes * ops)


@inlined
def _forward(work: Work, place: Ints, u: Usage, first: int, op: int) -> None:
    """An output is there. Inference: what nobody reads is a result and stays; operands go, after they were counted."""
    inference = len(work.time) == 1
    device, readers = place[op], work.child_ptr[op + 1] - work.child_ptr[op]
    if readers or inference:
        _keep(u, first + op, device, readers, work.output[op])
    _count(u, device)
    if inference:
        _drop_operands(work, u, first, op, device)


@inlined
def _backward(work: Work, place: Ints, u: Usage, first: int, op: int) -> None:
    """A gradient for each operand is there; operands and the gradients that came in go, before anything is counted."""
    device = place[op]
    for edge in range(work.parent_ptr[op], work.parent_ptr[op + 1]):
        u.now[device] += work.output[work.parent[edge]]
    u.now[device] -= work.output[op] * (work.child_ptr[op + 1] - work.child_ptr[op])
    _drop_operands(work, u, first, op, device)
    _count(u, device)


@inlined
def _move(work: Work, place: Ints, m: Moves, u: Usage, first: int, move: int) -> None:
    """A transfer is done: what the sender kept for these readers is the receiver's."""
    ops = work.time.shape[1]
    op, device = m.source[move], m.device[move]
    if op < ops:
        _drop(u, first + op, place[op], m.uses[move], work.output[op])
        _keep(u, first + op, device, m.uses[move], work.output[op])
    else:
        for edge in range(work.parent_ptr[op - ops], work.parent_ptr[op - ops + 1]):
            if m.carrier[1, edge] == move:
                u.now[place[op - ops]] -= work.output[work.parent[edge]]
                u.now[device] += work.output[work.parent[edge]]
    _count(u, device)


@inlined
def _drop_operands(work: Work, u: Usage, first: int, op: int, device: int) -> None:
    for edge in range(work.parent_ptr[op], work.parent_ptr[op + 1]):
        _drop(u, first + work.parent[edge], device, 1, work.output[work.parent[edge]])


@inlined
def _keep(u: Usage, row: int, device: int, uses: int, size: int) -> None:
    u.held[row, device] = uses
    u.now[device] += size


@inlined
def _drop(u: Usage, row: int, device: int, uses: int, size: int) -> None:
    u.held[row, device] -= uses
    if u.held[row, device] == 0:
        u.now[device] -= size


@inlined
def _count(u: Usage, device: int) -> None:
    u.peak[device] = max(u.peak[device], u.now[device])
