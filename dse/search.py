"""The search for the Pareto front: NSGA-II over chromosomes, scored by the analytical model, the simulator, or both.

The thesis uses a population of 1000 and 100 generations (section 5). Memory limits of the platform are constraints.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import moocore
import numpy as np
from numpy.typing import NDArray
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.evaluator import Evaluator
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.core.termination import NoTermination

from dse.chromosomes import POINTS, Chromosome
from dse.evaluation import ANALYTICAL, BOTH, OBJECTIVES, SIMULATOR, evaluate, traits, unfit
from dse.operators import ChangeGenes, ExchangeGenes, RandomGenes, SameGenes
from dse.place.cnn.seeds import seeds
from model.cost.costs import CostArrays, whole_s
from runtime.errors import CleaveError

Progress = Callable[[int, NDArray[np.float64]], None]
"""Called after each generation with its number (from 1) and the best value of each objective so far."""
Correct = Callable[[str, NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
"""Gives better ``(n, 4)`` scores, from one of ``EVALUATORS``' and the traits of the mappings (``dse.evaluation``)."""


@dataclass(frozen=True)
class Settings:
    """How to search.

    objectives: two or more of ``OBJECTIVES``
    head_start: the first population holds the mappings of ``head_start``, the rest is random
    evaluator: whose scores, one of ``EVALUATORS``; both: the analytical model's in the search, whose front is then
               scored by the simulator
    exact_seeds: a head start has the chains of layers with the least period and latency, too, and better ones yet
    """

    population: int = 1000
    generations: int = 100
    seed: int = 0
    objectives: tuple[str, ...] = ("latency_s", "energy_j", "memory_bytes")
    head_start: bool = True
    evaluator: str = BOTH
    exact_seeds: bool = True


@dataclass(frozen=True, eq=False)
class Front:
    """What a search found: arrays that share an index, sorted by the objectives.

    genes:  (n, n_genes) int; scores: (n, 4) float, see ``OBJECTIVES``; of all mappings ever scored that fit and that
            no other dominates: the population of NSGA-II forgets some when the front outgrows it
    best:   (generations, 4) lowest of each objective so far as the search scored it, among mappings that fit; inf
            before there is one
    volume: (generations,) hypervolume of the front over the chosen objectives, relative to the worst values among the
            first mappings that fit; never falls. Fewer generations than asked for: no new mapping could be made
    evaluated: mappings scored; search_s, scoring_s: seconds of the whole search, and of decode + lower + price in it
    last: (k, n_genes) the population at the end, of it what fits
    measured, predicted: (n, 4) measurements, NaN where there is none, and what models alone say; None where nothing was
            measured. ``scores`` are measurements then where there are, else predictions corrected by them
    """

    genes: NDArray[np.int32]
    scores: NDArray[np.float64]
    best: NDArray[np.float64]
    volume: NDArray[np.float64]
    evaluated: int
    search_s: float
    scoring_s: float
    last: NDArray[np.int32]
    measured: NDArray[np.float64] | None = None
    predicted: NDArray[np.float64] | None = None

    def best_of(self, objective: str) -> int:
        """Index of the point with the lowest value of an objective, of those where it was measured if there are any. Of
        equal ones the first that was measured at all."""
        values, column = self.scores, OBJECTIVES.index(objective)
        if self.measured is None:
            return int(np.argmin(values[:, column]))
        if not np.isnan(self.measured[:, column]).all():
            values = self.measured
        return int(np.lexsort((np.isnan(self.measured).all(axis=1), values[:, column]))[0])

    def at(self, index: NDArray) -> Front:
        """The points of an index, in its order."""
        measured, predicted = (None if all_ is None else all_[index] for all_ in (self.measured, self.predicted))
        return replace(self, genes=self.genes[index], scores=self.scores[index], measured=measured, predicted=predicted)


