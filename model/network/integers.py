"""Rules of operators on quantised tensors: those of ONNX, and ONNX Runtime's own, split like what they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from model.network import contrib
from model.network.graph import Graph, Layer
from model.network.rule import (
    CHANNELS,
    PARTIAL,
    ROWS,
    SAMPLES,
    WHOLE,
    Need,
    Rule,
    RuleOf,
    broadcast,
    constants_from,
    in_shape,
    length,
)
from model.network.windows import by_groups, windowed


def like(rules: Mapping[str, RuleOf]) -> dict[str, RuleOf]:
    """The rules of ONNX Runtime's operators, by those of ONNX. A Softmax says itself which axes it sums over."""
    return {op: partial(_like, rules[of.op]) for op, of in contrib.LIKE.items() if op != contrib.SOFTMAX}


def _like(rule: RuleOf, graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """As the operator of ONNX, on tensors that are quantised alike in all parts; of a matrix, maybe each column."""
    plain, places = contrib.plain(layer), range(len(layer.inputs))[contrib.LIKE[layer.op].tensors]
    rest = [name for at, name in enumerate(layer.inputs) if name and at not in places]
    if plain is None or kind == PARTIAL or not all(map(graph.is_constant, rest)):
        return None
    found = rule(graph, plain, kind)
    if found is None or (plain.op == "AveragePool" and kind == ROWS):  # its pads would be others in each part
        return None
    needs = [WHOLE] * len(layer.inputs)
    for at, need in zip(places, found.needs, strict=True):
        needs[at] = need
    if layer.op == contrib.GEMM:
        needs[4:6] = [_one_a_channel(graph, name, kind == CHANNELS, 0) for name in layer.inputs[4:6]]
        needs[6:7] = [broadcast(graph, name, 2, kind) if name else WHOLE for name in layer.inputs[6:7]]
    return replace(found, needs=tuple(needs))


def _quantized_conv(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """QLinearConv and ConvInteger: as Conv; scales and zero points of the weights may be one a channel."""
    if kind == PARTIAL or not _zero_point_alone(graph, layer):
        return None
    if kind != CHANNELS:
        return windowed(graph, layer, kind)
    of_group, size, grain = by_groups(graph, layer)
    weights = layer.inputs[WEIGHTS[layer.op] :]
    own = weights if layer.op == "QLinearConv" else (weights[0], *weights[2:])
    cut = [_one_a_channel(graph, name, name in own, 0) for name in layer.inputs[1:]]
    return Rule((of_group, *cut), size, grain)


WEIGHTS = {"QLinearConv": 3, "ConvInteger": 1, "QLinearMatMul": 3, "MatMulInteger": 1}
"""Where the weights stand among the inputs of quantized operators."""


def _zero_point_alone(graph: Graph, layer: Layer) -> bool:
    """Whether all but the first input is constant, or the zero point of that too is found frame by frame, as by
    DynamicQuantizeLinear: one number, which every part needs."""
    dynamic = layer.op in ("ConvInteger", "MatMulInteger") and len(layer.inputs) > 2
    if not dynamic or not layer.inputs[2] or graph.is_constant(layer.inputs[2]):
        return constants_from(graph, layer, 1)
    fixed = [name for i, name in enumerate(layer.inputs) if i not in (0, 2) and name]
    return graph.tensors[layer.inputs[2]].elements == 1 and all(map(graph.is_constant, fixed))


def _one_a_channel(graph: Graph, name: str, may_be_cut: bool, axis: int) -> Need:
    """A constant that has a value for each channel along ``axis`` is cut there, a single value is taken whole."""
    shape = graph.tensors[name].shape if name else ()
    return Need(axis) if may_be_cut and len(shape) > axis and shape[axis] > 1 else WHOLE


def _quantized_matmul(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """QLinearMatMul and MatMulInteger of a matrix by a constant one: as MatMul."""
    at = WEIGHTS[layer.op]
    others = [name for i, name in enumerate(layer.inputs) if i not in (0, at) and name]
    if len(in_shape(graph, layer)) != 2 or len(graph.tensors[layer.inputs[at]].shape) != 2:
        return None
    if kind not in (SAMPLES, CHANNELS) or not _zero_point_alone(graph, layer):
        return None
    if any(graph.tensors[name].elements > 1 for name in others):  # one a row or column: kept whole
        return None
    needs = [WHOLE] * len(layer.inputs)
    needs[0 if kind == SAMPLES else at] = Need(0 if kind == SAMPLES else 1)
    return Rule(tuple(needs), length(graph, layer, kind))


def _quantize(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """One scale for all, or one for each element of an axis."""
    if kind == PARTIAL or not constants_from(graph, layer, 1) or layer.integer("block_size", 0):
        return None
    rank = len(in_shape(graph, layer))
    along = kind == layer.integer("axis", 1) % max(rank, 1)
    cut = [_one_a_channel(graph, name, along, 0) for name in layer.inputs[1:]]
    return Rule((Need(kind), *cut), length(graph, layer, kind))


RULES: dict[str, RuleOf] = {
    **dict.fromkeys(("QLinearConv", "ConvInteger"), _quantized_conv),
    **dict.fromkeys(("QLinearMatMul", "MatMulInteger"), _quantized_matmul),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantize),
}
