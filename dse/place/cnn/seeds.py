"""Mappings that are the best of their kind, or about that, for the first population of a search."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dse.chromosomes import Chromosome
from dse.evaluation import evaluate
from dse.place.cnn.chains import Stages, chains
from dse.place.cnn.cuts import Line, line
from model.cost.costs import CostArrays


def seeds(chromosome: Chromosome, costs: CostArrays) -> NDArray[np.int64]:
    """``(k, n_genes)`` chains of whole layers with the least period and latency, for every number of devices.

    Where the chromosome has a second row, chains with pairs of devices that share their heavy layers, too.
    Those that a chromosome cannot express or that need more memory than there is are left out.
    """
    return within(line(chromosome, costs))


def within(on: Line) -> NDArray[np.int64]:
    """``seeds`` of a line whose limits say what chains are looked for; not all that are found keep to them."""
    chromosome, costs = on.chromosome, on.costs
    rows = [chromosome.encode(*_rows(on.devices(stages))) for stages in _chains(on)]
    genes = np.array([row for row in rows if row is not None], dtype=np.int64).reshape(-1, chromosome.n_genes)
    if not len(genes):
        return genes
    first = np.sort(np.unique(genes, axis=0, return_index=True)[1])
    return genes[first][evaluate(chromosome, costs, genes[first])[1] <= 0]


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
