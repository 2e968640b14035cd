"""Joins as AutoDiCE places them, to compare with ours.

Ours are joined where they are used: every device that needs a split layer gets each piece from the device that made
it. AutoDiCE lets one device gather all pieces, and pass the whole tensor on to the others.

Here that is said in the graph: an ``Identity`` follows each output of a layer that the mapping splits, whole on the
gathering device, and all consumers read from it. Lowering, pricing and slicing need not know.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import onnx
from onnx import helper

from model.mappings.mapping import Mapping, Shard
from model.network import boxes
from model.network.graph import Graph, Layer, Tensor


def gathered(graph: Graph, mapping: Mapping) -> tuple[Graph, Mapping]:
    """The graph with a gathering ``Identity`` after each output of a split layer, and the mapping of that graph.

    The device of the first consumer's first shard gathers; of an output of the network that no layer reads, the device
    that has the layer's first input whole; the layer's own first device, where that input is the network's or none is.
    """
    weaver = _Weaver(graph, mapping)
    for layer in graph.layers:
        weaver.add(layer)
    tensors = graph.tensors | weaver.tensors
    return replace(graph, layers=tuple(weaver.layers), tensors=tensors), Mapping.of(
        weaver.shards, mapping.reader, mapping.writer
    )


@dataclass(eq=False)
class _Weaver:
    """Builds the new graph layer by layer.

    tensors: that are new; renamed: tensor to the one that its consumers read; home: where a tensor is whole
    taken:   names that layers and tensors have
    """

    graph: Graph
    mapping: Mapping
    layers: list[Layer] = field(default_factory=list)
    shards: list[Shard] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    home: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = self.mapping.by_layer(len(self.graph.layers))
        self.taken = set(self.graph.tensors) | set(self.graph.by_name)
        self.first_use: dict[str, int] = {}
        for layer in self.graph.layers:
            for name in layer.inputs:
                self.first_use.setdefault(name, layer.index)

    def add(self, layer: Layer) -> None:
        """Add a layer and, when it is split, the one that gathers it."""
        row = self.rows[layer.index]
        own = _copied(layer)
        for node in (own.node, *own.before):
            node.input[:] = [self.renamed.get(name, name) for name in node.input]
        self._append(replace(own, index=len(self.layers)), row)
        if len(row) == 1:
            self.home.update(dict.fromkeys(layer.outputs, row[0].device))
        else:
            for name in layer.outputs:
                if name in self.first_use or name in self.graph.outputs:
                    maker = next(node for node in (own.node, *own.after) if name in node.output)
                    self._gather(layer, maker, self.graph.tensors[name])

    def _gather(self, layer: Layer, node: onnx.NodeProto, output: Tensor) -> None:
        """Follow an output of a split layer, made by ``node``, by the ``Identity``. Outputs of the network keep their
        name.
        """
        device = self._gatherer(layer, output.name)
        ends = output.name in self.graph.outputs
        fresh = self._fresh(f"{output.name}/{'parts' if ends else 'gathered'}")
        self.tensors[fresh] = replace(output, name=fresh)
        source, target = (fresh, output.name) if ends else (output.name, fresh)
        node.output[:] = [source if name == output.name else name for name in node.output]
        self.renamed[output.name] = target
        self.home[output.name] = device
        name = self._fresh(f"{layer.name}/gather")
        identity = helper.make_node("Identity", [source], [target], name=name)
        whole = Shard(0, 0, boxes.sizes(output.shape)[boxes.CHANNELS], device)
        self._append(Layer(len(self.layers), name, "Identity", identity, 0, ()), [whole])

    def _gatherer(self, layer: Layer, output: str) -> int:
        """The device that gathers an output of a split layer."""
        if output in self.first_use:
            return self.rows[self.first_use[output]][0].device
        first_input = next(iter(self.graph.activations(layer)), "")
        return self.home.get(first_input, self.rows[layer.index][0].device)

    def _append(self, layer: Layer, row: list[Shard]) -> None:
        self.layers.append(layer)
        self.shards += [replace(shard, layer=layer.index) for shard in row]

    def _fresh(self, name: str) -> str:
        """A name that nothing else has."""
        while name in self.taken:
            name += "'"
        self.taken.add(name)
        return name


def _copied(layer: Layer) -> Layer:
    """The layer with nodes of its own."""
    node, before, after = (onnx.GraphProto(node=nodes).node for nodes in ([layer.node], layer.before, layer.after))
    return replace(layer, node=node[0], before=tuple(before), after=tuple(after))
