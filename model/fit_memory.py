"""From what ranks held and took to the resident bytes a byte of weights, activations and buffers (Eq. 4.9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import sparse

from model.coefficients import UnitCost
from model.fit_kinds import relative_error
from model.least_squares import nonnegative
from model.samples import Footing, Run

LIKELY, DOUBT = 1.0, 2.0
"""Resident bytes a byte of anything, and its standard error, before anything is measured: runs of one network on one
device have the same weights and activations again and again, and cannot tell the two apart."""
RELATIVE = 0.03
"""Standard error of a rank's memory."""
SESSION_BYTES = 1e6
"""Scale of what a segment takes, whatever it holds."""


def fit_memory(runs: Sequence[Run], unit: UnitCost) -> tuple[UnitCost, float | None]:
    """The coefficients with memory as measured, and the mean relative error of a rank's; None: no rank has told.

    The base is what ranks say it is. What is left of their peak, without the frames that a benchmark makes beforehand,
    is weights, activations, buffers of the plan, and what each session takes; as little of it as may be is negative.
    """
    ranks = [rank for run in runs for rank in run.ranks if rank.memory is not None]
    if not ranks:
        return unit, None
    base = float(np.median([rank.memory.base_bytes for rank in ranks if rank.memory]))
    rows = np.array([_held(rank) for rank in ranks])
    peaks = np.array([_peak(rank) for rank in ranks])
    sigma = RELATIVE * peaks
    prior = np.diag([np.median(rows[:, k][rows[:, k] > 0]) if rows[:, k].any() else 1.0 for k in range(rows.shape[1])])
    pull = np.diag(prior) * np.array([LIKELY] * 3 + [0.0])
    doubt = DOUBT * np.maximum(np.diag(prior), 1.0)
    x = nonnegative(
        sparse.csr_matrix(np.vstack([rows / sigma[:, None], prior / doubt[:, None]])),
        np.concatenate([(peaks - base) / sigma, pull / doubt]),
    )
    weights, activations, buffers, session = (float(v) for v in x)
    fitted = replace(
        unit,
        memory_bias_bytes=base,
        memory_weights=weights,
        memory_activations=activations,
        memory_buffers=buffers,
        memory_segment_bytes=session * SESSION_BYTES,
    )
    return fitted, relative_error(base + rows @ x, peaks)


def _held(rank: Footing) -> tuple[float, float, float, float]:
    return rank.weights_bytes, rank.activations_bytes, rank.buffers_bytes, rank.segments * SESSION_BYTES


def _peak(rank: Footing) -> float:
    """Resident bytes at most, without what a benchmark alone has: frames that are made before they are needed."""
    return float(rank.peak_bytes - (rank.memory.input_bytes if rank.memory else 0))
