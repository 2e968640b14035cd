"""What devices spend on a lowered mapping, whenever it is: seconds, joules, bytes (section 4.3 of the thesis).

Time follows Eq. 4.7, communication Eq. 4.8, memory Eq. 4.9, energy Eq. 4.10. When things happen is told by
``model.cost.pricing`` (in topological order) or ``model.simulator.simulation`` (as events), which fill the rest of the
ledger.
"""

from __future__ import annotations

import numpy as np

from model.compiled import inlined, kernel
from model.cost.costs import (
    HOLD,
    HOLD_PART,
    OWN,
    PASS,
    REBUILT,
    WATTS,
    CostArrays,
)
from model.cost.crowding import weights_of
from model.cost.ledger import (
    ACTIVATIONS,
    BUFFERS,
    BUSY,
    COMMUNICATE,
    COMPUTE,
    ENERGY,
    FRESH,
    MEMORY,
    OPENING,
    PASSED,
    WAIT,
    WEIGHTS,
    Ledger,
)
from model.cost.message_time import attend_s, receive_s, turns_s, under_way_s
from model.cost.rest import begins_rested, busy_after
from model.cost.seconds import seconds_of
from model.mappings.arrays import GraphArrays, Ints, ix
from model.mappings.lowering import Messages, Shards, alone, share_of
from model.network import boxes
from model.network.layer_kinds import COPIES


@kernel()
def spend(g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger) -> None:
    """Fill in what needs no clock: seconds and sizes, and accounts but for waiting, its energy, and memory in all."""
    out.alive[:] = 0
    out.account[:] = 0
    out.segments[:] = 0
    out.messages[:] = 0
    out.since[:] = FRESH
    for task in range(len(g.size)):
        for shard in range(s.ptr[task], s.ptr[task + 1]):
            _enter(g, s, m, c, out, task, shard)
            _compute(g, s, c, out, task, shard)
            if c.memory[ix(s.device[ix(shard)]), PASS] > 0:
                _keep(g, s, m, out, task, shard)
            for message in range(m.out_ptr[ix(shard)], m.out_ptr[ix(shard + 1)]):
                _communicate(g, s, m, c, out, message)
        _release(g, s, m, out, task)


@inlined
def _enter(g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger, task: int, shard: int) -> None:
    """A segment begins with a shard that is the first to wait for a message, and after one that sends. One that takes
    an output of the network as it comes has no session.
    """
    device = ix(s.device[ix(shard)])
    waits, size, taking = False, 0.0, 0.0
    for k in range(m.in_ptr[ix(shard)], m.in_ptr[ix(shard + 1)]):
        message = ix(m.in_message[ix(k)])
        if out.reader[message] < 0:
            out.reader[message] = shard
            waits = True
            size += out.size[message]
            taking += receive_s(c, device, out.size[message])
    begins = waits or out.since[device] < 0
    out.begins[ix(shard)] = begins
    out.rested[ix(shard)] = begins_rested(g, s, device, waits, out.since[device] == FRESH)
    out.ready[ix(shard)] = c.step[device] if begins else 0.0
    if waits:
        out.ready[ix(shard)] += c.wake[device, 0] + taking
        _wake(c, out, device, size)
    if begins:
        out.cold[ix(shard)] = out.rested[ix(shard)] == 1 or out.since[device] != FRESH
        if task < g.n_inputs + g.n_layers or _is_joined(g, s, task):
            out.segments[device] += 1
        out.since[device], out.spent[device] = shard, 0.0
        out.largest[device] = out.rebuilt[device] = out.relaid[device] = 0.0


@inlined
def _is_joined(g: GraphArrays, s: Shards, task: int) -> bool:
    """Whether what a task reads first is put together from parts that do not lie side by side in memory, as
    ``edge_costs.apart`` tells it."""
    tensor = ix(g.edge_tensor[ix(g.edge_ptr[ix(task)])])
    maker = ix(g.tensor_task[tensor])
    rows = 1
    for axis in range(min(s.kind[maker], boxes.AXES)):
        rows *= g.tensor_size[tensor, axis]
    return not alone(s, maker) and (s.kind[maker] == boxes.PARTIAL or rows > 1)


@inlined
def size_of(g: GraphArrays, tensor: int, start: Ints, stop: Ints) -> float:
    """Bytes of a box of a tensor, (AXES,) each."""
    size = g.tensor_bytes[tensor]
    for axis in range(boxes.AXES):
        if stop[axis] - start[axis] != g.tensor_size[tensor, axis]:  # most are whole, and dividing takes time
            size *= (stop[axis] - start[axis]) / g.tensor_size[tensor, axis]
    return size


