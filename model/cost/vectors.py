"""Vectors of channels: kernels compute so many output channels of a convolution at a time, and fewer take as long.

ONNX Runtime lays tensors out in blocks of channels (NCHWc): 16 where a processor has AVX-512, 8 on others of x86-64, 16
on Arm in builds that do so (``NchwcBlockSize`` in its ``core/mlas/lib/platform.cpp``). With 16 a convolution of 17
channels takes what one of 32 does (``python -m tests.bench.vectors``). Most layers have whole vectors; parts need not.
"""

from __future__ import annotations

import math

from model.mappings.mapping import extent
from model.network import boxes
from model.network.graph import Graph, Layer
from model.network.windows import CONVOLUTIONS


def vector_of(graph: Graph, layer: Layer, vector: int) -> int:
    """Output channels of a layer that are computed at a time, where that is ``vector`` for convolutions: 1 of all else,
    and of those in groups, unless each channel is one.
    """
    if layer.op not in CONVOLUTIONS or vector == 1:
        return 1
    groups, channels = layer.integer("group", 1), graph.tensors[layer.inputs[0]].shape[boxes.CHANNELS]
    return vector if groups in (1, channels) else 1


def filled(channels: float, vector: float) -> float:
    """How many times as many channels are computed, since the last vector is."""
    return math.ceil(channels / vector) * vector / channels


def whole_filled(graph: Graph, layer: Layer, vector: int) -> float:
    """The same of all channels of a layer. vector: as ``vector_of`` has it"""
    return filled(extent(graph, layer), vector_of(graph, layer, vector))
