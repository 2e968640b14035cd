"""The box rule: which box of its inputs a box of an operator's output needs.

One table for every operator and every kind of split. A rule is a ``Need`` an input, so that search (flat arrays),
pricing and the cutting of weights all follow the same few integers. What no rule covers is kept whole; it is never
cut wrongly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from model import contrib, layout, quantised, windows
from model.graph import Graph, Layer
from model.rule import (
    AXES,
    CHANNELS,
    KIND_NAMES,
    KINDS,
    PARTIAL,
    ROWS,
    SAMPLES,
    WHOLE,
    Need,
    Rule,
    constants_from,
    in_shape,
    length,
    others,
    same,
)

__all__ = [
    "AXES",
    "CHANNELS",
    "KINDS",
    "KIND_NAMES",
    "PARTIAL",
    "ROWS",
    "RULES",
    "SAMPLES",
    "WHOLE",
    "Need",
    "Rule",
    "constants",
    "is_heavy",
    "rule",
    "sizes",
]


ADDED = ("float32", "float64")
"""Types that partial sums may be of. A sum of float16 may be finite where a part of it is not."""


def sizes(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Elements along each of the first three axes; 1 where there is no such axis."""
    first, second, third = (*shape[:AXES], 1, 1, 1)[:AXES]
    return first, second, third


def rule(graph: Graph, layer: Layer, kind: int = CHANNELS) -> Rule | None:
    """The rule of ``layer`` for a kind of split, or None where it must stay whole."""
    if layer.op not in RULES or not 0 <= kind < KINDS or (len(layer.outputs) != 1 and layer.op != "Split"):
        return None
    output = graph.tensors[layer.outputs[0]]
    if layer.whole or (kind == PARTIAL and output.dtype not in ADDED):
        return None
    if kind != PARTIAL and len(output.shape) <= kind:
        return None
    found = RULES[layer.op](graph, layer, kind)
    return found if found is not None and found.size // found.grain > 1 else None


def constants(graph: Graph, layer: Layer, kind: int) -> dict[str, Need]:
    """The constants that a layer uses, its scales and zero points too, with what a box of the output needs of each.

    Everything, where there is no rule.
    """
    found = rule(graph, layer, kind)
    needs = dict(zip(layer.inputs, found.needs if found else (WHOLE,) * len(layer.inputs), strict=True))
    made = Need(kind) if found and kind != PARTIAL else WHOLE
    used = {name: need for name, need in needs.items() if graph.is_constant(name)}
    for node in layer.before:
        used |= quantised.parameter_needs(graph, node, needs.get(node.input[0], WHOLE))
    for node in layer.after:
        used |= quantised.parameter_needs(graph, node, made)
    return used


def is_heavy(graph: Graph, layer: Layer) -> bool:
    """Whether the layer carries the weights that LOP is meant for: a convolution or a fully connected layer."""
    return layer.op in HEAVY and rule(graph, layer, CHANNELS) is not None


QGEMM = f"{contrib.DOMAIN}.QGemm"
HEAVY = frozenset(
    {"Conv", "ConvTranspose", "Gemm", "MatMul", "QLinearConv", "ConvInteger", "QLinearMatMul", "MatMulInteger", QGEMM}
)

_RuleOf = Callable[[Graph, Layer, int], "Rule | None"]


