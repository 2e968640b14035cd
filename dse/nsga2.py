"""NSGA-II over chromosomes, by pymoo, which takes 0.3 s to load: only a search that begins does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.evaluator import Evaluator
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.core.termination import NoTermination

from dse.evaluation import Judge
from dse.operators import ChangeGenes, ExchangeGenes, RandomGenes, SameGenes
from dse.settings import Settings


class Generation(NamedTuple):
    """``n`` mappings that were scored.

    genes: (n, n_genes); scores: (n, 4), see ``OBJECTIVES``; excess: (n,) bytes by which the fullest memory overflows,
    at most 0 when the mapping fits
    """

    genes: NDArray[np.int32]
    scores: NDArray[np.float64]
    excess: NDArray[np.float64]


class MappingProblem(Problem):
    """pymoo's view: integer genes in, objectives and the memory constraint out, a population at a time."""

    def __init__(self, judge: Judge, columns: Sequence[int]) -> None:
        super().__init__(
            n_var=judge.chromosome.n_genes,
            n_obj=len(columns),
            n_ieq_constr=1,
            xl=np.zeros(judge.chromosome.n_genes, dtype=np.int64),
            xu=judge.chromosome.upper,
            vtype=int,
        )
        self.judge, self.columns = judge, list(columns)

    def _evaluate(self, x: NDArray[np.int64], out: dict, *_: object, **__: object) -> None:
        scores, excess = self.judge(x)
        out["F"] = scores[:, self.columns]
        out["G"] = np.where(np.isfinite(excess), excess, -1.0)[:, None]
        out["scores"] = scores


class Evolution:
    """A population that goes from one generation to the next."""

    def __init__(self, judge: Judge, settings: Settings, first: NDArray[np.int64]) -> None:
        """first: ``(k, n_genes)`` that are in the first population, the rest is random."""
        self._problem = MappingProblem(judge, settings.columns)
        self._algorithm = NSGA2(
            pop_size=settings.population,
            sampling=RandomGenes(first, sparse=judge.chromosome.of_points),
            crossover=ExchangeGenes(),
            mutation=ChangeGenes(steps=judge.chromosome.of_points),
            eliminate_duplicates=SameGenes(),
        )
        self._algorithm.setup(self._problem, termination=NoTermination(), seed=settings.seed, verbose=False)

    def next(self) -> Generation | None:
        """New mappings, scored; None: every mapping that the operators can reach is known."""
        offspring = self._algorithm.ask()
        if offspring is None or len(offspring) == 0:
            return None
        Evaluator().eval(self._problem, offspring)
        self._algorithm.tell(infills=offspring)
        return _generation(offspring)

    @property
    def last(self) -> Generation:
        """The population as it is."""
        return _generation(self._algorithm.pop)


def _generation(population: Population) -> Generation:
    genes, scores = population.get("X").astype(np.int32), population.get("scores").astype(np.float64)
    return Generation(genes, scores, population.get("G")[:, 0])
