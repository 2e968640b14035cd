"""Seconds of a segment, in plain words: the very formula that ``model.spending`` has compiled.

    time(segment) = sum over its parts of  max(0, alone(part) - share(part) * sum of gains over the edges inside)

``alone`` is the time of a segment of that part only, with the start of its session and the layouts at its borders:
``whole_s`` of its kernel, or ``fixed + slope * share`` where the layer is split. An edge is inside where a part before
in the same segment made of what this one reads: kernels fuse, layouts stay, no session starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from model import coefficients
from model.coefficients import UnitCost
from model.costs import SPLIT, WHOLE, row
from model.graph import Graph
from model.mapping import extent
from model.samples import PartOf


class Edge(NamedTuple):
    """What a layer reads of another one: index of its maker, pair of kinds, bytes of the tensor."""

    maker: int
    pair: str
    size_bytes: float


class InSegment(NamedTuple):
    """A part as it stands in a segment. share: of the layer, 1 where it is whole; saves: edges from parts before it"""

    part: PartOf
    share: float
    saves: list[Edge]


class Network:
    """A graph, and what its layers read of one another."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.edges = [[self._edge(name, layer.index) for name in self._read(layer.index)] for layer in graph.layers]

    def inside(self, parts: Sequence[PartOf]) -> Iterator[InSegment]:
        """The parts of a segment, in order."""
        made: set[int] = set()
        for part in parts:
            share = (part.stop - part.start) / extent(self.graph, self.graph.layers[part.layer], part.axis)
            yield InSegment(part, share, [edge for edge in self.edges[part.layer] if edge.maker in made])
            made.add(part.layer)

    def _read(self, layer: int) -> list[str]:
        """Tensors that other layers make, as often as the layer reads them."""
        return [name for name in self.graph.activations(self.graph.layers[layer]) if name in self.graph.producer]

    def _edge(self, name: str, reader: int) -> Edge:
        maker, layers = self.graph.producer[name], self.graph.layers
        pair = coefficients.pair(self.graph, layers[maker], layers[reader])
        return Edge(maker, pair, float(self.graph.tensors[name].size_bytes))


class Clock:
    """A graph's segments on a unit."""

    def __init__(self, network: Network, unit: UnitCost) -> None:
        self.network, self.gains = network, unit.gains
        self.rows = [row(network.graph, layer, unit, 1.0) for layer in network.graph.layers]

    def seconds(self, parts: Sequence[PartOf]) -> float:
        """Of a segment of these parts."""
        return sum(self.each(parts))

    def each(self, parts: Sequence[PartOf]) -> list[float]:
        """Of every part of the segment."""
        return [max(0.0, self._alone(p) - p.share * self._saved(p)) for p in self.network.inside(parts)]

    def _alone(self, p: InSegment) -> float:
        costs, split = self.rows[p.part.layer], SPLIT + 2 * p.part.axis
        return costs[WHOLE] if p.share == 1 else costs[split] + costs[split + 1] * p.share

    def _saved(self, p: InSegment) -> float:
        saved = 0.0
        for edge in p.saves:
            once, per_byte = self.gains.get(edge.pair, (0.0, 0.0))
            saved += once + per_byte * edge.size_bytes
        return saved


def predict(graph: Graph, parts: Sequence[PartOf], unit: UnitCost) -> float:
    """Seconds of one segment. For many of a graph make a ``Clock``."""
    return Clock(Network(graph), unit).seconds(parts)
