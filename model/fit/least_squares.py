"""Least squares with numbers that are not negative: times, powers and sizes are not."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from model.mappings.arrays import Floats

FEWER = 3
"""How often so many numbers may change sides at once without getting on, before they change one by one."""
SYMMETRIC = "MMD_AT_PLUS_A"
"""Order in which symmetric systems fill up least."""
RIDGE = 1e-10
"""Of the largest entry: what rows leave open becomes as small as can be."""


def nonnegative(rows: Floats | scipy.sparse.csr_array, values: Floats, start: Floats | None = None) -> Floats:
    """The ``x >= 0`` that makes ``rows @ x`` come closest to ``values``. rows: (n, k), sparse where there are many
    numbers of which each row has few; values: (n,); (k,) out.

    Block principal pivoting on the normal equations (Portugal, Júdice, Vicente 1994; Kim and Park 2011): where nearly
    all numbers are more than 0, as here, it needs a handful of solutions of a linear system, however many there are.
    start: a guess of ``x``; only which of its numbers are more than 0 counts
    """
    scale = np.sqrt((rows * rows).sum(axis=0))
    scale[scale == 0] = 1.0
    scaled = rows * (1 / scale)
    gram = scaled.T @ scaled + RIDGE * scipy.sparse.eye_array(len(scale))
    inside = np.ones(len(scale), bool) if start is None else start > 0
    return _pivot(gram, scaled.T @ values, inside) / scale


def _pivot(gram: Floats | scipy.sparse.csr_array, right: Floats, inside: NDArray[np.bool_]) -> Floats:
    """``inside``: which numbers are taken to be more than 0, to begin with."""
    fewest, patience = len(right) + 1, FEWER
    while True:
        x, slope = np.zeros(len(right)), np.zeros(len(right))
        mine = gram[:, inside]
        x[inside] = _solution(mine[inside], right[inside])
        slope[~inside] = mine[~inside] @ x[inside] - right[~inside]
        wrong = np.flatnonzero((x < 0) | (slope < -1e-12 * np.abs(right).max(initial=0.0)))
        if len(wrong) == 0:
            return x
        if len(wrong) < fewest:
            fewest, patience = len(wrong), FEWER
        elif patience > 0:
            patience -= 1
        else:
            wrong = wrong[-1:]
        inside[wrong] = ~inside[wrong]


def _solution(gram: Floats | scipy.sparse.csr_array, right: Floats) -> Floats:
    """Of a linear system, which may have no numbers."""
    if isinstance(gram, np.ndarray):
        return np.asarray(np.linalg.solve(gram, right), np.float64)
    return scipy.sparse.linalg.splu(gram.tocsc(), SYMMETRIC).solve(right) if len(right) else right
