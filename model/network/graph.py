"""The CNN as the rest of the program sees it: layers in topological order, tensors with static shapes, weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from model.network import wire
from runtime.errors import CleaveError


@dataclass(frozen=True)
class Tensor:
    """An activation or a constant. ``shape`` is static, in elements; ``dtype`` is a numpy name (``float32``)."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes of the dense tensor."""
        return self.elements * np.dtype(self.dtype).itemsize


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operators; 0: there is none."""
    return max((opset.version for opset in model.opset_import if not opset.domain), default=0)


def operator(node: onnx.NodeProto) -> str:
    """Which operator a node is, with its domain where that is not ONNX's own."""
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Attribute values by name; strings as ``str``."""
    values = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return {k: v.decode("utf-8", "replace") if isinstance(v, bytes) else v for k, v in values.items()}


def where_is(node: onnx.NodeProto, path: Path) -> str:
    """How errors say which node of a file they are about."""
    return f"{path}: layer '{node.name or node.output[0]}'"


@dataclass(frozen=True, eq=False)
class Layer:
    """One operator after folding, with the quantisation of its inputs and outputs (see ``model.network.quantised``).

    index:   position in ``Graph.layers``, topological order
    name:    the node's name in the file, or its first output where it has none; unique in the graph
    op:      see ``operator``
    node:    the node itself: attributes, inputs, outputs ("" = optional input left out)
    macs:    multiply-accumulates of the whole layer (see ``model.network.macs``)
    origins: nodes of the file whose work this layer does: itself, and what was folded into it
    before:  DequantizeLinear of inputs of ``node``; of constants also what follows it
    after:   what follows ``node``: QuantizeLinear of its outputs, maybe a Relu or Clip before it. Tensors between
             these nodes exist inside the layer only
    whole:   it cannot be split, whatever its operator is
    """

    index: int
    name: str
    op: str
    node: onnx.NodeProto
    macs: int
    origins: tuple[str, ...]
    before: tuple[onnx.NodeProto, ...] = ()
    after: tuple[onnx.NodeProto, ...] = ()
    whole: bool = False

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of what the operator reads, activations and constants, at its own positions; quantised where it is."""
        source: dict[str, str] = {}
        for node in self.before:
            source[node.output[0]] = source.get(node.input[0], node.input[0])
        return tuple(source.get(name, name) for name in self.node.input)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs that exist; quantised where they are."""
        found = list(self.node.output)
        for node in self.after:
            found[found.index(node.input[0])] = node.output[0]
        return tuple(name for name in found if name)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of the other constants of ``before`` and ``after``: scales and zero points, bounds of a Clip."""
        return tuple(name for node in (*self.before, *self.after) for name in node.input[1:] if name)

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """See the function ``attributes``."""
        return attributes(self.node)

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.attributes.get(name, default)
        assert isinstance(value, int)
        return value

    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """An attribute that is a list of integers."""
        value = self.attributes.get(name)
        return default if value is None else tuple(int(v) for v in value)


@dataclass(frozen=True, eq=False)
class Graph:
    """A CNN.

    name:      of the network (the file's stem)
    path:      the file it came from
    layers:    topological order
    tensors:   every activation and constant by name, those inside a layer too
    inputs:    names of the inputs that a frame fills; outputs: names of the results
    constants: initializers by name; the data may lie in external files below ``path``'s folder
    ir_version, opsets: stamps of the file, kept in every submodel
    assumed:   inputs whose number of samples the file leaves open, and which got one
    stamps:    of the file and of those with its external data when they were read, see ``stamp_of``
    """

    name: str
    path: Path
    layers: tuple[Layer, ...]
    tensors: dict[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: dict[str, onnx.TensorProto] = field(repr=False)
    ir_version: int
    opsets: tuple[tuple[str, int], ...]
    assumed: tuple[str, ...] = ()
    stamps: dict[Path, tuple[int, ...]] = field(default_factory=dict, repr=False)

    def check_files(self) -> None:
        """``CleaveError`` unless the files in which the weights lie are those that were read."""
        for file, stamp in self.stamps.items():
            if stamp_of(file) != stamp:
                raise CleaveError(f"{file}: was changed or moved after it was read; run the same command again")

    @property
    def external(self) -> set[Path]:
        """The files in which weights lie, those in the file itself apart."""
        entries = (entry for tensor in self.constants.values() for entry in tensor.external_data)
        return {self.path.parent / entry.value for entry in entries if entry.key == "location"} - {self.path}

    @cached_property
    def producer(self) -> dict[str, int]:
        """Tensor name to the index of the layer that makes it; the CNN's inputs are not in it."""
        return {name: layer.index for layer in self.layers for name in layer.outputs}

    @cached_property
    def by_name(self) -> dict[str, Layer]:
        """Layers by name."""
        return {layer.name: layer for layer in self.layers}

    def is_constant(self, name: str) -> bool:
        """Whether the tensor is a weight, known before the frame."""
        return name in self.constants

    def constant(self, name: str) -> np.ndarray:
        """The value of an initializer, mapped from its file where it is large.

        ``CleaveError`` when its external data cannot be read.
        """
        return read_constant(self.constants[name], self.path)

    def weight_bytes(self, layer: Layer) -> int:
        """Bytes of the constants that the layer uses."""
        used = {*layer.inputs, *layer.parameters}
        return sum(self.tensors[n].size_bytes for n in used if self.is_constant(n))

    def touched_bytes(self, layer: Layer) -> int:
        """Bytes that the layer reads and writes, its constants too, each once."""
        used = {*layer.inputs, *layer.parameters, *layer.outputs} - {""}
        return sum(self.tensors[name].size_bytes for name in used)

    def activations(self, layer: Layer) -> tuple[str, ...]:
        """Inputs of the layer that are computed, not constant, in order."""
        return tuple(n for n in layer.inputs if n and not self.is_constant(n))


def stamp_of(path: Path) -> tuple[int, ...]:
    """By which a change of a file is seen: its size in bytes, and when it was written; nothing where it is gone."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_size, found.st_mtime_ns


def read_constant(tensor: onnx.TensorProto, path: Path) -> np.ndarray:
    """The value of an initializer of the file ``path``, mapped from it where it is large."""
    try:
        mapped = wire.in_place(tensor, path.parent)
        return numpy_helper.to_array(wire.inline(tensor, path.parent)) if mapped is None else mapped
    except (OSError, ValueError) as error:
        raise CleaveError(f"{path}: the data of weight '{tensor.name}' cannot be read: {error}") from error