@inlined
def _wake(c: CostArrays, out: Ledger, device: int, size: float) -> None:
    """A device computes for longer because a shard has waited for so many bytes; its processor is at it for a part."""
    busy_s = c.busy[device, 1] + c.busy[device, 2] * size
    out.account[device, COMPUTE] += c.wake[device, 0] + c.wake[device, 1] * size
    out.account[device, BUSY] += busy_s
    out.account[device, ENERGY] += busy_s * c.awake_w[device]


@inlined
def _compute(g: GraphArrays, s: Shards, c: CostArrays, out: Ledger, task: int, shard: int) -> None:
    """A shard does its share of a task's work."""
    device, kind, share = ix(s.device[ix(shard)]), ix(s.kind[ix(task)]), share_of(g, s, task, shard)
    since, before = out.since[device], out.spent[device]
    rested = out.rested[ix(since)] == 1
    seconds = seconds_of(g, s, c, task, share, device, since, before, rested)
    out.spent[device] += seconds
    out.seconds[ix(shard)] = seconds
    busy_s = busy_after(c, device, before, seconds, rested, out.cold[ix(since)] == 1)
    a = out.account[device]
    a[COMPUTE] += seconds
    a[BUSY] += busy_s
    a[ENERGY] += busy_s * c.work[task, device, WATTS]
    weights = weights_of(c, task, kind, share)
    a[WEIGHTS] += weights
    a[MEMORY] += weights * c.work[task, device, HOLD if alone(s, task) else HOLD_PART]
    a[MEMORY] += c.work[task, device, OWN]
    out.largest[device] = max(out.largest[device], weights)
    rebuilt = weights * c.work[task, device, REBUILT]
    out.rebuilt[device] += rebuilt
    out.relaid[device] = max(out.relaid[device], rebuilt)
    twice = max(out.largest[device], out.rebuilt[device] + COPIES * out.relaid[device])
    a[OPENING] = max(a[OPENING], a[WEIGHTS] + twice)
    alive = out.alive[device]
    for tensor in range(g.tensor_ptr[task], g.tensor_ptr[task + 1]):
        alive += g.tensor_bytes[ix(tensor)] * _made(kind, share)
    out.alive[device] = alive
    a[ACTIVATIONS] = max(a[ACTIVATIONS], alive)


@inlined
def _keep(g: GraphArrays, s: Shards, m: Messages, out: Ledger, task: int, shard: int) -> None:
    """What earlier segments of a device have made for a shard of its has a buffer, and so have inputs, and pieces of
    which a part is sent."""
    sends = m.out_ptr[ix(shard)] < m.out_ptr[ix(shard + 1)]
    out.kept[ix(shard)] = 0
    if sends or task < g.n_inputs:
        _pass_on(g, s, m, out, task, shard)
    device = s.device[ix(shard)]
    since = out.since[ix(device)]
    for edge in range(g.edge_ptr[ix(task)], g.edge_ptr[ix(task + 1)]):
        maker = ix(g.tensor_task[ix(g.edge_tensor[ix(edge)])])
        for source in range(s.ptr[maker], min(since, s.end[maker])):
            if s.device[ix(source)] == device:
                _pass_on(g, s, m, out, maker, source)


@inlined
def _pass_on(g: GraphArrays, s: Shards, m: Messages, out: Ledger, task: int, shard: int) -> None:
    """What a shard makes gets a buffer, if it has none: messages have theirs in it."""
    if out.kept[ix(shard)] == 0:
        out.kept[ix(shard)] = 1
        made = _made(s.kind[ix(task)], share_of(g, s, task, shard))
        for tensor in range(g.tensor_ptr[ix(task)], g.tensor_ptr[ix(task + 1)]):
            left = g.tensor_bytes[ix(tensor)] * made
            for message in range(m.out_ptr[ix(shard)], m.out_ptr[ix(shard + 1)]):
                if m.tensor[ix(message)] == tensor:
                    left -= size_of(g, ix(tensor), m.start[ix(message)], m.stop[ix(message)])
            out.account[ix(s.device[ix(shard)]), PASSED] += max(left, 0.0)


@inlined
def _made(kind: int, share: float) -> float:
    """The part of an output that a shard makes: all of it, where shards make partial sums."""
    return 1.0 if kind == boxes.PARTIAL else share


