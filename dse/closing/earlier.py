"""What an earlier run has measured, for another one to go on from: the lines of its file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dse.chromosomes import Chromosome
from dse.closing.figures import Rig
from dse.closing.pool import Space
from dse.evaluation import OBJECTIVES, evaluate
from dse.units import many
from model.cluster.texts import read_text
from model.mappings.arrays import Floats
from runtime.errors import CleaveError
from runtime.reading import parsed, readable


@dataclass(frozen=True, eq=False)
class Earlier:
    """A mapping that was measured. genes: (n_genes,); values: (4,) as in ``Measurement``; line: that says so"""

    genes: NDArray[np.int32]
    values: Floats
    line: str


def read(file: Path, encoding: Chromosome, rig: Rig) -> list[Earlier]:
    """Those of a file; what failed then may be tried again.

    ``CleaveError`` where one is of another network, platform, chromosome or target, or is read and written elsewhere.
    """
    found = []
    for number, line in enumerate(read_text(file, "file of measurements").splitlines(), 1):
        with readable(f"{file}:{number}: is not as this version writes it"):
            body = parsed(line)
            if "failed" in body:
                continue
            genes = np.array(body["genes"], dtype=np.int32)
            values = np.array([body["measured"].get(name, np.nan) for name in OBJECTIVES], dtype=np.float64)
            fits = genes.shape == encoding.upper.shape and bool(((genes >= 0) & (genes <= encoding.upper)).all())
            now = rig.subject(encoding.decode(genes)) if fits else body
            other = [name for name in now if body[name] != now[name]]
        if not fits or other:
            what = "network, platform, chromosome or target, or its frames come in elsewhere"
            raise CleaveError(f"{file}:{number}: is of another {what}, than this run")
        found.append(Earlier(genes, values, line))
    return found


def that_fit(known: Sequence[Earlier], space: Space, say: Callable[[str], None]) -> list[Earlier]:
    """Without those that need more memory than devices are said to have now."""
    genes = np.array([each.genes for each in known], dtype=np.int32).reshape(len(known), space.encoding.n_genes)
    fits = evaluate(space.encoding, space.costs, genes)[1] <= 0
    if gone := int(np.count_nonzero(~fits)):
        say(f"{many(gone, 'mapping')} of those measured earlier left out: more memory is needed than devices have now")
    return [each for each, is_fit in zip(known, fits, strict=True) if is_fit]
