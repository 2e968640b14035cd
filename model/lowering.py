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

from model.arrays import GraphArrays, Ints
from model.compiled import allocating, inlined, kernel
from model.mapping import Mapping


class Shards(NamedTuple):
    """Shards of all tasks: ``ptr`` (T+1,), then one row a shard: ``device``, ``start``, ``stop`` (S,) int32.

    Inputs and outputs of the network are whole: on the device of the first shard of the first layer that reads the
    input, and of the first shard of the layer that makes the output.
    """

    ptr: Ints
    device: Ints
    start: Ints
    stop: Ints


class Messages(NamedTuple):
    """What moves. ``M`` messages, ordered by the shard that sends; ``S`` shards.

    shard, tensor, device, start, stop: (M,) sender, what, to whom, interval along the channel axis
    out_ptr: (S+1,) messages that a shard sends
    in_ptr, in_message: (S+1,), (I,) messages that a shard needs; several shards of a device may need one message
    pieces: (S,) pieces of the most divided input of the shard, local and received
    last_use: (L,) last task that reads a piece on its own device (-1: none), a row for each tensor and shard
    slot_ptr: (N+1,) rows of a tensor in ``last_use``, one for each shard of its task
    held: (L * devices,) the message that brings a piece to a device; low, high: (devices,) scratch
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


@inlined
def needed(need: Ints, start: int, stop: int, size: int) -> tuple[int, int]:
    """``boxes.Need.interval`` for compiled code."""
    if need[0] < 0:
        return 0, size
    first = max(0, start // need[2] * need[1] + need[3])
    last = min(size, -(-stop // need[2]) * need[1] + need[4])
    return first, max(first, last)


@inlined
def place_ends(g: GraphArrays, s: Shards) -> None:
    """Put inputs and outputs of the network where their first reader and their maker are (see ``Shards``)."""
    for task in range(g.n_inputs):
        first = g.use_ptr[task]
        at = s.ptr[g.use_task[first]] if g.use_ptr[task + 1] > first else s.ptr[g.n_inputs]
        s.device[s.ptr[task]] = s.device[at]
    for task in range(g.n_inputs + g.n_layers, len(g.size)):
        maker = g.tensor_task[g.edge_tensor[g.edge_ptr[task]]]
        s.device[s.ptr[task]] = s.device[s.ptr[maker]]


@kernel()
def lower(g: GraphArrays, s: Shards, n_devices: int, m: Messages) -> None:
    """Fill ``m``, which ``messages`` has made large enough, with what the shards send to one another."""
    count = needs = slots = 0
    m.in_ptr[0] = 0
    for task in range(len(g.size)):
        first, last = s.ptr[task], s.ptr[task + 1]
        for shard in range(first, last):
            needs = _receive(g, s, task, shard, n_devices, m, needs)
            m.in_ptr[shard + 1] = needs
        for tensor in range(g.tensor_ptr[task], g.tensor_ptr[task + 1]):
            m.slot_ptr[tensor] = slots
            slots += last - first
        for shard in range(first, last):
            m.out_ptr[shard] = count
            for tensor in range(g.tensor_ptr[task], g.tensor_ptr[task + 1]):
                count = _send(g, s, tensor, shard, m.slot_ptr[tensor] + shard - first, n_devices, m, count)
    m.slot_ptr[len(g.tensor_task)] = slots
    m.out_ptr[s.ptr[len(g.size)]] = count


@inlined
def _receive(g: GraphArrays, s: Shards, task: int, shard: int, n_devices: int, m: Messages, needs: int) -> int:
    """Note the messages that ``shard`` waits for; returns the number of needs so far."""
    device = s.device[shard]
    m.pieces[shard] = 0
    for edge in range(g.edge_ptr[task], g.edge_ptr[task + 1]):
        tensor = g.edge_tensor[edge]
        low, high = needed(g.edge_need[edge], s.start[shard], s.stop[shard], g.tensor_size[tensor])
        maker = g.tensor_task[tensor]
        pieces = 0
        for source in range(s.ptr[maker], s.ptr[maker + 1]):
            if min(high, s.stop[source]) <= max(low, s.start[source]):
                continue
            pieces += 1
            if s.device[source] != device:
                slot = m.slot_ptr[tensor] + source - s.ptr[maker]
                m.in_message[needs] = m.held[slot * n_devices + device]
                needs += 1
        m.pieces[shard] = max(m.pieces[shard], pieces)
    return needs


@inlined
def _send(
    g: GraphArrays, s: Shards, tensor: int, shard: int, slot: int, n_devices: int, m: Messages, count: int
) -> int:
    """Emit one message to each device that needs some of the shard's piece of ``tensor``; returns the count so far."""
    here = s.device[shard]
    m.last_use[slot] = -1
    m.low[:n_devices] = np.iinfo(np.int32).max
    m.high[:n_devices] = 0
    for use in range(g.use_ptr[tensor], g.use_ptr[tensor + 1]):
        task = g.use_task[use]
        for reader in range(s.ptr[task], s.ptr[task + 1]):
            low, high = needed(g.edge_need[g.use_edge[use]], s.start[reader], s.stop[reader], g.tensor_size[tensor])
            low, high = max(low, s.start[shard]), min(high, s.stop[shard])
            if low >= high:
                continue
            there = s.device[reader]
            m.low[there] = min(m.low[there], low)
            m.high[there] = max(m.high[there], high)
            if there == here:
                m.last_use[slot] = task
    for device in range(n_devices):
        if device != here and m.low[device] < m.high[device]:
            m.shard[count], m.tensor[count], m.device[count] = shard, tensor, device
            m.start[count], m.stop[count] = m.low[device], m.high[device]
            m.held[slot * n_devices + device] = count
            count += 1
    return count


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
        np.zeros(r.messages, i),
        np.zeros(r.messages, i),
        np.zeros(r.shards + 1, i),
        np.zeros(r.shards + 1, i),
        np.zeros(r.needs, i),
        np.zeros(r.shards, i),
        np.zeros(r.slots, i),
        np.zeros(r.slots + 1, i),
        np.zeros(r.slots * r.devices, i),
        np.zeros(r.devices, i),
        np.zeros(r.devices, i),
    )


def shards_of(g: GraphArrays, mapping: Mapping) -> Shards:
    """The shards of a checked mapping, those of the network's inputs and outputs included."""
    rows = mapping.by_layer(g.n_layers)
    ends = len(g.size) - g.n_inputs - g.n_layers
    counts = [1] * g.n_inputs + [len(row) for row in rows] + [1] * ends
    flat = [s for row in rows for s in row]
    start, stop, device = ([0] * g.n_inputs, list(g.size[: g.n_inputs]), [0] * g.n_inputs)
    start += [s.start for s in flat] + [0] * ends
    stop += [s.stop for s in flat] + list(g.size[g.n_inputs + g.n_layers :])
    device += [s.device for s in flat] + [0] * ends
    ptr = np.concatenate(([0], np.cumsum(counts)))
    shards = Shards(*(np.array(v, dtype=np.int32) for v in (ptr, device, start, stop)))
    place_ends(g, shards)
    return shards


def lowered(g: GraphArrays, shards: Shards, n_devices: int) -> Messages:
    """The messages of one mapping, in arrays of their own."""
    m = messages(room(g, np.diff(shards.ptr).astype(np.int64), n_devices))
    lower(g, shards, n_devices, m)
    return m