def _conv(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Output channels of a group need that group's input channels; weights and bias are cut along axis 0."""
    if not constants_from(graph, layer, 1):
        return None
    groups = layer.integer("group", 1)
    channels = in_shape(graph, layer)[1]
    if kind == PARTIAL:
        needs = (Need(1), Need(1), WHOLE)[: len(layer.inputs)]
        return Rule(needs, channels) if groups == 1 else None
    if kind == CHANNELS:
        size = length(graph, layer, CHANNELS)
        of_group = WHOLE if groups == 1 else Need(1, mul=channels // groups, div=size // groups)
        return Rule((of_group, *others(layer, Need(0))), size, grain=size // groups if groups > 1 else 1)
    return _windowed(graph, layer, kind)


def _windowed(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Samples are apart; rows need the rows under the kernel."""
    if kind == SAMPLES:
        return Rule((Need(0), *others(layer, WHOLE)), length(graph, layer, kind))
    row = windows.of_rows(graph, layer)
    if row is None:
        return None
    need = Need(ROWS, mul=row.stride, lo=-row.begin, hi=row.window - row.stride - row.begin)
    return Rule((need, *others(layer, WHOLE)), length(graph, layer, kind))


def _quantized_conv(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """QLinearConv and ConvInteger: as Conv; scales and zero points of the weights may be one a channel."""
    if kind == PARTIAL or not _zero_point_alone(graph, layer):
        return None
    if kind != CHANNELS:
        return _windowed(graph, layer, kind)
    groups, size = layer.integer("group", 1), length(graph, layer, CHANNELS)
    channels = in_shape(graph, layer)[1]
    of_group = WHOLE if groups == 1 else Need(1, mul=channels // groups, div=size // groups)
    weights = layer.inputs[WEIGHTS[layer.op] :]
    own = weights if layer.op == "QLinearConv" else (weights[0], *weights[2:])
    cut = [_one_a_channel(graph, name, name in own, 0) for name in layer.inputs[1:]]
    return Rule((of_group, *cut), size, grain=size // groups if groups > 1 else 1)


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


def _contrib(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """As the operator of ONNX, on tensors that are quantised alike in all parts; of a matrix, maybe each column."""
    plain = contrib.plain(layer)
    places = range(len(layer.inputs))[contrib.LIKE[layer.node.op_type].tensors]
    rest = [at for at, name in enumerate(layer.inputs) if name and at not in places]
    fixed = all(graph.is_constant(layer.inputs[at]) for at in rest)
    windowed = layer.node.op_type == "QLinearAveragePool" and kind == ROWS
    found = RULES[plain.op](graph, plain, kind) if plain and fixed and not windowed and kind != PARTIAL else None
    if found is None:
        return None
    needs = [WHOLE] * len(layer.inputs)
    for at, need in zip(places, found.needs, strict=True):
        needs[at] = need
    if layer.op == QGEMM:
        needs[4:6] = [_one_a_channel(graph, name, kind == CHANNELS, 0) for name in layer.inputs[4:6]]
        needs[6:7] = [_broadcast(graph, name, 2, kind) if name else WHOLE for name in layer.inputs[6:7]]
    return replace(found, needs=tuple(needs))


def _conv_transpose(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Weights are (input channels, output channels, …): without groups, axis 1 is cut for LOP, axis 0 for LIP."""
    if not constants_from(graph, layer, 1) or kind == ROWS:
        return None
    if kind == SAMPLES:
        return Rule((Need(0), *others(layer, WHOLE)), length(graph, layer, kind))
    if layer.integer("group", 1) != 1:
        return None
    if kind == PARTIAL:
        return Rule((Need(1), Need(0), WHOLE)[: len(layer.inputs)], in_shape(graph, layer)[1])
    return Rule((WHOLE, Need(1), Need(0))[: len(layer.inputs)], length(graph, layer, kind))


def _gemm(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Every output needs the whole row of the input; B is cut along its output axis, C where it has one."""
    if not constants_from(graph, layer, 1) or kind == ROWS:
        return None
    rows_of_a = layer.integer("transA", 0)
    columns_of_b = 1 - layer.integer("transB", 0)
    if kind == PARTIAL:
        inner = in_shape(graph, layer)[1 - rows_of_a]
        return Rule((Need(1 - rows_of_a), Need(1 - columns_of_b), WHOLE)[: len(layer.inputs)], inner)
    bias = [_broadcast(graph, name, 2, kind) if name else WHOLE for name in layer.inputs[2:3]]
    a, b = (Need(rows_of_a), WHOLE) if kind == SAMPLES else (WHOLE, Need(columns_of_b))
    return Rule((a, b, *bias), length(graph, layer, kind))


def _matmul(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """A constant matrix on the right: its columns make the last axis, all other axes are the input's own."""
    rank = len(in_shape(graph, layer))
    if not constants_from(graph, layer, 1) or len(graph.tensors[layer.inputs[1]].shape) != 2 or rank < 2:
        return None
    if kind == PARTIAL:
        return Rule((Need(rank - 1), Need(0)), in_shape(graph, layer)[-1]) if rank <= AXES else None
    needs = (WHOLE, Need(1)) if kind == rank - 1 else (Need(kind), WHOLE)
    return Rule(needs, length(graph, layer, kind))


def _normalisation(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Each channel by itself, with one value of each parameter a channel."""
    if kind == PARTIAL or not constants_from(graph, layer, 1):
        return None
    flat = all(len(graph.tensors[name].shape) == 1 for name in layer.inputs[1:])
    if kind == ROWS and not (layer.op == "BatchNormalization" and flat):  # the others take statistics over the rows
        return None
    return Rule((Need(kind), *others(layer, Need(0) if kind == CHANNELS else WHOLE)), length(graph, layer, kind))


def _over_last_axes(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """LayerNormalization takes statistics over all axes from ``axis`` on, and has parameters that lie along these."""
    first = layer.integer("axis", -1) % len(in_shape(graph, layer))
    small = all(
        len(graph.tensors[name].shape) <= len(in_shape(graph, layer)) - first for name in layer.inputs[1:] if name
    )
    return same(graph, layer, kind) if kind < first and small else None


def _pool(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    return _windowed(graph, layer, kind) if kind == ROWS else same(graph, layer, kind)


def _global_pool(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    return same(graph, layer, kind) if kind in (SAMPLES, CHANNELS) else None


def _lrn(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Channel i looks at the neighbours that its window covers."""
    if kind != CHANNELS:
        return same(graph, layer, kind)
    size = layer.integer("size", 1)
    need = Need(CHANNELS, lo=-((size - 1) // 2), hi=-(-(size - 1) // 2))
    return Rule((need,), length(graph, layer, kind), crop=True)


def _element_wise(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Broadcasting operators: an input that has the axis is cut along it, another is taken whole."""
    if kind == PARTIAL:
        return None
    rank = len(graph.tensors[layer.outputs[0]].shape)
    return Rule(tuple(_broadcast(graph, name, rank, kind) for name in layer.inputs), length(graph, layer, kind))


def _broadcast(graph: Graph, name: str, rank: int, axis: int) -> Need:
    """Numpy broadcasting aligns axes at the right: an axis of a smaller operand lies further left."""
    shape = graph.tensors[name].shape
    axis -= rank - len(shape)
    return Need(axis) if axis >= 0 and shape[axis] > 1 else WHOLE


def _expand(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """As broadcasting to a constant shape."""
    if kind == PARTIAL or not constants_from(graph, layer, 1):
        return None
    rank = len(graph.tensors[layer.outputs[0]].shape)
    return Rule((_broadcast(graph, layer.inputs[0], rank, kind), WHOLE), length(graph, layer, kind))


def _softmax(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Axes that the sum does not run over. Before opset 13 it runs over all axes from ``axis`` on."""
    modern = dict(graph.opsets).get("", 1) >= 13
    rank = len(in_shape(graph, layer))
    axis = layer.integer("axis", -1 if modern else 1) % rank
    free = kind != axis if modern else kind < axis
    return same(graph, layer, kind) if free else None


RULES: dict[str, _RuleOf] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
    **dict.fromkeys(("QLinearConv", "ConvInteger"), _quantized_conv),
    **dict.fromkeys(("QLinearMatMul", "MatMulInteger"), _quantized_matmul),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantize),
    **{f"{contrib.DOMAIN}.{name}": _contrib for name in contrib.LIKE if name != "QLinearSoftmax"},
    "Expand": _expand,
    "BatchNormalization": _normalisation,
    "InstanceNormalization": _normalisation,
    "LayerNormalization": _over_last_axes,
    "LRN": _lrn,
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    **layout.RULES,
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), _global_pool),
    **dict.fromkeys(
        (
            *("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "ThresholdedRelu", "Sigmoid", "HardSigmoid", "HardSwish"),
            *("Mish", "Gelu", "Tanh", "Softplus", "Softsign", "Clip", "Exp", "Log", "Sqrt", "Reciprocal", "Neg", "Abs"),
            *("Erf", "Floor", "Ceil", "Round", "Sign", "Cast", "Identity", "Not"),
        ),
        same,
    ),
    **dict.fromkeys(
        (
            *("Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "Mean", "Pow", "PRelu", "Where"),
            *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor"),
        ),
        _element_wise,
    ),
}
