"""From metered runs to watts and joules a byte; where no meter was, what is declared stays.

    energy = idle_w * time + sum over kinds of  busy_w(kind) * busy(kind)  + joules a byte sent and received

by non-negative least squares of relative errors. Kinds that runs cannot tell apart draw alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from model.cluster.coefficients import UnitCost
from model.cost.samples import LEAST_S, Run, Sample
from model.cost.segment_time import Clock, Network
from model.fit.least_squares import nonnegative
from model.mappings.arrays import Floats
from model.network.layer_kinds import KINDS, kind

LEAST = 3
"""Metered runs without which there is nothing to fit."""
RELATIVE, DOUBT = 0.02, 0.5
"""Standard error of a measured energy, and of a kind's power before it is measured, which is that of all together."""
NO_RADIO = 1e-6
"""Joules a byte that would be much: a byte's energy is doubted so much that it is 0 unless runs tell."""


@dataclass(frozen=True)
class Metered:
    """What a host drew, and what ran there meanwhile. busy_s: seconds of computing by kind of layer"""

    energy_j: float
    time_s: float
    busy_s: dict[str, float]
    sent_bytes: float = 0.0
    received_bytes: float = 0.0


def metered(
    run: Run, network: Network, units: Mapping[str, UnitCost], machines: Mapping[str, int]
) -> Iterator[tuple[str, Metered]]:
    """What a frame of a run took of each machine with a meter, and the device of it that told. A meter that counts
    nothing tells nothing.

    units: what devices compute at; machines: by device
    """
    for rank in run.ranks:
        if rank.energy_j is not None and rank.energy_j > 0 and rank.energy_time_s is not None:
            here = {device for device, machine in machines.items() if machine == machines[rank.device]}
            busy = _busy(network, units, [sample for sample in run.samples if sample.device in here])
            sent = sum(m.size_bytes for m in run.arrivals if m.source in here and m.target not in here)
            received = sum(m.size_bytes for m in run.arrivals if m.target in here and m.source not in here)
            yield rank.device, Metered(rank.energy_j, rank.energy_time_s, busy, sent, received)


def _busy(network: Network, units: Mapping[str, UnitCost], samples: Sequence[Sample]) -> dict[str, float]:
    """Seconds of a processor by kind of layer: those of a segment are divided as its parts are predicted."""
    clocks = {device: Clock(network, units[device]) for device in {sample.device for sample in samples}}
    found = defaultdict[str, float](float)
    for sample in samples:
        parts = [max(part_s, LEAST_S) for part_s in clocks[sample.device].each(sample.parts)]
        for part, part_s in zip(sample.parts, parts, strict=True):
            seconds = sample.time_s if sample.busy_s is None else sample.busy_s
            found[kind(network.graph, network.graph.layers[part.layer])] += seconds * part_s / sum(parts)
    return dict(found)


def with_power(unit: UnitCost, metered: Sequence[Metered]) -> UnitCost:
    """The coefficients with power as measured. A layer's watts are all that the host draws while it runs."""
    if len(metered) < LEAST:
        return unit
    energy = np.array([run.energy_j for run in metered])
    mean_w = float(energy.sum() / sum(run.time_s for run in metered))
    idle, busy = _overall(metered, energy, mean_w)
    x = _solved(metered, energy, np.array([idle] + [busy] * len(KINDS) + [0.0, 0.0]))
    idle, powers = float(x[0]), dict(zip(KINDS, x[1:], strict=False))
    layers = {kind: replace(cost, power_w=idle + float(powers[kind])) for kind, cost in unit.layers.items()}
    return replace(unit, layers=layers, idle_w=idle, send_j_per_byte=float(x[-2]), receive_j_per_byte=float(x[-1]))


def _overall(metered: Sequence[Metered], energy: Floats, mean_w: float) -> Floats:
    """Idle watts, and what computing adds, whatever the kind; half of all, each, before runs tell them apart."""
    rows = np.array([[run.time_s, sum(run.busy_s.values())] for run in metered])
    return _near(rows, energy, np.full(2, mean_w / 2), np.full(2, mean_w / 2))


def _solved(metered: Sequence[Metered], energy: Floats, likely: Floats) -> Floats:
    """Idle watts, watts of each kind, joules a byte sent and received. likely: the same, before runs tell them apart"""
    rows = np.array(
        [
            [run.time_s, *[run.busy_s.get(kind, 0.0) for kind in KINDS], run.sent_bytes, run.received_bytes]
            for run in metered
        ]
    )
    doubt = np.full(len(likely), DOUBT * likely.max())
    doubt[-2:] = NO_RADIO
    return _near(rows, energy, likely, doubt)


def _near(rows: Floats, energy: Floats, likely: Floats, doubt: Floats) -> Floats:
    """What makes up energies, near what is likely of it. doubt: of that"""
    both = np.vstack([rows / (RELATIVE * energy)[:, None], np.diag(1 / doubt)])
    return nonnegative(both, np.concatenate([np.full(len(energy), 1 / RELATIVE), likely / doubt]))
