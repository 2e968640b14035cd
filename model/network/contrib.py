"""ONNX Runtime's own operators on quantised tensors, beside those that ONNX has.

Each reads the scale and the zero point of every tensor after it. Without these it has the shapes, the work and the
splits of an operator of ONNX (onnxruntime, docs/ContribOperators.md, domain ``com.microsoft``). Its QuantizeLinear and
DequantizeLinear are those of ONNX, for more types than these had in early opsets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import onnx
from onnx import TensorProto, helper

from model.network.graph import Layer, operator, opset_of
from model.network.quantised import DEQUANTIZE, QUANTIZE

DOMAIN = "com.microsoft"


class Like(NamedTuple):
    """What an operator would be in ONNX.

    op:         operator of ONNX
    tensors:    where its inputs stand, the bias left out
    attributes: that both have
    """

    op: str
    tensors: slice
    attributes: tuple[str, ...] = ()


FIRST, BOTH, EACH = slice(0, 1), slice(0, 4, 3), slice(2, None, 3)
WINDOW = ("kernel_shape", "strides", "pads", "auto_pad", "count_include_pad")
UNLIKE = ("channels_last", "ceil_mode")
"""Attributes with which it is another operator, or one that ONNX and ONNX Runtime understand in different ways."""
GEMM, CONCAT, SOFTMAX = (f"{DOMAIN}.{name}" for name in ("QGemm", "QLinearConcat", "QLinearSoftmax"))
LIKE = {
    f"{DOMAIN}.QLinearAdd": Like("Add", BOTH),
    f"{DOMAIN}.QLinearMul": Like("Mul", BOTH),
    GEMM: Like("Gemm", BOTH, ("transA", "transB")),
    CONCAT: Like("Concat", EACH, ("axis",)),
    f"{DOMAIN}.QLinearSigmoid": Like("Sigmoid", FIRST),
    f"{DOMAIN}.QLinearLeakyRelu": Like("LeakyRelu", FIRST),
    SOFTMAX: Like("Softmax", FIRST, ("axis",)),
    f"{DOMAIN}.QLinearGlobalAveragePool": Like("GlobalAveragePool", FIRST),
    f"{DOMAIN}.QLinearAveragePool": Like("AveragePool", FIRST, WINDOW),
}
"""By their names with the domain."""


AXES, MORE_TYPES = 13, 21
"""The first opsets in which ONNX's have an axis, and are for integers of 16 bits."""
TYPES = frozenset({TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32})


def name_as_onnx(model: onnx.ModelProto) -> None:
    """Make ONNX's of the operators that quantise, where its opset has them, by their zero points."""
    opset, types = opset_of(model), {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    for node in filter(is_quantiser, model.graph.node):
        zero_point = next(iter(node.input[2:3]), "")
        if opset >= MORE_TYPES or (opset >= AXES and types.get(zero_point) in TYPES):
            node.domain = ""


def is_quantiser(node: onnx.NodeProto) -> bool:
    """Whether it is one of those that quantise, of ONNX Runtime's own."""
    return node.domain == DOMAIN and node.op_type in (QUANTIZE, DEQUANTIZE)


def in_onnx(node: onnx.NodeProto) -> onnx.NodeProto | None:
    """The operator of ONNX, on the tensors alone; None where there is none: a matrix that is not quantised again."""
    like = LIKE.get(operator(node))
    floats = operator(node) == GEMM and not any(node.input[7:8])
    if like is None or floats or any(a.name in UNLIKE and a.i for a in node.attribute):
        return None
    found = helper.make_node(like.op, node.input[like.tensors], node.output)
    found.attribute.extend(a for a in node.attribute if a.name in like.attributes)
    return found


def plain(layer: Layer) -> Layer | None:
    """A layer as it would be in ONNX."""
    node = in_onnx(layer.node)
    return None if node is None else replace(layer, op=node.op_type, node=node)


def name_in_onnx(op: str) -> str:
    """What an operator stands for; of any other its own name."""
    return LIKE[op].op if op in LIKE else op
