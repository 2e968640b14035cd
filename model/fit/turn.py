"""From streams on one device to what is between two frames: inputs are filled, the program begins anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from model.cost.samples import Footing, Run


def fit_turn(runs: Sequence[Run], busy_part: float | None) -> float:
    """``coefficients.UnitCost.turn_s``: the seconds by which periods are as little off as can be, relative.

    runs: on one type of device; those without a stream tell nothing; busy_part: of the device, as there
    """
    told = [(run.period_s, between_s(run, rank, busy_part)) for run in runs for rank in run.ranks if rank.stream_s]
    if not told:
        return 0.0
    period_s, seconds = np.array(told, dtype=np.float64).T
    return max(float(np.average(seconds, weights=period_s**-2.0)), 0.0)


def fit_fill(runs: Sequence[Run], busy_part: float | None) -> float:
    """``coefficients.UnitCost.fill_s_per_byte``, by which filling is as little off as can be, relative; runs and
    busy_part: as there. Who has a share of a processor stands still in few of these spans."""
    told = [(rank.fill_s, rank.input_bytes) for run in runs for rank in run.ranks if rank.fill_s and rank.input_bytes]
    if not told:
        return 0.0
    fill_s, size = np.array(told, dtype=np.float64).T
    return float(np.average(fill_s / size, weights=(size / fill_s) ** 2)) / (busy_part or 1.0)


def between_s(run: Run, rank: Footing, busy_part: float | None) -> float:
    """Seconds of a frame of a stream, which there is, in which a rank neither computes nor fills its inputs.

    Where processors tell what they are at, by this: who has a share of one stands still now and then, also while it
    computes.
    """
    if busy_part and rank.between_s is not None:
        return rank.between_s / busy_part
    return (run.period_s or 0.0) - (rank.stream_s or 0.0) - (rank.fill_s or 0.0)
