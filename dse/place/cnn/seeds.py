"""Mappings that are the best of their kind, or about that, for the first population of a search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dse.chromosomes import Chromosome
from dse.evaluation import OBJECTIVES, evaluate
from dse.place.cnn.chains import Stages, chains
from dse.place.cnn.cuts import Line, line
from dse.place.cnn.limits import FREE
from dse.place.cnn.polish import improved
from model.cost.costs import CostArrays

TIMES = ("latency_s", "period_s")
"""Objectives in which seeds are made better."""


def seeds(chromosome: Chromosome, costs: CostArrays, objectives: Sequence[str] = TIMES) -> NDArray[np.int64]:
    """``(k, n_genes)`` chains, then the quickest of them made better in each of the objectives that is a time."""
    found = [within(line(chromosome, costs))]
    scores = evaluate(chromosome, costs, found[0])[0]
    for column in (OBJECTIVES.index(name) for name in TIMES if name in objectives):
        quickest = found[0][np.argsort(scores[:, column], kind="stable")]
        found.append(improved(chromosome, costs, quickest, column, FREE))
    return _distinct(np.vstack(found))


def within(on: Line) -> NDArray[np.int64]:
    """``(k, n_genes)`` chains of whole layers with the least period and latency, for every number of devices.

    Where the chromosome has a second row, chains with pairs of devices that share their heavy layers, too.
    Those that a chromosome cannot express or that need more memory than there is are left out, but not all keep to the
    line's limits, which say what chains are looked for.
    """
    chromosome, costs = on.chromosome, on.costs
    rows = [chromosome.encode(*_rows(on.devices(stages))) for stages in _chains(on)]
    genes = np.array([row for row in rows if row is not None], dtype=np.int64).reshape(-1, chromosome.n_genes)
    genes = _distinct(genes)
    return genes[evaluate(chromosome, costs, genes)[1] <= 0]


def _distinct(genes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows in their order, of equal ones the first."""
    return genes[np.sort(np.unique(genes, axis=0, return_index=True)[1])]


def _rows(device: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of a chain's (2, n_layers) devices the second row where it says anything."""
    return device[:1] if (device[0] == device[1]).all() else device


def _chains(on: Line) -> Iterator[Stages]:
    if quick := on.latency()[1]:
        yield quick
    for seconds in (on.busy(), on.serial()):
        yield from chains(seconds, on.team, add=False).best(on.team)
    yield from on.pairs()
    yield from chains(on.alone(), on.team, add=True).best(on.team)
