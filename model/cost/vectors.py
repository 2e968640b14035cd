"""Vectors of channels: kernels compute so many output channels of a convolution at a time, and fewer take as long; and
where channels do not come in quarters, those of a depthwise convolution are computed one by one.

ONNX Runtime lays tensors out in blocks of channels (NCHWc): 16 where a processor has AVX-512, 8 on others of x86-64, 16
on Arm in builds that do so (``NchwcBlockSize`` in its ``core/mlas/lib/platform.cpp``). With 16 a convolution of 17
channels takes what one of 32 does (``python -m tests.bench.vectors``). Most layers have whole vectors; parts need not.
A depthwise convolution of 68 channels takes 9 us, one of 66 takes 29: it is not computed in that layout.
"""

from __future__ import annotations

import math

from model.mappings.mapping import extent
from model.network import boxes
from model.network.graph import Graph, Layer
from model.network.relayout import QUARTERS, SINGLY, is_depthwise
from model.network.windows import CONVOLUTIONS


def vector_of(graph: Graph, layer: Layer, vector: int) -> int:
    """Output channels of a layer that are computed at a time, where that is ``vector`` for convolutions: 1 of all else,
    and of those in groups, unless each channel is one.
    """
    if layer.op not in CONVOLUTIONS or vector == 1:
        return 1
    return vector if layer.integer("group", 1) == 1 or is_depthwise(graph, layer) else 1


def quarter_of(graph: Graph, layer: Layer, vector: int) -> int:
    """Shards of channels of a layer are computed singly, unless they have so many times something: 1 if none is."""
    by_blocks = layer.op == "Conv" and vector > 1 and graph.tensors[layer.outputs[0]].dtype == "float32"
    return QUARTERS if by_blocks and is_depthwise(graph, layer) else 1


def split_of(kind: int, channels: float, quarter: float) -> int:
    """A kind of split, or ``SINGLY``. channels: of the shard"""
    return SINGLY if kind == boxes.CHANNELS and channels % quarter else kind


def filled(channels: float, vector: float) -> float:
    """How many times as many channels are computed, since the last vector is."""
    return math.ceil(channels / vector) * vector / channels


def whole_filled(graph: Graph, layer: Layer, vector: int, singly: float = 1.0) -> float:
    """The same of all channels of a layer; ``singly`` where these are. vector: as ``vector_of`` has it"""
    return singly if is_single(graph, layer, vector) else filled(extent(graph, layer), vector_of(graph, layer, vector))


def is_single(graph: Graph, layer: Layer, vector: int) -> bool:
    """Whether a whole layer is computed singly."""
    return extent(graph, layer) % quarter_of(graph, layer, vector) > 0
