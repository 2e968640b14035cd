"""What things cost on a platform: coefficients and links as the arrays that pricing runs on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model import boxes, coefficients
from model.arrays import GraphArrays
from model.graph import Graph
from model.platform import Host, Platform
from runtime.errors import CleaveError

Floats = NDArray[np.float64]


class CostArrays(NamedTuple):
    """What things cost. ``T`` tasks, ``D`` devices, ``P`` memory pools.

    time_s, overhead_s, power_w: (T, D) of a whole task: part that shrinks with the shard, fixed part, watts
    cut_bytes, kept_bytes: (T, KINDS) weights that a kind of split divides among the shards, and that each has whole
    bandwidth, latency: (D, D) bytes/s and seconds; rate: (D, D) bytes/s at which a message leaves
    leave, enter: (D, D) which link a message occupies on the sender's and the receiver's side, enter -1 where that is
                  the same one, which it occupies once; links: how many
    send, receive: (D, 2) seconds of a device for a message, and for a byte of it
    gap: (D,) seconds of a device's link for a message
    memory: (D, 4) resident bytes a byte of weights, activations, buffers; bias in bytes
    communication_w: (D,); pool: (D,); capacity: (P,) bytes, inf where not stated
    """

    time_s: Floats
    overhead_s: Floats
    power_w: Floats
    cut_bytes: Floats
    kept_bytes: Floats
    bandwidth: Floats
    latency: Floats
    rate: Floats
    leave: NDArray[np.int32]
    enter: NDArray[np.int32]
    links: int
    send: Floats
    receive: Floats
    gap: Floats
    memory: Floats
    communication_w: Floats
    pool: NDArray[np.int32]
    capacity: Floats


def costs(graph: Graph, g: GraphArrays, platform: Platform) -> CostArrays:
    """Cost arrays of a graph on a platform. ``CleaveError`` when a device's coefficients are missing."""
    time, overhead, power = _times(graph, g, platform)
    cut, kept = _weights(graph, g)
    units = [_unit(platform, d) for d in range(len(platform.devices))]
    leave, enter, names = links(platform)
    return CostArrays(
        time_s=time,
        overhead_s=overhead,
        power_w=power,
        cut_bytes=cut,
        kept_bytes=kept,
        bandwidth=platform.bandwidth(),
        latency=platform.latency(),
        rate=own_rate(platform),
        leave=leave,
        enter=enter,
        links=len(names),
        send=np.array([[u.send_s, u.send_s_per_byte] for u in units]),
        receive=np.array([[u.receive_s, u.receive_s_per_byte] for u in units]),
        gap=np.array([u.gap_s for u in units]),
        memory=np.array(
            [[u.memory_weights, u.memory_activations, u.memory_buffers, u.memory_bias_bytes] for u in units]
        ),
        communication_w=np.array(
            [d.power_w or u.communication_w for d, u in zip(platform.devices, units, strict=True)]
        ),
        pool=np.array([d.pool for d in platform.devices], dtype=np.int32),
        capacity=np.array([p.capacity_bytes or np.inf for p in platform.pools], dtype=np.float64),
    )


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


def own_rate(platform: Platform) -> Floats:
    """``(D, D)`` bytes/s at which messages leave: of the sender's link, whatever the receiver's if that is another."""
    own = np.array([platform.hosts[d.host].bandwidth_bytes_per_s for d in platform.devices])
    link = _link_of_device(platform)
    return np.where(link[:, None] == link, platform.bandwidth(), own[:, None])


def _link_of_device(platform: Platform) -> NDArray[np.intp]:
    """``(D,)`` what links a device's host to others, counted from 0 in the order of hosts; a medium counts once."""
    number = {name: k for k, name in enumerate(dict.fromkeys(host.link for host in platform.hosts))}
    return np.array([number[platform.hosts[d.host].link] for d in platform.devices])


def _unit(platform: Platform, device: int) -> coefficients.UnitCost:
    d = platform.devices[device]
    try:
        return coefficients.load(d.coefficients).unit(d.unit)
    except CleaveError as error:
        raise CleaveError(f"device '{d.name}': {error}") from error


def _times(graph: Graph, g: GraphArrays, platform: Platform) -> tuple[Floats, Floats, Floats]:
    """(T, D) seconds that scale, seconds that do not, and watts (Eq. 4.7, 4.10)."""
    time, overhead, power = _side_by_side(3, len(g.size), len(platform.devices))
    kinds = [coefficients.kind(graph, layer) for layer in graph.layers]
    for d, device in enumerate(platform.devices):
        unit = _unit(platform, d)
        speed = unit.frequency_hz * (min(1.0, device.threads / unit.threads) if device.unit == "cpu" else 1.0)
        for layer, kind in zip(graph.layers, kinds, strict=True):
            task, cost = g.n_inputs + layer.index, unit.layers[kind]
            time[task, d] = layer.macs / (speed * cost.macs_per_cycle)
            overhead[task, d] = cost.overhead_s
            power[task, d] = device.power_w or cost.power_w
    return time, overhead, power


def _weights(graph: Graph, g: GraphArrays) -> tuple[Floats, Floats]:
    """(T, KINDS) bytes of constants that a kind of split divides, and of those that every shard keeps whole."""
    cut, kept = _side_by_side(2, *g.size.shape)
    for layer in graph.layers:
        for kind in range(boxes.KINDS):
            for name, need in boxes.constants(graph, layer, kind).items():
                row = kept if need.axis < 0 else cut
                row[g.n_inputs + layer.index, kind] += graph.tensors[name].size_bytes
    return cut, kept


def _side_by_side(count: int, rows: int, columns: int) -> NDArray[np.float64]:
    """So many tables of zeros whose equal places share a line of the cache: they are read together."""
    return np.moveaxis(np.zeros((rows, columns, count)), -1, 0)
