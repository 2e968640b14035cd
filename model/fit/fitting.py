"""From what a calibration measured to the coefficients of one type of device, and how far they are off.

Each concept is fitted in a file of its own: kernels and gains (``model.fit.segments``), a coefficient a kind for layers
that were not measured (``model.fit.kinds``), memory (``model.fit.memory``). What to expect of
them is found by cross-validation (``model.fit.scores``). Waiting (``model.fit.waiting``) and energy
(``model.fit.energy``) need what was found here, and runs on several devices besides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from statistics import median
from typing import Any

import numpy as np

from model.cluster.coefficients import FrameError, UnitCost
from model.cost.samples import Footing, Run
from model.cost.segment_time import Network, predict
from model.fit.kinds import fit_kinds, measured
from model.fit.memory import fit_memory, memory_error
from model.fit.scores import Score, paces, scores
from model.fit.segments import fit_table
from model.fit.vector import fit_vector
from model.network.graph import Graph
from runtime.errors import CleaveError

MANY = 16
"""Segments of a frame beside which its begin and end are little."""

__all__ = ["Fitted", "Report", "Score", "fit", "fit_times", "predict"]


@dataclass(frozen=True)
class Report:
    """What a fit found out about itself; errors are relative.

    segments: how many samples there were
    networks: errors of the times of each
    kinds:    error of layers that were not measured, held out
    memory:   see ``model.fit.memory.memory_error``
    paces:    by key of a run, by how much all of it was slower than the others say, relative: far from 0 something ran
              beside it, and it is worth measuring again
    """

    segments: int
    networks: dict[str, Score]
    kinds: dict[str, float]
    memory: float | None
    paces: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Fitted:
    """Coefficients of a type of device, and what is known about them."""

    unit: UnitCost
    report: Report


def fit(
    graphs: Mapping[str, Graph],
    runs: Sequence[Run],
    declared: UnitCost,
    others: Sequence[Sequence[Footing]] = (),
) -> Fitted:
    """Fit what runs of one type of device tell; all else stays as it is declared.

    graphs: by ``Run.network``; declared: watts, frequency, threads, and how kinds compare that were not measured;
    others: what ranks of the type held in runs on several devices, by what was run there.
    ``CleaveError`` where there is nothing to fit to, or a network is missing.
    """
    runs = [replace(run, samples=tuple(s for s in run.samples if s.parts and s.time_s > 0)) for run in runs]
    _check(graphs, runs)
    networks = {name: Network(graphs[name]) for name in sorted({run.network for run in runs})}
    unit = fit_times(networks, runs, declared)
    found = scores(networks, runs, unit, partial(fit_times, declared=declared))
    ranks = [rank for run in runs for rank in run.ranks]
    unit = replace(unit, busy_part=_busy_part(runs), step_s=_step_s(runs))
    memory = memory_error(ranks, others, unit)
    unit = fit_memory([*ranks, *chain.from_iterable(others)], unit)
    kinds = {kind: cost.error for kind, cost in unit.layers.items() if cost.error is not None}
    report = Report(sum(len(run.samples) for run in runs), found, kinds, memory, paces(networks, runs, unit))
    return Fitted(replace(unit, frame_errors=_expected(found), memory_error=memory), report)


def _check(graphs: Mapping[str, Graph], runs: Sequence[Run]) -> None:
    if not any(run.samples for run in runs):
        raise CleaveError("no segment was measured that coefficients could be fitted to; calibrate first")
    if missing := sorted({run.network for run in runs} - set(graphs)):
        raise CleaveError(
            *[f"the network '{name}' was measured but is not given; add it with --cnn" for name in missing]
        )


def fit_times(networks: Mapping[str, Network], runs: Sequence[Run], declared: UnitCost) -> UnitCost:
    """The coefficients with kernels, gains, and kinds of layers as measured."""
    vector = fit_vector(networks, runs)
    table = fit_table(networks, runs, vector)
    graphs = {name: network.graph for name, network in networks.items()}
    return replace(
        fit_kinds(measured(graphs, table.kernels, vector), declared),
        vector=vector,
        singly=table.singly,
        kernels=table.kernels,
        gains=table.gains,
        gain_parts=table.parts,
        joins=table.joins,
        relayout_s_per_byte=table.relayout_s_per_byte,
    )


def _step_s(runs: Sequence[Run]) -> float:
    """Seconds between a segment and the next, by which frames of many are as little off as can be, relative."""
    many = [run for run in runs if len(run.samples) >= MANY]
    between = [(run.time_s - sum(s.time_s for s in run.samples)) / len(run.samples) for run in many]
    often = [len(run.samples) / run.time_s for run in many]
    return max(0.0, float(np.average(between, weights=np.square(often)))) if many else 0.0


def _busy_part(runs: Sequence[Run]) -> float | None:
    """Of the time that a device computes, the part in which its processor is at it, median; None: no run tells."""
    told = [run.busy_s / sum(s.time_s for s in run.samples) for run in runs if run.busy_s]
    return median(told) if told else None


def _expected(found: Mapping[str, Score]) -> dict[str, FrameError]:
    """By network, what to expect of a frame on one device, held out where that could be."""
    errors = {name: score.fitted if score.frame is None else score.frame for name, score in found.items()}
    return {name: FrameError(error, error, error) for name, error in errors.items()}
