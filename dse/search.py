"""The search for the Pareto front: NSGA-II over chromosomes, scored by the analytical model, the simulator, or both,
and a local search from what it finds.

The thesis uses a population of 1000 and 100 generations (section 5). Memory limits of the platform are constraints.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import moocore
import numpy as np
from numpy.typing import NDArray

from dse.chromosomes import Chromosome
from dse.evaluation import ANALYTICAL, BOTH, OBJECTIVES, SIMULATOR, Correct, Judge, evaluate, unfit
from dse.local_search import bettered, undominated
from dse.place.cnn.seeds import seeds
from dse.settings import Settings
from model.cost.confidence import Expected
from model.cost.costs import CostArrays, whole_s
from runtime.errors import CleaveError

if TYPE_CHECKING:
    from dse.nsga2 import Generation

Progress = Callable[[int, NDArray[np.float64]], None]
"""Called after each generation, and each round of the local search, with its number (from 1, and on from the last
generation) and the best value of each objective so far, as whoever scores them sees it."""


@dataclass(frozen=True, eq=False)
class Front:
    """What a search found: arrays that share an index, sorted by the objectives.

    genes:  (n, n_genes) int; scores: (n, 4) float, see ``OBJECTIVES``; of all mappings that fit and that no other
            dominates: the population of NSGA-II forgets some when the front outgrows it. What another judge scores
            in the end are those that none dominated for the first, and what the local search finds from there
    best:   (generations, 4) lowest of each objective so far as NSGA-II scored it, among mappings that fit; inf before
            there is one
    volume: (generations,) hypervolume of the front over the chosen objectives, as ``best``, relative to the worst
            values among the first mappings that fit; never falls. Fewer generations than asked for: no new mapping
            could be made
    evaluated: mappings scored; search_s, scoring_s: seconds of that, and of decode + lower + price in it; seeds_s: of
            making exact seeds before
    last: (k, n_genes) the population at the end, of it what fits
    measured, predicted: (n, 4) measurements, NaN where there is none, and what models alone say; None where nothing was
            measured. ``scores`` are measurements then where there are, else predictions corrected by them
    off:    (n, 4) relative errors to expect of ``scores``; NaN: unknown, or measured; None: unknown of all
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
    off: NDArray[np.float64] | None = None
    seeds_s: float = 0.0

    def best_of(self, objective: str) -> int:
        """Index of the point with the lowest value of an objective, of those where it was measured if there are any. Of
        equal ones the first that was measured at all."""
        values, column = self.scores, OBJECTIVES.index(objective)
        if self.measured is None:
            return int(np.argmin(values[:, column]))
        if not np.isnan(self.measured[:, column]).all():
            values = self.measured
        return int(np.lexsort((np.isnan(self.measured).all(axis=1), values[:, column]))[0])

    def expected(self, *points: int) -> Expected | None:
        """By how much scores of points are expected to be off at most; None: nothing is known."""
        if self.off is None or np.isnan(self.off[[*points]]).all():
            return None
        return Expected(*(None if np.isnan(x) else x for x in np.fmax.reduce(self.off[[*points]], axis=0).tolist()))

    def at(self, index: NDArray) -> Front:
        """The points of an index, in its order."""
        every = {name: getattr(self, name) for name in ("genes", "scores", "measured", "predicted", "off")}
        return replace(self, **{name: rows[index] for name, rows in every.items() if rows is not None})


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
    from dse.nsga2 import Evolution

    evaluate(chromosome, costs, np.zeros((1, chromosome.n_genes), dtype=np.int32))  # compile outside the clock
    seeding = time.perf_counter()
    nothing, start = np.empty((0, chromosome.n_genes), dtype=np.int32), settings.head_start
    exact = seeds(chromosome, costs, settings.objectives) if start and settings.exact_seeds else nothing
    first = [nothing if begin_with is None else begin_with, exact, head_start(chromosome, costs) if start else nothing]
    begin = time.perf_counter()
    evaluator = ANALYTICAL if settings.evaluator == BOTH else settings.evaluator
    judge = Judge(chromosome, costs, evaluator, "period_s" in settings.objectives, correct)
    evolution = Evolution(judge, settings, np.vstack(first))
    history = _History(settings.columns, chromosome.n_genes)
    for generation in range(1, settings.generations + 1):
        offspring = evolution.next()
        if offspring is None:
            break
        history.note(offspring)
        progress(generation, history.best)
    front = _front(history, judge.spent_s, evolution.last)
    front = _improved(front, exact, judge, settings, progress)
    return replace(front, search_s=time.perf_counter() - begin, seeds_s=begin - seeding)


def _improved(
    front: Front, exact: NDArray[np.integer], searched: Judge, settings: Settings, progress: Progress
) -> Front:
    """The front as whoever has the last word scores it, and what a local search makes of it.

    exact: ``(k, n_genes)`` that fit, some best for the simulator, which the search may have lost by the other judge
    """
    judge = replace(searched, evaluator=ANALYTICAL if settings.evaluator == ANALYTICAL else SIMULATOR, spent_s=0.0)
    searched_all = len(front.best) < settings.generations  # all that its operators find
    rounds = settings.generations if settings.local_search and not searched_all else 0
    known = np.unique(np.vstack([front.genes, exact]).astype(np.int32), axis=0)
    genes, scores, count = bettered(
        judge, known, settings, rounds, lambda number, best: progress(settings.generations + number, best)
    )
    last = replace(judge, period=True, spent_s=0.0)  # of the front alone: streams take long
    if not judge.period:
        scores, _ = last(genes)
    found = replace(front, genes=genes, scores=scores, evaluated=front.evaluated + count)
    return in_order(replace(found, scoring_s=front.scoring_s + judge.spent_s + last.spent_s), settings.columns)


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

    def note(self, offspring: Generation) -> None:
        """Take in a generation."""
        fits = offspring.excess <= 0
        self.evaluated += len(offspring.genes)
        self.excess = min(self.excess, offspring.excess.min())
        scores = offspring.scores[fits]
        if self.reference is None and len(scores):
            self.reference = scores[:, self.columns].max(axis=0)
        self._keep(scores, offspring.genes[fits])
        self.rows.append(self.best)
        self.volumes.append(self._volume())

    def _keep(self, scores: NDArray[np.float64], genes: NDArray[np.int32]) -> None:
        """Merge ``(k, 4)`` scores and ``(k, n_genes)`` genes into the front; of equal scores the first stays."""
        self.best = np.min([self.best, *scores], axis=0)
        scores, genes = np.vstack([self.scores, scores]), np.vstack([self.genes, genes])
        self.genes, self.scores = undominated(genes, scores, self.columns)

    def _volume(self) -> float:
        if self.reference is None:
            return 0.0
        objectives = self.scores[:, self.columns]
        scale = np.where(self.reference > 0, self.reference, 1.0)
        inside = objectives[(objectives <= self.reference).all(axis=1)] / scale
        return float(moocore.hypervolume(inside, ref=np.ones(len(self.columns)))) if len(inside) else 0.0


def _front(history: _History, scoring_s: float, last: Generation) -> Front:
    scores, genes = history.scores, history.genes
    if not len(scores):
        raise CleaveError(f"{unfit(history.excess)}, or search longer")
    front = Front(
        genes=genes,
        scores=scores,
        best=np.array(history.rows),
        volume=np.array(history.volumes),
        evaluated=history.evaluated,
        search_s=0.0,
        scoring_s=scoring_s,
        last=last.genes[last.excess <= 0],
    )
    return in_order(front, history.columns)
