"""What ONNX infers of a node, and ONNX Runtime makes in another way, so that tensors would be of other shapes than
thought, or does not make at all: better said before a long search than after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from model.network.constants import Constants
from model.network.graph import attributes, opset_of, where_is
from model.network.resizing import RESIZES
from model.network.windows import CONVOLUTIONS, same_total
from runtime.errors import CleaveError

FATAL = frozenset({"Split", "BatchNormalization"})
"""Operators of which ONNX Runtime ends the process, without a word, where an output has no name."""
OF_AXES = {"Squeeze": ("axes",), "Unsqueeze": ("axes",), "Slice": ("axes", "starts", "ends")}
"""Attributes with a value for each of some axes, by operator; what old opsets have."""
NEGATIVE_AXES = 11
"""The first opset in which these may be negative."""

Shape = tuple[int, ...]
Attributes = Mapping[str, Any]


def check_outputs(graph: onnx.GraphProto, path: Path) -> None:
    """``CleaveError`` that names nodes which nobody may run, before anybody does."""
    problems = [
        f"{where_is(node, path)}: an output of {node.op_type} has no name, of which ONNX Runtime crashes; name all"
        for node in graph.node
        if node.op_type in FATAL and not node.domain and not all(node.output)
    ]
    if problems:
        raise CleaveError(*problems[:10])


def order_axes(model: onnx.ModelProto, path: Path) -> None:
    """Put axes in order that ONNX understands in this one only, before opset 11; ``CleaveError`` for negative ones, of
    which it infers a shape as if they were not there, or none.
    """
    problems = []
    for node in model.graph.node if opset_of(model) < NEGATIVE_AXES else ():
        held = {x.name: x.ints for x in node.attribute if x.name in OF_AXES.get(node.op_type, ())}
        if "axes" in held:
            order = sorted(range(len(held["axes"])), key=held["axes"].__getitem__)
            for values in held.values():
                values[:] = [values[at] for at in order]
            if min(held["axes"], default=0) < 0:
                what = f"axes from the end, as it has, are for {node.op_type} of opset {NEGATIVE_AXES} and later"
                problems.append(f"{where_is(node, path)}: {what}; export that")
    if problems:
        raise CleaveError(*problems[:10])


def check(model: onnx.ModelProto, weights: Constants, shapes: Mapping[str, Shape], path: Path) -> None:
    """``CleaveError`` that names such nodes. shapes: by tensor name, as far as known"""
    opset = opset_of(model)
    problems = [
        f"{where_is(node, path)}: {what}"
        for node in model.graph.node
        if opset < ALIKE_SINCE.get(node.op_type, opset + 1)
        and (found := UNLIKE.get(node.op_type))
        and (what := found(node, attributes(node), weights, shapes))
    ]
    if problems:
        raise CleaveError(*problems[:10])


def _convolved(node: onnx.NodeProto, a: Attributes, weights: Constants, shapes: Mapping[str, Shape]) -> str:
    """ONNX Runtime pads no dilated convolution by itself."""
    how = _automatic(a)
    if how and any(dilation > 1 for dilation in a.get("dilations", ())):
        return f"ONNX Runtime runs no dilated {node.op_type} that is padded by {how}; export it with explicit pads"
    return ""


def _pooled(node: onnx.NodeProto, a: Attributes, weights: Constants, shapes: Mapping[str, Shape]) -> str:
    """Where strides leave elements out, as many as fit need a padding of less than none, which ONNX Runtime refuses. It
    does not where there are as many channels as its vectors have room for, but of these a part may be computed alone.
    """
    how, sizes = _automatic(a), shapes.get(node.input[0], ())[2:]
    each = zip(sizes, a["kernel_shape"], a.get("strides", ()), strict=False)
    if how and any(same_total(size, stride, kernel) < 0 for size, kernel, stride in each):
        return (
            f"its strides leave elements out, and ONNX Runtime runs no {node.op_type} of that kind that is padded by "
            f"{how}; export it with explicit pads"
        )
    return ""


def _automatic(a: Attributes) -> str:
    """How it is padded by itself; nothing where the file says how much."""
    how = a.get("auto_pad", "")
    return how if how.startswith("SAME") else ""


def _transposed(node: onnx.NodeProto, a: Attributes, weights: Constants, shapes: Mapping[str, Shape]) -> str:
    """A transposed convolution is as large as its strides say: ONNX adds ``output_padding``, ONNX Runtime does not. Of
    one that is to be smaller than its input inference leaves axes out.
    """
    how = _automatic(a)
    if how and any(a.get("output_padding", ())):
        return (
            f"ONNX and ONNX Runtime understand output_padding by {how} in different ways; export it with explicit pads"
        )
    sizes = shapes.get(node.input[0], ())[2:]
    if any(asked < size for asked, size in zip(a.get("output_shape", ()), sizes, strict=False)):
        return "its output_shape is smaller than its input, of which ONNX infers no shape; export it with explicit pads"
    return ""


def _resized(node: onnx.NodeProto, a: Attributes, weights: Constants, shapes: Mapping[str, Shape]) -> str:
    """Axes counted from the end are resized by another ratio where it is to be kept. And inference rounds the exact
    product of a size and its scale down, ONNX Runtime what float32 makes of it: 3 times 1.6666666 is 4 or 5.
    """
    policy = a.get("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch" and any(axis < 0 for axis in a.get("axes", ())):
        return (
            f"ONNX and ONNX Runtime understand '{policy}' of axes that are counted from the end in different ways; "
            "export it with sizes for all axes"
        )
    for size, scale in _scaled(node, a, weights, shapes.get(node.input[0], ())):
        exact, rounded = int(float(scale) * size), int(scale * np.float32(size))
        if exact != rounded:
            return (
                f"{size} elements times {scale} are {exact} for ONNX and {rounded} for ONNX Runtime; "
                "export it with sizes in place of scales"
            )
    return ""


def _scaled(node: onnx.NodeProto, a: Attributes, weights: Constants, shape: Shape) -> list[tuple[int, np.float32]]:
    """Sizes of the axes that are resized, and their scales, as far as these are known."""
    name = node.input[min(len(node.input), 3) - 1] if len(node.input) > 1 else ""
    if "scales" in a:
        scales = np.array(a["scales"], np.float32)
    elif name in weights and weights[name].data_type == onnx.TensorProto.FLOAT and not weights[name].external_data:
        scales = numpy_helper.to_array(weights[name])
    else:
        return []
    axes = a.get("axes", range(len(scales)))
    return [(shape[axis], scale) for axis, scale in zip(axes, scales, strict=False)] if shape else []


def _normalised(node: onnx.NodeProto, a: Attributes, weights: Constants, shapes: Mapping[str, Shape]) -> str:
    """ONNX says how far an even window over channels reaches, ONNX Runtime takes odd ones only."""
    return "" if a["size"] % 2 else f"ONNX Runtime runs no LRN of an even size ({a['size']}); export it with an odd one"


def _fourier(node: onnx.NodeProto, a: Attributes, weights: Constants, shapes: Mapping[str, Shape]) -> str:
    """One-sided where nothing is said, says the standard, and so ONNX Runtime computes; inference has both sides."""
    if "onesided" in a:
        return ""
    return "says nothing of onesided, which ONNX and ONNX Runtime take in different ways; export it with the attribute"


def _reshaped(node: onnx.NodeProto, a: Attributes, weights: Constants, shapes: Mapping[str, Shape]) -> str:
    """Inference believes a shape that the file states, also where the input is made another one by ``--shape``."""
    before, after = (shapes.get(name) for name in (node.input[0], node.output[0]))
    if before is None or after is None or math.prod(before) == math.prod(after):
        return ""
    sizes = ["x".join(map(str, shape)) for shape in (before, after)]
    return f"{sizes[0]} cannot become {sizes[1]}, of other elements; export the network with a dynamic shape"


UNLIKE: dict[str, Callable[[onnx.NodeProto, Attributes, Constants, Mapping[str, Shape]], str]] = {
    **dict.fromkeys(CONVOLUTIONS, _convolved),
    **dict.fromkeys(("AveragePool", "MaxPool"), _pooled),
    "ConvTranspose": _transposed,
    "LRN": _normalised,
    **dict.fromkeys(RESIZES, _resized),
    "Reshape": _reshaped,
    "STFT": _fourier,
}
"""By operator: what is understood in different ways or not run, or nothing."""
ALIKE_SINCE = {"AveragePool": 19}
"""The first opset in which there is nothing of that, by operator."""
