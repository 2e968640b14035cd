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

MB = 1e6
LIKELY = np.array([1.0, 1.0, 1.0, 0.2, 10.0])
DOUBT = np.array([0.5, 0.5, 0.25, 0.5, 10.0])
"""Before anything is measured, and its standard error: resident bytes a byte of weights, activations and buffers; MB
of each session, and of the first. Runs of one network on one device have the same weights and activations again and
again and cannot tell them from what any network takes; what they leave open stays near this."""
RELATIVE = 0.005
"""Standard error of a rank's memory."""


def fit_memory(runs: Sequence[Run], unit: UnitCost) -> tuple[UnitCost, float | None]:
    """The coefficients with memory as measured, and the relative error of ranks' peaks; None: no rank has told.

    The base is what ranks say it is. What is left of their peak, without the frames that a benchmark makes beforehand,
    is weights, activations, buffers of the plan, and what sessions take.
    """
    ranks = [rank for run in runs for rank in run.ranks if rank.memory is not None]
    if not ranks:
        return unit, None
    base = float(np.median([rank.memory.base_bytes for rank in ranks if rank.memory]))
    rows, peaks = np.array([_held(rank) for rank in ranks]), np.array([_peak(rank) for rank in ranks])
    sigma = RELATIVE * peaks
    both = np.vstack([rows / sigma[:, None], np.diag(1 / DOUBT)])
    x = nonnegative(sparse.csr_matrix(both), np.concatenate([(peaks - base) / sigma, LIKELY / DOUBT]))
    weights, activations, buffers, session, first = (float(v) for v in x)
    fitted = replace(
        unit,
        memory_bias_bytes=base + first * MB,
        memory_weights=weights,
        memory_activations=activations,
        memory_buffers=buffers,
        memory_segment_bytes=session * MB,
    )
    return fitted, relative_error(base + rows @ x, peaks)


def _held(rank: Footing) -> tuple[float, float, float, float, float]:
    """Bytes; then what sessions take, in MB each and in MB of the first."""
    return (
        rank.weights_bytes,
        rank.activations_bytes,
        rank.buffers_bytes,
        rank.segments * MB,
        min(rank.segments, 1) * MB,
    )


def _peak(rank: Footing) -> float:
    """Resident bytes at most, without what a benchmark alone has: frames that are made before they are needed."""
    return float(rank.peak_bytes - (rank.memory.input_bytes if rank.memory else 0))
