"""The best way to place a CNN on a platform, and how far from it one may be."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dse.chromosomes import Chromosome
from dse.evaluation import OBJECTIVES, evaluate
from dse.place.cnn.bounds import Proven, bounds
from dse.place.cnn.cuts import Line, line
from dse.place.cnn.limits import FREE, Limits
from dse.place.cnn.polish import improved
from dse.place.cnn.seeds import within
from dse.units import shown
from model.cost.costs import CostArrays
from model.mappings.arrays import Floats
from model.mappings.mapping import Mapping
from runtime.errors import CleaveError

TIGHTER = (1.0, 0.9, 0.8, 0.65, 0.5)
"""Parts of a limited memory that chains are looked for in: what they take besides weights is known only then."""
DRAWN = 10_000
"""Random mappings that are tried where no chain keeps to memory and limits."""


@dataclass(frozen=True, eq=False)
class Exact:
    """The best that was found. scores: (4,), see ``OBJECTIVES``"""

    mapping: Mapping
    scores: Floats
    objective: str
    proven: Proven


def exact(chromosome: Chromosome, costs: CostArrays, objective: str, evaluator: str, limits: Limits = FREE) -> Exact:
    """The mapping with the least ``objective`` (one of ``OBJECTIVES``, a time) that keeps to limits.

    Exact where all layers are whole and memory does not bind, but for chains whose time is only known to a bound.
    ``CleaveError`` where no mapping that was found keeps to them.
    """
    on = line(chromosome, costs)
    genes = candidates(on, limits)
    scores = evaluate(chromosome, costs, genes, evaluator)[0]
    if not limits.kept(scores).any():
        genes = np.vstack([genes, sparing(on, limits)])
        scores = evaluate(chromosome, costs, genes, evaluator)[0]
    if not len(genes):
        raise CleaveError("no mapping was found that fits the memory of these devices")
    kept = np.flatnonzero(limits.kept(scores))
    if not len(kept):
        raise CleaveError(*_beyond(limits, scores))
    column = OBJECTIVES.index(objective)
    first = kept[np.argsort(scores[kept, column], kind="stable")]
    better = improved(chromosome, costs, genes[first], column, limits)
    genes = np.vstack([genes[first], better])
    scores = np.vstack([scores[first], evaluate(chromosome, costs, better, evaluator)[0]])
    best = int(np.argmin(np.where(limits.kept(scores), scores[:, column], np.inf)))
    below = bounds(chromosome, costs, limits)[objective]
    return Exact(chromosome.decode(genes[best]), scores[best], objective, Proven(float(scores[best, column]), below))


def candidates(on: Line, limits: Limits) -> NDArray[np.int64]:
    """``(n, n_genes)``, also some that keep to no limits: they tell what can be had."""
    return _within(on, [FREE, *(limits.tightened(part) for part in TIGHTER)])


def sparing(on: Line, limits: Limits) -> NDArray[np.int64]:
    """``(n, n_genes)`` where the quickest take too much: chains that leave memory free, and what chance has drawn."""
    chromosome, costs = on.chromosome, on.costs
    most = limits._replace(memory_bytes=min(limits.memory_bytes, float(costs.capacity.max())))
    chains = _within(on, [most.tightened(part) for part in TIGHTER])
    drawn = np.random.default_rng(0).integers(0, chromosome.upper + 1, (DRAWN, chromosome.n_genes))
    return np.vstack([chains, drawn[evaluate(chromosome, costs, drawn)[1] <= 0]])


def _within(on: Line, tried: list[Limits]) -> NDArray[np.int64]:
    return np.unique(np.vstack([within(replace(on, limits=each)) for each in dict.fromkeys(tried)]), axis=0)


def _beyond(limits: Limits, scores: Floats) -> list[str]:
    """What is the least that was found of what is limited."""
    least = scores[:, [OBJECTIVES.index(name) for name in limits._fields]].min(axis=0)
    return [
        f"no mapping was found with at most {shown(name, most)} a device: the least found is {shown(name, found)}"
        for name, most, found in zip(limits._fields, limits, least, strict=True)
        if found > most
    ] or ["no mapping was found that keeps to both limits; raise one of them"]
