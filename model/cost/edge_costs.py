"""What edges inside segments save on a unit, or cost: as they were measured, or what their kinds do."""

from __future__ import annotations

import math
from collections.abc import Sequence

from model.cluster.coefficients import UnitCost
from model.cost.edges import Edge
from model.network import boxes, relayout
from model.network.graph import Graph, Layer


def rows(
    graph: Graph, found: Sequence[Sequence[Edge]], unit: UnitCost, slower: float, alone_s: Sequence[float]
) -> list[list[float]]:
    """(edges, columns) of ``CostArrays.beside`` on a unit with so many times fewer threads than its figures hold for.

    found: ``edges_of``; alone_s: of layers, with as many threads as these
    """
    return [
        [slower * seconds for seconds in _row(graph, edge, unit, (alone_s[edge.maker], alone_s[reader]))]
        for reader, edges in enumerate(found)
        for edge in edges
    ]


def _row(graph: Graph, edge: Edge, unit: UnitCost, alone_s: tuple[float, float]) -> list[float]:
    """Of an edge. alone_s: of maker and reader"""
    gain = unit.gain(edge.name, edge.pair, min(alone_s[0], edge.part * alone_s[1]))
    maker = graph.layers[edge.maker]
    joins = [unit.joins.get(k, 0.0) * edge.size_bytes if apart(graph, maker, k) else 0.0 for k in range(boxes.KINDS)]
    kept = unit.relayout_s_per_byte * edge.size_bytes if edge.origin != relayout.NONE else 0.0
    return [gain, kept, *joins]


def apart(graph: Graph, maker: Layer, kind: int) -> bool:
    """Whether the parts of a layer that is split in some way do not lie side by side in memory, but must be joined."""
    return kind == boxes.PARTIAL or math.prod(graph.tensors[maker.outputs[0]].shape[:kind]) > 1
