"""What changes in a node when it computes a part of its layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from model.network import boxes, contrib, layout, windows
from model.network.graph import Graph, Layer
from model.network.pools import POOLS
from runtime.plan import Part

WINDOWED = windows.CONVOLUTIONS | POOLS

EVERYTHING = 2**31 - 1
"""An end that is behind every axis."""


def adapt(node: onnx.NodeProto, graph: Graph, layer: Layer, rule: boxes.Rule, part: Part) -> None:
    """Change the attributes of ``node``, a copy of the layer's, to those of ``part``."""
    if part.axis == boxes.CHANNELS and layer.op in windows.CONVOLUTIONS and layer.integer("group", 1) > 1:
        _set(node, {"group": (part.stop - part.start) // rule.grain})
    if part.axis == boxes.ROWS and layer.op in WINDOWED:
        pads = windows.padding(graph, layer, part.start, part.stop)
        _set(node, {"pads": pads}, without=("auto_pad", "ceil_mode"))
    if layer.op == "Slice" and len(layer.inputs) == 1:
        starts, ends = _bounds(graph, layer, part)
        _set(node, {"starts": starts, "ends": ends})
    if layer.op == "Pad" and len(layer.inputs) == 1:
        _set(node, {"pads": _padding(graph, layer, part)})


def constants(graph: Graph, layer: Layer, part: Part, shape: tuple[int, ...]) -> dict[int, np.ndarray]:
    """Constant inputs of the layer that are other ones for ``part``, by their position. ``shape``: of its output."""
    found: dict[int, list[int] | tuple[int, ...]] = {}
    if layer.op in ("Reshape", "Expand"):
        found = {1: shape}
    elif layer.op == "Slice" and len(layer.inputs) > 1:
        starts, ends = _bounds(graph, layer, part)
        found = {1: starts, 2: ends}
    elif layer.op == "Pad" and len(layer.inputs) > 1:
        found = {1: _padding(graph, layer, part)}
    elif layer.op == "Resize" and len(layer.inputs) > 3 and layer.inputs[3]:
        axes = layer.integers("axes", tuple(range(len(shape))))
        found = {3: [shape[axis] for axis in axes]}
    return {at: np.array(values, graph.tensors[layer.inputs[at]].dtype) for at, values in found.items()}


def present(layer: Layer, names: Sequence[str | None]) -> list[str]:
    """The inputs of a part of a layer, without those of a Concat that it needs nothing of (None), and of one that is
    quantised without their scales and zero points."""
    length = 3 if layer.op == contrib.CONCAT else 1
    gone = {at + k for at, name in enumerate(names) if name is None for k in range(length)}
    return [name for at, name in enumerate(names) if name is not None and at not in gone]


def _bounds(graph: Graph, layer: Layer, part: Part) -> tuple[list[int], list[int]]:
    """Starts and ends of a Slice; along the axis of the split its input is what it takes."""
    found = [
        (0, EVERYTHING) if axis == part.axis else (start, end) for axis, start, end, _ in layout.bounds(graph, layer)
    ]
    return [start for start, _ in found], [end for _, end in found]


def _padding(graph: Graph, layer: Layer, part: Part) -> list[int]:
    """Pads of a Pad, in its own form: along the axis of the split, where the input ends and nowhere else."""
    pads = layout.padding(graph, layer) or []
    begin, _ = pads[part.axis]
    size = graph.tensors[layer.inputs[0]].shape[part.axis]
    pads[part.axis] = (max(0, min(begin, part.stop) - part.start), max(0, part.stop - max(part.start, begin + size)))
    axes = [a % len(pads) for a in layout.values(graph, layer, "", 3)] or range(len(pads))
    return [pads[a][0] for a in axes] + [pads[a][1] for a in axes]


def _set(node: onnx.NodeProto, values: dict[str, Any], without: tuple[str, ...] = ()) -> None:
    gone = {*values, *without}
    kept = [a for a in node.attribute if a.name not in gone]
    changed = onnx.NodeProto(attribute=[*kept, *(helper.make_attribute(k, v) for k, v in values.items())])
    del node.attribute[:]
    node.attribute.extend(changed.attribute)
