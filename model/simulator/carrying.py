"""Messages of a mapping whose layers move (``model.simulator.moves``): which there are, how large, and who waits."""

from __future__ import annotations

import numpy as np

from model.compiled import inlined
from model.cost.costs import CostArrays
from model.cost.message_time import handling_s, under_way_s
from model.cost.spending import size_of
from model.mappings.arrays import GraphArrays, ix
from model.mappings.lowering import held_axis, needed, touches, widen
from model.simulator.board import CHANGE, Board, mark, spend
from model.simulator.history import link, put, take_out
from model.simulator.simulation import ATTEND, ENTER, LEAVE, SEND
from model.simulator.ticks import (
    attend_ticks,
    enter_ticks,
    lag_ticks,
    leave_ticks,
    message_ticks,
    receive_ticks,
    send_ticks,
)


@inlined
def carry(g: GraphArrays, c: CostArrays, b: Board, tensor: int, all_devices: bool) -> None:
    """Messages with pieces of a tensor, to all devices or to those that this change has to do with."""
    s, maker, n_devices = b.shards, g.tensor_task[ix(tensor)], len(b.scope)
    for shard in range(s.ptr[ix(maker)], s.ptr[ix(maker + 1)]):
        slot = b.slot[ix(tensor)] + shard - s.ptr[ix(maker)]
        if s.device[ix(shard)] < 0 and b.sends[ix(shard)] == 0:
            continue
        if s.device[ix(shard)] >= 0:
            _collect(g, b, tensor, shard, all_devices)
        for device in range(n_devices):
            if all_devices or b.scope[ix(device)] == b.note[CHANGE]:
                if s.device[ix(shard)] >= 0 and b.boxes.high[ix(device), 0] > 0:
                    size = size_of(g, tensor, b.boxes.low[ix(device)], b.boxes.high[ix(device)])
                    _send(c, b, shard, slot, device, size, b.waiting[ix(device)])
                elif b.reader[ix(slot * n_devices + device)] >= 0:
                    _drop(c, b, shard, slot, device)


@inlined
def _collect(g: GraphArrays, b: Board, tensor: int, shard: int, all_devices: bool) -> None:
    """What devices need of a shard's piece of a tensor, and the first shard there that needs some."""
    s, here, maker = b.shards, b.shards.device[ix(shard)], g.tensor_task[ix(tensor)]
    along = held_axis(s, maker)
    b.boxes.high[:, 0] = 0
    for use in range(g.use_ptr[ix(tensor)], g.use_ptr[ix(tensor + 1)]):
        task, edge = g.use_task[ix(use)], g.use_edge[ix(use)]
        for reader in range(s.ptr[ix(task)], s.end[ix(task)]):
            device = s.device[ix(reader)]
            if device != here and (all_devices or b.scope[ix(device)] == b.note[CHANGE]):
                axis, low, high = needed(g, s, edge, task, reader)
                if touches(s, maker, shard, along, device, axis, low, high):
                    if b.boxes.high[ix(device), 0] == 0:
                        b.waiting[ix(device)] = reader
                    widen(g, s, b.boxes, device, tensor, shard, along, axis, low, high)


@inlined
def _send(c: CostArrays, b: Board, shard: int, slot: int, device: int, size: float, reader: int) -> None:
    """A message to a device, where one shard is the first to wait for it."""
    h, source, message = b.history, b.shards.device[ix(shard)], slot * len(b.scope) + device
    seconds = 2 * under_way_s(c, ix(source), ix(device), size)
    spend(b, b.paid, message, seconds + handling_s(c, source, 1, size) + handling_s(c, device, 1, size))
    _turn(b, shard, message, message_ticks(c, source, size))
    first = b.first[ix(slot)] + c.stages * device
    put(h, first + SEND, -1, send_ticks(c, source, size), -1)
    put(
        h,
        first + LEAVE,
        c.leave[ix(source), ix(device)],
        leave_ticks(c, source, device, size),
        lag_ticks(c, source, device, size),
    )
    put(h, first + ENTER, c.enter[ix(source), ix(device)], enter_ticks(c, source, device, size), -1)
    if c.stages > ATTEND:
        put(h, first + ATTEND, -1, attend_ticks(c, source, device, size), -1)
    link(h, 2 * (first + SEND) + 1, first + LEAVE)
    link(h, 2 * (first + LEAVE), first + ENTER)
    link(h, 2 * (first + ENTER), b.number[ix(reader)])
    if b.reader[ix(message)] < 0:
        b.sends[ix(shard)] += 1
        mark(b, shard)
    elif b.reader[ix(message)] != reader or b.size[ix(message)] != size:
        _wait(c, b, message, device, -1)
    if b.reader[ix(message)] != reader or b.size[ix(message)] != size:
        b.reader[ix(message)], b.size[ix(message)] = reader, size
        _wait(c, b, message, device, 1)


@inlined
def _turn(b: Board, shard: int, message: int, claims: np.int64) -> None:
    """A message claims so much of its sender's processor."""
    b.turns[ix(shard)] += claims - b.handed[ix(message)]
    b.handed[ix(message)] = claims


@inlined
def _drop(c: CostArrays, b: Board, shard: int, slot: int, device: int) -> None:
    """There is a message no more."""
    message, first = slot * len(b.scope) + device, b.first[ix(slot)] + c.stages * device
    spend(b, b.paid, message, 0.0)
    _turn(b, shard, message, np.int64(0))
    for stage in range(c.stages):
        take_out(b.history, first + stage)
    b.sends[ix(shard)] -= 1
    mark(b, shard)
    _wait(c, b, message, device, -1)
    b.reader[ix(message)] = -1


@inlined
def _wait(c: CostArrays, b: Board, message: int, device: int, by: int) -> None:
    """A shard waits for a message more (1), or less (-1)."""
    reader = b.reader[ix(message)]
    b.waits[ix(reader)] += by
    b.receives[ix(reader)] += by * receive_ticks(c, device, b.size[ix(message)])
    b.turns[ix(reader)] += by * message_ticks(c, device, b.size[ix(message)])
    mark(b, reader)
