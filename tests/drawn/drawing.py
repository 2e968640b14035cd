"""A network while it grows: each operator runs on the values that it will see, so its shapes are known at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper

from runtime.frames import random_frame
from tests.tiny_cnn import Arrays, Shape, network, node, run_whole, weight

MOST_ELEMENTS, LARGEST, LEAST_SPREAD = 10_000, 100.0, 1e-2
"""Of a tensor: with more a network would be slow, with larger numbers ill-conditioned, with less spread a wrong part
of it would not be seen."""
T = TypeVar("T")


class UnfitError(Exception):
    """An operator that ONNX Runtime refuses here, or makes nothing of that is worth to go on with."""


@dataclass(eq=False)
class Drawing:
    """A network so far.

    dtype:     of its floats
    values:    of all tensors, constants too, for the first random frame
    made:      names of activations, among them the inputs
    at:        the activation that the next operator reads
    quantised: share of weights that are dequantised first
    """

    draw: random.Random
    dtype: str
    opset: int
    quantised: float = 0.0
    nodes: list[NodeProto] = field(default_factory=list)
    values: Arrays = field(default_factory=dict)
    constants: list[str] = field(default_factory=list)
    inputs: dict[str, Shape] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    at: str = ""

    @property
    def shape(self) -> Shape:
        """Of what was made last."""
        return self.values[self.at].shape

    def input(self, shape: Sequence[int]) -> str:
        """An input of the network."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = tuple(shape)
        self.values[name] = random_frame(name, tuple(shape), self.dtype, 0, 0)
        self.made.append(name)
        return name

    def add(self, op: str, *more: str, of: str | None = None, outputs: int = 1, **attributes: Any) -> str:
        """A node that reads ``of``, or what was made last, and then some more; what it makes first."""
        out = f"{op.lower()}_{len(self.nodes)}"
        names = [out, *(f"{out}_{k}" for k in range(1, outputs))]
        self._append(node(op, [self.at if of is None else of, *more], names, out, **attributes))
        if any(np.ptp(self.values[name].astype(float)) < LEAST_SPREAD for name in names if self.values[name].size > 8):
            raise UnfitError(op)
        self.made += [name for name in names if self.values[name].dtype == self.dtype]
        self.at = out
        return out

    def given(self, op: str, since: int, *, outputs: int = 1, rest: dict[str, Any] | None = None, **lists: Any) -> str:
        """A node with lists that are inputs from one opset on, and attributes before."""
        if self.opset < since:
            return self.add(op, outputs=outputs, **lists, **(rest or {}))
        return self.add(op, *(self.constant(values) for values in lists.values()), outputs=outputs, **(rest or {}))

    def constant(self, values: Any) -> str:
        """An array as it is; floats in the network's type, integers in that of shapes."""
        name = f"c{len(self.constants)}"
        if not isinstance(values, np.ndarray):
            values = np.asarray(values)
            values = values.astype(self.dtype if values.dtype.kind == "f" else np.int64)
        self.values[name] = values
        self.constants.append(name)
        return name

    def weight(self, *shape: int, fan_in: int = 1, positive: bool = False) -> str:
        """Random weights, now and then some that another layer has, or dequantised ones."""
        alike = [c for c in self.constants if self.values[c].shape == shape and self.values[c].dtype == self.dtype]
        if alike and not positive and self.chance(0.15):
            return self.draw.choice(alike)
        values = weight(*shape, seed=self.draw.randrange(1000)) / fan_in**0.5
        values = np.abs(values) + 0.5 if positive else values
        return self._dequantised(values) if self.chance(self.quantised) else self.constant(values.astype(self.dtype))

    def _dequantised(self, values: np.ndarray) -> str:
        """Weights that int8 constants make, by one scale or one for each element of an axis, maybe by way of a node."""
        order = [*range(values.ndim)][::-1]
        how = self.draw.choice(["", "", "turned", "flat", "scaled"])
        stored = {"turned": values.transpose(order), "flat": values.reshape(-1)}.get(how, values)
        axis = self.draw.randrange(stored.ndim) if stored.ndim and self.chance(0.4) else None
        others = None if axis is None else tuple(k for k in range(stored.ndim) if k != axis)
        scale = (np.abs(stored).max(axis=others, keepdims=True) + 1e-3) / 127
        parts = [np.round(stored / scale).astype(np.int8), scale.reshape(() if axis is None else -1).astype(np.float32)]
        names = [self.constant(part) for part in (*parts, np.zeros(parts[1].shape, np.int8))]
        made = self._made("DequantizeLinear", *names, **({} if axis is None else {"axis": axis}))
        match how:
            case "turned":
                return self._made("Transpose", made, perm=order)
            case "flat":
                return self._made("Reshape", made, self.constant(list(values.shape)))
            case "scaled":
                return self._made("Mul", made, self.constant(0.5))
        return made

    def _made(self, op: str, *names: str, **attributes: Any) -> str:
        """A node that makes weights."""
        self._append(node(op, names, [f"w_{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def chance(self, share: float) -> bool:
        """True in such a share of cases."""
        return self.draw.random() < share

    def several(self, count: int, low: int, high: int) -> list[int]:
        """Random integers, both ends included."""
        return [self.draw.randint(low, max(low, high)) for _ in range(count)]

    def attempt(self, block: Callable[[Drawing], None]) -> bool:
        """Add a block, or nothing where it does not fit."""
        before = len(self.nodes), len(self.made), dict(self.values), dict(self.inputs), self.at
        try:
            block(self)
            return True
        except (UnfitError, IndexError, ValueError):  # the last two where there are too few axes
            nodes, made, self.values, self.inputs, self.at = before
            del self.nodes[nodes:], self.made[made:]
            self.constants = [name for name in self.constants if name in self.values]
            return False

    def model(self, stated: bool) -> ModelProto:
        """All of it. Outputs are what nobody reads, and now and then something else. stated: shapes within are told"""
        read = {name for own in self.nodes for name in own.input}
        layers = [name for name in self.made if name not in self.inputs]
        outputs = [name for name in layers if name not in read or self.chance(0.03)]
        weights = {name: self.values[name] for name in self.constants if name in read}
        found = network(self.nodes, self.inputs, outputs, weights, self.opset, self._ir(), self.dtype)
        within = {name for own in self.nodes for name in own.output}.difference(outputs) if stated else ()
        found.graph.value_info.extend(info_of(name, self.values[name]) for name in sorted(within))
        return found

    def _ir(self) -> int:
        return helper.find_min_ir_version_for([helper.make_opsetid("", self.opset)])

    def _append(self, own: NodeProto) -> None:
        made = self._run(own)
        floats = [value.astype(float) for value in made.values() if value.dtype.kind == "f"]
        if any(not 0 < v.size <= MOST_ELEMENTS or not np.abs(v).max() <= LARGEST for v in floats):
            raise UnfitError(own.op_type)
        self.values |= made
        self.nodes.append(own)

    def _run(self, own: NodeProto) -> Arrays:
        """What an operator alone makes of the values that there are."""
        held = [numpy_helper.from_array(self.values[name], name) for name in dict.fromkeys(own.input) if name]
        infos = [onnx.ValueInfoProto(name=name) for name in own.output]
        opsets = [helper.make_opsetid("", self.opset)]
        graph = helper.make_graph([own], "one", [], infos, held)
        try:
            return run_whole(helper.make_model(graph, opset_imports=opsets, ir_version=max(4, self._ir())), {})
        except Exception as error:  # ONNX Runtime's errors have no common class
            raise UnfitError(own.op_type) from error


def info_of(name: str, value: np.ndarray) -> onnx.ValueInfoProto:
    """Type and shape of a tensor."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def divisors(number: int, of: Iterable[int]) -> list[int]:
    """Which numbers divide another one."""
    return [each for each in of if number % each == 0]
