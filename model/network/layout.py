"""Rules of operators that move, join, repeat or sum elements along some axes and leave the other axes as they are."""

from __future__ import annotations

import math

import numpy as np

from model.network.graph import Graph, Layer
from model.network.rule import (
    AXES,
    CHANNELS,
    PARTIAL,
    ROWS,
    SAMPLES,
    WHOLE,
    Need,
    Rule,
    RuleOf,
    constants_from,
    in_shape,
    length,
    others,
    same,
)


def values(graph: Graph, layer: Layer, name: str, at: int | None = None) -> tuple[int, ...]:
    """Integers that newer opsets take as constant input ``at``, older ones as attribute ``name``; maybe none."""
    if at is not None and len(layer.inputs) > at and layer.inputs[at]:
        return tuple(int(v) for v in np.asarray(graph.constant(layer.inputs[at])).reshape(-1))
    return layer.integers(name, ())


def _concat(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Joined along the axis of the split, every input gives its own range; along another, the same interval."""
    if kind == PARTIAL:
        return None
    rank = len(graph.tensors[layer.outputs[0]].shape)
    if layer.integer("axis", 1) % rank != kind:
        return Rule((Need(kind),) * len(layer.inputs), length(graph, layer, kind))
    needs, offset = [], 0
    for name in layer.inputs:
        needs.append(Need(kind, lo=-offset, hi=-offset))
        offset += graph.tensors[name].shape[kind]
    return Rule(tuple(needs), offset)


def _split(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Along another axis than the one that it divides, every output has the same interval."""
    return same(graph, layer, kind) if kind != layer.integer("axis", 0) % len(in_shape(graph, layer)) else None


def _reshape(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Samples stay where the first axis does; channels, where whole channels become whole channels."""
    before, after = in_shape(graph, layer), graph.tensors[layer.outputs[0]].shape
    if kind not in (SAMPLES, CHANNELS) or not constants_from(graph, layer, 1) or len(before) <= kind:
        return None
    if before[:1] != after[:1]:
        return None
    if layer.op == "Squeeze" and not values(graph, layer, "axes", 1):  # a part of one channel would lose that axis
        return None
    if layer.op == "Reshape" and len(layer.inputs) < 2:  # before opset 5 the shape is an attribute
        return None
    rest = others(layer, WHOLE)
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
    rank = len(in_shape(graph, layer))
    order = layer.integers("perm", tuple(reversed(range(rank))))
    if kind == PARTIAL or order[kind] >= AXES:
        return None
    return Rule((Need(order[kind]),), length(graph, layer, kind))


def padding(graph: Graph, layer: Layer) -> list[tuple[int, int]] | None:
    """What Pad adds before and after each axis, negative where it cuts off; None where it cannot be read."""
    rank = len(in_shape(graph, layer))
    pads = values(graph, layer, "pads", 1)
    axes = [a % rank for a in values(graph, layer, "axes", 3)] or list(range(rank))
    if len(pads) != 2 * len(axes):
        return None
    found = [(0, 0)] * rank
    for k, axis in enumerate(axes):
        found[axis] = (pads[k], pads[len(axes) + k])
    return found


def _pad(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Along a padded axis every part has its own padding; what repeats the input's elements there stays whole."""
    pads = padding(graph, layer) if constants_from(graph, layer, 1) else None
    if kind == PARTIAL or pads is None:
        return None
    begin, end = pads[kind]
    if (begin or end) and layer.attributes.get("mode", "constant") != "constant":
        return None
    need = Need(kind, lo=-begin, hi=-begin)
    return Rule((need, *others(layer, WHOLE)), length(graph, layer, kind))


def bounds(graph: Graph, layer: Layer) -> list[tuple[int, int, int, int]]:
    """What Slice takes: axis, start, end and step, as the file has them, but no axis negative or left out."""
    rank = len(in_shape(graph, layer))
    starts, ends = values(graph, layer, "starts", 1), values(graph, layer, "ends", 2)
    axes = [a % rank for a in values(graph, layer, "axes", 3)] or list(range(len(starts)))
    steps = values(graph, layer, "", 4) or (1,) * len(starts)
    return list(zip(axes, starts, ends, steps, strict=True))


def _slice(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Output i is input ``start + i * step``; backwards it stays whole."""
    if kind == PARTIAL or not constants_from(graph, layer, 1):
        return None
    found = [(start, step) for axis, start, _, step in bounds(graph, layer) if axis == kind]
    if not found:
        return same(graph, layer, kind)
    ((start, step),) = found
    size = in_shape(graph, layer)[kind]
    first = min(max(start + size if start < 0 else start, 0), size)
    if step < 1:
        return None
    need = Need(kind, mul=step, lo=first, hi=first - step + 1)
    return Rule((need, *others(layer, WHOLE)), length(graph, layer, kind))


def _resize(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Upsample and Resize: samples, channels and rows that keep their size."""
    crops = layer.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    fits = layer.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch"
    if kind == PARTIAL or crops or fits or not constants_from(graph, layer, 1):
        return None
    before, after = in_shape(graph, layer), graph.tensors[layer.outputs[0]].shape
    return same(graph, layer, kind) if before[kind] == after[kind] and _scale(graph, layer, kind) == 1 else None


def _scale(graph: Graph, layer: Layer, axis: int) -> float:
    """By what an axis grows; 1 where a target size says so, which the caller has compared."""
    at = 1 if len(layer.inputs) == 2 else 2
    given = layer.attributes.get("scales", ())
    if len(layer.inputs) > at and layer.inputs[at]:
        given = np.asarray(graph.constant(layer.inputs[at])).tolist()
    rank = len(in_shape(graph, layer))
    axes = [a % rank for a in layer.integers("axes", ())] or list(range(rank))
    return dict(zip(axes, given, strict=False)).get(axis, 1)


def _reduce(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Axes that are not summed; without ``keepdims`` those behind a summed one have a lower number in the output."""
    if kind == PARTIAL or not constants_from(graph, layer, 1):
        return None
    rank = len(in_shape(graph, layer))
    touched = {a % rank for a in values(graph, layer, "axes", 1)}
    if not touched and layer.integer("noop_with_empty_axes", 0):
        return same(graph, layer, kind)
    touched = touched or set(range(rank))
    axis = [axis for axis in range(rank) if layer.integer("keepdims", 1) or axis not in touched][kind]
    if axis in touched or axis >= AXES:
        return None
    return Rule((Need(axis), *others(layer, WHOLE)), length(graph, layer, kind))


def _depth(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """DepthToSpace and SpaceToDepth: samples, and rows of whole blocks."""
    block = layer.integer("blocksize", 1)
    if kind == ROWS:
        wide = layer.op == "DepthToSpace"
        need = Need(ROWS, div=block) if wide else Need(ROWS, mul=block)
        return Rule((need,), length(graph, layer, kind), grain=block if wide else 1)
    return same(graph, layer, kind) if kind == SAMPLES else None


REDUCTIONS = (
    *("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
    *("ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"),
)

RULES: dict[str, RuleOf] = {
    "Concat": _concat,
    "Split": _split,
    "Transpose": _transpose,
    "Pad": _pad,
    "Slice": _slice,
    **dict.fromkeys(("Upsample", "Resize"), _resize),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _depth),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    **dict.fromkeys(REDUCTIONS, _reduce),
}
