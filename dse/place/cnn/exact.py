"""The best way to place a CNN on a platform, and how far from it one may be."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dse.chromosomes import Chromosome
from dse.evaluation import OBJECTIVES, evaluate, unfit
from dse.place.cnn.bounds import Proven, bounds
from dse.place.cnn.cuts import Line, line
from dse.place.cnn.limits import FREE, Limits
from dse.place.cnn.polish import improved
from dse.place.cnn.seeds import tighter, within
from dse.units import enough, shown
from model.cost.costs import CostArrays
from model.mappings.arrays import Floats
from model.mappings.mapping import Mapping
from runtime.errors import CleaveError

LOWER, STEPS = 0.8, 30
"""From one limit that chains are looked for in to the next, where those with the least time take too much."""
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
    on, column = line(chromosome, costs), OBJECTIVES.index(objective)
    genes = candidates(on, limits)
    if not _kept(limits, *evaluate(chromosome, costs, genes, evaluator)).any():
        genes = np.vstack([genes, sparing(on, limits)])
    genes = np.vstack([genes, improved(chromosome, costs, genes, column, limits)])
    scores, excess = evaluate(chromosome, costs, genes, evaluator)
    kept = _kept(limits, scores, excess)
    if not kept.any():
        raise CleaveError(*_beyond(limits, scores, excess))
    best = int(np.argmin(np.where(kept, scores[:, column], np.inf)))
    below = bounds(chromosome, costs, limits)[objective]
    return Exact(chromosome.decode(genes[best]), scores[best], objective, Proven(float(scores[best, column]), below))


def candidates(on: Line, limits: Limits) -> NDArray[np.int64]:
    """``(n, n_genes)``, also some that keep to no limits."""
    return within([*tighter(on), *tighter(replace(on, limits=limits))])


def sparing(on: Line, limits: Limits) -> NDArray[np.int64]:
    """``(n, n_genes)`` where the quickest take too much: chains that spare what is limited, and what chance has drawn.

    The chains are of many limits, from what all layers take on one device to next to nothing: what can be had does not
    depend on what is asked for.
    """
    lower = [
        FREE._replace(**{name: most * LOWER**step})
        for name, most in zip(limits._fields, on.most, strict=True)
        for step in range(STEPS)
    ]
    chains, upper = within([replace(on, limits=each) for each in lower]), on.chromosome.upper
    return np.vstack([chains, np.random.default_rng(0).integers(0, upper + 1, (DRAWN, len(upper)))])


def _kept(limits: Limits, scores: Floats, excess: Floats) -> NDArray[np.bool_]:
    """(n,) which fit and keep to limits."""
    return limits.beyond(scores, excess) == 0


def _beyond(limits: Limits, scores: Floats, excess: Floats) -> list[str]:
    """What is the least that was found of what is limited, or of memory."""
    if (excess > 0).all():
        return [unfit(excess.min())]
    least = scores[excess <= 0][:, [OBJECTIVES.index(name) for name in limits._fields]].min(axis=0)
    return [
        f"no mapping was found with at most {shown(name, most)} a device: the least found is {enough(name, found)}"
        for name, most, found in zip(limits._fields, limits, least, strict=True)
        if found > most
    ] or ["no mapping was found that keeps to both limits; raise one of them"]
