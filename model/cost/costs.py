"""What things cost on a platform: coefficients and links as the arrays that pricing runs on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.cluster import coefficients
from model.cluster.platform import Device, Platform
from model.cost import edge_costs, layer_costs
from model.cost.edges import Edge, edges_of
from model.cost.links import away, away_to, eager, links, own_rate
from model.mappings.arrays import Floats, GraphArrays, Ints, edges
from model.network import boxes, relayout
from model.network.graph import Graph
from model.network.relayout import SINGLY
from model.network.signature import signatures
from runtime.errors import CleaveError

SPLITS = SINGLY + 1
WHOLE, SPLIT = 0, 1
WATTS, HOLD, HOLD_PART, REBUILT, OWN, VECTOR, QUARTER = range(SPLIT + 2 * SPLITS, SPLIT + 2 * SPLITS + 7)
"""Columns of ``CostArrays.work``."""
GAIN, KEPT, JOIN = 0, 1, 2
"""Columns of ``CostArrays.beside``."""
PART, MOST = 0, 1
"""Columns of ``CostArrays.rested``; the first one is of ``busy``, too."""
MEAN, WAITED = 0, 1
"""Columns of ``CostArrays.cold``."""
UNKNOWN, NO_METER = 0.0, -1.0
"""In place of the part of its time in which a processor is at what it computes, and of a machine's watts."""
ROUNDING = 1e-9
"""By which sums in another order may differ, relative."""
ACTIVE, BUFFER, RANK, SESSION, TWICE, PASS = range(6)
"""Columns of ``CostArrays.memory``."""


class CostArrays(NamedTuple):
    """What things cost. ``T`` tasks, ``D`` devices, ``P`` memory pools.

    work: (T, D, 8 + 2 * SPLITS) of a task by itself: seconds of the WHOLE; from SPLIT on, for each kind of split and
          ``SINGLY``, the fixed part of a shard's seconds and the part that goes with its share; WATTS meanwhile, on top
          of ``idle_w``; resident bytes that it HOLDs a byte of weights, and that a part of it does; 1 where weights are
          REBUILT before use; bytes of each shard's OWN; channels that are computed at a time, a VECTOR, so that the
          last ones of a shard take as long as that (``vectors.filled``), and a QUARTER (``vectors.split_of``)
    beside: (E, D, 2 + KINDS) seconds of an edge: that it saves (GAIN) where the same segment made what it brings, and
            more (KEPT) where it has ``origin``, too; from JOIN on, for each kind of split, of putting parts
            together where it was made in parts; (0, …): none anywhere
    origin: (E,) task, ``relayout.NONE`` where no layout is kept; kept_ptr: (T + 1,) and kept_task: the tasks that read
            edges with an origin, by that
    cut_bytes, kept_bytes: (T, KINDS) weights that a kind of split divides among the shards, and that each has whole
    bandwidth, latency: (D, D) bytes/s and seconds; rate: (D, D) bytes/s of the first device's link, in messages to
          and from the second
    leave, enter: (D, D) which link a message occupies on the sender's and the receiver's side, enter -1 where that is
                  the same one, which it occupies once; links: how many
    send, receive: (D, 2) seconds of a device for a message, with its step, and for a byte of it
    step: (D,) seconds between a segment and what its device does before
    wake: (D, 2) seconds by which a segment takes longer that waits for messages, and for a byte of these, which are in
          ``receive``, too
    rested: (D, 2) what a segment that has waited takes less: a PART of its seconds, so many at MOST
    busy: (D, 3) in which a device's processor is at it: the PART of the seconds that computing takes which has not
          waited, or ``UNKNOWN``: of all that it takes; seconds more of a segment that waits for messages, and for a
          byte of these
    cold: (D, 2) in which a processor is longer at a segment, if its device has not computed until then: the geometric
          MEAN of these seconds and what it is at it anyway, ``rest.WARM_S`` of that at most; and so large a part of
          what the device has WAITED
    gap: (D,) seconds of a device's link for a message
    overlap: (D,) of the receiver, see ``model.cost.message_time``
    turn: (D, 3) seconds of a device for a frame of a stream besides segments and messages, for each message of it, and
          for a byte of these
    fill: (D, inputs) seconds of a device for each of the network's inputs of such a frame, if it has it
    crowded: (D,) seconds of a device for a byte of weights, while others of its ``memory_of`` read theirs
    memory_of: (D,) number of the memory that a device reads: pools of one machine are in one; machine_of: (D,) of the
               machine that it is in
    attend: (D, D) seconds of a device for a byte while it leaves; take: (D, D) those of the receiver, if it computes,
            while it comes; stages: how many tasks a message has in ``model.simulator.simulation``, one less where all
            these are 0
    eager: (D, D) bytes of the largest message that leaves before its receiver is ready for it
    memory: (D, 6) resident bytes a byte of ACTIVE tensors and of a BUFFER, bytes of a RANK and of each SESSION, and a
            byte of the weights that are there TWICE while sessions are opened, and of what segments PASS on
    communication_w: (D,); awake_w: (D,) watts while a processor is at what waits cost it; idle_w: (D,) of a device's
            machine all the time, ``NO_METER`` unless one told; send_j: (D, D) joules of a device for a byte to another
            machine; receive_j: (D, D) those of the receiver
    pool: (D,); capacity: (P,) bytes, inf where not stated
    """

    work: Floats
    beside: Floats
    origin: Ints
    kept_ptr: Ints
    kept_task: Ints
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
    step: Floats
    wake: Floats
    rested: Floats
    busy: Floats
    cold: Floats
    gap: Floats
    overlap: Floats
    turn: Floats
    fill: Floats
    crowded: Floats
    memory_of: NDArray[np.int32]
    machine_of: NDArray[np.int32]
    attend: Floats
    take: Floats
    stages: int
    eager: Floats
    memory: Floats
    communication_w: Floats
    awake_w: Floats
    idle_w: Floats
    send_j: Floats
    receive_j: Floats
    pool: NDArray[np.int32]
    capacity: Floats


