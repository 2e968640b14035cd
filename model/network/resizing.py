"""Resizing that makes values between those it has, which ONNX Runtime does in ways that depend on what lies around."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from model.network.graph import Layer, Tensor
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
