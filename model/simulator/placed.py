"""Placements simulated: how long they take, and the fullest moment of each device.

Memory is counted after the simulation, along the order in which its tasks ended. It follows Andreassen (Optimizing
device placement, 2020, section 3.1): weights stay; an output lies on its device until it has been sent and all that
read it there are done, in training until their gradients have used it, and for good where nobody reads it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from model.compiled import allocating, inlined, kernel, on_all_cores, released
from model.mappings.arrays import Ints
from model.simulator.events import Rules, Times, simulate, state
from model.simulator.placement import Bytes, Moves, Work, lower, room

CHUNK = 1024
"""Placements that share one thread's working memory, at most."""


class Usage(NamedTuple):
    """Memory: ``held`` (frames * n, D) future uses of an output on a device, ``now`` and ``peak`` (D,) bytes."""

    held: Ints
    now: Bytes
    peak: Bytes


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
    known = (work, placements, rules, frames, times, peaks)
    on_all_cores(lambda first, last: _evaluate(*known, first, last), len(placements), CHUNK)
    return times, peaks


@released()
def _evaluate(
    work: Work, placements: Ints, rules: Rules, frames: int, times: Times, peaks: Bytes, first: int, last: int
) -> None:
    """Placements ``first`` to ``last``."""
    tasks, moves = room(work)
    desk = state(frames * len(tasks.lag), len(tasks.lanes), frames, work.time[0, 0, 0] * 0)
    lies = usage(work, frames)
    for i in range(first, last):
        n = lower(work, placements[i], tasks, moves)
        ended = simulate(tasks, n, frames, rules, desk)
        times[i] = desk.stop[desk.order[ended - 1]]
        if len(peaks):
            walk(work, placements[i], moves, desk.order[:ended], n, lies)
            peaks[i] = lies.peak


@allocating()
def usage(work: Work, frames: int) -> Usage:
    """Memory to count memory in."""
    _, n, devices = work.time.shape
    return Usage(np.zeros((frames * n, devices), np.int32), np.zeros(devices, np.int64), np.zeros(devices, np.int64))


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
        elif m.source[task - passes * ops] >= 0:
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
