"""What an earlier run has measured, for another one to go on from: the lines of its file."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

    A last line that has no end was being written when the run ended. ``CleaveError`` where one is of another network,
    platform, chromosome or target, or is read and written elsewhere, or says what cannot have been measured.
    """
    found = []
    lines = read_text(file, "file of measurements").splitlines(keepends=True)
    for number, line in enumerate((line for line in lines if line.endswith("\n")), 1):
        with readable(f"{file}:{number}: is not as this version writes it"):
            body = parsed(line)
            if "failed" in body:
                continue
            genes = np.array([operator.index(gene) for gene in body["genes"]], dtype=np.int32)
            values = np.array([_value(body["measured"], name) for name in OBJECTIVES])
            fits = genes.shape == encoding.upper.shape and bool(((genes >= 0) & (genes <= encoding.upper)).all())
            now = rig.subject(encoding.decode(genes)) if fits else body
            other = [name for name in now if body[name] != now[name]]
        if not fits or other:
            what = "network, platform, chromosome or target, or its frames come in elsewhere"
            raise CleaveError(f"{file}:{number}: is of another {what}, than this run")
        found.append(Earlier(genes, values, line.rstrip("\n")))
    return found


def _value(measured: Mapping[str, Any], name: str) -> float:
    """What was measured of an objective; NaN: nothing. ``ValueError`` for what cannot have been."""
    if name not in measured:
        return np.nan
    value = measured[name]
    if not isinstance(value, int | float) or not 0 < value < np.inf:
        raise ValueError(f"{name} is {value!r}")
    return float(value)


def that_fit(known: Sequence[Earlier], space: Space, say: Callable[[str], None]) -> list[Earlier]:
    """Without those that need more memory than devices are said to have now."""
    genes = np.array([each.genes for each in known], dtype=np.int32).reshape(len(known), space.encoding.n_genes)
    fits = evaluate(space.encoding, space.costs, genes)[1] <= 0
    if gone := int(np.count_nonzero(~fits)):
        say(f"{many(gone, 'mapping')} of those measured earlier left out: more memory is needed than devices have now")
    return [each for each, is_fit in zip(known, fits, strict=True) if is_fit]
