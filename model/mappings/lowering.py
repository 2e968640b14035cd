"""Lowering: from the shards of every task to the messages between devices.

One compiled implementation on flat arrays, for the search, for prices and for the plan that is emitted. What moves
between two devices is the intersection of what the producer's shard holds and what the consumer's shards need; a
piece goes to a device once, however many consumers it has there.

Why the programs that follow cannot deadlock: every device works through its shards in the one topological order of
the graph, a message goes from an earlier task to a later one, and sending does not block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.compiled import allocating, inlined, kernel
from model.mappings.arrays import GraphArrays, Ints, ix
from model.mappings.mapping import Mapping
from model.network.boxes import AXES, PARTIAL, ROWS

ELSEWHERE = -2
"""In place of a last task: some that read a tensor are on other devices, or divided."""


class Shards(NamedTuple):
    """Shards of all tasks: of task ``t`` the rows ``ptr[t]`` up to ``end[t]``, (T+1,) and (T,), split by ``kind`` (T,);
    then one row a shard: ``device``, ``start``, ``stop`` (S,) int32.

    One task's follow the last one's, ``end`` is a view of ``ptr``; in ``model.simulator.moves`` each has room for more.

    Inputs and outputs of the network are whole: on the mapping's reader and writer, or, where it names none, on the
    device of the first shard of the first layer that reads the input, and of the layer that makes the output.
    """

    ptr: Ints
    end: Ints
    kind: Ints
    device: Ints
    start: Ints
    stop: Ints


class Messages(NamedTuple):
    """What moves. ``M`` messages, ordered by the shard that sends; ``S`` shards.

    shard, tensor, device: (M,) sender, what, to whom; start, stop: (M, AXES) the box of the tensor
    out_ptr: (S+1,) messages that a shard sends
    in_ptr, in_message: (S+1,), (I,) messages that a shard needs; several shards of a device may need one message
    pieces: (S,) pieces of the most divided input of the shard, local and received
    last_use: (L,) last task that reads a piece on its own device (-1: none), a row for each tensor and shard
    slot_ptr: (N+1,) rows of a tensor in ``last_use``, one for each shard of its task
    held: (L * devices,) the message that brings a piece to a device
    low, high: (devices, AXES) scratch; ``high[:, 0]`` is 0 between messages
    home: (T,) the device of a task that is one shard, whole; -1: it is divided
    """

    shard: Ints
    tensor: Ints
    device: Ints
    start: Ints
    stop: Ints
    out_ptr: Ints
    in_ptr: Ints
    in_message: Ints
    pieces: Ints
    last_use: Ints
    slot_ptr: Ints
    held: Ints
    low: Ints
    high: Ints
    home: Ints


@inlined
def alone(s: Shards, task: int) -> bool:
    """Whether a task is one shard, whole."""
    return s.end[ix(task)] - s.ptr[ix(task)] == 1


@inlined
def share_of(g: GraphArrays, s: Shards, task: int, shard: int) -> float:
    """The part of a task's work that a shard does."""
    return 1.0 if alone(s, task) else (s.stop[ix(shard)] - s.start[ix(shard)]) / g.size[ix(task), ix(s.kind[ix(task)])]


