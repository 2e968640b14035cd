"""The box rule: which box of its inputs a box of an operator's output needs.

One table for every operator. A rule is a ``Need`` an input, so that search (flat arrays), pricing and the cutting of
weights all follow the same few integers. An operator without a rule is kept whole; it is never cut wrongly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from model.graph import Graph, Layer

CHANNELS = 1
"""The axis of layer output partitioning (LOP)."""


@dataclass(frozen=True)
class Need:
    """What output interval ``[start, stop)`` needs of one input, along ``axis`` of that input.

    The needed interval is ``[start // div * mul + lo, ceil(stop / div) * mul + hi)``, clipped to the input:
    ``div`` and ``mul`` map output channels to the input channels of their group, ``lo`` and ``hi`` shift (Concat).
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
    """How a layer may be split along one axis of its output.

    needs: one ``Need`` for each entry of ``layer.inputs`` (``WHOLE`` for an input left out)
    size:  elements of the output along the axis
    grain: cuts must be multiples of it (channels of one group of a grouped convolution)
    """

    needs: tuple[Need, ...]
    size: int
    grain: int = 1


def rule(graph: Graph, layer: Layer, axis: int = CHANNELS) -> Rule | None:
    """The rule of ``layer`` along ``axis``, or None where it must stay whole."""
    output = graph.tensors[layer.outputs[0]]
    if axis != CHANNELS or len(layer.outputs) != 1 or len(output.shape) <= axis or layer.op not in RULES:
        return None
    found = RULES[layer.op](graph, layer)
    return found if found is not None and found.size // found.grain > 1 else None


def is_heavy(graph: Graph, layer: Layer) -> bool:
    """Whether the layer carries the weights that LOP is meant for: a convolution or a fully connected layer."""
    return layer.op in HEAVY and rule(graph, layer) is not None


HEAVY = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})

_RuleOf = Callable[[Graph, Layer], "Rule | None"]


def _size(graph: Graph, layer: Layer) -> int:
    return graph.tensors[layer.outputs[0]].shape[CHANNELS]


def _constants_from(graph: Graph, layer: Layer, first: int) -> bool:
    """Whether every input from index ``first`` on is constant (or left out)."""
    return all(not name or graph.is_constant(name) for name in layer.inputs[first:])


def _int(layer: Layer, name: str, default: int) -> int:
    value = layer.attributes.get(name, default)
    assert isinstance(value, int)
    return value


def _conv(graph: Graph, layer: Layer) -> Rule | None:
    """Output channels of a group need that group's input channels; weights and bias are cut along axis 0."""
    if not _constants_from(graph, layer, 1):
        return None
    groups = _int(layer, "group", 1)
    size = _size(graph, layer)
    per_group_in = graph.tensors[layer.inputs[0]].shape[1] // groups
    of_group = WHOLE if groups == 1 else Need(1, mul=per_group_in, div=size // groups)
    needs = (of_group, *[Need(0)] * (len(layer.inputs) - 1))
    return Rule(needs, size, grain=size // groups if groups > 1 else 1)


def _conv_transpose(graph: Graph, layer: Layer) -> Rule | None:
    """Weights are (input channels, output channels, …): without groups, axis 1 is cut."""
    if not _constants_from(graph, layer, 1) or _int(layer, "group", 1) != 1:
        return None
    return Rule((WHOLE, Need(1), Need(0))[: len(layer.inputs)], _size(graph, layer))


def _gemm(graph: Graph, layer: Layer) -> Rule | None:
    """Every output needs the whole row of the input; B is cut along its output axis, C where it has one."""
    if not _constants_from(graph, layer, 1):
        return None
    b = Need(0 if _int(layer, "transB", 0) else 1)
    bias = [_broadcast(graph, name, rank=2) if name else WHOLE for name in layer.inputs[2:3]]
    return Rule((WHOLE, b, *bias), _size(graph, layer))


def _matmul(graph: Graph, layer: Layer) -> Rule | None:
    shape = graph.tensors[layer.inputs[1]].shape
    if not _constants_from(graph, layer, 1) or len(shape) != 2 or len(graph.tensors[layer.inputs[0]].shape) != 2:
        return None
    return Rule((WHOLE, Need(1)), _size(graph, layer))


def _per_channel(graph: Graph, layer: Layer) -> Rule | None:
    """Channel i of the output needs channel i of the input; parameters are one value a channel."""
    if not _constants_from(graph, layer, 1):
        return None
    return Rule((Need(1), *[Need(0)] * (len(layer.inputs) - 1)), _size(graph, layer))


def _same_channels(graph: Graph, layer: Layer) -> Rule | None:
    """Channel i of the output needs channel i of the one activation; parameters are whole."""
    if not _constants_from(graph, layer, 1):
        return None
    return Rule((Need(1), *[WHOLE] * (len(layer.inputs) - 1)), _size(graph, layer))


def _element_wise(graph: Graph, layer: Layer) -> Rule | None:
    """Broadcasting operators: an input that has the channel axis is cut along it, another is taken whole.

    Pieces of activations run along ``CHANNELS``, so one that has the channels on another axis cannot be cut.
    """
    rank = len(graph.tensors[layer.outputs[0]].shape)
    needs = tuple(_broadcast(graph, name, rank) for name in layer.inputs)
    if any(n.axis not in (-1, CHANNELS) and not graph.is_constant(i) for i, n in zip(layer.inputs, needs, strict=True)):
        return None
    return Rule(needs, _size(graph, layer))


def _broadcast(graph: Graph, name: str, rank: int) -> Need:
    """Numpy broadcasting aligns axes at the right: the channel axis of a smaller operand lies further left."""
    shape = graph.tensors[name].shape
    axis = CHANNELS - (rank - len(shape))
    return Need(axis) if axis >= 0 and shape[axis] > 1 else WHOLE


def _concat(graph: Graph, layer: Layer) -> Rule | None:
    """Joined along the channels, every input gives its own range; along another axis, the same channels."""
    rank = len(graph.tensors[layer.outputs[0]].shape)
    if _int(layer, "axis", 0) % rank != CHANNELS:
        return Rule((Need(1),) * len(layer.inputs), _size(graph, layer))
    needs, offset = [], 0
    for name in layer.inputs:
        needs.append(Need(1, lo=-offset, hi=-offset))
        offset += graph.tensors[name].shape[CHANNELS]
    return Rule(tuple(needs), offset)


RULES: dict[str, _RuleOf] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "BatchNormalization": _per_channel,
    "InstanceNormalization": _per_channel,
    "Concat": _concat,
    **dict.fromkeys(
        ("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), _same_channels
    ),
    **dict.fromkeys(
        (
            *("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "ThresholdedRelu", "Sigmoid", "HardSigmoid", "HardSwish"),
            *("Mish", "Gelu", "Tanh", "Softplus", "Softsign", "Clip", "Exp", "Log", "Sqrt", "Reciprocal", "Neg", "Abs"),
            *("Erf", "Floor", "Ceil", "Round", "Sign", "Cast", "Identity"),
        ),
        _same_channels,
    ),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "Mean", "Pow", "PRelu"), _element_wise),
}
