"""What a simulation charges, in whole ticks of a femtosecond (``model.simulator.events``): messages, waking, claims."""

from __future__ import annotations

import numpy as np

from model.compiled import inlined
from model.cost.costs import PART, UNKNOWN, CostArrays
from model.cost.message_time import attend_s, enter_s, lag_of, leave_s, receive_s, send_s, take_s, turns_s
from model.mappings.arrays import ix

TICK_S, TICKS = 1e-15, 1e15
"""Seconds of a tick, ticks of a second."""


@inlined
def ticks(seconds: float) -> np.int64:
    """Whole ticks."""
    return np.int64(seconds * TICKS + 0.5)


@inlined
def send_ticks(c: CostArrays, source: int, size: float) -> np.int64:
    """A device hands over a message."""
    return ticks(send_s(c, source, size))


@inlined
def leave_ticks(c: CostArrays, source: int, target: int, size: float) -> np.int64:
    """A message occupies the sender's link."""
    return ticks(leave_s(c, source, target, size))


@inlined
def attend_ticks(c: CostArrays, source: int, target: int, size: float) -> np.int64:
    """A device attends to a message that leaves, at most for as long."""
    return ticks(attend_s(c, source, target, size))


@inlined
def lag_ticks(c: CostArrays, source: int, target: int, size: float) -> np.int64:
    """A message begins to come so much later than to leave."""
    return ticks(lag_of(c, source, target, size))


@inlined
def enter_ticks(c: CostArrays, source: int, target: int, size: float) -> np.int64:
    """A message occupies the receiver's link."""
    return ticks(enter_s(c, source, target, size))


@inlined
def take_ticks(c: CostArrays, source: int, target: int, size: float) -> np.int64:
    """A device that computes takes in a message meanwhile, at most for as long as it comes."""
    return ticks(take_s(c, source, target, size))


@inlined
def receive_ticks(c: CostArrays, device: int, size: float) -> np.int64:
    """A device takes a message."""
    return ticks(receive_s(c, device, size))


@inlined
def step_ticks(c: CostArrays, device: int) -> np.int64:
    """A device goes on to a segment."""
    return ticks(c.step[ix(device)])


@inlined
def wake_ticks(c: CostArrays, device: int) -> np.int64:
    """What a device takes longer because it has waited."""
    return ticks(c.wake[device, 0])


@inlined
def waking_ticks(c: CostArrays, device: int) -> np.int64:
    """What a segment that waits claims of its device's processor besides what it computes."""
    part, seconds = c.busy[ix(device), PART], c.busy[ix(device), 1]
    return ticks(seconds if part == UNKNOWN else seconds / part)


@inlined
def message_ticks(c: CostArrays, device: int, size: float) -> np.int64:
    """A message claims so much of the processor of a device that rest saves something."""
    return ticks(turns_s(c, device, 1, size)) if c.rested[ix(device), PART] > 0 else np.int64(0)
