"""From streams on one device to what is between two frames: the input is filled, the program begins anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from model.samples import Run


def fit_turn(runs: Sequence[Run], busy_part: float | None) -> float:
    """``coefficients.UnitCost.turn_s``: the seconds by which periods are as little off as can be, relative.

    It is what of a period is not computing. Where processors tell what they are at (``busy_part``), by this: who has a
    share of one stands still now and then, also while it computes.

    runs: on one type of device; those without a stream tell nothing
    """
    told = [(run.period_s, rank) for run in runs for rank in run.ranks if run.period_s and rank.stream_s]
    if not told:
        return 0.0
    between_s = [
        rank.between_s / busy_part if busy_part and rank.between_s is not None else period_s - (rank.stream_s or 0.0)
        for period_s, rank in told
    ]
    weights = np.array([period_s for period_s, _ in told]) ** -2.0
    return max(float(np.average(between_s, weights=weights)), 0.0)
