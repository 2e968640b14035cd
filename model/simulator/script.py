"""The plan of a simulated mapping beside its events: which step of which rank is which task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from model.cluster.platform import Platform
from model.cost.case import Case
from model.mappings.mapping import Mapping
from model.mappings.planning import plan
from model.network.graph import Graph
from model.simulator.simulated import Simulated
from runtime.plan import Plan, Recv, Run, Send


@dataclass(frozen=True, eq=False)
class Script:
    """devices: of each rank, its number on the platform"""

    plan: Plan
    found: Simulated
    graph: Graph
    devices: Sequence[int]

    @staticmethod
    def of(found: Simulated, graph: Graph, platform: Platform, mapping: Mapping) -> Script:
        """Of the graph, platform and mapping that were simulated."""
        return Script(plan(graph, platform, mapping).plan, found, graph, mapping.devices)

    @property
    def case(self) -> Case:
        """The arrays that both were made from."""
        return self.found.case

    def message(self, rank: int, step: Recv | Send) -> int:
        """The number of the message that a rank sends or receives in a step."""
        return self._messages[(rank, step.dest, step.tag) if isinstance(step, Send) else (step.source, rank, step.tag)]

    @cached_property
    def _messages(self) -> dict[tuple[int, int, int], int]:
        """By sending rank, receiving rank and tag, which counts those of two ranks from 0."""
        rank_of = {device: rank for rank, device in enumerate(self.devices)}
        found: dict[tuple[int, int, int], int] = {}
        tags: dict[tuple[int, int], int] = {}
        s, m = self.case.shards, self.case.messages
        for message in range(self.case.sent):
            pair = (rank_of[int(s.device[m.shard[message]])], rank_of[int(m.device[message])])
            tags[pair] = tags.get(pair, -1) + 1
            found[*pair, tags[pair]] = message
        return found

    @cached_property
    def sends(self) -> dict[int, tuple[int, Send]]:
        """Rank and step of each message."""
        steps = ((r.rank, step) for r in self.plan.ranks for step in r.steps if isinstance(step, Send))
        return {self.message(rank, step): (rank, step) for rank, step in steps}

    @cached_property
    def runs(self) -> dict[int, Run]:
        """Segments by their task."""
        return {task: run for r in self.plan.ranks for run in r.runs if (task := self.task(r.rank, run)) is not None}

    def task(self, rank: int, run: Run) -> int | None:
        """The task that a rank's segment is; one that only puts pieces together takes no time here, and is none."""
        if not run.parts:
            return None
        return self._tasks[run.parts[0].layer, self.devices[rank], run.parts[0].start]

    @cached_property
    def _tasks(self) -> dict[tuple[str, int, int], int]:
        """By layer, device and start of a shard."""
        s, g, segment = self.case.shards, self.case.g, self.found.alone.segment
        return {
            (layer.name, int(s.device[shard]), int(s.start[shard])): int(segment[shard])
            for task, layer in enumerate(self.graph.layers, g.n_inputs)
            for shard in range(s.ptr[task], s.ptr[task + 1])
        }
