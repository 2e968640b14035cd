"""Seconds of a layer that was not measured, by what its kind takes for each thing that takes time.

    macs / (frequency_hz * macs_per_cycle) + part * (overhead_s + s_per_byte * bytes + s_per_weight_byte * weights)

The fraction is Eq. 4.7 of the thesis (hybrid CNN partitioning, 2023); ``model.caches`` has the part.
"""

from __future__ import annotations

from statistics import fmean
from typing import NamedTuple

from model import boxes
from model.coefficients import LayerCost
from model.graph import Graph, Layer

VECTOR = 16
"""Output channels that kernels compute at a time."""
SET = 4 * VECTOR
"""Output channels of a convolution for which kernels read their input once."""
SHARES = (1 / 2, 1 / 3, 1 / 4, 3 / 4, 1 / 8, 7 / 8)
"""Of a layer, as shards have them."""


class Work(NamedTuple):
    """What a layer does in one frame.

    macs:         multiply-accumulates; idle_macs: those that whole vectors of channels would do besides
    moved_bytes:  that it reads and writes, but for its weights; weight_bytes: of these
    part:         of what its start and bytes take where caches are cold
    """

    macs: float
    idle_macs: float
    moved_bytes: float
    weight_bytes: float
    part: float = 1.0

    def amounts(self, whole_vectors: bool) -> tuple[float, float, float, float]:
        """What a coefficient is to be found for: start, MACs, bytes, bytes of weights."""
        macs = self.macs + self.idle_macs if whole_vectors else self.macs
        return self.part, macs, self.part * self.moved_bytes, self.part * self.weight_bytes


def work(graph: Graph, layer: Layer) -> Work:
    """What a layer does."""
    weights = graph.weight_bytes(layer)
    return Work(
        macs=float(layer.macs),
        idle_macs=_idle(graph, layer) * layer.macs,
        moved_bytes=float(graph.touched_bytes(layer) - weights),
        weight_bytes=float(weights),
    )


def rates(cost: LayerCost, frequency_hz: float) -> tuple[float, float, float, float]:
    """Seconds of one of each of ``Work.amounts``."""
    weight = cost.s_per_byte if cost.s_per_weight_byte is None else cost.s_per_weight_byte
    return cost.overhead_s, 1 / (frequency_hz * cost.macs_per_cycle), cost.s_per_byte, weight


def seconds(done: Work, cost: LayerCost, frequency_hz: float) -> tuple[float, float]:
    """Seconds that are fixed, and those that go with how much of a layer there is."""
    fixed, *rest = (n * s for n, s in zip(done.amounts(cost.whole_vectors), rates(cost, frequency_hz), strict=True))
    return fixed, sum(rest)


def repeated(graph: Graph, layer: Layer, axis: int) -> float:
    """What every shard along an axis does, however small it is: bytes that each needs whole, those that it reads and
    that are not divided, and of input channels the sum that parts are added up to. Of output channels of a convolution
    it is multiply-accumulates: kernels read their input once for each ``SET`` of channels, be it full or not, and those
    of shards have more sets than those of the whole layer."""
    found = boxes.rule(graph, layer, axis)
    if found and layer.op == "Conv" and axis == boxes.CHANNELS:
        return layer.macs / found.size * fmean(_lacking(round(found.size * share)) for share in SHARES)
    needs = zip(layer.inputs, found.needs, strict=True) if found else ()
    names = [name for name, need in needs if name and need.axis < 0]
    names += layer.outputs if axis == boxes.PARTIAL else ()
    return float(sum(graph.tensors[name].size_bytes for name in names))


def _lacking(channels: int) -> int:
    """Channels that their last set lacks."""
    return -channels % SET


def _idle(graph: Graph, layer: Layer) -> float:
    """What the last vector lacks, as a part of all channels."""
    shape = graph.tensors[layer.outputs[0]].shape
    if layer.op not in boxes.HEAVY or len(shape) <= boxes.CHANNELS:
        return 0.0
    return -shape[boxes.CHANNELS] % VECTOR / max(shape[boxes.CHANNELS], 1)
