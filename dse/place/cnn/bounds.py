"""What no mapping of a kind can beat, by the very costs that score mappings: the other side of what a search finds."""

from __future__ import annotations

from dataclasses import dataclass

from dse.chromosomes import NAIVE, Chromosome
from dse.place.cnn.chains import chains, team
from dse.place.cnn.cuts import MOST_STEPS, line, places
from dse.place.cnn.kinds import alike, counts, least_of, merged
from dse.place.cnn.limits import FREE, Limits
from dse.place.cnn.relaxed import largest_bound, parts, path_bound, work_bound
from dse.place.cnn.shared import shared_loads
from dse.place.cnn.wires import wires
from model.cost.costs import ROUNDING, CostArrays, never_tired


@dataclass(frozen=True)
class Proven:
    """The best value of an objective that was found, and what no mapping of the kind goes below; seconds."""

    value: float
    bound: float

    @property
    def gap(self) -> float | None:
        """By which part the value is above the bound at most; None where the bound says nothing."""
        return max(0.0, self.value / self.bound - 1) if self.bound > 0 else None


def proven(best: dict[str, float], below: dict[str, float]) -> dict[str, Proven]:
    """By objective, from its best value and its bound."""
    return {objective: Proven(best[objective], bound) for objective, bound in below.items()}


def bounds(chromosome: Chromosome, costs: CostArrays, limits: Limits = FREE) -> dict[str, float]:
    """Seconds by objective that no mapping of the chromosome goes below, whoever scores it.

    limits: that mappings keep to; they raise the bounds of chains of whole layers
    """
    costs = never_tired(costs)
    splits = most_parts(chromosome)
    found = relaxed(chromosome, costs, splits)
    if splits == 1 and chromosome.coding.kind != NAIVE:
        on = line(chromosome, costs, limits)
        chained = {"latency_s": on.latency()[0], "period_s": on.period()}
        found = {objective: max(value, chained[objective]) for objective, value in found.items()}
    elif chromosome.coding.kind != NAIVE:
        found["period_s"] = max(found["period_s"], shared_period(chromosome, costs))
    return {objective: float(value) * (1 - ROUNDING) for objective, value in found.items()}


def relaxed(chromosome: Chromosome, costs: CostArrays, splits: int) -> dict[str, float]:
    """Of mappings with any layer on any device, in so many parts at most."""
    g, w = chromosome.g, wires(costs)
    p = parts(g, costs, splits)
    return {
        "latency_s": path_bound(g, p, w, splits),
        "period_s": max(work_bound(g, costs, p, alike(costs, w)), largest_bound(p, splits)),
    }


def shared_period(chromosome: Chromosome, costs: CostArrays) -> float:
    """Of mappings by split points: each device has a stretch of its own, and parts of others' layers."""
    g, w, cuts = chromosome.g, wires(costs), places(chromosome)
    kinds = alike(costs, w)
    groups = merged(kinds, costs, MOST_STEPS / len(cuts) ** 2)
    p = parts(g, costs, chromosome.coding.rows)
    busy = shared_loads(g, chromosome.coding, p, w, cuts, [kind[0] for kind in kinds])
    table = chains(least_of(busy, kinds, groups), team(counts(groups)), add=False)
    return float(table.value[:, -1].min())


def most_parts(chromosome: Chromosome) -> int:
    """Of a layer, in any mapping of a chromosome."""
    coding = chromosome.coding
    return coding.devices if coding.kind == NAIVE else coding.rows
