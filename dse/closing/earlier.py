"""What an earlier run has measured, for another one to go on from: the lines of its file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dse.chromosomes import Chromosome
from dse.evaluation import OBJECTIVES
from dse.results import compact
from model.cluster.texts import read_text
from model.mappings.arrays import Floats
from model.network.graph import Graph
from runtime.errors import CleaveError
from runtime.reading import parsed, readable


@dataclass(frozen=True, eq=False)
class Earlier:
    """A mapping that was measured. genes: (n_genes,); values: (4,) as in ``Measurement``; line: that says so"""

    genes: NDArray[np.int32]
    values: Floats
    line: str


def read(file: Path, encoding: Chromosome, graph: Graph, devices: Sequence[str]) -> list[Earlier]:
    """Those of a file; what failed then may be tried again. devices: names

    ``CleaveError`` where one is of another network, platform or chromosome.
    """
    found = []
    for number, line in enumerate(read_text(file, "file of measurements").splitlines(), 1):
        with readable(f"{file}:{number}: is not as this version writes it"):
            body = parsed(line)
            if "failed" in body:
                continue
            genes = np.array(body["genes"], dtype=np.int32)
            values = np.array([body["measured"].get(name, np.nan) for name in OBJECTIVES], dtype=np.float64)
            mapping, of = body["mapping"], body["devices"]
        fits = genes.shape == encoding.upper.shape and bool(((genes >= 0) & (genes <= encoding.upper)).all())
        if not fits or of != [*devices] or compact(graph, encoding.decode(genes)) != mapping:
            raise CleaveError(f"{file}:{number}: is of another network, platform or chromosome than this run")
        found.append(Earlier(genes, values, line))
    return found
