"""What layers read of one another, and what saves time where both are in one segment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from model.network import boxes, layer_kinds, relayout
from model.network.fused import fused
from model.network.graph import Graph
from model.network.signature import edge_name


class Edge(NamedTuple):
    """What a layer reads of another one: index of its maker, pair of signatures and of kinds, bytes of the tensor;
    which layer must be in the segment, too, for the layout to be kept (``relayout.origin``); the part of the reader
    that goes with it (``layer_kinds.part_of_reader``); the kinds of split of the reader of which each part needs all
    of it."""

    maker: int
    name: str
    pair: str
    size_bytes: float
    origin: int
    part: float
    whole_for: tuple[int, ...]


def edges_of(graph: Graph, names: Sequence[str]) -> list[list[Edge]]:
    """By reader: tensors that other layers make, in the order of its inputs and as often as it reads them. names:
    ``signatures`` of the layers
    """
    origins, along = relayout.origins(graph), fused(graph)

    def edge(tensor: str, reader: int, needs: Sequence[boxes.Need]) -> Edge:
        maker, size, layer = graph.producer[tensor], graph.tensors[tensor].size_bytes, graph.layers[reader]
        return Edge(
            maker=maker,
            name=edge_name(names, maker, reader),
            pair=layer_kinds.pair(graph, graph.layers[maker], layer, along[reader]),
            size_bytes=float(size),
            origin=relayout.origin(graph, origins, maker, reader),
            part=layer_kinds.part_of_reader(graph, layer, size),
            whole_for=tuple(kind for kind, need in enumerate(needs) if need.axis < 0),
        )

    return [
        [edge(name, layer.index, needs) for name, needs in boxes.reads(graph, layer, rules) if name in graph.producer]
        for layer, rules in ((layer, boxes.rules(graph, layer)) for layer in graph.layers)
    ]
