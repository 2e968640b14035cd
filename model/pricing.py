"""Pricing: latency, period, energy and memory of a lowered mapping (section 4.3 of the thesis).

Every device works through its shards in topological order; a shard starts when its device is free and its pieces are
there. A message (Eq. 4.8) occupies the sending and the receiving side of its medium: the network card of a host, or
the copy engine between two units of one host.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from model import boxes
from model.arrays import GraphArrays
from model.compiled import allocating, inlined, kernel
from model.costs import CostArrays, Floats
from model.lowering import Messages, Room, Shards

COMPUTE, COMMUNICATE, WAIT, ENERGY, WEIGHTS, ACTIVATIONS, BUFFERS, MEMORY = range(8)
"""Columns of an account: seconds, seconds, seconds, joules, then bytes."""
COLUMNS = 8


class Ledger(NamedTuple):
    """What a price is made of. ``S`` shards, ``M`` messages, ``D`` devices; seconds from the start of the frame.

    start, stop: (S,) of a shard; depart, arrive: (M,) of a message
    account: (D, COLUMNS) what each device spends, see the column names
    free: (D,) when a device is free; sender, receiver: (ports,) when a card is; alive: (D,) bytes held (scratch)
    """

    start: Floats
    stop: Floats
    depart: Floats
    arrive: Floats
    account: Floats
    free: Floats
    sender: Floats
    receiver: Floats
    alive: Floats


@allocating()
def ledger(r: Room, c: CostArrays) -> Ledger:
    """Room for prices of mappings as large as ``r`` says."""
    devices = len(c.pool)
    return Ledger(
        np.zeros(r.shards),
        np.zeros(r.shards),
        np.zeros(r.messages),
        np.zeros(r.messages),
        np.zeros((devices, COLUMNS)),
        np.zeros(devices),
        np.zeros(c.ports),
        np.zeros(c.ports),
        np.zeros(devices),
    )


@kernel()
def price(g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger) -> tuple[float, float]:
    """Fill ``out``; returns latency and period in seconds.

    Latency: one frame alone, first input to last output. Period: the busiest device or card of a steady pipeline.
    """
    out.free[:] = 0
    out.sender[:] = 0
    out.receiver[:] = 0
    out.alive[:] = 0
    out.account[:] = 0
    latency = 0.0
    for task in range(len(g.size)):
        for shard in range(s.ptr[task], s.ptr[task + 1]):
            latency = max(latency, _compute(g, s, m, c, out, task, shard))
            for message in range(m.out_ptr[shard], m.out_ptr[shard + 1]):
                _transfer(g, s, m, c, out, message)
        _release(g, s, m, out, task)
    _settle(c, out)
    return latency, _period(g, s, m, c, out)


@inlined
def _share(g: GraphArrays, s: Shards, task: int, shard: int) -> float:
    """The part of a task's work that a shard does."""
    if s.ptr[task + 1] - s.ptr[task] == 1:
        return 1.0
    return (s.stop[shard] - s.start[shard]) / g.size[task, s.kind[task]]


@inlined
def _made(g: GraphArrays, s: Shards, task: int, shard: int) -> float:
    """The part of a task's output that a shard makes: all of it, where shards make partial sums."""
    return 1.0 if s.kind[task] == boxes.PARTIAL else _share(g, s, task, shard)


@inlined
def _compute(g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger, task: int, shard: int) -> float:
    """Run a shard once its device is free and its pieces are there; returns when it stops."""
    device = s.device[shard]
    share = _share(g, s, task, shard)
    first = last = out.free[device]
    for k in range(m.in_ptr[shard], m.in_ptr[shard + 1]):
        arrival = out.arrive[m.in_message[k]]
        first = arrival if k == m.in_ptr[shard] else min(first, arrival)
        last = max(last, arrival)
    account = out.account[device]
    if m.pieces[shard] > 1:
        account[WAIT] += last - min(last, max(first, out.free[device]))
    seconds = c.time_s[task, device] * share + c.overhead_s[task, device]
    out.start[shard] = last
    out.stop[shard] = out.free[device] = last + seconds
    account[COMPUTE] += seconds
    account[ENERGY] += seconds * c.power_w[task, device]
    account[WEIGHTS] += c.cut_bytes[task, s.kind[task]] * share + c.kept_bytes[task, s.kind[task]]
    for tensor in range(g.tensor_ptr[task], g.tensor_ptr[task + 1]):
        out.alive[device] += g.tensor_bytes[tensor] * _made(g, s, task, shard)
    account[ACTIVATIONS] = max(account[ACTIVATIONS], out.alive[device])
    return out.stop[shard]


