"""Pooling that rounds up, as ONNX Runtime and opset 22 understand it; what is dilated is padded in no common way.

Before opset 22, ONNX's shape inference counts a last window even where it begins in the padding at the end, or behind
the input; runtimes leave that window out, and then stumble over their own inference when a tensor is put together.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from model.network.graph import attributes, where_is
from runtime.errors import CleaveError

POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})

Shape = tuple[int, ...]


def correct(graph: onnx.GraphProto, shapes: Mapping[str, Shape], path: Path) -> bool:
    """Make a pooling whose inferred shape is wrong one that rounds down and computes the same; True if one was wrong.

    Shapes that follow from it have to be inferred again. ``CleaveError`` where no such pooling computes the same, or
    where ONNX and ONNX Runtime do not pad alike.
    """
    for node in graph.node:
        if node.op_type in POOLS and {node.input[0], node.output[0]} <= shapes.keys():
            a = _heeded(node)
            _refuse_dilated(node, a, path)
            if a.get("ceil_mode", 0):
                sizes, inferred = shapes[node.input[0]][2:], shapes[node.output[0]][2:]
                counts, padding = _windows(a, sizes)
                if counts != inferred:
                    _round_down(node, a, padding, path)
                    return True
    return False


def _heeded(node: onnx.NodeProto) -> dict[str, Any]:
    """Attributes by name; ``auto_pad`` only where it adds padding, ``pads`` only where they are heeded."""
    a = attributes(node)
    how = a.pop("auto_pad", "NOTSET")
    if how != "NOTSET":
        a.pop("pads", None)
    return a | ({"auto_pad": how} if how.startswith("SAME") else {})


def _refuse_dilated(node: onnx.NodeProto, a: Mapping[str, Any], path: Path) -> None:
    """ONNX pads for the reach of a dilated window, ONNX Runtime as if it were not dilated: shapes and values differ."""
    dilations = a.get("dilations", [1] * len(a["kernel_shape"]))
    if "auto_pad" in a and any(k > 1 and d > 1 for k, d in zip(a["kernel_shape"], dilations, strict=True)):
        where, how = where_is(node, path), a["auto_pad"]
        raise CleaveError(f"{where}: ONNX and ONNX Runtime pad a dilated {node.op_type} by {how} in different ways; "
                          "export it with explicit pads")  # fmt: skip


def _windows(a: Mapping[str, Any], sizes: Shape) -> tuple[Shape, dict[str, Any]]:
    """How many windows there are along each axis, and the padding with which they fit exactly."""
    ones = [1] * len(sizes)
    strides = a.get("strides", ones)
    if "auto_pad" in a:
        return tuple(-(-n // s) for n, s in zip(sizes, strides, strict=True)), {"auto_pad": a["auto_pad"]}
    pads = a.get("pads", [0] * (2 * len(sizes)))
    windows = [(k - 1) * d + 1 for k, d in zip(a["kernel_shape"], a.get("dilations", ones), strict=True)]
    begins, counts, ends = pads[: len(sizes)], [], []
    for size, begin, end, stride, window in zip(sizes, begins, pads[len(sizes) :], strides, windows, strict=True):
        count = -(-(size + begin + end - window) // stride) + 1
        if (count - 1) * stride >= size + begin:
            count -= 1
        counts.append(count)
        ends.append(max(0, (count - 1) * stride + window - size - begin))
    return tuple(counts), {"pads": [*begins, *ends]}


def _round_down(node: onnx.NodeProto, a: Mapping[str, Any], padding: dict[str, Any], path: Path) -> None:
    """Only padding that the file asks for may count in an average, so there must not be more. Nor less than none, as
    SAME_UPPER and SAME_LOWER may mean where strides leave elements out: ONNX Runtime averages that rounding up only.
    """
    pads, strides = padding.get("pads", []), a.get("strides", [1] * len(a["kernel_shape"]))
    more = any(new > old for new, old in zip(pads, a.get("pads", [0] * len(pads)), strict=True))
    less = "auto_pad" in padding and any(s > k for s, k in zip(strides, a["kernel_shape"], strict=True))
    where = where_is(node, path)
    if node.op_type == "AveragePool" and (less or (more and a.get("count_include_pad", 0))):
        what = "leave elements out" if less else "count padding"
        raise CleaveError(f"{where}: averages that {what} cannot round up here; export opset 22")
    if any(pad >= k for pad, k in zip(pads, 2 * a["kernel_shape"], strict=False)):
        raise CleaveError(f"{where}: rounding up here takes a padding as large as the kernel, which ONNX Runtime "
                          "refuses; export opset 22")  # fmt: skip
    kept = [x for x in node.attribute if x.name not in ("ceil_mode", "pads", "auto_pad")]
    changed = onnx.NodeProto(attribute=[*kept, *(helper.make_attribute(k, v) for k, v in padding.items())])
    del node.attribute[:]
    node.attribute.extend(changed.attribute)
