"""Mappings made better a gene at a time: chains are laid out as if messages never met and nobody waited in a circle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dse.chromosomes import Chromosome
from dse.evaluation import evaluate
from dse.place.cnn.limits import Limits
from model.cost.costs import ROUNDING, CostArrays
from model.mappings.arrays import Floats

POLISHED, GENES = 10, 1000
"""So many of the best candidates are made better, fewer where they have more genes together: at least one."""
STEPS = 50
MOST = 2000
"""Neighbours that are looked at in a step; of more, some are drawn."""


def improved(
    chromosome: Chromosome, costs: CostArrays, genes: NDArray[np.integer], column: int, limits: Limits
) -> NDArray[np.int32]:
    """``(k, n_genes)``, the best of ``(n, n_genes)`` as ``polished`` has it, each made better."""
    best = np.lexsort(_standing(chromosome, costs, genes, column, limits)[::-1])
    first = genes[best[: min(POLISHED, max(GENES // chromosome.n_genes, 1))]]
    better = [polished(chromosome, costs, each, column, limits) for each in first]
    return np.array(better, dtype=np.int32).reshape(-1, chromosome.n_genes)


def polished(
    chromosome: Chromosome, costs: CostArrays, genes: NDArray[np.integer], column: int, limits: Limits
) -> NDArray[np.int32]:
    """``(n_genes,)`` that no neighbour looked at is better than, or after so many steps; by the analytical model.

    Better is who takes less of what is limited, or of memory, too much; then whose score is smaller.
    column: of the scores
    """
    rng, best = np.random.default_rng(0), np.asarray(genes, dtype=np.int32)
    (beyond,), (least,) = _standing(chromosome, costs, best[None], column, limits)
    for _ in range(STEPS):
        near = neighbours(chromosome, best, rng)
        further, value = _standing(chromosome, costs, near, column, limits)
        better = (further < beyond * (1 - ROUNDING)) | ((further <= beyond) & (value < least * (1 - ROUNDING)))
        if not better.any():
            break
        k = np.lexsort((value, further, ~better))[0]
        best, beyond, least = near[k], further[k], value[k]
    return best


def _standing(
    chromosome: Chromosome, costs: CostArrays, genes: NDArray[np.integer], column: int, limits: Limits
) -> tuple[Floats, Floats]:
    """(n,) what each takes too much, and its score."""
    scores, excess = evaluate(chromosome, costs, genes)
    return limits.beyond(scores, excess), scores[:, column]


def neighbours(chromosome: Chromosome, genes: NDArray[np.int32], rng: np.random.Generator) -> NDArray[np.int32]:
    """``(n, n_genes)`` with one gene moved by a power of two, or two genes exchanged; n is at most ``MOST``."""
    steps = 2 ** np.arange(int(chromosome.upper.max()).bit_length())
    at, step = np.indices((len(genes), 2 * len(steps))).reshape(2, -1)
    moved = genes[at] + np.concatenate([steps, -steps])[step]
    one, other = np.triu_indices(len(genes), 1)
    first, to = np.concatenate([at, one]), np.concatenate([moved, genes[other]])
    second, back = np.concatenate([at, other]), np.concatenate([moved, genes[one]])
    upper = chromosome.upper
    may = np.flatnonzero((to != genes[first]) & (to >= 0) & (to <= upper[first]) & (back <= upper[second]))
    may = may if len(may) <= MOST else may[rng.choice(len(may), MOST, replace=False)]
    near, row = np.repeat(genes[None], len(may), axis=0), np.arange(len(may))
    near[row, first[may]], near[row, second[may]] = to[may], back[may]
    return near
