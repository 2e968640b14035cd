"""Kinds of layers: those that one coefficient prices, and what else goes by them."""

from __future__ import annotations

from itertools import product

from model.network import contrib
from model.network.graph import Graph, Layer
from model.network.macs import VIEWS

KINDS = (
    *("conv_winograd", "conv_im2col", "fc", "pool", "norm", "lrn"),
    *("activation", "elementwise", "softmax", "move", "view", "other"),
)

_KIND_OF = {
    **dict.fromkeys(("Gemm", "MatMul", "QLinearMatMul", "MatMulInteger"), "fc"),
    **dict.fromkeys(("QLinearConv", "ConvInteger"), "conv_im2col"),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), "elementwise"),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), "pool"),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "ReduceMean"), "pool"),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), "norm"),
    "LRN": "lrn",
    **dict.fromkeys(("Relu", "LeakyRelu", "PRelu", "Elu", "Sigmoid", "HardSigmoid"), "activation"),
    **dict.fromkeys(("HardSwish", "Tanh", "Clip", "Mish", "Gelu"), "activation"),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "Mean", "Pow"), "elementwise"),
    **dict.fromkeys(("Softmax", "LogSoftmax"), "softmax"),
    **dict.fromkeys(("Concat", "Split", "Slice", "Pad", "Transpose", "Gather", "Upsample", "Resize"), "move"),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), "move"),
    **dict.fromkeys(VIEWS, "view"),
}


def kind(graph: Graph, layer: Layer) -> str:
    """Which coefficient prices the layer, one of ``KINDS``."""
    if layer.op in ("Conv", "ConvTranspose"):
        return "conv_winograd" if _winograd(graph, layer) else "conv_im2col"
    return _KIND_OF.get(contrib.name_in_onnx(layer.op), "other")


COPIES = 3
"""Of the largest weights that are rebuilt, while a session is opened, besides all of them once more."""


def rebuilt(kind: str) -> bool:
    """Whether weights of a kind are there twice while a session is opened, all of it at once: ONNX Runtime fuses
    normalisations into convolutions and lays them out in blocks of channels, one after the other, which takes
    ``COPIES`` of each (1.32; no other figures are nearer to 63 ranks of five networks: 0.6 % of what opening took)."""
    return kind.startswith("conv")


PART = " in parts"


def part_of(kind: str) -> str:
    """What a kind is called where a layer is split: smaller weights leave fewer gaps in memory."""
    return kind + PART


def part_of_reader(graph: Graph, consumer: Layer, size_bytes: float) -> float:
    """Of what a layer takes, the part that goes with a tensor of so many bytes that it reads: a Concat copies one after
    the other; all else has to do with all that it reads."""
    return size_bytes / sum(graph.tensors[n].size_bytes for n in consumer.inputs) if consumer.op == "Concat" else 1.0


PARTNERS = tuple(dict.fromkeys(kind.split("_")[0] for kind in KINDS))
"""Kinds as they stand in a pair."""
ALONG = " along"
"""At the end of a pair whose reader a convolution computes along (``model.network.fused``)."""
PAIRS = (*map(">".join, product(PARTNERS, repeat=2)),
         *(f"{maker}>{reader}{ALONG}" for maker in ("conv", "norm", "elementwise")
           for reader in ("norm", "elementwise", "activation")))  # fmt: skip


def pair(graph: Graph, producer: Layer, consumer: Layer, along: bool) -> str:
    """Which gain an edge between two layers of a segment has, one of ``PAIRS``: ``conv>activation along``; all
    convolutions are one kind. along: whether a convolution computes the consumer along"""
    kinds = ">".join(kind(graph, layer).split("_")[0] for layer in (producer, consumer))
    return kinds + ALONG if along else kinds


def _winograd(graph: Graph, layer: Layer) -> bool:
    """3x3 convolutions with stride 1 and no groups are what kernels compute by Winograd's algorithm."""
    a = layer.attributes
    ones = all(v == 1 for key in ("strides", "dilations") for v in a.get(key, ()))
    kernel = graph.tensors[layer.inputs[1]].shape[2:]
    return layer.op == "Conv" and kernel == (3, 3) and ones and a.get("group", 1) == 1
