"""Mappings one move apart: after a change of one layer's shards, the latency of the new mapping.

A full simulation lowers the mapping, makes tasks of it (``model.simulator.simulation``) and runs them. Here all of that
stays (``model.simulator.board``) and is patched: programs of the devices that lose or get a shard, messages of the
tensors that the layer reads and makes (``model.simulator.carrying``), tasks of the segments that are another one then.
``model.simulator.delta`` simulates what follows from it. The result is that of ``simulation.simulate``, exactly: the
same functions tell what a shard needs, how large a message is and how long things take, and ties are broken in the
same way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model.compiled import inlined, kernel
from model.cost.costs import PART, CostArrays
from model.cost.rest import most_chilled
from model.cost.seconds import seconds_of
from model.mappings.arrays import GraphArrays, Ints, ix
from model.mappings.lowering import Shards, place_ends, share_of
from model.simulator import delta, history
from model.simulator.board import (
    CHANGE,
    COUNT,
    DIRTY,
    KIND,
    READER,
    SPENT,
    TASK,
    WRITER,
    Board,
    empty,
    insert,
    link_around,
    mark,
    pull_out,
    spend,
)
from model.simulator.carrying import carry
from model.simulator.simulation import LONGEST_S, UNCOUNTABLE, longest
from model.simulator.ticks import TICK_S, ticks, waking_ticks
from runtime.errors import CleaveError


def board(
    g: GraphArrays, c: CostArrays, most: NDArray[np.int64], mapping: Shards, reader: int = -1, writer: int = -1
) -> Board:
    """A simulated mapping. most: (T,) shards that a task can get; reader, writer: as in ``Mapping``

    ``CleaveError`` for one that takes too long to be counted in ticks.
    """
    made = empty(g, c, np.maximum(most, np.diff(mapping.ptr)), reader, writer)
    if not _begin(g, c, made, mapping):
        raise CleaveError(f"the mapping may take more than {LONGEST_S:.0f} s; so much is not simulated")
    return made


@kernel()
def _begin(g: GraphArrays, c: CostArrays, b: Board, mapping: Shards) -> bool:
    """All shards are new; whether the mapping can be simulated."""
    for task in range(len(g.size)):
        first = mapping.ptr[task]
        count = mapping.ptr[task + 1] - first
        rows = slice(first, first + count)
        _write(b, task, mapping.kind[task], count, mapping.device[rows], mapping.start[rows], mapping.stop[rows])
        b.moved[task] = task
    _patch(g, c, b, len(g.size))
    if _countable(b):
        delta.propose(b.history)
        history.accept(b.history)
    return _countable(b)


@kernel()
def propose(
    g: GraphArrays, c: CostArrays, b: Board, task: int, kind: int, count: int, device: Ints, start: Ints, stop: Ints
) -> float:
    """Latency in seconds with other shards of a layer's task: the first ``count`` rows, as ``Shards`` has them.

    Then comes ``accept`` or ``reject``. UNCOUNTABLE where it could be more than ``LONGEST_S``: then only ``reject``.
    """
    s = b.shards
    b.note[TASK], b.note[KIND], b.note[COUNT] = task, s.kind[ix(task)], s.end[ix(task)] - s.ptr[ix(task)]
    for k in range(b.note[COUNT]):
        shard = s.ptr[ix(task)] + k
        b.kept[0, ix(k)], b.kept[1, ix(k)], b.kept[2, ix(k)] = (
            s.device[ix(shard)],
            s.start[ix(shard)],
            s.stop[ix(shard)],
        )
    _change(g, c, b, task, np.int64(kind), count, device, start, stop)  # of one type, or all of it is compiled twice
    if not _countable(b):
        return UNCOUNTABLE
    makespan, _ = delta.propose(b.history)
    return max(makespan, _longest_claim(c, b)) * TICK_S


@inlined
def _longest_claim(c: CostArrays, b: Board) -> np.int64:
    """As in ``simulation``."""
    b.busy[:] = 0
    for shard in range(len(b.on)):
        here = b.on[ix(shard)]
        if here >= 0 and c.rested[ix(here), PART] > 0:
            b.busy[ix(here)] += b.claims[ix(shard)] + b.turns[ix(shard)]
            if b.waits[ix(shard)] > 0:
                b.busy[ix(here)] += waking_ticks(c, here)
    return longest(b.busy)


@kernel()
def accept(b: Board) -> None:
    """The layer keeps the shards of the last proposal."""
    history.accept(b.history)


@kernel()
def reject(g: GraphArrays, c: CostArrays, b: Board) -> None:
    """The layer has its shards back."""
    _change(g, c, b, b.note[TASK], b.note[KIND], b.note[COUNT], b.kept[0], b.kept[1], b.kept[2])
    history.forget(b.history)


@kernel()
def _change(
    g: GraphArrays, c: CostArrays, b: Board, task: int, kind: int, count: int, device: Ints, start: Ints, stop: Ints
) -> None:
    """A task has other shards; inputs and outputs of the network may go with them."""
    _write(b, task, kind, count, device, start, stop)
    place_ends(g, b.shards, b.note[READER], b.note[WRITER])
    b.moved[0], moved = task, 1
    for end in range(len(g.size) - g.n_layers):
        other = end if end < g.n_inputs else end + g.n_layers
        if b.on[ix(b.shards.ptr[ix(other)])] != b.shards.device[ix(b.shards.ptr[ix(other)])]:
            b.moved[ix(moved)], moved = other, moved + 1
    _patch(g, c, b, moved)


@kernel()
def _patch(g: GraphArrays, c: CostArrays, b: Board, moved: int) -> None:
    """Patch all that hangs on the shards of tasks: of the first so many of ``b.moved``.

    One place for a change and for a mapping that is new, since so much is compiled into it.
    """
    b.note[DIRTY] = 0
    b.note[CHANGE] += 1
    output = b.shards.ptr[ix(len(g.size) - 1)]
    ended, ends = b.on[ix(output)], b.shards.device[ix(output)]
    for k in range(moved):
        _place(g, c, b, b.moved[ix(k)])
        _mark_readers(g, c, b, b.moved[ix(k)])
    for made in (False, True):
        ptr = g.tensor_ptr if made else g.edge_ptr
        for k in range(moved):
            for of in range(ptr[ix(b.moved[ix(k)])], ptr[ix(b.moved[ix(k)] + 1)]):
                carry(g, c, b, of if made else g.edge_tensor[ix(of)], made)
    if 0 <= ended != ends:
        _mark_first(g, b, ended)
        _mark_first(g, b, ends)
    for k in range(b.note[DIRTY]):
        link_around(g, c, b, b.dirty[ix(k)])


@inlined
def _mark_first(g: GraphArrays, b: Board, device: int) -> None:
    """What a device does first may take another time now: whether it rests before a frame has changed. Of its inputs
    each, and what follows."""
    shard = b.begin[ix(device)]
    while shard >= 0:
        mark(b, shard)
        shard = b.after[ix(shard)] if b.task[ix(shard)] < g.n_inputs else -1


@inlined
def _countable(b: Board) -> bool:
    """As in ``simulation``, about: by what the board knows of its tasks."""
    return b.note[SPENT] < LONGEST_S * 1e6


@inlined
def _write(b: Board, task: int, kind: int, count: int, device: Ints, start: Ints, stop: Ints) -> None:
    """A task has other shards."""
    s = b.shards
    for k in range(s.end[ix(task)] - s.ptr[ix(task)]):
        s.device[ix(s.ptr[ix(task)] + k)] = -1
    s.kind[ix(task)], s.end[ix(task)] = kind, s.ptr[ix(task)] + count
    for k in range(count):
        shard = s.ptr[ix(task)] + k
        s.device[ix(shard)], s.start[ix(shard)], s.stop[ix(shard)] = device[k], start[k], stop[k]


@inlined
def _place(g: GraphArrays, c: CostArrays, b: Board, task: int) -> None:
    """The shards of a task join the programs of their devices."""
    s = b.shards
    for shard in range(s.ptr[ix(task)], s.ptr[ix(task + 1)]):
        if b.on[ix(shard)] >= 0:
            b.scope[ix(b.on[ix(shard)])] = b.note[CHANGE]
        if b.on[ix(shard)] != s.device[ix(shard)]:
            if b.on[ix(shard)] >= 0:
                pull_out(b, shard)
            if s.device[ix(shard)] >= 0:
                insert(b, shard, s.device[ix(shard)])
        if b.on[ix(shard)] >= 0:
            b.scope[ix(b.on[ix(shard)])] = b.note[CHANGE]
            seconds = seconds_of(g, s, c, task, share_of(g, s, task, shard), b.on[ix(shard)], shard, 0.0, False)
            b.work[ix(shard)] = ticks(seconds)
            spend(b, b.spent, shard, most_chilled(c, b.on[ix(shard)], seconds, 1))
            mark(b, shard)
        else:
            spend(b, b.spent, shard, 0.0)


@inlined
def _mark_readers(g: GraphArrays, c: CostArrays, b: Board, task: int) -> None:
    """What reads a task, or goes back to it, may take another time: of putting parts together, or layouts kept."""
    if len(c.beside) > 0:
        for tensor in range(g.tensor_ptr[ix(task)], g.tensor_ptr[ix(task + 1)]):
            for use in range(g.use_ptr[ix(tensor)], g.use_ptr[ix(tensor + 1)]):
                _mark_task(b, g.use_task[ix(use)])
        for kept in range(c.kept_ptr[ix(task)], c.kept_ptr[ix(task + 1)]):
            _mark_task(b, c.kept_task[ix(kept)])


@inlined
def _mark_task(b: Board, task: int) -> None:
    """All shards of a task."""
    for shard in range(b.shards.ptr[ix(task)], b.shards.end[ix(task)]):
        mark(b, shard)
