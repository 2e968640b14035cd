"""Mappings that are the best of their kind, or about that, for the first population of a search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dse.chromosomes import Chromosome
from dse.evaluation import OBJECTIVES, evaluate
from dse.place.cnn.chains import Stages, chains
from dse.place.cnn.cuts import Line, line
from dse.place.cnn.limits import FREE
from dse.place.cnn.polish import improved
from model.cost.costs import CostArrays

TIGHTER = (1.0, 0.9, 0.8, 0.65, 0.5)
"""Parts of memory and limits that chains are looked for in."""
TIMES = ("latency_s", "period_s")
"""Objectives in which seeds are made better."""


def seeds(chromosome: Chromosome, costs: CostArrays, objectives: Sequence[str] = TIMES) -> NDArray[np.int64]:
    """``(k, n_genes)`` that fit: chains, then the quickest made better in each of the objectives that is a time."""
    known = within(tighter(line(chromosome, costs)))
    columns = [OBJECTIVES.index(name) for name in TIMES if name in objectives]
    better = [improved(chromosome, costs, known, column, FREE).astype(np.int64) for column in columns]
    found = _distinct(np.vstack([known, *better]))
    return found[evaluate(chromosome, costs, found)[1] <= 0]


def tighter(on: Line) -> list[Line]:
    """With all of the memory, and with ever less."""
    return [replace(on, part=part) for part in TIGHTER]


def within(lines: Iterable[Line]) -> NDArray[np.int64]:
    """``(k, n_genes)`` chains of whole layers with the least period and latency, for every number of devices.

    Where the chromosome has a second row, chains with pairs of devices that share their heavy layers, too.
    Those that a chromosome cannot express are left out. Not all keep to the memory there is, or to the lines' limits,
    which say what chains are looked for.
    """
    different = {on.barred: on for on in lines}
    return _distinct(np.vstack([_encoded(on) for on in different.values()]))


def _encoded(on: Line) -> NDArray[np.int64]:
    rows = [on.chromosome.encode(*_rows(on.devices(stages))) for stages in _chains(on)]
    known = [row for row in rows if row is not None]
    return np.array(known, dtype=np.int64).reshape(-1, on.chromosome.n_genes)


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