class MappingProblem(Problem):
    """pymoo's view: integer genes in, objectives and the memory constraint out, a population at a time."""

    def __init__(
        self, chromosome: Chromosome, costs: CostArrays, settings: Settings, correct: Correct | None = None
    ) -> None:
        super().__init__(
            n_var=chromosome.n_genes,
            n_obj=len(settings.objectives),
            n_ieq_constr=1,
            xl=np.zeros(chromosome.n_genes, dtype=np.int64),
            xu=chromosome.upper,
            vtype=int,
        )
        self.chromosome, self.costs = chromosome, costs
        self.columns = [OBJECTIVES.index(name) for name in settings.objectives]
        self.evaluator = ANALYTICAL if settings.evaluator == BOTH else settings.evaluator
        self.period = "period_s" in settings.objectives
        self.correct = correct
        self.scoring_s = 0.0

    def _evaluate(self, x: NDArray[np.int64], out: dict, *_: object, **__: object) -> None:
        begin = time.perf_counter()
        scores, excess = scored(self.chromosome, self.costs, x, self.evaluator, self.period, self.correct)
        self.scoring_s += time.perf_counter() - begin
        out["F"] = scores[:, self.columns]
        out["G"] = np.where(np.isfinite(excess), excess, -1.0)[:, None]
        out["scores"] = scores


def scored(
    chromosome: Chromosome,
    costs: CostArrays,
    genes: NDArray[np.integer],
    evaluator: str,
    period: bool = True,
    correct: Correct | None = None,
) -> tuple[NDArray, NDArray]:
    """``evaluate``, corrected."""
    if correct is None:
        return evaluate(chromosome, costs, genes, evaluator, period)
    found = traits(chromosome, len(genes))
    scores, excess = evaluate(chromosome, costs, genes, evaluator, period, found)
    return correct(evaluator, scores, found), excess


def search(
    chromosome: Chromosome,
    costs: CostArrays,
    settings: Settings,
    progress: Progress = lambda *_: None,
    *,
    begin_with: NDArray[np.integer] | None = None,
    correct: Correct | None = None,
) -> Front:
    """Search. ``CleaveError`` when no mapping was found that fits the memory of the devices.

    begin_with: ``(k, n_genes)`` that are in the first population, besides what ``Settings.head_start`` says
    correct:    of all scores
    """
    evaluate(chromosome, costs, np.zeros((1, chromosome.n_genes), dtype=np.int32))  # compile outside the clock
    begin = time.perf_counter()
    problem = MappingProblem(chromosome, costs, settings, correct)
    nothing, start = np.empty((0, chromosome.n_genes), dtype=np.int32), settings.head_start
    exact = seeds(chromosome, costs, settings.objectives) if start and settings.exact_seeds else nothing
    first = [nothing if begin_with is None else begin_with, head_start(chromosome, costs) if start else nothing, exact]
    algorithm = _algorithm(chromosome, settings, np.vstack(first))
    algorithm.setup(problem, termination=NoTermination(), seed=settings.seed, verbose=False)
    history = _History(problem.columns, chromosome.n_genes)
    for generation in range(1, settings.generations + 1):
        offspring = algorithm.ask()
        if offspring is None or len(offspring) == 0:
            break  # every mapping that the operators can reach is known
        Evaluator().eval(problem, offspring)
        algorithm.tell(infills=offspring)
        history.note(offspring)
        progress(generation, history.best)
    front = _front(history, begin, problem.scoring_s, algorithm.pop)
    return front if settings.evaluator == ANALYTICAL else _simulated(front, exact, chromosome, costs, problem)


def _simulated(
    front: Front, exact: NDArray[np.integer], chromosome: Chromosome, costs: CostArrays, problem: MappingProblem
) -> Front:
    """The front as the simulator scores it, periods as well; points that others dominate then are left out.

    exact: ``(k, n_genes)`` that fit, some best for the simulator, which the search may have lost by the other judge
    """
    genes = np.vstack([front.genes, exact]).astype(np.int32)
    scores, _ = scored(chromosome, costs, genes, SIMULATOR, correct=problem.correct)
    keep = moocore.is_nondominated(scores[:, problem.columns], keep_weakly=False)
    return in_order(replace(front, genes=genes, scores=scores).at(keep), problem.columns)


