"""Fused tiles: a stack of layers cut by rows, each device computing by itself all rows that its tile needs.

Between the layers of a stack nothing is sent: the rows next to a cut are computed on both sides. It is what DeepThings
calls fused tile partitioning (Zhao, Barijough and Gerstlauer, IEEE TCAD 37, 2018), by rows alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from model.mappings.mapping import Shard, extent
from model.network import boxes
from model.network.graph import Graph, Layer
from runtime.errors import CleaveError

Interval = tuple[int, int]


def fused(graph: Graph, stack: Sequence[int], ends: Sequence[int], devices: Sequence[int]) -> list[Shard]:
    """Shards of the layers ``stack`` (indices, ascending), whose last layer ends in tiles of rows.

    ends: where each tile of the last layer ends, ascending, the last one at its number of rows; devices: of each tile.
    ``CleaveError`` where a layer cannot be cut by rows, or is read by none of the layers after it in the stack.
    """
    found: dict[int, list[Interval]] = {stack[-1]: list(zip([0, *ends[:-1]], ends, strict=True))}
    for index in reversed(stack[:-1]):
        layer = graph.layers[index]
        needs = [_needed(graph, layer, stack, found, tile) for tile in range(len(ends))]
        found[index] = _covering(needs, extent(graph, layer, boxes.ROWS), _rule(graph, layer).grain)
    return [
        Shard(index, start, stop, device, boxes.ROWS)
        for index in stack
        for (start, stop), device in zip(found[index], devices, strict=True)
    ]


def _needed(graph: Graph, layer: Layer, stack: Sequence[int], found: dict[int, list[Interval]], tile: int) -> Interval:
    """Rows of a layer that a tile of the layers after it needs."""
    intervals = []
    for reader in (graph.layers[index] for index in stack if index in found):
        for k, name in enumerate(reader.inputs):
            if name in layer.outputs:
                intervals.append(_rule(graph, reader).needs[k].interval(*found[reader.index][tile], _rows(graph, name)))
    if not intervals:
        raise CleaveError(f"layer '{layer.name}' is read by no later layer of its stack of tiles")
    return min(start for start, _ in intervals), max(stop for _, stop in intervals)


def _rule(graph: Graph, layer: Layer) -> boxes.Rule:
    rule = boxes.rule(graph, layer, boxes.ROWS)
    if rule is None:
        raise CleaveError(
            f"layer '{layer.name}': operator {layer.op} cannot be split by rows; leave it out of the tiles"
        )
    return rule


def _rows(graph: Graph, tensor: str) -> int:
    return graph.tensors[tensor].shape[boxes.ROWS]


def _covering(tiles: list[Interval], size: int, grain: int) -> list[Interval]:
    """The tiles, widened over rows that none of them needs, such as the last one before an odd stride."""
    starts = [0, *[start // grain * grain for start, _ in tiles[1:]]]
    stops = [-(-max(stop, start) // grain) * grain for (_, stop), (start, _) in pairwise([*tiles, (size, size)])]
    return list(zip(starts, stops, strict=True))
