"""How to search: what a user asks for."""

from __future__ import annotations

from dataclasses import dataclass

from dse.evaluation import BOTH, OBJECTIVES


@dataclass(frozen=True)
class Settings:
    """How to search.

    objectives: two or more of ``OBJECTIVES``
    head_start: the first population holds the mappings of ``head_start``, the rest is random
    evaluator: whose scores, one of ``EVALUATORS``; both: the analytical model's in NSGA-II, whose front is then scored
               by the simulator, as is what the local search looks at
    exact_seeds: a head start has the chains of layers with the least period and latency, too, and better ones yet
    local_search: the front is made better by small changes of its mappings, in as many rounds as there were generations
    """

    population: int = 1000
    generations: int = 100
    seed: int = 0
    objectives: tuple[str, ...] = ("latency_s", "energy_j", "memory_bytes")
    head_start: bool = True
    evaluator: str = BOTH
    exact_seeds: bool = True
    local_search: bool = True

    @property
    def columns(self) -> list[int]:
        """Of the scores, those of the objectives."""
        return [OBJECTIVES.index(name) for name in self.objectives]
