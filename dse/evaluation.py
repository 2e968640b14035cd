"""Scoring a population: decode, lower and price every individual in one compiled call on all cores."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse.chromosomes import Chromosome, Decoding, decode, scratch
from dse.chromosomes import room as room_for_shards
from model.compiled import inlined, on_all_cores, released
from model.cost import pricing, spending
from model.cost.costs import CostArrays
from model.cost.ledger import COMPUTE, ENERGY, MEMORY, Ledger, ledger
from model.mappings.arrays import GraphArrays, Ints
from model.mappings.lowering import Messages, Room, Shards, lower, messages, room
from model.simulator import simulation, streaming
from runtime.bench import FRAMES, WARMUP

OBJECTIVES = ("latency_s", "energy_j", "memory_bytes", "period_s")
"""Columns of the scores, all minimised: one frame, largest of a device, largest of a device, steady pipeline."""

ANALYTICAL, SIMULATOR, BOTH = EVALUATORS = ("analytical", "simulator", "both")
"""Whose latency and period: ``model.cost.pricing``, ``model.simulator.simulation``, or in a search the one's in NSGA-II
and then the other's. The rest is the same but for waits at joins."""
STREAM = WARMUP + FRAMES
"""Frames of the stream whose period is simulated: those that ``dse bench`` runs."""

CHUNK = 256
"""Individuals that share one thread's working memory, at most."""

MESSAGES, BYTES, SEGMENTS, COMPUTING = range(4)
"""Columns of traits: how many, how many in all messages, how many, then the seconds that each device computes."""

Correct = Callable[[str, NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
"""Gives better ``(n, 4)`` scores, from one of ``EVALUATORS``' and the traits of the mappings."""


def unfit(excess: float) -> str:
    """What to tell where no mapping fits. excess: bytes by which the closest does not"""
    return (
        f"no mapping was found that fits the devices' memory; the closest needs {excess / 1e6:.1f} MB more "
        "than a device has: raise the limits (memory=) or add devices"
    )


def traits(chromosome: Chromosome, count: int) -> NDArray[np.float64]:
    """Room for those of so many individuals: ``(n, COMPUTING + devices)``."""
    return np.zeros((count, COMPUTING + chromosome.coding.devices))


def evaluate(
    chromosome: Chromosome,
    costs: CostArrays,
    genes: NDArray[np.integer],
    evaluator: str = ANALYTICAL,
    period: bool = True,
    found: NDArray[np.float64] | None = None,
) -> tuple[NDArray, NDArray]:
    """Score ``(n, n_genes)`` int genes.

    period: with the simulator: simulate a stream for it, too; otherwise it is the analytical one
    found:  room for their traits, which are filled in

    Returns ``(n, 4)`` float scores, see ``OBJECTIVES``, and ``(n,)`` bytes by which the fullest memory overflows
    (at most 0 when the mapping fits, -inf when no limit is stated). Equal genes give equal bits on any number of
    threads: an individual is computed by one thread alone.
    """
    genes = np.ascontiguousarray(genes, dtype=np.int32)
    scores, excess = np.empty((len(genes), len(OBJECTIVES))), np.empty(len(genes))
    size = room(chromosome.g, chromosome.most, chromosome.coding.devices)
    frames = 0 if evaluator == ANALYTICAL else STREAM if period else 1
    found = traits(chromosome, 0) if found is None else found
    known = (chromosome.g, chromosome.coding, costs, chromosome.most, size, frames, genes, scores, excess, found)
    on_all_cores(lambda first, last: _evaluate(*known, first, last), len(genes), CHUNK)
    return scores, excess


@dataclass(eq=False)
class Judge:
    """Who scores the mappings of a search.

    evaluator, period: as in ``evaluate``; correct: of all scores
    spent_s: seconds that it took so far
    """

    chromosome: Chromosome
    costs: CostArrays
    evaluator: str
    period: bool = True
    correct: Correct | None = None
    spent_s: float = 0.0

    def __call__(self, genes: NDArray[np.integer]) -> tuple[NDArray, NDArray]:
        """``evaluate``, corrected."""
        begin = time.perf_counter()
        found = traits(self.chromosome, 0 if self.correct is None else len(genes))
        scores, excess = evaluate(self.chromosome, self.costs, genes, self.evaluator, self.period, found)
        if self.correct is not None:
            scores = self.correct(self.evaluator, scores, found)
        self.spent_s += time.perf_counter() - begin
        return scores, excess


@released()
def _evaluate(
    g: GraphArrays,
    coding: Decoding,
    costs: CostArrays,
    most: NDArray[np.int64],
    size: Room,
    frames: int,
    genes: Ints,
    scores: NDArray[np.float64],
    excess: NDArray[np.float64],
    found: NDArray[np.float64],
    first: int,
    last: int,
) -> None:
    """Individuals ``first`` to ``last``. frames: of the stream that is simulated; 1: none; 0: nothing is

    found: traits are asked for where it has rows
    """
    shards, work = room_for_shards(most), scratch(g, coding)
    sent, book, desk = messages(size), ledger(size), pricing.desk(size, costs)
    stage = simulation.stage(size, costs, frames)
    for i in range(first, last):
        decode(g, coding, genes[i], shards, work)
        lower(g, shards, coding.devices, sent)
        latency = simulation.UNCOUNTABLE
        if frames > 0:
            latency = simulation.simulate(g, shards, sent, costs, book, stage)
        if latency == simulation.UNCOUNTABLE:
            latency, period = pricing.price(g, shards, sent, costs, book, desk)
        else:
            period = pricing.busiest(g, shards, sent, costs, book, desk)
            if frames > 1:
                warmup = np.int64(WARMUP)  # not the constant, which would compile the stream once more
                period = max(period, streaming.stream(g, shards, sent, costs, book, stage, frames, warmup))
        scores[i, 0], scores[i, 3] = latency, period
        scores[i, 1] = spending.largest(book, ENERGY)
        scores[i, 2] = spending.largest(book, MEMORY)
        excess[i] = spending.excess(costs, book)
        if len(found) > 0:
            _note(shards, sent, book, found[i])


@inlined
def _note(shards: Shards, sent: Messages, book: Ledger, out: NDArray[np.float64]) -> None:
    """Traits of what is in the ledger."""
    messages = sent.out_ptr[shards.ptr[len(shards.ptr) - 1]]
    out[MESSAGES] = messages
    out[BYTES] = np.sum(book.size[:messages])
    out[SEGMENTS] = np.sum(book.segments)
    out[COMPUTING:] = book.account[:, COMPUTE]
