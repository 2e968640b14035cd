"""Mappings made better a gene at a time: chains are laid out as if messages never met and nobody waited in a circle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dse.chromosomes import Chromosome
from dse.evaluation import evaluate
from dse.place.cnn.limits import Limits
from model.cost.costs import ROUNDING, CostArrays

STEPS = 50
MOST = 2000
"""Neighbours that are looked at in a step; of more, some are drawn."""


def polished(
    chromosome: Chromosome, costs: CostArrays, genes: NDArray[np.integer], column: int, limits: Limits
) -> NDArray[np.int32]:
    """``(n_genes,)`` that no neighbour is better than, or after so many steps; by the analytical model.

    column: of the scores, which is to be small
    """
    rng, best = np.random.default_rng(0), np.asarray(genes, dtype=np.int32)
    least = evaluate(chromosome, costs, best[None])[0][0, column]
    for _ in range(STEPS):
        near = neighbours(chromosome, best)
        near = near if len(near) <= MOST else near[rng.choice(len(near), MOST, replace=False)]
        scores, excess = evaluate(chromosome, costs, near)
        value = np.where((excess <= 0) & limits.kept(scores), scores[:, column], np.inf)
        if not (value < least * (1 - ROUNDING)).any():
            break
        k = int(np.argmin(value))
        best, least = near[k], value[k]
    return best


def neighbours(chromosome: Chromosome, genes: NDArray[np.int32]) -> NDArray[np.int32]:
    """``(n, n_genes)`` with one gene moved by a power of two, or two genes exchanged."""
    upper = chromosome.upper
    steps = 2 ** np.arange(int(upper.max()).bit_length())
    at, to = np.nonzero(np.ones((len(genes), 2 * len(steps)), dtype=bool))
    moved = np.repeat(genes[None], len(at), axis=0)
    moved[np.arange(len(at)), at] += np.concatenate([steps, -steps]).astype(np.int32)[to]
    moved = moved[((moved >= 0) & (moved <= upper)).all(axis=1)]
    one, other = np.triu_indices(len(genes), 1)
    differ = (genes[one] != genes[other]) & (genes[one] <= upper[other]) & (genes[other] <= upper[one])
    one, other = one[differ], other[differ]
    exchanged = np.repeat(genes[None], len(one), axis=0)
    row = np.arange(len(one))
    exchanged[row, one], exchanged[row, other] = genes[other], genes[one]
    return np.concatenate([moved, exchanged])