def whole_s(c: CostArrays) -> Floats:
    """(T, D) seconds of whole tasks."""
    return c.work[..., WHOLE]


def split_s(c: CostArrays) -> Floats:
    """(T, D, SPLITS, 2) seconds of a shard whatever its share, and those that go with that, by kind of split."""
    return c.work[..., SPLIT:WATTS].reshape(*c.work.shape[:2], SPLITS, 2)


def in_vectors(g: GraphArrays, c: CostArrays) -> GraphArrays:
    """A graph that is cut between vectors of channels alone, where the channels of a layer are so many times something:
    within one a cut makes two parts of what took as long."""
    vector = np.maximum(c.work[..., VECTOR].max(axis=1), 1).astype(g.grain.dtype)
    grain = g.grain.copy()
    grain[:, boxes.CHANNELS] = np.gcd(g.size[:, boxes.CHANNELS], np.lcm(grain[:, boxes.CHANNELS], vector))
    return g._replace(grain=grain)


def never_tired(c: CostArrays) -> CostArrays:
    """Of devices that save all the time as much as they do after a rest: no mapping takes less on the real ones, and no
    processor is at it for less, however that is rounded."""
    left = 1 - c.rested[:, PART, None]
    work = c.work.copy()
    work[..., :WATTS] *= left
    busy = np.column_stack([c.busy[:, PART] / left[:, 0] * (1 - ROUNDING), c.busy[:, 1:]])
    beside, crowded = c.beside * left, c.crowded * left[:, 0]
    return c._replace(work=work, beside=beside, crowded=crowded, rested=np.zeros_like(c.rested), busy=busy)


