"""Pareto local search (Paquete, Chiarandini and Stützle, 2004): a front made better by small changes of its mappings.

Where NSGA-II ends, better mappings are often a gene away, and much of its time goes into sorting a population. A round
here takes little longer than to score what is new in it.
"""

from __future__ import annotations

from collections.abc import Callable

import moocore
import numpy as np
from numpy.typing import NDArray

from dse.evaluation import Judge
from dse.settings import Settings
from dse.variation import mutated, unseen

BEST, OTHERS = 2, 24
"""Of each objective the best points, and points at random, whose children a round looks at."""


def bettered(
    judge: Judge,
    genes: NDArray[np.int32],
    settings: Settings,
    rounds: int,
    progress: Callable[[int, NDArray[np.float64]], None] = lambda *_: None,
) -> tuple[NDArray[np.int32], NDArray[np.float64], int]:
    """The front of ``(n, n_genes)`` mappings that fit and of their children, theirs and so on.

    A round draws as many children as a population has, and scores those that it has not had; about half are.
    progress: called after each round with its number (from 1) and the best value of each objective

    Returns ``(k, n_genes)`` genes, ``(k, 4)`` scores, and how many children were scored.
    """
    chromosome, rng = judge.chromosome, np.random.default_rng(settings.seed)
    genes, scores = undominated(genes, judge(genes)[0], settings.columns)
    seen = set[bytes]()
    given = int(unseen(genes, seen).sum())
    for number in range(1, rounds + 1):
        parents = np.resize(_parents(scores[:, settings.columns], rng), settings.population)
        children = mutated(genes[parents], chromosome.upper, chromosome.of_points, rng).astype(np.int32)
        children = children[unseen(children, seen)]
        theirs, excess = judge(children)
        fits = excess <= 0
        genes, scores = np.vstack([genes, children[fits]]), np.vstack([scores, theirs[fits]])
        genes, scores = undominated(genes, scores, settings.columns)
        progress(number, scores.min(axis=0))
    return genes, scores, len(seen) - given


def _parents(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.integer]:
    """Which of ``(n, objectives)`` points have children, in any order: a small population has not room for all."""
    best = np.argsort(values, axis=0, kind="stable")[:BEST]
    return rng.permutation(np.concatenate([best.ravel(), rng.integers(0, len(values), OTHERS)]))


def undominated(
    genes: NDArray[np.int32], scores: NDArray[np.float64], columns: list[int]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Of ``(n, n_genes)`` mappings and ``(n, 4)`` scores those that no other dominates; of equal ones the first."""
    keep = moocore.is_nondominated(scores[:, columns], keep_weakly=False) if len(scores) else []
    return genes[keep], scores[keep]
