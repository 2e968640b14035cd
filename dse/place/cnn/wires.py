"""What messages take at least, whoever the other side is: of a device's time, and of its own links."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.place.cnn.stretches import Stretches
from model.cost.costs import CostArrays
from model.mappings.arrays import Floats, Ints


class Wires(NamedTuple):
    """The least seconds of a message and of a byte, ``D`` devices; all 0 where there is one device only, but ``turn``.

    turn: (D,) of a frame of a stream, whatever it sends or takes
    into, out: (D, 2) under way, on the device's account; hand, take: (D, 2) of the processor, in a stream
    leave, enter: (D, 2) of a link that all messages of the device go by, 0 where they may go by several; once: (D,) 1
                  where that is one for both directions, else 0
    any_: (2,) between any two devices
    """

    turn: Floats
    into: Floats
    out: Floats
    hand: Floats
    take: Floats
    leave: Floats
    enter: Floats
    once: Floats
    any_: Floats


def wires(c: CostArrays) -> Wires:
    """From the costs of a platform."""
    devices = len(c.pool)
    if devices == 1:
        none = np.zeros((1, 2))
        return Wires(c.turn[:, 0], none, none, none, none, none, none, np.zeros(1), np.zeros(2))
    other = ~np.eye(devices, dtype=bool)
    latency = np.where(c.overlap > 0, 0.0, c.latency)  # bytes that come meanwhile take so long at least
    own = np.where(other, latency, np.inf), np.where(other, 1 / c.bandwidth, np.inf)
    into, out = (np.stack([of.min(axis=axis) for of in own], axis=1) for axis in (0, 1))
    leave, enter = _links(c, other)
    once = np.array([a[0] == b[0] for a, b in zip(leave, enter, strict=True)], dtype=np.float64)
    by_leave, by_enter = (np.array([cost for _, cost in of]) for of in (leave, enter))
    hand, take = c.send.copy(), c.receive.copy()
    hand += c.turn[:, 1:]
    take += c.turn[:, 1:]
    return Wires(c.turn[:, 0], into, out, hand, take, by_leave, by_enter, once, np.array([of.min() for of in own]))


Link = tuple[int, tuple[float, float]]
"""Its number, and seconds of a message and of a byte."""


def _links(c: CostArrays, other: NDArray[np.bool_]) -> tuple[list[Link], list[Link]]:
    """Of each device, for messages to and from others; where one link is both sides', the sender's costs hold."""
    same, link = c.enter < 0, np.where(c.enter < 0, c.leave, c.enter)
    gap = np.where(same, c.gap[:, None], c.gap[None, :])
    devices = range(len(c.pool))
    leave = [_link(other[d], c.leave[d], np.full(len(devices), c.gap[d]), 1 / c.rate[d]) for d in devices]
    return leave, [_link(other[d], link[:, d], gap[:, d], 1 / c.rate[d]) for d in devices]


def _link(other: NDArray[np.bool_], link: Ints, gap: Floats, byte: Floats) -> Link:
    """The link of messages to or from others, and the least they take of it; -1 and nothing where there are several."""
    links = np.unique(link[other])
    return (int(links[0]), (gap[other].min(), byte[other].min())) if len(links) == 1 else (-1, (0.0, 0.0))


def least(of: Floats, bytes_: Floats | float) -> Floats:
    """Seconds of messages of so many bytes each. of: (…, 2) of a message and of a byte"""
    return of[..., 0] + of[..., 1] * np.asarray(bytes_)


def loads(s: Stretches, w: Wires, devices: list[int]) -> Floats:
    """(C, m+1, m+1) seconds a frame that a device or its link is busy with a stretch, at least."""
    return np.array([_load(s, w, k, device) for k, device in enumerate(devices)])


def _load(s: Stretches, w: Wires, k: int, device: int) -> Floats:
    busy = w.turn[device] + s.seconds[k] + s.into @ w.take[device] + s.out @ w.hand[device]
    leave, enter = s.out @ w.leave[device], s.into @ w.enter[device]
    return np.maximum(busy, leave + enter if w.once[device] else np.maximum(leave, enter))
