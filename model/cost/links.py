"""What lies between devices: links that messages take, their rates, and which of them leave unasked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model.cluster.platform import Host, Platform
from model.mappings.arrays import Floats
from runtime.communicator import EAGER_BYTES

LOCAL_EAGER_BYTES = 2**16
"""What ``EAGER_BYTES`` is between hosts, within one."""


def links(platform: Platform) -> tuple[NDArray[np.int32], NDArray[np.int32], list[str]]:
    """What messages occupy: ``(D, D)`` on the sender's and on the receiver's side, and the links' names.

    Between hosts: a direction of each host's network card, or of the medium that it shares, or all of it where that is
    half duplex. On one host: the copy engine of either device. A message that leaves and enters by one link is there
    once: its receiver's side is -1.
    """
    hosts, own = np.array([d.host for d in platform.devices]), np.arange(len(platform.devices))
    cards = {host.link: host for host in platform.hosts}
    names = [*map(_names, cards.values()), *([f"{d.name} copy out", f"{d.name} copy in"] for d in platform.devices)]
    last = np.cumsum([len(of) for of in names]) - 1
    first = last + 1 - [len(of) for of in names]
    place = np.where(hosts[:, None] == hosts, len(cards) + own[:, None], _link_of_device(platform)[:, None])
    leave, enter = first[place], last[place.T]
    once = np.where(leave == enter, -1, enter)
    return leave.astype(np.int32), once.astype(np.int32), [name for of in names for name in of]


def _names(host: Host) -> list[str]:
    """A host's link to others: one for both directions, or one for each."""
    if host.half_duplex:
        return [host.medium or f"{host.name} half-duplex"]
    return [f"{host.link} out", f"{host.link} in"]


def eager(platform: Platform) -> Floats:
    """``(D, D)`` bytes of the largest message that leaves before its receiver is ready for it."""
    host = np.array([device.host for device in platform.devices])
    return np.where(host[:, None] == host, float(LOCAL_EAGER_BYTES), float(EAGER_BYTES))


def own_rate(platform: Platform) -> Floats:
    """``(D, D)`` bytes/s of the first device's link, whatever the second one's if that is another."""
    own = np.array([platform.hosts[d.host].bandwidth_bytes_per_s for d in platform.devices])
    link = _link_of_device(platform)
    return np.where(link[:, None] == link, platform.bandwidth(), own[:, None])


def _link_of_device(platform: Platform) -> NDArray[np.intp]:
    """``(D,)`` what links a device's host to others, counted from 0 in the order of hosts; a medium counts once."""
    number = {name: k for k, name in enumerate(dict.fromkeys(host.link for host in platform.hosts))}
    return np.array([number[platform.hosts[d.host].link] for d in platform.devices])


def away(places: Sequence[int], own: Sequence[float]) -> Floats:
    """``(D, D)`` seconds, or joules, a byte of the first device. Nothing within a place, a host or a machine."""
    at = np.array(places)
    return np.where(at[:, None] == at, 0.0, np.array(own)[:, None])


def away_to(places: Sequence[int], own: Sequence[float]) -> Floats:
    """``(D, D)`` of the second device. In one layout with others: kernels would be compiled for each."""
    return np.ascontiguousarray(away(places, own).T)
