"""Scoring a population: decode, lower and price every individual in one compiled call on all cores."""

from __future__ import annotations

import numpy as np
from numba import prange
from numpy.typing import NDArray

from dse.chromosomes import Chromosome, Coding, decode, scratch
from dse.chromosomes import room as room_for_shards
from model import pricing
from model.arrays import GraphArrays, Ints
from model.compiled import allocating
from model.costs import CostArrays
from model.lowering import Room, lower, messages, room
from model.pricing import ENERGY, MEMORY

OBJECTIVES = ("latency_s", "energy_j", "memory_bytes", "period_s")
"""Columns of the scores, all minimised: one frame, largest of a device, largest of a device, steady pipeline."""

CHUNK = 32
"""Individuals that share one thread's working memory."""


def evaluate(chromosome: Chromosome, costs: CostArrays, genes: NDArray[np.integer]) -> tuple[NDArray, NDArray]:
    """Score ``(n, n_genes)`` int genes.

    Returns ``(n, 4)`` float scores, see ``OBJECTIVES``, and ``(n,)`` bytes by which the fullest memory overflows
    (at most 0 when the mapping fits, -inf when no limit is stated). Equal genes give equal bits on any number of
    threads: an individual is computed by one thread alone.
    """
    genes = np.ascontiguousarray(genes, dtype=np.int32)
    scores, excess = np.empty((len(genes), len(OBJECTIVES))), np.empty(len(genes))
    size = room(chromosome.g, chromosome.most, chromosome.coding.devices)
    _evaluate(chromosome.g, chromosome.coding, costs, chromosome.most, size, genes, scores, excess)
    return scores, excess


@allocating(parallel=True)
def _evaluate(
    g: GraphArrays,
    coding: Coding,
    costs: CostArrays,
    most: NDArray[np.int64],
    size: Room,
    genes: Ints,
    scores: NDArray[np.float64],
    excess: NDArray[np.float64],
) -> None:
    for chunk in prange((len(genes) + CHUNK - 1) // CHUNK):
        shards, work = room_for_shards(most), scratch(g, coding)
        sent, book = messages(size), pricing.ledger(size, costs)
        for i in range(chunk * CHUNK, min(len(genes), (chunk + 1) * CHUNK)):
            decode(g, coding, genes[i], shards, work)
            lower(g, shards, coding.devices, sent)
            latency, period = pricing.price(g, shards, sent, costs, book)
            scores[i, 0], scores[i, 3] = latency, period
            scores[i, 1] = pricing.largest(book, ENERGY)
            scores[i, 2] = pricing.largest(book, MEMORY)
            excess[i] = pricing.excess(costs, book)
