"""Pareto local search (Paquete, Chiarandini and Stützle, 2004): a front made better by small changes of its mappings.

Where NSGA-II ends, better mappings are often a gene away, and most of its time goes into sorting a population. A round
here takes little longer than to score it, so that as many mappings as all generations had take a tenth of their time.
"""

from __future__ import annotations

from collections.abc import Callable

import moocore
import numpy as np
from numpy.typing import NDArray

from dse.chromosomes import POINTS
from dse.evaluation import Judge
from dse.operators import ChangeGenes
from dse.settings import Settings

BEST, OTHERS = 2, 24
"""Of each objective the best points, and points at random, whose children a round looks at."""


def improved(
    judge: Judge,
    genes: NDArray[np.int32],
    settings: Settings,
    rounds: int,
    progress: Callable[[int, NDArray[np.float64]], None] = lambda *_: None,
) -> tuple[NDArray[np.int32], NDArray[np.float64], int]:
    """The front of ``(n, n_genes)`` mappings that fit and of as many children a round as a population has.

    progress: called after each round with its number (from 1) and the best value of each objective

    Returns ``(k, n_genes)`` genes, ``(k, 4)`` scores, and how many children were scored.
    """
    rng, change = np.random.default_rng(settings.seed), ChangeGenes(judge.chromosome.coding.kind == POINTS)
    genes, scores = _front(genes, judge(genes)[0], settings.columns)
    scored = 0
    for round_ in range(1, rounds + 1):
        parents = np.resize(genes[_parents(scores[:, settings.columns], rng)], (settings.population, genes.shape[1]))
        children = np.unique(change.changed(parents, judge.chromosome.upper, rng).astype(np.int32), axis=0)
        theirs, excess = judge(children)
        fits = excess <= 0
        genes, scores = np.vstack([genes, children[fits]]), np.vstack([scores, theirs[fits]])
        genes, scores = _front(genes, scores, settings.columns)
        scored += len(children)
        progress(round_, scores.min(axis=0))
    return genes, scores, scored


def _parents(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.integer]:
    """Which of ``(n, objectives)`` points have children."""
    best = np.argsort(values, axis=0, kind="stable")[:BEST].T.ravel()
    return np.concatenate([best, rng.integers(0, len(values), OTHERS)])


def _front(genes: NDArray[np.int32], scores: NDArray[np.float64], columns: list[int]) -> tuple[NDArray, NDArray]:
    """What no other dominates; of equal ones the first."""
    keep = moocore.is_nondominated(scores[:, columns], keep_weakly=False)
    return genes[keep], scores[keep]
