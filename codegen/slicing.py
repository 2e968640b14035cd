"""Cutting the CNN: one ONNX model for each segment of a rank, with the weights of its shards and no others.

The models run alone in stock ONNX Runtime: inputs and outputs are declared, opset and IR version are the file's,
nodes and tensors keep their names (a part carries its box, ``conv1[:,0:48]``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from codegen import nodes
from model.mappings.mapping import extent
from model.mappings.planning import Planned
from model.network import boxes, pieces, quantised, wire
from model.network.boxes import Need
from model.network.graph import Graph, Layer
from model.network.pieces import Piece
from runtime.plan import Part, Run

SLICE_BY_INPUTS = 10
"""Opset from which Slice takes its bounds as inputs, not attributes."""
INLINE_BYTES = 1_800_000_000
OPTIONAL_BIAS = 11
"""Opset from which Gemm may leave out its third input."""


@dataclass(frozen=True, eq=False)
class Segment:
    """The ONNX model of a segment: its graph with the small weights, and the large ones apart, not yet copied."""

    light: onnx.ModelProto
    weights: dict[str, np.ndarray]

    def model(self) -> onnx.ModelProto:
        """The whole model in memory."""
        found = onnx.ModelProto()
        found.CopyFrom(self.light)
        found.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in self.weights.items())
        return found

    def save(self, path: Path, apart: bool = False) -> list[Path]:
        """Write the model; each byte of a weight goes straight from where it lies. Returns the files.

        apart: the weights go to a file beside it, which ONNX Runtime maps into memory. Above ``INLINE_BYTES`` they
               do so in any case: a protobuf message ends at 2 GB.
        """
        with path.open("wb") as file:
            small = sum(value.nbytes for value in self.weights.values()) < INLINE_BYTES
            if not self.weights or (small and not apart):
                wire.write(file, self.light, self.weights.items())
                return [path]
            model = onnx.ModelProto()
            model.CopyFrom(self.light)
            beside = path.with_name(path.name + ".data")
            with beside.open("wb") as data:
                model.graph.initializer.extend(wire.write_apart(data, self.weights.items()))
            file.write(model.SerializeToString(deterministic=True))
            return [path, beside]


def segment(graph: Graph, planned: Planned, run: Run) -> Segment:
    """Cut one segment."""
    return _Cutter(graph, planned, run).segment()


class _Cutter:
    """Collects the nodes and weights of one segment."""

    def __init__(self, graph: Graph, planned: Planned, run: Run) -> None:
        self.graph, self.run = graph, run
        self.pieces = planned.pieces
        self.opset = dict(graph.opsets).get("", 1)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.packed: dict[str, TensorProto] = {}
        self.held: dict[str, list[Piece]] = {}
        self.joined: dict[Piece, str] = {}
        self.trimmed: set[str] = set()
        self.opened: set[str] = set()
        self.inputs = [self.pieces[name] for name in run.inputs]
        for piece in self.inputs:
            if not any(pieces.contains(piece, other) for other in self.inputs):
                self._hold(piece)

    def segment(self) -> Segment:
        for part in self.run.parts:
            self._compute(part)
        for name in self.run.outputs:
            self._have(self.pieces[name])
        inputs, outputs = self._infos(self.run.inputs), self._infos(self.run.outputs)
        if self.graph.ir_version < 4:
            inputs += [_info(name, value.dtype, value.shape) for name, value in self.weights.items()]
        small = [numpy_helper.from_array(v, n) for n, v in self.weights.items() if v.nbytes <= wire.LARGE_BYTES]
        large = {n: v for n, v in self.weights.items() if v.nbytes > wire.LARGE_BYTES}
        name = f"{self.graph.name}/{self.run.file.removesuffix('.onnx')}"
        body = helper.make_graph(self.nodes, name, inputs, outputs, initializer=[*small, *self.packed.values()])
        opsets = [helper.make_opsetid(domain, version) for domain, version in self.graph.opsets]
        version = self.graph.ir_version
        light = helper.make_model(body, opset_imports=opsets, ir_version=version, producer_name="cleave")
        helper.set_model_props(light, self._properties())
        return Segment(light, large)

    def _properties(self) -> dict[str, str]:
        """What the segment is, for who opens it: rank, and each part with the nodes of the file it does the work of."""
        parts = [{"part": p.label, "origins": self.graph.by_name[p.layer].origins} for p in self.run.parts]
        rank = self.run.file.split("/")[0]
        return {"cleave.cnn": self.graph.name, "cleave.rank": rank, "cleave.parts": json.dumps(parts)}

    def _infos(self, names: Iterable[str]) -> list[onnx.ValueInfoProto]:
        found = []
        for name in names:
            piece = self.pieces[name]
            found.append(_info(name, np.dtype(self.graph.tensors[piece.tensor].dtype), pieces.shape(self.graph, piece)))
        return found

    def _hold(self, piece: Piece) -> None:
        self.held.setdefault(piece.tensor, []).append(piece)

    def _compute(self, part: Part) -> None:
        """Add one shard: the layer's node, its weights cut to the box, its inputs put together, its quantisation."""
        layer = self.graph.by_name[part.layer]
        whole = (part.start, part.stop) == (0, extent(self.graph, layer, part.axis))
        rule = None if whole else boxes.rule(self.graph, layer, part.axis)
        node = onnx.NodeProto()
        node.CopyFrom(layer.node)
        if rule is None:
            node.name = layer.name
            node.input[:] = [self._read(layer, k, boxes.WHOLE, part) or "" for k in range(len(layer.inputs))]
            for name in layer.outputs:
                self._hold(pieces.whole(self.graph, name))
        else:
            self._make_part(node, layer, rule, part)
        self.nodes.append(node)
        if rule is not None and rule.crop:
            self._crop(node, rule, part)
        for closer in layer.after:
            source, target = (self._made(name, rule, part) for name in (closer.input[0], closer.output[0]))
            self._convert(closer, source, target, boxes.WHOLE if rule is None else Need(part.axis), part)

    def _make_part(self, node: onnx.NodeProto, layer: Layer, rule: boxes.Rule, part: Part) -> None:
        """Turn the layer's node into that of a part of it."""
        made = [pieces.made(self.graph, name, part.axis, part.start, part.stop) for name in layer.outputs]
        node.name = pieces.unlike_others(self.graph, part.label)
        node.output[:] = [name and self._made(name, rule, part) for name in node.output]
        shape = pieces.shape(self.graph, made[0])
        own = nodes.constants(self.graph, layer, part, shape)
        inputs = [
            self._constant(f"{part.label}/{k}", own[k]) if k in own else self._read(layer, k, rule.needs[k], part)
            for k in self._used(layer, part)
        ]
        if layer.op == "Pad" and inputs[0] is None:
            self._fill(node, layer, part, shape)
        else:
            node.input[:] = nodes.present(layer, inputs)
            nodes.adapt(node, self.graph, layer, rule, part)
        if len(node.input) < len(layer.inputs) and layer.op == "Gemm" and self.opset < OPTIONAL_BIAS:
            zero = np.zeros(1, dtype=self.graph.tensors[layer.node.output[0]].dtype)
            node.input.append(self._constant(f"{part.label}/zero", zero))
        for piece in made:
            self._hold(piece)

    def _made(self, name: str, rule: boxes.Rule | None, part: Part) -> str:
        """Name of what the part makes of an output of its layer."""
        if rule is None:
            return name
        return pieces.name(self.graph, pieces.made(self.graph, name, part.axis, part.start, part.stop))

    def _fill(self, node: onnx.NodeProto, layer: Layer, part: Part, shape: tuple[int, ...]) -> None:
        """A part of a Pad that lies in the padding alone is a constant."""
        value = layer.attributes.get("value", 0)
        if len(layer.inputs) > 2 and layer.inputs[2]:
            value = self.graph.constant(layer.inputs[2]).item()
        dtype = np.dtype(self.graph.tensors[layer.node.output[0]].dtype)
        node.CopyFrom(onnx.NodeProto(name=node.name, op_type="Identity", output=node.output))
        node.input[:] = [self._constant(f"{part.label}/value", np.full(shape, value, dtype))]

    def _used(self, layer: Layer, part: Part) -> range:
        """Positions of the inputs that the part reads: a bias belongs to the first partial sum alone."""
        return range(2 if part.axis == boxes.PARTIAL and part.start > 0 else len(layer.inputs))

    def _crop(self, node: onnx.NodeProto, rule: boxes.Rule, part: Part) -> None:
        """The node has made the box that it was given; keep the part's own."""
        need = rule.needs[0]
        low, high = need.interval(part.start, part.stop, rule.size)
        target = node.output[0]
        if (low, high) != (part.start, part.stop):
            node.output[0] = pieces.unlike_others(self.graph, f"{target}/wide")
            self._slice(node.output[0], target, [(need.axis, part.start - low, part.stop - low)])

    def _constant(self, name: str, value: np.ndarray) -> str:
        """Add a small constant that the file does not have."""
        name = pieces.unlike_others(self.graph, name)
        self.weights[name] = value
        return name

    def _read(self, layer: Layer, k: int, need: Need, part: Part) -> str | None:
        """Name of the value that input ``k`` of the node reads; None where the box needs nothing of it (Concat)."""
        return self._opened(layer, layer.node.input[k], need, part)

    def _opened(self, layer: Layer, name: str, need: Need, part: Part) -> str | None:
        """Name of a value that the layer reads, or makes for itself."""
        opener = next((node for node in layer.before if node.output[0] == name), None)
        if opener is None:
            return self._input(name, need, part)
        if not (source := self._opened(layer, opener.input[0], need, part)):
            return source
        opened = pieces.needed(self.graph, opener.output[0], need, part.start, part.stop)
        target = pieces.name(self.graph, opened)
        if opened.tensor in self.graph.producer:  # a layer makes it too, as an output of the network
            target = pieces.unlike_others(self.graph, f"{target}/again")
        if target not in self.opened:
            self.opened.add(target)
            self._convert(opener, source, target, need, part)
        return target

    def _convert(self, quantise: onnx.NodeProto, source: str, target: str, need: Need, part: Part) -> None:
        """Add a (De)QuantizeLinear of a box, with the scales and zero points of that box."""
        node = onnx.NodeProto()
        node.CopyFrom(quantise)
        box = target.removeprefix(quantise.output[0])
        node.name = f"{quantise.name or quantise.output[0]}{box}"
        needs = quantised.parameter_needs(self.graph, quantise, need)
        node.input[:] = [source, *[self._input(name, needs.get(name, need), part) or "" for name in node.input[1:]]]
        node.output[:] = [target]
        self.nodes.append(node)

    def _input(self, name: str, need: Need, part: Part) -> str | None:
        """Name of a tensor's part that the box needs; None where it needs nothing of it."""
        if not name:
            return ""
        if self.graph.is_constant(name):
            return self._weight(name, need, part)
        wanted = pieces.needed(self.graph, name, need, part.start, part.stop)
        return None if pieces.is_empty(wanted) else self._have(wanted)

    def _weight(self, name: str, need: Need, part: Part) -> str | None:
        """A constant, whole or cut to what the box needs."""
        shape = self.graph.tensors[name].shape
        low, high = need.interval(part.start, part.stop, shape[need.axis]) if need.axis >= 0 else (0, 0)
        if need.axis < 0 or (low, high) == (0, shape[need.axis]):
            return self._boxed(name, name)
        if low == high:
            return None
        cut = pieces.unlike_others(self.graph, f"{name}[{':,' * need.axis}{low}:{high}]")
        return self._boxed(cut, name, (slice(None),) * need.axis + (slice(low, high),))

    def _boxed(self, target: str, name: str, box: tuple[slice, ...] = ()) -> str:
        """Add a constant, or a box of it, once; strings and elements of less than a byte are packed again."""
        if target not in self.weights and target not in self.packed:
            value = self.graph.constant(name)
            value = value[box] if box else value
            if wire.is_packed(self.graph.constants[name].data_type):
                self.packed[target] = numpy_helper.from_array(value, target)
            else:
                self.weights[target] = value
        return target

    def _have(self, wanted: Piece) -> str:
        """Name of a value that is ``wanted`` exactly; put together from what the segment holds where need be."""
        held = self.held.get(wanted.tensor, [])
        if wanted in held or wanted in self.inputs:
            return pieces.name(self.graph, wanted)
        if wanted not in self.joined:
            found = pieces.parts_of(wanted, held)
            names = [self._trim(piece, part) for piece, part in found]
            self.joined[wanted] = self._join(wanted, [part for _, part in found], names)
        return self.joined[wanted]

    def _trim(self, held: Piece, inside: Piece) -> str:
        """A part of a held piece."""
        target = pieces.name(self.graph, inside)
        if inside != held and target not in self.trimmed:
            self.trimmed.add(target)
            both = enumerate(zip(held.box, inside.box, strict=True))
            cuts = [(axis, c - a, d - a) for axis, ((a, b), (c, d)) in both if (a, b) != (c, d)]
            self._slice(pieces.name(self.graph, held), target, cuts)
        return target

    def _slice(self, source: str, target: str, cuts: list[tuple[int, int, int]]) -> None:
        """``cuts``: axis, start, stop."""
        axes, starts, stops = (list(column) for column in zip(*cuts, strict=True))
        if self.opset < SLICE_BY_INPUTS:
            self._add("Slice", [source], target, starts=starts, ends=stops, axes=axes)
            return
        roles = (("starts", starts), ("ends", stops), ("axes", axes))
        names = [self._constant(f"{target}/{role}", np.array(values, dtype=np.int64)) for role, values in roles]
        self._add("Slice", [source, *names], target)

    def _add(self, op: str, names: list[str], target: str, **attributes: Any) -> None:
        """A node that the file does not have."""
        name = pieces.unlike_others(self.graph, f"{target}/{op.lower()}")
        self.nodes.append(helper.make_node(op, names, [target], name, **attributes))

    def _join(self, wanted: Piece, parts: list[Piece], names: list[str]) -> str:
        """Pieces side by side, or partial sums added."""
        target = pieces.name(self.graph, wanted)
        if parts[0].terms is not None:
            self._add("Sum", names, target)
            return target
        if len(names) == 1:
            return names[0]
        axis = next(k for k, (a, b) in enumerate(zip(parts[0].box, parts[1].box, strict=True)) if a != b)
        self._add("Concat", names, target, axis=axis)
        return target


def _info(name: str, dtype: np.dtype, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)
