"""How much work a layer is, in multiply-accumulates.

Real counts: a fully connected layer does inputs x outputs of them. Operators that multiply nothing (activations,
pooling, normalisation, copies) are counted by the elements they touch, so that one measure serves Eq. 4.7 of the
thesis for every layer: pooling by its window, an activation by its output, a view (Reshape) by nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx

from model.network import contrib
from model.network.graph import Tensor

VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"})

Shapes = dict[str, Tensor]


def macs(node: onnx.NodeProto, tensors: Shapes) -> int:
    """Multiply-accumulates of ``node``, an integer of at least 0."""
    if node.op_type in VIEWS:
        return 0
    node = contrib.in_onnx(node) or node
    return COUNTS.get(node.op_type, _touched)(node, tensors)


def _touched(node: onnx.NodeProto, tensors: Shapes) -> int:
    return sum(tensors[name].elements for name in node.output if name)


def _conv(node: onnx.NodeProto, tensors: Shapes) -> int:
    weights = node.input[3 if node.op_type == "QLinearConv" else 1]
    return tensors[node.output[0]].elements * math.prod(tensors[weights].shape[1:])


def _conv_transpose(node: onnx.NodeProto, tensors: Shapes) -> int:
    return tensors[node.input[0]].elements * math.prod(tensors[node.input[1]].shape[1:])


def _matmul(node: onnx.NodeProto, tensors: Shapes) -> int:
    transposed = any(a.name == "transA" and a.i for a in node.attribute)
    inner = tensors[node.input[0]].shape[0 if transposed else -1]
    return tensors[node.output[0]].elements * inner


def _pool(node: onnx.NodeProto, tensors: Shapes) -> int:
    kernel = next((a.ints for a in node.attribute if a.name == "kernel_shape"), [1])
    return tensors[node.output[0]].elements * math.prod(kernel)


def _lrn(node: onnx.NodeProto, tensors: Shapes) -> int:
    (size,) = [a.i for a in node.attribute if a.name == "size"]
    return tensors[node.output[0]].elements * size


def _input(node: onnx.NodeProto, tensors: Shapes) -> int:
    return tensors[node.input[0]].elements


COUNTS: dict[str, Callable[[onnx.NodeProto, Shapes], int]] = {
    "Conv": _conv,
    "QLinearConv": _conv,
    "ConvInteger": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _matmul,
    "MatMul": _matmul,
    "QLinearMatMul": _matmul,
    "MatMulInteger": _matmul,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "LpPool": _pool,
    "LRN": _lrn,
    "GlobalAveragePool": _input,
    "GlobalMaxPool": _input,
    "GlobalLpPool": _input,
    "ReduceMean": _input,
    "ReduceSum": _input,
    "ReduceMax": _input,
}