def in_order(front: Front, columns: list[int]) -> Front:
    """By the objectives."""
    return front.at(np.lexsort([*front.genes.T[::-1], *front.scores[:, columns[::-1]].T]))


def head_start(chromosome: Chromosome, costs: CostArrays) -> NDArray[np.int64]:
    """``(k, n_genes)`` mappings worth starting from: one device alone, and pipelines of devices that are alike."""
    alike: dict[bytes, list[int]] = {}
    for device in range(chromosome.coding.devices):
        alike.setdefault(costs.work[:, device].tobytes(), []).append(device)
    teams = [[device] for devices in alike.values() for device in devices]
    teams += [devices[:k] for devices in alike.values() for k in range(2, len(devices) + 1)]
    work = whole_s(costs).mean(axis=1)
    return np.array([chromosome.chain(team, work) for team in teams], dtype=np.int64)


def _algorithm(chromosome: Chromosome, settings: Settings, first: NDArray[np.int64]) -> NSGA2:
    points = chromosome.coding.kind == POINTS
    return NSGA2(
        pop_size=settings.population,
        sampling=RandomGenes(first, sparse=points),
        crossover=ExchangeGenes(),
        mutation=ChangeGenes(steps=points),
        eliminate_duplicates=SameGenes(),
    )


class _History:
    """The front of all that was scored, best values and hypervolume, generation by generation."""

    def __init__(self, columns: list[int], n_genes: int) -> None:
        self.columns = columns
        self.scores = np.empty((0, len(OBJECTIVES)))
        self.genes = np.empty((0, n_genes), dtype=np.int32)
        self.best = np.full(len(OBJECTIVES), np.inf)
        self.rows: list[NDArray[np.float64]] = []
        self.volumes: list[float] = []
        self.evaluated = 0
        self.excess = np.inf
        self.reference: NDArray[np.float64] | None = None

    def note(self, offspring: Population) -> None:
        """Take in a generation."""
        excess = offspring.get("G")[:, 0]
        fits = excess <= 0
        self.evaluated += len(offspring)
        self.excess = min(self.excess, excess.min())
        scores = offspring.get("scores")[fits].astype(np.float64)
        if self.reference is None and len(scores):
            self.reference = scores[:, self.columns].max(axis=0)
        self._keep(scores, offspring.get("X")[fits].astype(np.int32))
        self.rows.append(self.best)
        self.volumes.append(self._volume())

    def _keep(self, scores: NDArray[np.float64], genes: NDArray[np.int32]) -> None:
        """Merge ``(k, 4)`` scores and ``(k, n_genes)`` genes into the front; of equal scores the first stays."""
        self.best = np.min([self.best, *scores], axis=0)
        scores, genes = np.vstack([self.scores, scores]), np.vstack([self.genes, genes])
        keep = moocore.is_nondominated(scores[:, self.columns], keep_weakly=False) if len(scores) else []
        self.scores, self.genes = scores[keep], genes[keep]

    def _volume(self) -> float:
        if self.reference is None:
            return 0.0
        objectives = self.scores[:, self.columns]
        scale = np.where(self.reference > 0, self.reference, 1.0)
        inside = objectives[(objectives <= self.reference).all(axis=1)] / scale
        return float(moocore.hypervolume(inside, ref=np.ones(len(self.columns)))) if len(inside) else 0.0


def _front(history: _History, begin: float, scoring_s: float, last: Population) -> Front:
    scores, genes = history.scores, history.genes
    if not len(scores):
        raise CleaveError(f"{unfit(history.excess)}, or search longer")
    front = Front(
        genes=genes,
        scores=scores,
        best=np.array(history.rows),
        volume=np.array(history.volumes),
        evaluated=history.evaluated,
        search_s=time.perf_counter() - begin,
        scoring_s=scoring_s,
        last=last.get("X")[last.get("G")[:, 0] <= 0].astype(np.int32),
    )
    return in_order(front, history.columns)
