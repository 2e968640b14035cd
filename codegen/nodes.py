"""What changes in a node when it computes a part of its layer."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import helper

from model import boxes, windows
from model.graph import Graph, Layer
from runtime.plan import Part

CONVOLUTIONS = frozenset({"Conv", "QLinearConv", "ConvInteger"})
WINDOWED = CONVOLUTIONS | {"MaxPool", "AveragePool", "LpPool"}


def adapt(node: onnx.NodeProto, graph: Graph, layer: Layer, rule: boxes.Rule, part: Part) -> None:
    """Change the attributes of ``node``, a copy of the layer's, to those of ``part``."""
    if part.axis == boxes.CHANNELS and layer.op in CONVOLUTIONS and layer.integer("group", 1) > 1:
        _set(node, {"group": (part.stop - part.start) // rule.grain})
    if part.axis == boxes.ROWS and layer.op in WINDOWED:
        pads = windows.padding(graph, layer, part.start, part.stop)
        _set(node, {"pads": pads}, without=("auto_pad", "ceil_mode"))


def _set(node: onnx.NodeProto, values: dict[str, Any], without: tuple[str, ...] = ()) -> None:
    gone = {*values, *without}
    kept = [a for a in node.attribute if a.name not in gone]
    changed = onnx.NodeProto(attribute=[*kept, *(helper.make_attribute(k, v) for k, v in values.items())])
    del node.attribute[:]
    node.attribute.extend(changed.attribute)
