"""What a rule says: for one kind of split of a layer, the intervals of its inputs that an interval of it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from model.network.graph import Graph, Layer

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


RuleOf = Callable[[Graph, Layer, int], Rule | None]
"""Gives the rule of a layer for a kind of split; None where it must stay whole."""


def length(graph: Graph, layer: Layer, axis: int) -> int:
    """Elements of the (first) output along an axis."""
    return graph.tensors[layer.outputs[0]].shape[axis]


def in_shape(graph: Graph, layer: Layer) -> tuple[int, ...]:
    """Shape of the first input."""
    return graph.tensors[layer.inputs[0]].shape


def constants_from(graph: Graph, layer: Layer, first: int) -> bool:
    """Whether every input from index ``first`` on is constant (or left out)."""
    return all(not name or graph.is_constant(name) for name in layer.inputs[first:])


def others(layer: Layer, need: Need) -> list[Need]:
    """``need`` for every input but the first."""
    return [need] * (len(layer.inputs) - 1)


def same(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """An interval of the output needs the same interval of the one activation; parameters are whole."""
    if kind == PARTIAL or not constants_from(graph, layer, 1):
        return None
    return Rule((Need(kind), *others(layer, WHOLE)), length(graph, layer, kind))


def broadcast(graph: Graph, name: str, rank: int, axis: int) -> Need:
    """Numpy broadcasting aligns axes at the right: an axis of a smaller operand lies further left."""
    shape = graph.tensors[name].shape
    axis -= rank - len(shape)
    return Need(axis) if axis >= 0 and shape[axis] > 1 else WHOLE
