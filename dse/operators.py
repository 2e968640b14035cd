"""Genetic operators on integer chromosomes, and the removal of duplicates, as pymoo has them.

Genes name devices or split points: between two of them there is no meaningful average, so parents exchange genes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pymoo.core.crossover import Crossover
from pymoo.core.duplicate import DuplicateElimination
from pymoo.core.mutation import Mutation
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.core.sampling import Sampling

from dse.variation import Genes, mutated, unseen


class RandomGenes(Sampling):
    """A first population: ``first`` rows as given, the rest random; half of the zeros-allowed genes start at 0.

    first: (k, n_genes) individuals worth starting from, k may be 0
    sparse: whether gene 0 means "takes no part", which half of the random genes then are
    """

    def __init__(self, first: Genes, sparse: bool) -> None:
        super().__init__()
        self.first, self.sparse = first, sparse

    def _do(self, problem: Problem, n_samples: int, *, random_state: np.random.Generator, **_: object) -> Genes:
        genes = random_state.integers(0, problem.xu + 1, size=(n_samples, problem.n_var))
        if self.sparse:
            genes[random_state.random(genes.shape) < 0.5] = 0
        given = self.first[:n_samples]
        genes[: len(given)] = given
        return genes


class ExchangeGenes(Crossover):
    """Children take each gene from one parent or the other (half of the pairs), or swap one stretch of genes."""

    def __init__(self) -> None:
        super().__init__(2, 2, prob=0.9)

    def _do(self, _: Problem, X: Genes, *, random_state: np.random.Generator, **__: object) -> Genes:
        """``(2, n_pairs, n_genes)`` parents in, children of that shape out."""
        _two, pairs, n = X.shape
        ends = np.sort(random_state.integers(0, n + 1, size=(pairs, 2)), axis=1)
        index = np.arange(n)
        stretch = (index >= ends[:, :1]) & (index < ends[:, 1:])
        each = random_state.random((pairs, n)) < 0.5
        swap = np.where(random_state.random((pairs, 1)) < 0.5, each, stretch)
        return np.where(swap[None], X[::-1], X)


class ChangeGenes(Mutation):
    """``variation.mutated``."""

    def __init__(self, steps: bool) -> None:
        super().__init__()
        self.steps = steps

    def _do(self, problem: Problem, X: Genes, *, random_state: np.random.Generator, **_: object) -> Genes:
        return mutated(X, problem.xu, self.steps, random_state)


class SameGenes(DuplicateElimination):
    """Duplicates, in a population or of another."""

    def _do(self, pop: Population, other: Population | None, is_duplicate: NDArray[np.bool_]) -> NDArray[np.bool_]:
        seen = set[bytes]()
        if other is not None:
            unseen(other.get("X"), seen)
        is_duplicate[:] = ~unseen(pop.get("X"), seen)
        return is_duplicate
