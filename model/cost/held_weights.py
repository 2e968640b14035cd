"""Weights that a rank holds, by kind of layer and by segment: what its memory is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from model.cost import costs
from model.cost.samples import PartOf
from model.mappings.arrays import arrays
from model.network import layer_kinds
from model.network.graph import Graph


@dataclass(frozen=True)
class Held:
    """Bytes of weights on a device. by_kind: of layers, or their parts; opening_bytes: see ``ledger.OPENING``"""

    by_kind: dict[str, float]
    opening_bytes: float


class Weights:
    """The weights of a graph, as ``model.cost.spending`` has them; coefficients have no part in it."""

    def __init__(self, graph: Graph) -> None:
        self.graph, g = graph, arrays(graph)
        self._cut, self._kept = (table[g.n_inputs :] for table in costs.weights(graph, g))

    def held(self, segments: Sequence[Sequence[PartOf]]) -> Held:
        """Of the segments of one rank, in the order in which they are opened."""
        by_kind: dict[str, float] = {}
        for part in (part for parts in segments for part in parts):
            kind = self._kind(part)
            by_kind[kind] = by_kind.get(kind, 0.0) + self.of(part)
        so_far, most = 0.0, 0.0
        for parts in segments:
            sizes = [self.of(part) for part in parts]
            so_far += sum(sizes)
            rebuilt = [layer_kinds.rebuilt(self._kind(p)) * size for p, size in zip(parts, sizes, strict=True)]
            most = max(most, so_far + max([sum(rebuilt) + layer_kinds.COPIES * max(rebuilt, default=0.0), *sizes]))
        return Held({kind: size for kind, size in by_kind.items() if size}, most - so_far)

    def _kind(self, part: PartOf) -> str:
        kind = layer_kinds.kind(self.graph, self.graph.layers[part.layer])
        return kind if part.share(self.graph) == 1 else layer_kinds.part_of(kind)

    def of(self, part: PartOf) -> float:
        """Bytes that a part has."""
        return float(self._cut[part.layer, part.axis] * part.share(self.graph) + self._kept[part.layer, part.axis])
