"""From runs on several devices to what messages cost a rank that waits for them, besides what they cost alone.

A rank that waits polls briefly and then sleeps (``runtime.communicator.wait``), so it notices a message after it has
come; and what it computes then takes longer than it would if the rank had computed all the time: its caches are cold,
its processor has slept. Both are fitted apart from computing, each as seconds a message and seconds a byte; they are
what is left between measured times and those that are predicted without them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from model.coefficients import UnitCost
from model.least_squares import Floats, nonnegative
from model.link_costs import LinkCosts
from model.link_fit import one_way_s
from model.samples import Run
from model.segment_time import Clock, Network

LEAST = 8
"""Messages, or segments, from which something is told."""
ROUNDS = 6
FAR_S = 2e-5
"""What is further off than usual counts less; so far off is usual in any case."""
SCALE = 1e-9


@dataclass(frozen=True)
class Waiting:
    """Fields of ``coefficients.UnitCost``."""

    late_s: float = 0.0
    late_s_per_byte: float = 0.0
    wake_s: float = 0.0
    wake_s_per_byte: float = 0.0


def fit_waiting(
    runs: Sequence[Run],
    networks: Mapping[str, Network],
    units: Mapping[str, UnitCost],
    links: LinkCosts,
    types: Mapping[str, str],
) -> dict[str, Waiting]:
    """By type of device. units: device → what it computes at; types: device → its type, as ``links`` has them"""
    late, wake = _by_type(_late(runs, links, types), types), _by_type(_woken(runs, networks, units), types)
    return {name: Waiting(*_line(late[name]), *_line(wake[name])) for name in dict.fromkeys(types.values())}


Row = tuple[str, int, float, float]
"""Device, bytes, how many messages, seconds more than predicted."""


def _by_type(rows: Sequence[Row], types: Mapping[str, str]) -> dict[str, list[tuple[int, float, float]]]:
    found = defaultdict[str, list[tuple[int, float, float]]](list)
    for device, *row in rows:
        found[types[device]].append(tuple(row))  # type: ignore[arg-type]
    return found


def _late(runs: Sequence[Run], links: LinkCosts, types: Mapping[str, str]) -> list[Row]:
    """Messages. Those that nobody waits for are noticed when they are looked for."""
    found: list[Row] = []
    for message in (message for run in runs for message in run.arrivals):
        alone_s = one_way_s(links, types, message.source, message.target, message.size_bytes)
        late_s = 0.0 if message.took_s is None else message.took_s - alone_s
        found.append((message.target, message.size_bytes, 1.0, late_s))
    return found


def _woken(runs: Sequence[Run], networks: Mapping[str, Network], units: Mapping[str, UnitCost]) -> list[Row]:
    """Segments that wait for messages."""
    found: list[Row] = []
    for run in runs:
        network, sizes = networks[run.network], defaultdict[int, list[int]](list)
        divided = network.divided(part for sample in run.samples for part in sample.parts)
        for message in run.arrivals:
            if message.sample is not None:
                sizes[message.sample].append(message.size_bytes)
        clocks = {name: Clock(network, units[name]) for name in {sample.device for sample in run.samples}}
        for index, of in sizes.items():
            sample = run.samples[index]
            more_s = sample.time_s - clocks[sample.device].seconds(sample.parts, divided)
            found.append((sample.device, sum(of), float(len(of)), more_s))
    return found


def _line(rows: Sequence[tuple[int, float, float]]) -> tuple[float, float]:
    """Seconds a message and a byte, neither negative; 0 where too little was seen. Far off counts less."""
    if len(rows) < LEAST:
        return 0.0, 0.0
    size, count, seconds = np.array(rows, dtype=np.float64).T
    a, weight = np.stack([count, size * SCALE], axis=1), np.ones(len(rows))
    for _ in range(ROUNDS):
        x = nonnegative(sparse.csr_matrix(a * weight[:, None]), seconds * weight)
        weight = _believed(np.abs(a @ x - seconds))
    return float(x[0]), float(x[1] * SCALE)


def _believed(off: Floats) -> Floats:
    return 1 / np.sqrt(np.maximum(1.0, off / max(FAR_S, float(np.median(off)))))