def costs(graph: Graph, g: GraphArrays, platform: Platform) -> CostArrays:
    """Cost arrays of a graph on a platform. ``CleaveError`` when a device's coefficients are missing."""
    cut, kept = weights(graph, g)
    units = [_unit(platform, d) for d in range(len(platform.devices))]
    leave, enter, names = links(platform)
    measured = any(unit.kernels or unit.gains for unit in units)
    signed = signatures(graph) if measured else ("",) * len(graph.layers)
    found = edges_of(graph, signed)
    work, beside = _seconds(graph, g, signed, found, [*zip(platform.devices, units, strict=True)])
    origin, kept_ptr, kept_task = _origins(g, found)
    slowdown = np.array([[device.slowdown] for device in platform.devices])
    hosts, machines = [device.host for device in platform.devices], [*platform.machines.values()]
    work[..., :WATTS] *= slowdown
    return CostArrays(
        work=work,
        beside=beside * slowdown,
        origin=origin,
        kept_ptr=kept_ptr,
        kept_task=kept_task,
        cut_bytes=cut,
        kept_bytes=kept,
        bandwidth=platform.bandwidth(),
        latency=platform.latency(),
        rate=own_rate(platform),
        leave=leave,
        enter=enter,
        links=len(names),
        send=np.array([[u.send_s + u.step_s, u.send_s_per_byte] for u in units]),
        receive=np.array([_receive(u) for u in units]),
        step=np.array([u.step_s for u in units]),
        wake=np.array([[u.wake_s, u.wake_s_per_byte] for u in units]),
        rested=np.array([[u.rested_part, u.rested_s] for u in units]),
        busy=np.array([_busy(u) for u in units]),
        cold=np.array([[u.cold_s, u.cold_part] for u in units]),
        gap=np.array([u.gap_s for u in units]),
        overlap=np.array([u.overlap for u in units]),
        turn=np.array([[u.turn_s, u.turn_per_message_s, u.turn_s_per_byte] for u in units]),
        fill=np.outer([u.fill_s_per_byte for u in units], [graph.tensors[name].size_bytes for name in graph.inputs]),
        crowded=np.array([u.crowded_s_per_byte for u in units]) * slowdown[:, 0],
        memory_of=np.array([*platform.memories.values()], dtype=np.int32),
        machine_of=np.array(machines, dtype=np.int32),
        attend=(attend := away(hosts, [u.attend_s_per_byte for u in units])),
        take=(take := away_to(hosts, [u.take_s_per_byte for u in units])),
        stages=4 if attend.any() or take.any() else 3,
        eager=eager(platform),
        memory=np.array([_memory(u) for u in units]),
        communication_w=np.array([_communication_w(d, u) for d, u in zip(platform.devices, units, strict=True)]),
        awake_w=np.array([_awake_w(d, u) for d, u in zip(platform.devices, units, strict=True)]),
        idle_w=np.array([NO_METER if u.idle_w is None else u.idle_w for u in units]),
        send_j=away(machines, [u.send_j_per_byte for u in units]),
        receive_j=away_to(machines, [u.receive_j_per_byte for u in units]),
        pool=np.array([d.pool for d in platform.devices], dtype=np.int32),
        capacity=np.array([p.capacity_bytes or np.inf for p in platform.pools], dtype=np.float64),
    )


def _communication_w(device: Device, unit: coefficients.UnitCost) -> float:
    """A meter tells what time costs, and bytes; else it is declared."""
    if unit.idle_w is not None:
        return 0.0
    return unit.communication_w if device.power_w is None else device.power_w


def _awake_w(device: Device, unit: coefficients.UnitCost) -> float:
    """A meter tells what computing costs; what waits cost is some of it."""
    if unit.idle_w is None:
        return _communication_w(device, unit)
    return fmean(cost.power_w for cost in unit.layers.values()) - unit.idle_w


