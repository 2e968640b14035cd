"""Cutting the CNN: one ONNX model for each segment of a rank, with the weights of its shards and no others.

The models run alone in stock ONNX Runtime: inputs and outputs are declared, opset and IR version are the file's,
nodes and tensors keep their names (a part carries its box, ``conv1[:,0:48]``).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from model import boxes
from model.boxes import Need
from model.graph import Graph, Layer
from model.mapping import extent
from model.planning import Piece, Planned, channel_size, needed_pieces, piece_name, piece_shape
from runtime.plan import Part, Run

SLICE_BY_INPUTS = 10
"""Opset from which Slice takes its bounds as inputs, not attributes."""


def segment_model(graph: Graph, planned: Planned, run: Run) -> onnx.ModelProto:
    """The ONNX model of one segment."""
    return _Cutter(graph, planned, run).model()


class _Cutter:
    """Collects the nodes and weights of one segment."""

    def __init__(self, graph: Graph, planned: Planned, run: Run) -> None:
        self.graph, self.run = graph, run
        self.pieces = planned.pieces
        self.opset = dict(graph.opsets).get("", 1)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, TensorProto] = {}
        self.held: dict[str, list[Piece]] = {}
        self.joined: dict[Piece, str] = {}
        for name in run.inputs:
            self._hold(self.pieces[name])

    def model(self) -> onnx.ModelProto:
        for part in self.run.parts:
            self._compute(part)
        for name in self.run.outputs:
            self._have(self.pieces[name])
        inputs, outputs = self._infos(self.run.inputs), self._infos(self.run.outputs)
        if self.graph.ir_version < 4:
            inputs += [helper.make_tensor_value_info(n, t.data_type, t.dims) for n, t in self.weights.items()]
        name = f"{self.graph.name}/{self.run.file.removesuffix('.onnx')}"
        body = helper.make_graph(self.nodes, name, inputs, outputs, initializer=list(self.weights.values()))
        opsets = [helper.make_opsetid(domain, version) for domain, version in self.graph.opsets]
        return helper.make_model(body, opset_imports=opsets, ir_version=self.graph.ir_version, producer_name="cleave")

    def _infos(self, names: Iterable[str]) -> list[onnx.ValueInfoProto]:
        found = []
        for name in names:
            piece = self.pieces[name]
            dtype = helper.np_dtype_to_tensor_dtype(np.dtype(self.graph.tensors[piece.tensor].dtype))
            found.append(helper.make_tensor_value_info(name, dtype, piece_shape(self.graph, piece)))
        return found

    def _hold(self, piece: Piece) -> None:
        self.held.setdefault(piece.tensor, []).append(piece)

    def _compute(self, part: Part) -> None:
        """Add one shard: the layer's node, its weights cut to the box, its inputs put together."""
        layer = self.graph.by_name[part.layer]
        whole = (part.start, part.stop) == (0, extent(self.graph, layer, part.axis))
        rule = None if whole else boxes.rule(self.graph, layer, part.axis)
        needs = rule.needs if rule else (boxes.WHOLE,) * len(layer.inputs)
        node = onnx.NodeProto()
        node.CopyFrom(layer.node)
        inputs = [self._input(name, need, part) for name, need in zip(layer.inputs, needs, strict=True)]
        del node.input[:]
        node.input.extend(name for name in inputs if name is not None)
        if rule is not None:
            node.name = f"{layer.name}[:,{part.start}:{part.stop}]"
            made = Piece(layer.outputs[0], part.start, part.stop)
            node.output[0] = piece_name(self.graph, made)
            _regroup(node, layer, rule, part)
            self._hold(made)
        else:
            node.name = layer.name
            for name in layer.outputs:
                self._hold(Piece(name, 0, channel_size(self.graph, name)))
        self.nodes.append(node)

    def _input(self, name: str, need: Need, part: Part) -> str | None:
        """Name of the value that an input of the node reads; None where the box needs nothing of it (Concat)."""
        if not name:
            return ""
        if self.graph.is_constant(name):
            return self._weight(name, need, part)
        wanted, _ = needed_pieces(self.graph, name, need, part.start, part.stop, [])
        return self._have(wanted) if wanted.start < wanted.stop else None

    def _weight(self, name: str, need: Need, part: Part) -> str | None:
        """A constant, whole or cut to what the box needs."""
        shape = self.graph.tensors[name].shape
        low, high = need.interval(part.start, part.stop, shape[need.axis]) if need.axis >= 0 else (0, 0)
        if need.axis < 0 or (low, high) == (0, shape[need.axis]):
            self.weights.setdefault(name, _own_data(self.graph, name))
            return name
        if low == high:
            return None
        cut = f"{name}[{':,' * need.axis}{low}:{high}]"
        if cut not in self.weights:
            box = (slice(None),) * need.axis + (slice(low, high),)
            self.weights[cut] = numpy_helper.from_array(np.ascontiguousarray(self.graph.constant(name)[box]), cut)
        return cut

    def _have(self, wanted: Piece) -> str:
        """Name of a value that is ``wanted`` exactly; joined from what the segment holds where need be."""
        held = self.held[wanted.tensor]
        if wanted in held:
            return piece_name(self.graph, wanted)
        if wanted not in self.joined:
            _, parts = needed_pieces(self.graph, wanted.tensor, Need(boxes.CHANNELS), wanted.start, wanted.stop, held)
            self.joined[wanted] = self._join(wanted, [self._trim(p, wanted) for p in parts])
        return self.joined[wanted]

    def _trim(self, piece: Piece, wanted: Piece) -> str:
        """The part of a held piece that lies inside ``wanted``."""
        inside = Piece(piece.tensor, max(piece.start, wanted.start), min(piece.stop, wanted.stop))
        source, target = piece_name(self.graph, piece), piece_name(self.graph, inside)
        if inside != piece and not any(target in node.output for node in self.nodes):
            self._slice(source, target, inside.start - piece.start, inside.stop - piece.start)
        return target

    def _slice(self, source: str, target: str, start: int, stop: int) -> None:
        axis = boxes.CHANNELS
        if self.opset < SLICE_BY_INPUTS:
            self.nodes.append(
                helper.make_node("Slice", [source], [target], name=target, starts=[start], ends=[stop], axes=[axis])
            )
            return
        bounds = []
        for role, value in (("starts", start), ("ends", stop), ("axes", axis)):
            name = f"{target}/{role}"
            self.weights[name] = numpy_helper.from_array(np.array([value], dtype=np.int64), name)
            bounds.append(name)
        self.nodes.append(helper.make_node("Slice", [source, *bounds], [target], name=target))

    def _join(self, wanted: Piece, names: list[str]) -> str:
        if len(names) == 1:
            return names[0]
        target = piece_name(self.graph, wanted)
        self.nodes.append(helper.make_node("Concat", names, [target], name=f"{target}/join", axis=boxes.CHANNELS))
        return target


def _regroup(node: onnx.NodeProto, layer: Layer, rule: boxes.Rule, part: Part) -> None:
    """A shard of a grouped convolution has as many groups as its channels make up."""
    groups = layer.attributes.get("group", 1)
    if layer.op != "Conv" or groups == 1:
        return
    kept = [a for a in node.attribute if a.name != "group"]
    of_part = (part.stop - part.start) // rule.grain
    attributes = [*kept, helper.make_attribute("group", of_part)]
    copies = onnx.NodeProto(attribute=attributes)
    del node.attribute[:]
    node.attribute.extend(copies.attribute)


def _own_data(graph: Graph, name: str) -> TensorProto:
    """An initializer with its data in it."""
    tensor = graph.constants[name]
    if tensor.name == name and not tensor.external_data:
        return tensor
    return numpy_helper.from_array(graph.constant(name), name)
