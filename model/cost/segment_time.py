"""Seconds of a segment, in plain words: the formula that ``model.cost.seconds`` has compiled, but for what rest saves
(``model.cost.rest``) and devices of one memory take from one another (``model.cost.crowding``).

    time(segment) = sum over its parts of  alone(part) + joins(part) - share(part) * sum of gains over the edges inside

``alone`` is the time of a segment of that part only, with the start of its session and the layouts at its borders:
``whole_s`` of its kernel, or ``fixed + slope * share`` where the layer is split; a share of channels with all those of
its last vector, and by other numbers where they are computed singly (``model.cost.vectors``). An edge is inside where a
part before in the same segment made of what this one reads: kernels fuse, layouts stay, no session starts. An edge may
save more than its reader takes: a Relu becomes part of the convolution before it, which then need not put its output
into another layout either. Nor need a convolution its input where that goes back to others in the segment
(``model.network.relayout``): so many seconds a byte of it are saved. What a part saves is never more than all parts
before it took.

Gains of edges that were not measured are a part of what the shorter of both layers takes, by pair of kinds.

Where a layer was made in parts that do not lie side by side in memory, its reader puts them together first, or adds
them: that comes on top (``joins`` of the unit, by axis), of all of it where each part of the reader needs all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from types import MappingProxyType
from typing import NamedTuple

from model.cluster.coefficients import UnitCost
from model.cost.costs import QUARTER, SPLIT, VECTOR, WHOLE
from model.cost.edge_costs import apart
from model.cost.edges import Edge, edges_of
from model.cost.held_weights import Weights
from model.cost.layer_costs import rows
from model.cost.samples import PartOf
from model.cost.vectors import filled, split_of
from model.network import boxes
from model.network.graph import Graph
from model.network.signature import signatures


class Join(NamedTuple):
    """Parts that are put together for a part of a reader: axis along which they are, bytes that are read for it."""

    axis: int
    size_bytes: float


class InSegment(NamedTuple):
    """A part as it stands in a segment. share: of the layer, 1 where it is whole; saves: edges from parts before it;
    kept_bytes: that it reads in the layout of its own"""

    part: PartOf
    share: float
    saves: list[Edge]
    joins: list[Join]
    kept_bytes: float

    def split(self, vector: float, quarter: float) -> tuple[int, float]:
        """How it is split, ``SINGLY`` too, and the share that is computed, where so many channels are at a time."""
        channels = self.part.stop - self.part.start
        kind = split_of(self.part.axis, channels, quarter)
        return kind, self.share * filled(channels, vector) if kind == boxes.CHANNELS else self.share


Divided = Mapping[int, tuple[int, int]]
"""Layers that are made in parts: axis, and how many parts."""
NOTHING: Divided = MappingProxyType({})


class Network:
    """A graph, and what its layers read of one another."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.names = graph, signatures(graph)
        self.edges = edges_of(graph, self.names)

    @cached_property
    def weights(self) -> Weights:
        """Of its layers, and of parts of them."""
        return Weights(self.graph)

    def inside(self, parts: Sequence[PartOf], divided: Divided = NOTHING) -> Iterator[InSegment]:
        """The parts of a segment, in order. divided: layers of the whole mapping that are"""
        made: set[int] = set()
        for part in parts:
            edges = self.edges[part.layer]
            joins = [j for edge in edges if edge.maker in divided for j in self._join(edge, divided[edge.maker], part)]
            saves = [edge for edge in edges if edge.maker in made]
            kept = sum(edge.size_bytes for edge in saves if edge.origin in made)
            yield InSegment(part, part.share(self.graph), saves, joins, kept)
            made.add(part.layer)

    def divided(self, parts: Iterable[PartOf]) -> Divided:
        """The layers that are made in parts, of all parts of a mapping."""
        found: dict[int, tuple[int, int]] = {}
        for part in (part for part in parts if part.share(self.graph) < 1):
            found[part.layer] = part.axis, found.get(part.layer, (part.axis, 0))[1] + 1
        return found

    def _join(self, edge: Edge, made: tuple[int, int], reader: PartOf) -> list[Join]:
        """Partial sums are read each; other parts are copied where something lies between the rows of one."""
        axis, count = made
        if not apart(self.graph, self.graph.layers[edge.maker], axis):
            return []
        read = 1.0 if reader.axis in edge.whole_for else reader.share(self.graph)
        return [Join(axis, edge.size_bytes * read * (count if axis == boxes.PARTIAL else 1))]


class Clock:
    """A graph's segments on a unit."""

    def __init__(self, network: Network, unit: UnitCost) -> None:
        self.network, self.unit, self.joins = network, unit, unit.joins
        self.rows = rows(network.graph, network.names, unit, 1.0)

    def seconds(self, parts: Sequence[PartOf], divided: Divided = NOTHING) -> float:
        """Of a segment of these parts. divided: layers of the whole mapping that are"""
        return reduce(lambda before, part_s: max(0.0, before + part_s), self.each(parts, divided), 0.0)

    def each(self, parts: Sequence[PartOf], divided: Divided = NOTHING) -> list[float]:
        """What each part adds to the segment; less than 0 where it saves its maker more than it takes."""
        inside = self.network.inside(parts, divided)
        return [self._alone(p) + self._joined(p) - p.share * self._saved(p) for p in inside]

    def _alone(self, p: InSegment) -> float:
        costs = self.rows[p.part.layer]
        kind, computed = p.split(costs[VECTOR], costs[QUARTER])
        split = SPLIT + 2 * kind
        return costs[WHOLE] if p.share == 1 else costs[split] + costs[split + 1] * computed

    def _joined(self, p: InSegment) -> float:
        return sum(self.joins.get(join.axis, 0.0) * join.size_bytes for join in p.joins)

    def _saved(self, p: InSegment) -> float:
        alone = self.rows[p.part.layer][WHOLE]
        gained = sum(self.unit.gain(e.name, e.pair, min(e.part * alone, self.rows[e.maker][WHOLE])) for e in p.saves)
        return gained + self.unit.relayout_s_per_byte * p.kept_bytes


def predict(graph: Graph, parts: Sequence[PartOf], unit: UnitCost) -> float:
    """Seconds of one segment. For many of a graph make a ``Clock``."""
    return Clock(Network(graph), unit).seconds(parts)
