"""Seconds of a layer that was not measured, by what its kind takes for each thing that takes time.

    macs / (frequency_hz * macs_per_cycle) + part * (overhead_s + s_per_byte * bytes + s_per_weight_byte * weights)

The fraction is Eq. 4.7 of the thesis (hybrid CNN partitioning, 2023); ``model.cluster.caches`` has the part.
"""

from __future__ import annotations

from typing import NamedTuple

from model.cluster.coefficients import LayerCost
from model.cost.vectors import whole_filled
from model.network import boxes
from model.network.graph import Graph, Layer


class Work(NamedTuple):
    """What a layer does in one frame.

    macs:         multiply-accumulates; idle_macs: those that fill the last vector of channels (``model.cost.vectors``)
    moved_bytes:  that it reads and writes, but for its weights; weight_bytes: of these
    part:         of what its start and bytes take where caches are cold
    """

    macs: float
    idle_macs: float
    moved_bytes: float
    weight_bytes: float
    part: float = 1.0

    @property
    def amounts(self) -> tuple[float, float, float, float]:
        """What a coefficient is to be found for: start, MACs, bytes, bytes of weights."""
        return self.part, self.macs + self.idle_macs, self.part * self.moved_bytes, self.part * self.weight_bytes


def work(graph: Graph, layer: Layer, vector: int) -> Work:
    """What a layer does. vector: as ``UnitCost`` has it"""
    weights = graph.weight_bytes(layer)
    return Work(
        macs=float(layer.macs),
        idle_macs=(whole_filled(graph, layer, vector) - 1) * layer.macs,
        moved_bytes=float(graph.touched_bytes(layer) - weights),
        weight_bytes=float(weights),
    )


def rates(cost: LayerCost, frequency_hz: float) -> tuple[float, float, float, float]:
    """Seconds of one of each of ``Work.amounts``."""
    weight = cost.s_per_byte if cost.s_per_weight_byte is None else cost.s_per_weight_byte
    return cost.overhead_s, 1 / (frequency_hz * cost.macs_per_cycle), cost.s_per_byte, weight


def seconds(done: Work, cost: LayerCost, frequency_hz: float) -> tuple[float, float]:
    """Seconds that are fixed, and those that go with how much of a layer there is."""
    fixed, *rest = (n * s for n, s in zip(done.amounts, rates(cost, frequency_hz), strict=True))
    return fixed, sum(rest)


def repeated(graph: Graph, layer: Layer, axis: int) -> float:
    """Bytes that every shard along an axis needs whole, however small it is: those that it reads and that are not
    divided, and of input channels the sum that parts are added up to."""
    found = boxes.rule(graph, layer, axis)
    needs = zip(layer.inputs, found.needs, strict=True) if found else ()
    names = [name for name, need in needs if name and need.axis < 0]
    names += layer.outputs if axis == boxes.PARTIAL else ()
    return float(sum(graph.tensors[name].size_bytes for name in names))