@inlined
def _communicate(g: GraphArrays, s: Shards, m: Messages, c: CostArrays, out: Ledger, message: int) -> None:
    """A message costs both sides, and each a buffer."""
    row = ix(message)
    size = size_of(g, ix(m.tensor[row]), m.start[row], m.stop[row])
    source, target = ix(s.device[ix(m.shard[row])]), ix(m.device[row])
    seconds = under_way_s(c, source, target, size)
    out.size[row], out.reader[row] = size, -1
    out.messages[source] += 1
    out.messages[target] += 1
    if m.shard[row] < s.ptr[ix(g.n_inputs)] and out.since[source] >= 0:  # nothing is computed of an input alone
        out.segments[source] -= 1
    out.since[source] = -1 if m.shard[row] >= s.ptr[ix(g.n_inputs)] else FRESH
    out.account[source, COMMUNICATE] += seconds
    out.account[target, COMMUNICATE] += seconds
    out.account[source, ENERGY] += size * c.send_j[source, target]
    out.account[target, ENERGY] += size * c.receive_j[source, target]
    out.account[source, BUFFERS] += size
    out.account[target, BUFFERS] += size


@inlined
def _release(g: GraphArrays, s: Shards, m: Messages, out: Ledger, task: int) -> None:
    """Free what no later task on its own device reads: inputs of the task, and its outputs where none does."""
    for edge in range(g.edge_ptr[ix(task)], g.edge_ptr[ix(task + 1)]):
        if _reads_first(g, task, edge):
            _free(g, s, m, out, g.edge_tensor[ix(edge)], task)
    for tensor in range(g.tensor_ptr[ix(task)], g.tensor_ptr[ix(task + 1)]):
        _free(g, s, m, out, tensor, -1)


@inlined
def _reads_first(g: GraphArrays, task: int, edge: int) -> bool:
    """Whether no earlier edge of the task reads the same tensor."""
    first = True
    for other in range(g.edge_ptr[ix(task)], edge):
        if g.edge_tensor[ix(other)] == g.edge_tensor[ix(edge)]:
            first = False
    return first


@inlined
def _free(g: GraphArrays, s: Shards, m: Messages, out: Ledger, tensor: int, task: int) -> None:
    """Free the pieces of ``tensor`` whose last reader is ``task`` (-1: that have none)."""
    maker = ix(g.tensor_task[ix(tensor)])
    home = m.home[maker]
    if home >= 0:
        if m.last_use[ix(m.slot_ptr[ix(tensor)])] == task:
            out.alive[ix(home)] -= g.tensor_bytes[ix(tensor)]
        return
    kind = s.kind[maker]
    slot = m.slot_ptr[ix(tensor)] - s.ptr[maker]
    for shard in range(s.ptr[maker], s.ptr[ix(maker + 1)]):
        if m.last_use[ix(slot + shard)] == task:
            out.alive[ix(s.device[ix(shard)])] -= g.tensor_bytes[ix(tensor)] * _made(kind, share_of(g, s, maker, shard))


@inlined
def join(m: Messages, out: Ledger, shard: int, device: int, free: float) -> float:
    """When a device that is ``free`` at a time has all that a shard needs.

    Between the first and the last piece of a join the device waits, as section 4.3.4 has it: on its account.
    """
    first = last = free
    for k in range(m.in_ptr[ix(shard)], m.in_ptr[ix(shard + 1)]):
        arrival = out.arrive[ix(m.in_message[ix(k)])]
        first = arrival if k == m.in_ptr[ix(shard)] else min(first, arrival)
        last = max(last, arrival)
    if m.pieces[ix(shard)] > 1:
        out.account[device, WAIT] += last - min(last, max(first, free))
    return last


@inlined
def attended_s(m: Messages, c: CostArrays, out: Ledger, shard: int, device: int) -> float:
    """Seconds in which a device attends to what a shard of its sends, when all of that has been handed over."""
    seconds = 0.0
    for message in range(m.out_ptr[ix(shard)], m.out_ptr[ix(shard + 1)]):
        seconds += attend_s(c, device, ix(m.device[ix(message)]), out.size[ix(message)])
    return seconds


@inlined
def turn_s(s: Shards, c: CostArrays, device: int) -> float:
    """Seconds of a device between two frames of a stream, in which it fills the inputs that it has."""
    seconds = c.turn[ix(device), 0]
    for task in range(c.fill.shape[1]):
        if s.device[s.ptr[task]] == device:
            seconds += c.fill[ix(device), task]
    return seconds


@inlined
def message_turns_s(c: CostArrays, out: Ledger, device: int) -> float:
    """Seconds by which all messages of a device make a stream's frame of it longer, unless it waits anyway."""
    return turns_s(c, device, out.messages[ix(device)], out.account[ix(device), BUFFERS])


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
