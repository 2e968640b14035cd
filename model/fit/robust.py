"""Least squares of which a few that are far off change little."""

from __future__ import annotations

import numpy as np

from model.fit.least_squares import nonnegative
from model.mappings.arrays import Floats

ROUNDS = 6
FAR, LOST = 5.0, 20.0
"""Of segments only what is so many times further off: a short one is held up rarely, but then by more than it takes,
and frames have many of them. What is still further off does not count: something else happened."""


def loss(off: Floats) -> float:
    """What is off, squared, of what is ``FAR`` less (P. J. Huber, Annals of Mathematical Statistics 35, 1964), and of
    what is ``LOST`` no more than that: as the numbers themselves are chosen."""
    there = np.minimum(np.abs(off), LOST)
    near = np.minimum(there, FAR)
    return float(np.sum(near * (2 * there - near)))


def robust(
    rows: Floats, values: Floats, known: int = 0, far: float = 1.0, lost: float = np.inf
) -> tuple[Floats, float]:
    """Least squares in which nothing is negative, and what is ``far`` times further off than usual counts less, what is
    ``lost`` times not at all, but for the first ``known`` rows. All in units of their error, which is larger where most
    are further off: how many times, is returned, too.

    At first what is further off than usual counts less at once, so that a few do not draw what most say; from there it
    is told what is far (in the manner of MM-estimates: V. J. Yohai, Annals of Statistics 15, 1987).
    """
    weight, x, usual = np.ones(len(rows)), np.zeros(rows.shape[1]), 1.0
    for further in [1.0] * ROUNDS + [far] * ROUNDS:
        x = nonnegative(rows * weight[:, None], values * weight)
        off = np.abs(rows @ x - values)[known:]
        usual = max(1.0, float(np.median(off)))
        off /= usual
        weight[known:] = np.where(off < lost, 1 / np.sqrt(np.maximum(1.0, off / further)), 0.0) / usual
    return x, usual
