"""What things cost on a platform: coefficients and links as the arrays that pricing runs on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model import boxes, coefficients
from model.arrays import GraphArrays
from model.graph import Graph
from model.platform import Platform
from runtime.errors import CleaveError

Floats = NDArray[np.float64]


class CostArrays(NamedTuple):
    """What things cost. ``T`` tasks, ``D`` devices, ``P`` memory pools.

    time_s, overhead_s, power_w: (T, D) of a whole task: part that shrinks with the shard, fixed part, watts
    cut_bytes, kept_bytes: (T, KINDS) weights that a kind of split divides among the shards, and that each has whole
    bandwidth, latency: (D, D) bytes/s and seconds; port: (D, D) which card of the sender a message leaves by
    ports: (1,) number of cards (a network card a host, a copy engine a device)
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
    port: NDArray[np.int32]
    ports: int
    memory: Floats
    communication_w: Floats
    pool: NDArray[np.int32]
    capacity: Floats


def costs(graph: Graph, g: GraphArrays, platform: Platform) -> CostArrays:
    """Cost arrays of a graph on a platform. ``CleaveError`` when a device's coefficients are missing."""
    time, overhead, power = _times(graph, g, platform)
    cut, kept = _weights(graph, g)
    units = [_unit(platform, d) for d in range(len(platform.devices))]
    hosts = np.array([d.host for d in platform.devices])
    own = len(platform.hosts) + np.arange(len(hosts))
    return CostArrays(
        time_s=time,
        overhead_s=overhead,
        power_w=power,
        cut_bytes=cut,
        kept_bytes=kept,
        bandwidth=platform.bandwidth(),
        latency=platform.latency(),
        port=np.where(hosts[:, None] == hosts, own[:, None], hosts[:, None]).astype(np.int32),
        ports=len(platform.hosts) + len(hosts),
        memory=np.array(
            [[u.memory_weights, u.memory_activations, u.memory_buffers, u.memory_bias_bytes] for u in units]
        ),
        communication_w=np.array(
            [d.power_w or u.communication_w for d, u in zip(platform.devices, units, strict=True)]
        ),
        pool=np.array([d.pool for d in platform.devices], dtype=np.int32),
        capacity=np.array([p.capacity_bytes or np.inf for p in platform.pools], dtype=np.float64),
    )


def _unit(platform: Platform, device: int) -> coefficients.UnitCost:
    d = platform.devices[device]
    try:
        return coefficients.load(d.coefficients).unit(d.unit)
    except CleaveError as error:
        raise CleaveError(f"device '{d.name}': {error}") from error


def _times(graph: Graph, g: GraphArrays, platform: Platform) -> tuple[Floats, Floats, Floats]:
    """(T, D) seconds that scale, seconds that do not, and watts (Eq. 4.7, 4.10)."""
    shape = (len(g.size), len(platform.devices))
    time, overhead, power = np.zeros(shape), np.zeros(shape), np.zeros(shape)
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
    cut, kept = np.zeros(g.size.shape), np.zeros(g.size.shape)
    for layer in graph.layers:
        for kind in range(boxes.KINDS):
            for name, need in boxes.constants(graph, layer, kind).items():
                row = kept if need.axis < 0 else cut
                row[g.n_inputs + layer.index, kind] += graph.tensors[name].size_bytes
    return cut, kept