@inlined
def needed(g: GraphArrays, s: Shards, edge: int, task: int, reader: int) -> tuple[int, int, int]:
    """Axis and interval that shard ``reader`` of ``task`` needs over ``edge`` (see ``boxes.Need``); axis -1: all."""
    need = g.edge_need[ix(edge), ix(s.kind[ix(task)])]
    if alone(s, task) or need[0] < 0:
        return -1, 0, 0
    axis, mul, div = need[0], need[1], need[2]
    low = max(0, s.start[ix(reader)] // div * mul + need[3])
    high = -(-s.stop[ix(reader)] // div) * mul + need[4]
    return axis, low, min(high, g.tensor_size[ix(g.edge_tensor[ix(edge)]), ix(axis)])


@inlined
def held_axis(s: Shards, maker: int) -> int:
    """Axis along which the shards of a task divide its output; -1 where each has all of it."""
    whole = alone(s, maker) or s.kind[ix(maker)] == PARTIAL
    return -1 if whole else s.kind[ix(maker)]


@inlined
def offered(s: Shards, maker: int, shard: int, along: int, device: int) -> tuple[int, int]:
    """What ``device`` takes of ``shard``, one of those that task ``maker`` is divided into ``along`` an axis.

    Its own device takes all of it. Rows may be on several devices (fused tiles): another one takes those that it does
    not have itself, each from the first shard that has it.
    """
    low, high = s.start[ix(shard)], s.stop[ix(shard)]
    if along != ROWS or s.device[ix(shard)] == device:
        return low, high
    if shard > s.ptr[ix(maker)]:
        low = max(low, s.stop[ix(shard - 1)])
    for other in range(shard + 1, s.end[ix(maker)]):
        if s.start[ix(other)] < high and s.device[ix(other)] == device:
            high = s.start[ix(other)]
    return low, high


@inlined
def touches(s: Shards, maker: int, shard: int, along: int, device: int, axis: int, low: int, high: int) -> bool:
    """Whether the need of ``device`` for ``low..high`` of ``axis`` meets what it takes of ``shard``."""
    begin, end = offered(s, maker, shard, along, device)
    if along >= 0 and begin >= end:
        return False
    if axis >= 0 and axis == along:
        return max(low, begin) < min(high, end)
    return axis < 0 or low < high


@inlined
def place_ends(g: GraphArrays, s: Shards, reader: int, writer: int) -> None:
    """Put inputs and outputs of the network on ``reader`` and ``writer``; those below 0: see ``Shards``."""
    for task in range(g.n_inputs):
        first = g.use_ptr[task]
        at = s.ptr[g.use_task[first]] if g.use_ptr[task + 1] > first else s.ptr[g.n_inputs]
        s.device[s.ptr[task]] = s.device[at] if reader < 0 else reader
    for task in range(g.n_inputs + g.n_layers, len(g.size)):
        maker = g.tensor_task[g.edge_tensor[g.edge_ptr[task]]]
        s.device[s.ptr[task]] = s.device[s.ptr[maker]] if writer < 0 else writer


@kernel()
def lower(g: GraphArrays, s: Shards, n_devices: int, m: Messages) -> None:
    """Fill ``m``, which ``messages`` has made large enough, with what the shards send to one another."""
    count = needs = slots = 0
    m.in_ptr[0] = 0
    for task in range(len(g.size)):
        m.home[ix(task)] = s.device[ix(s.ptr[ix(task)])] if alone(s, task) else -1
    for task in range(len(g.size)):
        first, last = s.ptr[task], s.ptr[task + 1]
        for shard in range(first, last):
            needs = _receive(g, s, task, shard, n_devices, m, needs)
            m.in_ptr[ix(shard + 1)] = needs
        for tensor in range(g.tensor_ptr[task], g.tensor_ptr[task + 1]):
            m.slot_ptr[ix(tensor)] = slots
            slots += last - first
        for shard in range(first, last):
            m.out_ptr[ix(shard)] = count
            for tensor in range(g.tensor_ptr[task], g.tensor_ptr[task + 1]):
                slot = m.slot_ptr[ix(tensor)] + shard - first
                m.last_use[ix(slot)] = _last_here(g, m, tensor, m.home[ix(task)])
                if m.last_use[ix(slot)] == ELSEWHERE:
                    count = _send(g, s, tensor, shard, slot, n_devices, m, count)
    m.slot_ptr[len(g.tensor_task)] = slots
    m.out_ptr[s.ptr[len(g.size)]] = count


@inlined
def _last_here(g: GraphArrays, m: Messages, tensor: int, home: int) -> int:
    """The last task that reads a whole tensor, where all that do are whole and at ``home``: the most common case."""
    last = -1 if home >= 0 else ELSEWHERE
    for use in range(g.use_ptr[ix(tensor)], g.use_ptr[ix(tensor + 1)]):
        reader = g.use_task[ix(use)]
        if home < 0 or m.home[ix(reader)] != home:
            last = ELSEWHERE
            break
        last = reader
    return last


@inlined
def _receive(g: GraphArrays, s: Shards, task: int, shard: int, n_devices: int, m: Messages, needs: int) -> int:
    """Note the messages that ``shard`` waits for; returns the number of needs so far."""
    device = s.device[ix(shard)]
    most = 0
    for edge in range(g.edge_ptr[ix(task)], g.edge_ptr[ix(task + 1)]):
        tensor = ix(g.edge_tensor[ix(edge)])
        maker = ix(g.tensor_task[tensor])
        if m.home[ix(task)] >= 0 and m.home[maker] == device:
            most = max(most, 1)
            continue
        along = held_axis(s, maker)
        axis, low, high = needed(g, s, edge, task, shard)
        pieces = 0
        for source in range(s.ptr[maker], s.ptr[ix(maker + 1)]):
            if not touches(s, maker, source, along, device, axis, low, high):
                continue
            pieces += 1
            if s.device[ix(source)] != device:
                slot = m.slot_ptr[tensor] + source - s.ptr[maker]
                m.in_message[ix(needs)] = m.held[ix(slot * n_devices + device)]
                needs += 1
        most = max(most, pieces)
    m.pieces[ix(shard)] = most
    return needs


@inlined
def _send(
    g: GraphArrays, s: Shards, tensor: int, shard: int, slot: int, n_devices: int, m: Messages, count: int
) -> int:
    """Emit one message to each device that needs some of the shard's piece of ``tensor``; returns the count so far."""
    here, maker = s.device[ix(shard)], ix(g.tensor_task[ix(tensor)])
    along = held_axis(s, maker)
    last, lowest, highest = -1, n_devices, -1
    for use in range(g.use_ptr[ix(tensor)], g.use_ptr[ix(tensor + 1)]):
        task, edge = g.use_task[ix(use)], g.use_edge[ix(use)]
        for reader in range(s.ptr[ix(task)], s.ptr[ix(task + 1)]):
            axis, low, high = needed(g, s, edge, task, reader)
            device = s.device[ix(reader)]
            if not touches(s, maker, shard, along, device, axis, low, high):
                continue
            if device == here:
                last = task
            else:
                widen(g, s, m, device, tensor, shard, along, axis, low, high)
                lowest, highest = min(lowest, device), max(highest, device)
    m.last_use[ix(slot)] = last
    for device in range(lowest, highest + 1):
        if m.high[ix(device), 0] > 0:
            m.shard[ix(count)], m.tensor[ix(count)], m.device[ix(count)] = shard, tensor, device
            for k in range(AXES):
                m.start[ix(count), k], m.stop[ix(count), k] = m.low[ix(device), k], m.high[ix(device), k]
            m.high[ix(device), 0] = 0
            m.held[ix(slot * n_devices + device)] = count
            count += 1
    return count


@inlined
def widen(
    g: GraphArrays,
    s: Shards,
    m: Messages,
    device: int,
    tensor: int,
    shard: int,
    along: int,
    axis: int,
    low: int,
    high: int,
) -> None:
    """Make the box that goes to ``device`` hold what is needed of the shard's piece, too."""
    first = m.high[ix(device), 0] == 0
    for k in range(AXES):
        begin, end = 0, g.tensor_size[ix(tensor), k]
        if k == along:
            begin, end = offered(s, g.tensor_task[ix(tensor)], shard, along, device)
        if k == axis:
            begin, end = max(begin, low), min(end, high)
        m.low[ix(device), k] = begin if first else min(m.low[ix(device), k], begin)
        m.high[ix(device), k] = end if first else max(m.high[ix(device), k], end)


class Room(NamedTuple):
    """How much a mapping can take at most: shards, messages, needs of shards, slots, devices."""

    shards: int
    messages: int
    needs: int
    slots: int
    devices: int


def room(g: GraphArrays, most: NDArray[np.int64], n_devices: int) -> Room:
    """Room for any mapping that has at most ``most[t]`` shards of task ``t``, (T,)."""
    slots = int(most[g.tensor_task].sum())
    edge_task = np.repeat(np.arange(len(g.size)), np.diff(g.edge_ptr))
    needs = int((most[edge_task] * most[g.tensor_task[g.edge_tensor]]).sum())
    return Room(int(most.sum()), min(needs, slots * n_devices), needs, slots, n_devices)


@allocating()
def messages(r: Room) -> Messages:
    """Arrays for messages, as large as ``r`` says."""
    i = np.int32
    return Messages(
        np.zeros(r.messages, i),
        np.zeros(r.messages, i),
        np.zeros(r.messages, i),
        np.zeros((r.messages, AXES), i),
        np.zeros((r.messages, AXES), i),
        np.zeros(r.shards + 1, i),
        np.zeros(r.shards + 1, i),
        np.zeros(r.needs, i),
        np.zeros(r.shards, i),
        np.zeros(r.slots, i),
        np.zeros(r.slots + 1, i),
        np.zeros(r.slots * r.devices, i),
        np.zeros((r.devices, AXES), i),
        np.zeros((r.devices, AXES), i),
        np.zeros(r.shards, i),
    )


def shards_of(g: GraphArrays, mapping: Mapping) -> Shards:
    """The shards of a checked mapping, those of the network's inputs and outputs included."""
    rows = mapping.by_layer(g.n_layers)
    ends = len(g.size) - g.n_inputs - g.n_layers
    whole = [(0, 0, 1)]
    flat = [*[whole] * g.n_inputs, *[[(s.device, s.start, s.stop) for s in row] for row in rows], *[whole] * ends]
    kinds = [0] * g.n_inputs + [row[0].axis for row in rows] + [0] * ends
    columns = np.array([part for row in flat for part in row], dtype=np.int32).T
    device, start, stop = (np.ascontiguousarray(column) for column in columns)
    ptr = np.concatenate(([0], np.cumsum([len(row) for row in flat]))).astype(np.int32)
    shards = Shards(ptr, ptr[1:], np.array(kinds, dtype=np.int32), device, start, stop)
    place_ends(g, shards, mapping.reader, mapping.writer)
    return shards


def lowered(g: GraphArrays, shards: Shards, n_devices: int) -> Messages:
    """The messages of one mapping, in arrays of their own."""
    m = messages(room(g, np.diff(shards.ptr).astype(np.int64), n_devices))
    lower(g, shards, n_devices, m)
    return m
