"""From what ranks held and took to the resident bytes a byte of weights, activations and buffers (Eq. 4.9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy import sparse

from model.coefficients import UnitCost
from model.fit_kinds import relative_error
from model.least_squares import Floats, nonnegative
from model.samples import Footing

MB = 1e6
LIKELY, DOUBT = 1.0, 0.5
"""Before anything is measured, and its standard error: resident bytes a byte of weights, activations and buffers. Runs
of one network on one device have the same weights and activations again and again and cannot tell them from what any
network takes; what they leave open stays near this."""
ACTIVATIONS, BUFFERS, SESSION, FIRST, OPENING = "activations", "buffers", "session", "first session", "opening"
OTHERS = {ACTIVATIONS: (1.0, 0.5), BUFFERS: (1.0, 0.25), SESSION: (0.2, 0.5), FIRST: (10.0, 10.0), OPENING: (1.0, 0.5)}
"""The same of all else: MB of each session, and of the first; bytes a byte of the weights that are there twice while a
session is opened."""
RELATIVE = 0.005
"""Standard error of a rank's memory."""


def fit_memory(ranks: Sequence[Footing], unit: UnitCost) -> tuple[UnitCost, float | None]:
    """The coefficients with memory as measured, and the relative error of ranks' peaks; None: no rank has told.

    The base is what ranks say it is. What is left of their peak, without the frames that a benchmark makes beforehand,
    is weights, by kind of layer, activations, buffers of the plan, and what sessions take.
    """
    ranks = [rank for rank in ranks if rank.memory is not None]
    if not ranks:
        return unit, None
    base = float(np.median([rank.memory.base_bytes for rank in ranks if rank.memory]))
    held, peaks = [_held(rank) for rank in ranks], np.array([_peak(rank) for rank in ranks])
    x = _solved(held, peaks - base, RELATIVE * peaks)
    predicted = base + np.array([sum(x[name] * size for name, size in each.items()) for each in held])
    fitted = replace(
        unit,
        memory_bias_bytes=base + x.pop(FIRST) * MB,
        memory_activations=x.pop(ACTIVATIONS),
        memory_buffers=x[BUFFERS],
        memory_passed=x.pop(BUFFERS),
        memory_segment_bytes=x.pop(SESSION) * MB,
        memory_opening=x.pop(OPENING),
        memory_weights=x.pop("", LIKELY),
        memory_kinds=x,
    )
    return fitted, relative_error(predicted, peaks)


def _solved(held: Sequence[Mapping[str, float]], rest: Floats, sigma: Floats) -> dict[str, float]:
    """What each is worth of what ranks have, so that ``rest`` is explained; near what is likely where it is open."""
    names = sorted({name for each in held for name in each})
    likely, doubt = np.array([OTHERS.get(name, (LIKELY, DOUBT)) for name in names]).T
    rows = np.array([[each.get(name, 0.0) for name in names] for each in held])
    both = np.vstack([rows / sigma[:, None], np.diag(1 / doubt)])
    x = nonnegative(sparse.csr_matrix(both), np.concatenate([rest / sigma, likely / doubt]))
    return dict(zip(names, x.tolist(), strict=True))


def _held(rank: Footing) -> dict[str, float]:
    """Bytes, of weights by kind of layer (``""``: of any); then MB of each session, and of the first."""
    return {
        **(rank.weights_of or {"": rank.weights_bytes}),
        ACTIVATIONS: rank.activations_bytes,
        BUFFERS: rank.buffers_bytes,
        SESSION: rank.segments * MB,
        FIRST: min(rank.segments, 1) * MB,
        OPENING: rank.opening_bytes,
    }


def _peak(rank: Footing) -> float:
    """Resident bytes at most, without what a benchmark alone has: frames that are made before they are needed."""
    return float(rank.memory.without_input(rank.peak_bytes) if rank.memory else rank.peak_bytes)
