"""Networks in QDQ form: float networks whose tensors are all quantised, as exporters write them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

from model.network.quantised import READ_VALUES
from tests.tiny_cnn import Arrays, frame_of, node, run_whole, save

KEPT_FLOAT = READ_VALUES | {"Clip"}
"""Operators whose constants nobody quantises. ONNX Runtime takes a quantised bound of a Clip for what is clipped."""


def in_qdq_form(
    model: ModelProto, feeds: Arrays, draw: random.Random, dtype: str, per_axis: bool, share: float = 1.0
) -> ModelProto:
    """The network with a QuantizeLinear and a DequantizeLinear after each of its inputs and each float activation.

    Float constants become DequantizeLinear of int8. Scales are those of the values that ``feeds`` give, some of them
    one for each element of an axis. The outputs are all quantised activations, ``NAME/q``.
    share: of activations and of constants that are quantised at all
    """
    values = feeds | run_whole(_with_all_outputs(model), feeds)
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    quantiser = _Quantiser(draw, dtype, per_axis, share, constants)
    for name in feeds:
        quantiser.add_pair(name, values[name])
    reads = Counter(name for own in model.graph.node for name in own.input)
    quantiser.shared |= {name for name, count in reads.items() if count > 1}
    for own in model.graph.node:
        quantiser.add(own)
        for name in own.output:
            if values[name].dtype == np.float32:
                quantiser.add_pair(name, values[name])
    return quantiser.model(model)


class Frames(CalibrationDataReader):
    """Frames to find scales with."""

    def __init__(self, *frames: Arrays) -> None:
        self._frames: Iterator[Arrays] = iter(frames)

    def get_next(self) -> Arrays | None:
        return next(self._frames, None)


def by_onnxruntime(folder: Path, model: ModelProto, **how: object) -> Path:
    """A float network, quantised by ONNX Runtime's own tool; scales are those of the values that a frame gives."""
    source, target = save(folder, model, "float.onnx"), folder / "quantised.onnx"
    quantize_static(source, target, Frames(frame_of(model)), weight_type=QuantType.QInt8, **how)
    return target


def _with_all_outputs(model: ModelProto) -> ModelProto:
    found = ModelProto()
    found.CopyFrom(model)
    del found.graph.output[:]
    found.graph.output.extend(helper.ValueInfoProto(name=name) for n in model.graph.node for name in n.output)
    return found


def _axis_of_outputs(own: NodeProto) -> int | None:
    """The axis of the output channels in the weights of an operator: others ONNX Runtime takes for it in silence."""
    if own.op_type == "Gemm":
        return 0 if any(a.name == "transB" and a.i for a in own.attribute) else 1
    return {"Conv": 0, "ConvTranspose": 1, "MatMul": 1}.get(own.op_type)


@dataclass(eq=False)
class _Quantiser:
    """Collects nodes, constants and outputs.

    open:   tensor to what DequantizeLinear makes of it
    shared: constants of several operators, whose output channels may lie along different axes
    """

    draw: random.Random
    dtype: str
    per_axis: bool
    share: float
    constants: Arrays
    nodes: list[NodeProto] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    open: dict[str, str] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)

    def add(self, own: NodeProto) -> None:
        """Add an operator that reads dequantised tensors."""
        copy = NodeProto()
        copy.CopyFrom(own)
        for k, name in enumerate(own.input):
            constant = self.constants.get(name)
            if k == 2 and own.op_type in ("Conv", "Gemm") and constant is not None:
                self.add_bias(name, constant, own.input[0], own.input[1])
            elif constant is not None and constant.dtype.kind == "f" and own.op_type not in KEPT_FLOAT:
                self.add_constant(name, constant, _axis_of_outputs(own))
            if constant is None or own.op_type not in KEPT_FLOAT:
                copy.input[k] = self.open.get(name, name)
        self.nodes.append(copy)

    def add_pair(self, name: str, values: np.ndarray) -> None:
        """Quantise an activation and dequantise it again: the smallest number is 0 where nothing is negative."""
        if self._left():
            return
        limits = np.iinfo(self.dtype)
        zero, steps = (limits.max + limits.min + 1) // 2, limits.max // (2 if limits.min == 0 else 1)
        if values.min() >= 0:
            zero, steps = limits.min, limits.max - limits.min
        parameters, _ = self._parameters(name, values, None, steps, np.dtype(self.dtype).type(zero))
        self.nodes.append(node("QuantizeLinear", [name, *parameters], [f"{name}/q"], f"{name}/Q"))
        self._open(name, parameters, {})
        self.outputs.append(f"{name}/q")

    def add_constant(self, name: str, values: np.ndarray, along: int | None) -> None:
        """Have an int8 constant in place of a float one, maybe with a scale for each element ``along`` an axis."""
        if name in self.open or self._left():
            return
        axis = along if self.per_axis and self.draw.random() < 0.7 and name not in self.shared else None
        axis = 0 if axis is not None and values.ndim == 1 else axis
        parameters, attributes = self._parameters(name, values, axis, 127, np.int8(0))
        scale = np.expand_dims(self.constants[parameters[0]], [k for k in range(values.ndim) if k != axis])
        self.constants[f"{name}/q"] = np.round(values / scale).astype(np.int8).reshape(values.shape)
        self._open(name, parameters, attributes)

    def add_bias(self, name: str, values: np.ndarray, inputs: str, weights: str) -> None:
        """Have an int32 bias in the scale of the products that it is added to, where both are quantised."""
        if name in self.open or not {inputs, weights} <= self.open.keys():
            return
        scale = np.asarray(self.constants[f"{inputs}/scale"] * self.constants[f"{weights}/scale"])
        steps = np.clip(np.round(values / scale), -2.0e9, 2.0e9).astype(np.int32)
        self.constants |= {f"{name}/q": steps, f"{name}/scale": scale}
        self._open(name, [f"{name}/scale"], {"axis": 0} if scale.ndim else {})

    def _left(self) -> bool:
        return self.share < 1 and self.draw.random() >= self.share

    def _open(self, name: str, parameters: list[str], attributes: dict[str, Any]) -> None:
        self.open[name] = f"{name}/dq"
        self.nodes.append(
            node("DequantizeLinear", [f"{name}/q", *parameters], [f"{name}/dq"], f"{name}/DQ", **attributes)
        )

    def _parameters(
        self, name: str, values: np.ndarray, axis: int | None, steps: int, zero: np.generic
    ) -> tuple[list[str], dict[str, int]]:
        """Names of a scale and a zero point for ``values``, and attributes."""
        others = None if axis is None else tuple(k for k in range(values.ndim) if k != axis)
        scale = np.asarray(np.maximum(np.abs(values).max(axis=others), 1e-3) / steps, np.float32)
        self.constants |= {f"{name}/scale": scale, f"{name}/zero": np.full(scale.shape, zero)}
        return [f"{name}/scale", f"{name}/zero"], {} if axis is None else {"axis": axis}

    def model(self, source: ModelProto) -> ModelProto:
        """All of it, with inputs, opset and IR version of ``source``."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        outputs = [helper.make_tensor_value_info(name, kind, None) for name in self.outputs]
        used = {name for n in self.nodes for name in n.input}
        weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in self.constants.items() if k in used]
        graph = helper.make_graph(self.nodes, "quantised", source.graph.input, outputs, weights)
        return helper.make_model(graph, opset_imports=source.opset_import, ir_version=source.ir_version)
