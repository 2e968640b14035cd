"""The box rule: which box of its inputs a box of an operator's output needs.

One table for every operator and every kind of split. A rule is a ``Need`` an input, so that search (flat arrays),
pricing and the cutting of weights all follow the same few integers. What no rule covers is kept whole; it is never
cut wrongly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from model import windows
from model.graph import Graph, Layer

SAMPLES, CHANNELS, ROWS, PARTIAL = range(4)
"""Kinds of split. The first three cut the output along the axis of that number: samples, channels (layer output
partitioning, LOP), rows (neighbours exchange a halo). ``PARTIAL`` cuts the input channels (layer input partitioning,
LIP): every shard makes the whole output, but only its part of the sum; they are added where they are used."""
KINDS = 4
AXES = 3

KIND_NAMES = ("samples", "channels", "rows", "input channels")


@dataclass(frozen=True)
class Need:
    """What output interval ``[start, stop)`` needs of one input, along ``axis`` of that input.

    The needed interval is ``[start // div * mul + lo, ceil(stop / div) * mul + hi)``, clipped to the input: ``div``
    and ``mul`` map output channels to the input channels of their group, or rows to the rows under a kernel that
    moves by ``mul``; ``lo`` and ``hi`` shift (Concat) or widen (halo).
    ``axis`` -1: the whole input, always.
    """

    axis: int
    mul: int = 1
    div: int = 1
    lo: int = 0
    hi: int = 0

    def interval(self, start: int, stop: int, size: int) -> tuple[int, int]:
        """The needed half-open interval of an input that has ``size`` elements along the axis; may be empty."""
        if self.axis < 0:
            return 0, size
        first = max(0, start // self.div * self.mul + self.lo)
        last = min(size, -(-stop // self.div) * self.mul + self.hi)
        return first, max(first, last)


WHOLE = Need(-1)


@dataclass(frozen=True)
class Rule:
    """How a layer may be split in one way.

    needs: one ``Need`` for each entry of ``layer.inputs`` (``WHOLE`` for an input left out)
    size:  elements that are divided: of the output along the axis, of the input's channels for ``PARTIAL``
    grain: cuts must be multiples of it (channels of one group of a grouped convolution)
    crop:  the operator, given the needed box of its first input, makes that same box of the output, which is then
           cropped to the shard's own (LRN, which looks at neighbouring channels)
    """

    needs: tuple[Need, ...]
    size: int
    grain: int = 1
    crop: bool = False


def sizes(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Elements along each of the first three axes; 1 where there is no such axis."""
    first, second, third = (*shape[:AXES], 1, 1, 1)[:AXES]
    return first, second, third


def rule(graph: Graph, layer: Layer, kind: int = CHANNELS) -> Rule | None:
    """The rule of ``layer`` for a kind of split, or None where it must stay whole."""
    if layer.op not in RULES or len(layer.outputs) != 1 or not 0 <= kind < KINDS:
        return None
    output = graph.tensors[layer.outputs[0]]
    if kind != PARTIAL and len(output.shape) <= kind:
        return None
    found = RULES[layer.op](graph, layer, kind)
    return found if found is not None and found.size // found.grain > 1 else None


def is_heavy(graph: Graph, layer: Layer) -> bool:
    """Whether the layer carries the weights that LOP is meant for: a convolution or a fully connected layer."""
    return layer.op in HEAVY and rule(graph, layer, CHANNELS) is not None


HEAVY = frozenset(
    {"Conv", "ConvTranspose", "Gemm", "MatMul", "QLinearConv", "ConvInteger", "QLinearMatMul", "MatMulInteger"}
)

_RuleOf = Callable[[Graph, Layer, int], "Rule | None"]


def _size(graph: Graph, layer: Layer, axis: int) -> int:
    return graph.tensors[layer.outputs[0]].shape[axis]


def _shape(graph: Graph, layer: Layer) -> tuple[int, ...]:
    """Shape of the first input."""
    return graph.tensors[layer.inputs[0]].shape


def _constants_from(graph: Graph, layer: Layer, first: int) -> bool:
    """Whether every input from index ``first`` on is constant (or left out)."""
    return all(not name or graph.is_constant(name) for name in layer.inputs[first:])


def _rest(layer: Layer, need: Need) -> list[Need]:
    """``need`` for every input but the first."""
    return [need] * (len(layer.inputs) - 1)


def _conv(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Output channels of a group need that group's input channels; weights and bias are cut along axis 0."""
    if not _constants_from(graph, layer, 1):
        return None
    groups = layer.integer("group", 1)
    channels = _shape(graph, layer)[1]
    if kind == PARTIAL:
        needs = (Need(1), Need(1), WHOLE)[: len(layer.inputs)]
        return Rule(needs, channels) if groups == 1 else None
    if kind == CHANNELS:
        size = _size(graph, layer, CHANNELS)
        of_group = WHOLE if groups == 1 else Need(1, mul=channels // groups, div=size // groups)
        return Rule((of_group, *_rest(layer, Need(0))), size, grain=size // groups if groups > 1 else 1)
    return _windowed(graph, layer, kind)


def _windowed(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Samples are apart; rows need the rows under the kernel."""
    if kind == SAMPLES:
        return Rule((Need(0), *_rest(layer, WHOLE)), _size(graph, layer, kind))
    row = windows.of_rows(graph, layer)
    if row is None:
        return None
    need = Need(ROWS, mul=row.stride, lo=-row.begin, hi=row.window - row.stride - row.begin)
    return Rule((need, *_rest(layer, WHOLE)), _size(graph, layer, kind))


def _quantized_conv(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """QLinearConv and ConvInteger: as Conv; scales and zero points of the weights may be one a channel."""
    if kind == PARTIAL or not _constants_from(graph, layer, 1):
        return None
    if kind != CHANNELS:
        return _windowed(graph, layer, kind)
    groups, size = layer.integer("group", 1), _size(graph, layer, CHANNELS)
    channels = _shape(graph, layer)[1]
    of_group = WHOLE if groups == 1 else Need(1, mul=channels // groups, div=size // groups)
    weights = layer.inputs[WEIGHTS[layer.op] :]
    own = weights if layer.op == "QLinearConv" else (weights[0], *weights[2:])
    cut = [_one_a_channel(graph, name, name in own, 0) for name in layer.inputs[1:]]
    return Rule((of_group, *cut), size, grain=size // groups if groups > 1 else 1)


WEIGHTS = {"QLinearConv": 3, "ConvInteger": 1, "QLinearMatMul": 3, "MatMulInteger": 1}
"""Where the weights stand among the inputs of quantized operators."""


def _one_a_channel(graph: Graph, name: str, may_be_cut: bool, axis: int) -> Need:
    """A constant that has a value for each channel along ``axis`` is cut there, a single value is taken whole."""
    shape = graph.tensors[name].shape if name else ()
    return Need(axis) if may_be_cut and len(shape) > axis and shape[axis] > 1 else WHOLE


def _quantized_matmul(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """QLinearMatMul and MatMulInteger of a matrix by a constant one: as MatMul."""
    at = WEIGHTS[layer.op]
    others = [name for i, name in enumerate(layer.inputs) if i not in (0, at) and name]
    if len(_shape(graph, layer)) != 2 or len(graph.tensors[layer.inputs[at]].shape) != 2:
        return None
    if kind not in (SAMPLES, CHANNELS) or not _constants_from(graph, layer, 1):
        return None
    if any(graph.tensors[name].elements > 1 for name in others):  # one a row or column: kept whole
        return None
    needs = [WHOLE] * len(layer.inputs)
    needs[0 if kind == SAMPLES else at] = Need(0 if kind == SAMPLES else 1)
    return Rule(tuple(needs), _size(graph, layer, kind))


def _quantize(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """One scale for all, or one for each element of an axis."""
    if kind == PARTIAL or not _constants_from(graph, layer, 1) or layer.integer("block_size", 0):
        return None
    rank = len(_shape(graph, layer))
    along = kind == layer.integer("axis", 1) % max(rank, 1)
    cut = [_one_a_channel(graph, name, along, 0) for name in layer.inputs[1:]]
    return Rule((Need(kind), *cut), _size(graph, layer, kind))


def _conv_transpose(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Weights are (input channels, output channels, …): without groups, axis 1 is cut for LOP, axis 0 for LIP."""
    if not _constants_from(graph, layer, 1) or kind == ROWS:
        return None
    if kind == SAMPLES:
        return Rule((Need(0), *_rest(layer, WHOLE)), _size(graph, layer, kind))
    if layer.integer("group", 1) != 1:
        return None
    if kind == PARTIAL:
        return Rule((Need(1), Need(0), WHOLE)[: len(layer.inputs)], _shape(graph, layer)[1])
    return Rule((WHOLE, Need(1), Need(0))[: len(layer.inputs)], _size(graph, layer, kind))


def _gemm(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Every output needs the whole row of the input; B is cut along its output axis, C where it has one."""
    if not _constants_from(graph, layer, 1) or kind == ROWS:
        return None
    rows_of_a = layer.integer("transA", 0)
    columns_of_b = 1 - layer.integer("transB", 0)
    if kind == PARTIAL:
        inner = _shape(graph, layer)[1 - rows_of_a]
        return Rule((Need(1 - rows_of_a), Need(1 - columns_of_b), WHOLE)[: len(layer.inputs)], inner)
    bias = [_broadcast(graph, name, 2, kind) if name else WHOLE for name in layer.inputs[2:3]]
    a, b = (Need(rows_of_a), WHOLE) if kind == SAMPLES else (WHOLE, Need(columns_of_b))
    return Rule((a, b, *bias), _size(graph, layer, kind))


def _matmul(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """A constant matrix on the right: its columns make the last axis, all other axes are the input's own."""
    rank = len(_shape(graph, layer))
    if not _constants_from(graph, layer, 1) or len(graph.tensors[layer.inputs[1]].shape) != 2 or rank < 2:
        return None
    if kind == PARTIAL:
        return Rule((Need(rank - 1), Need(0)), _shape(graph, layer)[-1]) if rank <= AXES else None
    needs = (WHOLE, Need(1)) if kind == rank - 1 else (Need(kind), WHOLE)
    return Rule(needs, _size(graph, layer, kind))


def _normalisation(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Each channel by itself, with one value of each parameter a channel."""
    if kind == PARTIAL or not _constants_from(graph, layer, 1):
        return None
    flat = all(len(graph.tensors[name].shape) == 1 for name in layer.inputs[1:])
    if kind == ROWS and not (layer.op == "BatchNormalization" and flat):  # the others take statistics over the rows
        return None
    return Rule((Need(kind), *_rest(layer, Need(0) if kind == CHANNELS else WHOLE)), _size(graph, layer, kind))


def _same(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """An interval of the output needs the same interval of the one activation; parameters are whole."""
    if kind == PARTIAL or not _constants_from(graph, layer, 1):
        return None
    return Rule((Need(kind), *_rest(layer, WHOLE)), _size(graph, layer, kind))


def _pool(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    return _windowed(graph, layer, kind) if kind == ROWS else _same(graph, layer, kind)


def _global_pool(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    return _same(graph, layer, kind) if kind in (SAMPLES, CHANNELS) else None


def _lrn(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Channel i looks at the neighbours that its window covers."""
    if kind != CHANNELS:
        return _same(graph, layer, kind)
    size = layer.integer("size", 1)
    need = Need(CHANNELS, lo=-((size - 1) // 2), hi=-(-(size - 1) // 2))
    return Rule((need,), _size(graph, layer, kind), crop=True)


def _element_wise(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Broadcasting operators: an input that has the axis is cut along it, another is taken whole."""
    if kind == PARTIAL:
        return None
    rank = len(graph.tensors[layer.outputs[0]].shape)
    return Rule(tuple(_broadcast(graph, name, rank, kind) for name in layer.inputs), _size(graph, layer, kind))


def _broadcast(graph: Graph, name: str, rank: int, axis: int) -> Need:
    """Numpy broadcasting aligns axes at the right: an axis of a smaller operand lies further left."""
    shape = graph.tensors[name].shape
    axis -= rank - len(shape)
    return Need(axis) if axis >= 0 and shape[axis] > 1 else WHOLE


def _concat(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Joined along the axis of the split, every input gives its own range; along another, the same interval."""
    if kind == PARTIAL:
        return None
    rank = len(graph.tensors[layer.outputs[0]].shape)
    if layer.integer("axis", 1) % rank != kind:
        return Rule((Need(kind),) * len(layer.inputs), _size(graph, layer, kind))
    needs, offset = [], 0
    for name in layer.inputs:
        needs.append(Need(kind, lo=-offset, hi=-offset))
        offset += graph.tensors[name].shape[kind]
    return Rule(tuple(needs), offset)


def _softmax(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Axes that the sum does not run over. Before opset 13 it runs over all axes from ``axis`` on."""
    modern = dict(graph.opsets).get("", 1) >= 13
    rank = len(_shape(graph, layer))
    axis = layer.integer("axis", -1 if modern else 1) % rank
    free = kind != axis if modern else kind < axis
    return _same(graph, layer, kind) if free else None


def _reshape(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Samples stay where the first axis does; channels, where whole channels become whole channels."""
    before, after = _shape(graph, layer), graph.tensors[layer.outputs[0]].shape
    if kind not in (SAMPLES, CHANNELS) or not _constants_from(graph, layer, 1) or len(before) <= kind:
        return None
    if before[:1] != after[:1]:
        return None
    rest = _rest(layer, WHOLE)
    if kind == SAMPLES:
        return Rule((Need(0), *rest), after[0])
    inner_before, inner_after = math.prod(before[2:]), math.prod(after[2:])
    if inner_after % inner_before == 0:
        return Rule((Need(1, mul=inner_after // inner_before), *rest), after[1])
    if inner_before % inner_after == 0:
        grain = inner_before // inner_after
        return Rule((Need(1, div=grain), *rest), after[1], grain=grain)
    return None


def _transpose(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    rank = len(_shape(graph, layer))
    order = layer.integers("perm", tuple(reversed(range(rank))))
    if kind == PARTIAL or order[kind] >= AXES:
        return None
    return Rule((Need(order[kind]),), _size(graph, layer, kind))


def _untouched(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Operators that change some axes and leave others as they are (Pad, Slice, Upsample by scales, reductions)."""
    before, after = _shape(graph, layer), graph.tensors[layer.outputs[0]].shape
    if kind == PARTIAL or len(before) != len(after) or not _constants_from(graph, layer, 1):
        return None
    touched = CHANGED[layer.op](graph, layer)
    return _same(graph, layer, kind) if touched is not None and kind not in touched else None


def _padded(graph: Graph, layer: Layer) -> set[int] | None:
    """Axes that Pad changes; None where it names its axes, or pads otherwise than by a constant."""
    rank = len(_shape(graph, layer))
    pads = layer.integers("pads", ())
    if len(layer.inputs) > 1:
        pads = tuple(int(p) for p in graph.constant(layer.inputs[1]))
    if len(pads) != 2 * rank or (len(layer.inputs) > 3 and layer.inputs[3]):
        return None
    return {i for i in range(rank) if pads[i] or pads[rank + i]}


def _sliced(graph: Graph, layer: Layer) -> set[int] | None:
    rank = len(_shape(graph, layer))
    axes = layer.integers("axes", ())
    if len(layer.inputs) > 3 and layer.inputs[3]:
        axes = tuple(int(a) for a in graph.constant(layer.inputs[3]))
    return {a % rank for a in axes} if axes else set(range(rank))


def _reduced(graph: Graph, layer: Layer) -> set[int] | None:
    """Axes that are summed; the rank must stay (``keepdims``), which the caller has checked."""
    rank = len(_shape(graph, layer))
    axes = layer.integers("axes", ())
    if len(layer.inputs) > 1 and layer.inputs[1]:
        axes = tuple(int(a) for a in graph.constant(layer.inputs[1]))
    return {a % rank for a in axes} if axes else set(range(rank))


def _scaled(graph: Graph, layer: Layer) -> set[int] | None:
    """Axes that Upsample or Resize changes; None where it is told sizes, which name the axes that it leaves too."""
    if (len(layer.inputs) > 3 and layer.inputs[3]) or "axes" in layer.attributes:
        return None
    before, after = _shape(graph, layer), graph.tensors[layer.outputs[0]].shape
    return {i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b or i >= ROWS}


CHANGED: dict[str, Callable[[Graph, Layer], set[int] | None]] = {
    "Pad": _padded,
    "Slice": _sliced,
    "Upsample": _scaled,
    "Resize": _scaled,
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceProd"), _reduced),
}

RULES: dict[str, _RuleOf] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
    **dict.fromkeys(("QLinearConv", "ConvInteger"), _quantized_conv),
    **dict.fromkeys(("QLinearMatMul", "MatMulInteger"), _quantized_matmul),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantize),
    "BatchNormalization": _normalisation,
    "InstanceNormalization": _normalisation,
    "LRN": _lrn,
    "Concat": _concat,
    "Transpose": _transpose,
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    **dict.fromkeys(CHANGED, _untouched),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), _global_pool),
    **dict.fromkeys(
        (
            *("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "ThresholdedRelu", "Sigmoid", "HardSigmoid", "HardSwish"),
            *("Mish", "Gelu", "Tanh", "Softplus", "Softsign", "Clip", "Exp", "Log", "Sqrt", "Reciprocal", "Neg", "Abs"),
            *("Erf", "Floor", "Ceil", "Round", "Sign", "Cast", "Identity", "Not"),
        ),
        _same,
    ),
    **dict.fromkeys(
        (
            *("Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "Mean", "Pow", "PRelu", "Where"),
            *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor"),
        ),
        _element_wise,
    ),
}
