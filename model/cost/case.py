"""One mapping, ready to be priced or simulated: lowered, with what things cost and a ledger to fill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from model.cluster.platform import Platform
from model.cost.costs import CostArrays, costs
from model.cost.ledger import Ledger, ledger
from model.mappings.arrays import GraphArrays, arrays
from model.mappings.lowering import Messages, Room, Shards, lowered, room, shards_of
from model.mappings.mapping import Mapping
from model.network.graph import Graph


@dataclass(frozen=True, eq=False)
class Case:
    """A mapping as arrays. size: what its ledger, or a simulation of it, needs room for"""

    g: GraphArrays
    shards: Shards
    messages: Messages
    costs: CostArrays
    size: Room
    ledger: Ledger

    @staticmethod
    def of(graph: Graph, platform: Platform, mapping: Mapping) -> Case:
        """Lower a checked mapping."""
        return Case.maker(graph, platform)(mapping)

    @staticmethod
    def maker(graph: Graph, platform: Platform) -> Callable[[Mapping], Case]:
        """``of`` for many mappings: what things cost is worked out once."""
        g = arrays(graph)
        shared, devices = costs(graph, g, platform), len(platform.devices)

        def of(mapping: Mapping) -> Case:
            shards = shards_of(g, mapping)
            size = room(g, np.diff(shards.ptr).astype(np.int64), devices)
            return Case(g, shards, lowered(g, shards, devices), shared, size, ledger(size))

        return of

    @property
    def sent(self) -> int:
        """How many messages there are."""
        return int(self.messages.out_ptr[len(self.shards.device)])

    def at(self, costs: CostArrays) -> Case:
        """The same at other costs, with a ledger of its own."""
        return replace(self, costs=costs, ledger=ledger(self.size))

    def share(self, task: int, shard: int) -> float:
        """The part of its task's work that a shard does."""
        s = self.shards
        if s.ptr[task + 1] - s.ptr[task] == 1:
            return 1.0
        return float((s.stop[shard] - s.start[shard]) / self.g.size[task, s.kind[task]])
