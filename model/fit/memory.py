"""From what ranks held and took to the resident bytes a byte of weights, activations and buffers (Eq. 4.9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from model.cluster.coefficients import UnitCost
from model.cost.samples import Footing
from model.fit.kinds import relative_error
from model.fit.least_squares import nonnegative
from model.mappings.arrays import Floats
from runtime.trace import Memory

MB = 1e6
LIKELY, DOUBT = 1.0, 0.5
"""Before anything is measured, and its standard error: resident bytes a byte of weights, and of activations. Runs
of one network on one device have the same weights and activations again and again and cannot tell them from what any
network takes; what they leave open stays near this."""
ACTIVATIONS, BUFFERS, SESSION, FIRST, LAYER = "activations", "buffers", "session", "first session", "layer"
OTHERS = {
    ACTIVATIONS: (LIKELY, DOUBT),
    BUFFERS: (1.0, 0.25),
    SESSION: (0.2, 0.5),
    FIRST: (10.0, 10.0),
    LAYER: (0.01, 0.01),
}
"""The same of all else: bytes a byte of activations and of buffers, MB of each session, the first, and each layer."""
RELATIVE = 0.005
"""Standard error of a rank's memory."""
ENOUGH = 8
"""Of fewer mappings on several devices each may be the only one that tells what something takes, and a fit without it
is off by what no prediction will be: VGG-16 on one of two types of hosts, in five, 15 % instead of 3."""


def fit_memory(ranks: Sequence[Footing], unit: UnitCost) -> UnitCost:
    """The coefficients with memory as measured; as they were where no rank has told.

    The base is what ranks say it is. What else is there at the end, without the frames that a benchmark makes
    beforehand, is weights, by kind of layer, activations, buffers of the plan, and what sessions take. While these are
    opened there may be more.
    """
    told = _told(ranks)
    if not told:
        return unit
    base = float(np.median([memory.base_bytes for _, memory in told]))
    lasting = np.array([float(memory.lasting_bytes) for _, memory in told])
    x = _solved([_held(rank) for rank, _ in told], lasting - base, RELATIVE * lasting)
    return replace(
        unit,
        memory_bias_bytes=base + x.pop(FIRST) * MB,
        memory_activations=x.pop(ACTIVATIONS),
        memory_buffers=x[BUFFERS],
        memory_passed=x.pop(BUFFERS),
        memory_segment_bytes=x.pop(SESSION) * MB,
        memory_layer_bytes=x.pop(LAYER) * MB,
        memory_opening=_opening(told),
        memory_weights=x.pop("", LIKELY),
        memory_kinds=x,
    )


def memory_error(ranks: Sequence[Footing], others: Sequence[Sequence[Footing]], unit: UnitCost) -> float | None:
    """Relative error of ranks' peaks in runs on several devices, each by a fit to all but what was run there, or to all
    where these are too few; where they tell none, of those of one device. None: no rank has told.

    ranks: of one device; others: of several, by what was run; unit: all but memory
    """
    groups = [group for group in others if _told(group)] or [ranks]
    few = len(groups) < ENOUGH
    pairs = []
    for left_out, group in enumerate(groups):
        rest = (other for number, other in enumerate(groups) if few or number != left_out)
        fitted = fit_memory([*ranks, *chain.from_iterable(rest)], unit)
        pairs += [(peak_bytes(rank, fitted), memory.without_input(rank.peak_bytes)) for rank, memory in _told(group)]
    return relative_error(*np.array(pairs, dtype=np.float64).T) if pairs else None


def _told(ranks: Sequence[Footing]) -> list[tuple[Footing, Memory]]:
    return [(rank, rank.memory) for rank in ranks if rank.memory is not None]


def peak_bytes(rank: Footing, unit: UnitCost) -> float:
    """What a rank's memory is at most by a unit's coefficients, as ``model.cost.spending`` has it."""
    weights = rank.weights_of or {"": rank.weights_bytes}
    lasts = unit.memory_bias_bytes + unit.memory_segment_bytes * rank.segments + unit.memory_layer_bytes * rank.layers
    lasts += sum(unit.held(kind) * size for kind, size in weights.items())
    frames = unit.memory_activations * rank.activations_bytes + unit.memory_buffers * rank.buffers_bytes
    return lasts + max(frames, unit.memory_opening * rank.opening_bytes)


def _opening(told: Sequence[tuple[Footing, Memory]]) -> float:
    """Resident bytes a byte of the weights that are there twice while sessions are opened, where these make the peak;
    0: no rank can tell."""
    known = [(rank.opening_bytes, memory.opening_bytes - memory.segments_bytes) for rank, memory in told
             if memory.opening_bytes > memory.lasting_bytes - memory.base_bytes]  # fmt: skip
    twice, more = np.array(known, np.float64).reshape(-1, 2).T
    return max(0.0, float(twice @ more / (twice @ twice))) if twice.any() else 0.0


def _solved(held: Sequence[Mapping[str, float]], rest: Floats, sigma: Floats) -> dict[str, float]:
    """What each is worth of what ranks have, so that ``rest`` is explained; near what is likely where it is open."""
    names = sorted({name for each in held for name in each})
    likely, doubt = np.array([OTHERS.get(name, (LIKELY, DOUBT)) for name in names]).T
    rows = np.array([[each.get(name, 0.0) for name in names] for each in held])
    both = np.vstack([rows / sigma[:, None], np.diag(1 / doubt)])
    x = nonnegative(both, np.concatenate([rest / sigma, likely / doubt]))
    return dict(zip(names, x.tolist(), strict=True))


def _held(rank: Footing) -> dict[str, float]:
    """Bytes, of weights by kind of layer (``""``: of any); then MB of each session, of the first, and of each layer."""
    return {
        **(rank.weights_of or {"": rank.weights_bytes}),
        ACTIVATIONS: rank.activations_bytes,
        BUFFERS: rank.buffers_bytes,
        SESSION: rank.segments * MB,
        FIRST: min(rank.segments, 1) * MB,
        LAYER: rank.layers * MB,
    }
