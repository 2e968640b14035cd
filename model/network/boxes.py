"""The box rule: which box of its inputs a box of an operator's output needs.

One table for every operator and every kind of split. A rule is a ``Need`` an input, so that search (flat arrays),
pricing and the cutting of weights all follow the same few integers. What no rule covers is kept whole; it is never
cut wrongly.
"""

from __future__ import annotations

from model.network import contrib, integers, layout, quantised
from model.network.graph import Graph, Layer
from model.network.rule import (
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
    RuleOf,
    broadcast,
    constants_from,
    in_shape,
    length,
    others,
    same,
)
from model.network.windows import by_groups, windowed

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
    "Reads",
    "Rule",
    "Rules",
    "constants",
    "is_heavy",
    "reads",
    "rule",
    "rules",
    "sizes",
]


Rules = list[Rule | None]
"""Of a layer, by kind of split."""
Reads = list[tuple[str, list[Need]]]
"""What a layer reads: tensors, and what a box of its output needs of each, by kind of split."""
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


def rules(graph: Graph, layer: Layer) -> Rules:
    """Those of ``layer``, by kind of split."""
    return [rule(graph, layer, kind) for kind in range(KINDS)]


def reads(graph: Graph, layer: Layer, rules: Rules) -> Reads:
    """Activations that the layer reads, in order, each with what a box of the output needs of it, by kind of split."""
    return [
        (name, [found.needs[k] if found else WHOLE for found in rules])
        for k, name in enumerate(layer.inputs)
        if name and not graph.is_constant(name)
    ]


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


HEAVY = frozenset(
    {"Conv", "ConvTranspose", "Gemm", "MatMul"}
    | {"QLinearConv", "ConvInteger", "QLinearMatMul", "MatMulInteger", contrib.GEMM}
)


def _conv(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Output channels of a group need that group's input channels; weights and bias are cut along axis 0."""
    if not constants_from(graph, layer, 1):
        return None
    if kind == PARTIAL:
        needs = (Need(1), Need(1), WHOLE)[: len(layer.inputs)]
        return Rule(needs, in_shape(graph, layer)[1]) if layer.integer("group", 1) == 1 else None
    if kind == CHANNELS:
        of_group, size, grain = by_groups(graph, layer)
        return Rule((of_group, *others(layer, Need(0))), size, grain)
    return windowed(graph, layer, kind)


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
    bias = [broadcast(graph, name, 2, kind) if name else WHOLE for name in layer.inputs[2:3]]
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
    return windowed(graph, layer, kind) if kind == ROWS else same(graph, layer, kind)


def _global_pool(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    return same(graph, layer, kind) if kind in (SAMPLES, CHANNELS) else None


def _lrn(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Channel i looks at the neighbours that its window covers."""
    if kind != CHANNELS:
        return same(graph, layer, kind)
    reach = layer.integer("size", 1) // 2  # an odd one: others do not run
    return Rule((Need(CHANNELS, lo=-reach, hi=reach),), length(graph, layer, kind), crop=True)


def _element_wise(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Broadcasting operators: an input that has the axis is cut along it, another is taken whole."""
    if kind == PARTIAL:
        return None
    rank = len(graph.tensors[layer.outputs[0]].shape)
    return Rule(tuple(broadcast(graph, name, rank, kind) for name in layer.inputs), length(graph, layer, kind))


def _expand(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """As broadcasting to a constant shape."""
    if kind == PARTIAL or not constants_from(graph, layer, 1):
        return None
    rank = len(graph.tensors[layer.outputs[0]].shape)
    return Rule((broadcast(graph, layer.inputs[0], rank, kind), WHOLE), length(graph, layer, kind))


def _softmax(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Axes that the sum does not run over. Before opset 13 it runs over all axes from ``axis`` on."""
    modern = dict(graph.opsets).get("", 1) >= 13
    rank = len(in_shape(graph, layer))
    axis = layer.integer("axis", -1 if modern else 1) % rank
    free = kind != axis if modern else kind < axis
    return same(graph, layer, kind) if free else None


RULES: dict[str, RuleOf] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
    **integers.RULES,
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
RULES |= integers.like(RULES)