@inlined
def _bytes(g: GraphArrays, m: Messages, message: int) -> float:
    tensor = m.tensor[message]
    size = g.tensor_bytes[tensor]
    for axis in range(boxes.AXES):
        size *= (m.stop[message, axis] - m.start[message, axis]) / g.tensor_size[tensor, axis]
    return size


@inlined
def _transfer(g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger, message: int) -> None:
    """Send a message when it exists and the cards on both sides are free."""
    source, target = s.device[m.shard[message]], m.device[message]
    size = _bytes(g, m, message)
    seconds = size / c.bandwidth[source, target]
    here, there = c.port[source, target], c.port[target, source]
    begin = max(out.stop[m.shard[message]], out.sender[here], out.receiver[there])
    out.depart[message] = begin
    out.sender[here] = out.receiver[there] = begin + seconds
    out.arrive[message] = begin + seconds + c.latency[source, target]
    for device in (source, target):
        out.account[device, COMMUNICATE] += seconds + c.latency[source, target]
        out.account[device, BUFFERS] += size


@inlined
def _release(g: GraphArrays, s: Shards, m: Messages, out: Ledger, task: int) -> None:
    """Free what no later task on its own device reads: inputs of the task, and its outputs where none does."""
    for edge in range(g.edge_ptr[task], g.edge_ptr[task + 1]):
        if _reads_first(g, task, edge):
            _free(g, s, m, out, g.edge_tensor[edge], task)
    for tensor in range(g.tensor_ptr[task], g.tensor_ptr[task + 1]):
        _free(g, s, m, out, tensor, -1)


@inlined
def _reads_first(g: GraphArrays, task: int, edge: int) -> bool:
    """Whether no earlier edge of the task reads the same tensor."""
    first = True
    for other in range(g.edge_ptr[task], edge):
        if g.edge_tensor[other] == g.edge_tensor[edge]:
            first = False
    return first


@inlined
def _free(g: GraphArrays, s: Shards, m: Messages, out: Ledger, tensor: int, task: int) -> None:
    """Free the pieces of ``tensor`` whose last reader is ``task`` (-1: that have none)."""
    maker = g.tensor_task[tensor]
    for shard in range(s.ptr[maker], s.ptr[maker + 1]):
        if m.last_use[m.slot_ptr[tensor] + shard - s.ptr[maker]] == task:
            out.alive[s.device[shard]] -= g.tensor_bytes[tensor] * _made(g, s, maker, shard)


@inlined
def _settle(c: CostArrays, out: Ledger) -> None:
    """Energy of communication and waiting, and resident memory (Eq. 4.9), for each device that takes part."""
    for device in range(len(c.pool)):
        a = out.account[device]
        a[ENERGY] += (a[COMMUNICATE] + a[WAIT]) * c.communication_w[device]
        if a[COMPUTE] + a[COMMUNICATE] + a[ACTIVATIONS] > 0:
            k = c.memory[device]
            a[MEMORY] = a[WEIGHTS] * k[0] + a[ACTIVATIONS] * k[1] + a[BUFFERS] * k[2] + k[3]


@inlined
def _period(g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger) -> float:
    """Seconds a frame of the busiest device or card."""
    out.sender[:] = 0
    out.receiver[:] = 0
    for message in range(m.out_ptr[s.ptr[len(g.size)]]):
        source, target = s.device[m.shard[message]], m.device[message]
        seconds = _bytes(g, m, message) / c.bandwidth[source, target]
        out.sender[c.port[source, target]] += seconds
        out.receiver[c.port[target, source]] += seconds
    busy = 0.0
    for device in range(len(c.pool)):
        busy = max(busy, out.account[device, COMPUTE] + out.account[device, COMMUNICATE])
    for port in range(c.ports):
        busy = max(busy, out.sender[port], out.receiver[port])
    return busy


@inlined
def largest(out: Ledger, column: int) -> float:
    """The largest entry of a column of the account."""
    most = 0.0
    for device in range(len(out.account)):
        most = max(most, out.account[device, column])
    return most


@inlined
def excess(c: CostArrays, out: Ledger) -> float:
    """Bytes by which the fullest memory pool overflows; at most 0 when everything fits. -inf: no limit stated."""
    worst = -np.inf
    for pool in range(len(c.capacity)):
        used = 0.0
        for device in range(len(c.pool)):
            if c.pool[device] == pool:
                used += out.account[device, MEMORY]
        worst = max(worst, used - c.capacity[pool])
    return worst