def _busy(unit: coefficients.UnitCost) -> list[float]:
    if unit.busy_part is None:
        return [UNKNOWN, unit.wake_s, unit.wake_s_per_byte]
    return [unit.busy_part, unit.wake_busy_s, 0.0]


def _receive(unit: coefficients.UnitCost) -> list[float]:
    """Seconds between the end of a message's way and what is computed with it."""
    return [
        unit.receive_s + unit.late_s + unit.step_s,
        unit.receive_s_per_byte + unit.late_s_per_byte + unit.wake_s_per_byte,
    ]


def _memory(unit: coefficients.UnitCost) -> list[float]:
    return [
        unit.memory_activations,
        unit.memory_buffers,
        unit.memory_bias_bytes,
        unit.memory_segment_bytes,
        unit.memory_opening,
        unit.memory_passed,
    ]


def _unit(platform: Platform, device: int) -> coefficients.UnitCost:
    d = platform.devices[device]
    try:
        return coefficients.load(d.coefficients).unit(d.unit)
    except CleaveError as error:
        raise CleaveError(f"device '{d.name}': {error}") from error


def _seconds(
    graph: Graph,
    g: GraphArrays,
    names: Sequence[str],
    found: Sequence[Sequence[Edge]],
    devices: Sequence[tuple[Device, coefficients.UnitCost]],
) -> tuple[Floats, Floats]:
    """``work`` and ``beside`` of ``CostArrays``, but for the slowdown of devices (Eq. 4.7, 4.10). Inputs and outputs of
    the network take no time. names: signatures; found: ``edges_of``"""
    counted = any(unit.gains or unit.gain_parts or unit.joins or unit.relayout_s_per_byte for _, unit in devices)
    layers, numbers = slice(g.n_inputs, g.n_inputs + g.n_layers), [number for number, *_ in edges(g)]
    work = np.zeros((len(g.size), len(devices), QUARTER + 1))
    beside = np.zeros((len(g.edge_tensor) if counted else 0, len(devices), JOIN + boxes.KINDS))
    known: dict[tuple[str, str, float], tuple[Floats, Floats]] = {}
    for d, (device, unit) in enumerate(devices):
        slower = _slower(device, unit)
        key = device.coefficients, device.unit, slower
        if key not in known:
            alone = np.array(layer_costs.rows(graph, names, unit, slower))
            sides = edge_costs.rows(graph, found, unit, slower, (alone[:, WHOLE] / slower).tolist()) if counted else []
            known[key] = alone, np.reshape(sides, (-1, beside.shape[-1]))
        work[layers, d] = known[key][0]
        if counted:
            beside[numbers, d] = known[key][1]
        if device.power_w is not None and unit.idle_w is None:
            work[layers, d, WATTS] = device.power_w
    return work, beside


def _origins(g: GraphArrays, found: Sequence[Sequence[Edge]]) -> tuple[Ints, Ints, Ints]:
    """``origin``, ``kept_ptr`` and ``kept_task`` of ``CostArrays``. found: ``edges_of``"""
    origin = np.full(len(g.edge_tensor), relayout.NONE, dtype=np.int32)
    for (number, *_), edge in zip(edges(g), chain(*found), strict=True):
        origin[number] = g.n_inputs + edge.origin if edge.origin != relayout.NONE else edge.origin
    kept = np.flatnonzero(origin != relayout.NONE)
    kept = kept[np.argsort(origin[kept], kind="stable")]
    tasks = np.arange(len(g.size) + 1)
    readers = np.repeat(tasks[:-1], np.diff(g.edge_ptr))[kept]
    return origin, np.searchsorted(origin[kept], tasks).astype(np.int32), readers.astype(np.int32)


def _slower(device: Device, unit: coefficients.UnitCost) -> float:
    """How many times fewer threads a device has than the figures hold for."""
    return max(1.0, unit.threads / device.threads) if device.unit == "cpu" else 1.0


def weights(graph: Graph, g: GraphArrays) -> tuple[Floats, Floats]:
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
