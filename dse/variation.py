"""How NSGA-II and the local search vary integer chromosomes, and which of these they have not had yet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Genes = NDArray[np.integer]


def mutated(genes: Genes, upper: Genes, steps: bool, rng: np.random.Generator) -> Genes:
    """``(n, n_genes)`` genes, some of them changed, each in ``0..upper``.

    Each changes with the chance ``1 / n_genes``, so that a third to half of the rows are as before. A changed gene
    becomes any value, or moves by a few steps, or drops to 0, a third of the time each. Where genes are device numbers
    (``steps`` False) it becomes any value.
    """
    change = rng.random(genes.shape) < 1.0 / len(upper)
    value = rng.integers(0, upper + 1, size=genes.shape)
    if steps:
        near = np.clip(genes + rng.integers(-3, 4, size=genes.shape), 0, upper)
        kind = rng.integers(0, 3, size=genes.shape)
        value = np.where(kind == 0, value, np.where(kind == 1, near, 0))
    return np.where(change, value, genes)


def unseen(genes: Genes, seen: set[bytes]) -> NDArray[np.bool_]:
    """Which of ``(n, n_genes)`` rows are not in ``seen``, of equal ones the first; they are afterwards. By their bytes,
    which is linear in the rows, where comparing all pairs is quadratic."""
    found = np.zeros(len(genes), dtype=bool)
    for i, row in enumerate(np.ascontiguousarray(genes, dtype=np.int32)):
        found[i] = (known := row.tobytes()) not in seen
        seen.add(known)
    return found
