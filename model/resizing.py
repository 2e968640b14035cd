"""Resizing that is reckoned in different ways: sizes by ONNX and ONNX Runtime, values by what lies around."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from model.constants import Constants
from model.graph import Layer, Tensor, where_is
from runtime.errors import CleaveError

RESIZES = ("Resize", "Upsample")


def interpolates(layer: Layer) -> bool:
    """Whether a layer makes values that none of its elements has."""
    return layer.op in RESIZES and layer.attributes.get("mode", "nearest") != "nearest"


def check_steps(layers: Iterable[Layer], tensors: Mapping[str, Tensor], path: Path) -> None:
    """``CleaveError`` where what is between two steps of integers depends on the layers around it.

    Beside convolutions of integers ONNX Runtime has channels last: it interpolates integers by other arithmetic then,
    and cubic curves in another order.
    """
    for layer in filter(interpolates, layers):
        where = f"{path}: layer '{layer.name}'"
        if not tensors[layer.node.input[0]].dtype.startswith("float"):
            raise CleaveError(f"{where}: interpolates integers, which ONNX Runtime does in one way or another, as the "
                              "layers around it are; export quantised networks in QDQ form")  # fmt: skip
        if layer.after and layer.attributes["mode"] == "cubic":
            raise CleaveError(f"{where}: its curves are rounded to integers, which ONNX Runtime does in one way or "
                              "another, as the layers around it are; leave it out when quantising")  # fmt: skip


def check(graph: onnx.GraphProto, weights: Constants, shapes: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """``CleaveError`` where a size times its scale is one whole number exactly and another in float32.

    ONNX's shape inference rounds the exact product down, ONNX Runtime what float32 makes of it: 3 times 1.6666666 is 4
    or 5.
    """
    for node in graph.node:
        if node.op_type in RESIZES and node.input[0] in shapes:
            for size, scale in _scaled(node, weights, shapes[node.input[0]]):
                exact, rounded = int(float(scale) * size), int(scale * np.float32(size))
                if exact != rounded:
                    where = where_is(node, path)
                    raise CleaveError(f"{where}: {size} elements times {scale} are {exact} for ONNX and {rounded} for "
                                      "ONNX Runtime; export it with sizes in place of scales")  # fmt: skip


def _scaled(node: onnx.NodeProto, weights: Constants, shape: tuple[int, ...]) -> list[tuple[int, np.float32]]:
    """Sizes of the axes that are resized, and their scales, as far as these are known."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    name = node.input[min(len(node.input), 3) - 1] if len(node.input) in (2, 3) else ""
    if "scales" in attributes:
        scales = np.array(attributes["scales"], np.float32)
    elif name in weights and weights[name].data_type == onnx.TensorProto.FLOAT:
        scales = numpy_helper.to_array(weights[name])
    else:
        return []
    axes = attributes.get("axes", range(len(scales)))
    return [(shape[axis], scale) for axis, scale in zip(axes, scales, strict=False)]
