"""From streams on several devices to what messages cost there, besides what frames alone tell.

What a rank computes while a message comes takes longer: kernel and MPI take the processor. And each message and each
byte make the program of a frame longer, also where nobody waits for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy

from model.cluster.coefficients import UnitCost
from model.cost.samples import Run, means_s
from model.cost.segment_time import Network
from model.fit.sharing import Wires
from model.fit.turn import between_s
from model.fit.waiting import FAR_S, OFF, Waiting, attending, begin_rested, by_type, parts_of

RESTED = 0.3
"""By so large a part of it, what rest saves of short segments is off (docs/model.md)."""


class Taken(NamedTuple):
    """A rank of a stream: bytes that come while it computes; seconds by which it computes longer than in frames alone,
    but for what it attends to more and rests less; and how well these are known."""

    came_bytes: float
    more_s: float
    error_s: float


class Turned(NamedTuple):
    """A rank of a stream: messages and bytes of them that it sends and receives, and seconds of its frames that these
    take besides what is told otherwise."""

    messages: float
    size_bytes: float
    more_s: float


def fit_stream(
    runs: Sequence[Run],
    networks: Mapping[str, Network],
    waiting: Mapping[str, Waiting],
    units: Mapping[str, UnitCost],
    wires: Wires,
    types: Mapping[str, str],
) -> dict[str, Waiting]:
    """By type of device, all that messages cost. waiting: what ``fit_waiting`` has found; the others as there"""
    known = {device: waiting[name] for device, name in types.items()}
    likely = attending(waiting, parts_of(units, types))
    taken = by_type(_taken(runs, networks, known, wires), types)
    turned = by_type(_turned(runs, known, units), types)
    return {
        name: replace(each, take_s_per_byte=_take(taken[name], likely[name]), **_turn(turned[name]))
        for name, each in waiting.items()
    }


def _taken(
    runs: Sequence[Run], networks: Mapping[str, Network], known: Mapping[str, Waiting], wires: Wires
) -> list[tuple[str, Taken]]:
    """Ranks that receive messages in streams."""
    found = []
    for run in runs:
        leaving, away = wires.leaving(run), [m for m in run.arrivals if wires.between(m)]
        rested, means = begin_rested(run, networks[run.network].graph), means_s(run.samples)
        for rank in run.ranks:
            came = sum(m.size_bytes for m in away if m.target == rank.device)
            if came and rank.stream_s and run.period_s:
                mine = [index for index, sample in enumerate(run.samples) if sample.device == rank.device]
                alone_s = float(means[mine].sum())
                sent = sum(m.size_bytes for m in away if m.source == rank.device)
                cost, idle_s = known[rank.device], max(run.period_s - rank.stream_s, 0.0)
                attended_s = cost.attend_s_per_byte * (sent - sum(leaving[index] for index in mine))
                saved_s = sum(cost.rest_saves(float(means[index])) for index in mine if index in rested)
                tired_s = saved_s - min(saved_s, cost.rested_part * idle_s)
                busy, more_s = min(rank.stream_s / run.period_s, 1.0), rank.stream_s - alone_s - attended_s - tired_s
                error_s = OFF * alone_s + RESTED * saved_s + FAR_S
                found.append((rank.device, Taken(busy * came, more_s, error_s)))
    return found


def _turned(
    runs: Sequence[Run], known: Mapping[str, Waiting], units: Mapping[str, UnitCost]
) -> list[tuple[str, Turned]]:
    """Ranks of streams that send or receive."""
    found = []
    for run in (run for run in runs if run.period_s):
        for rank in (rank for rank in run.ranks if rank.stream_s):
            unit, late = units[rank.device], known[rank.device]
            sent = [message.size_bytes for message in run.arrivals if message.source == rank.device]
            came = [message.size_bytes for message in run.arrivals if message.target == rank.device]
            told_s = unit.turn_s + len(sent) * unit.send_s + sum(sent) * unit.send_s_per_byte
            told_s += (rank.segments + len(sent) + len(came)) * unit.step_s
            told_s += len(came) * (unit.receive_s + late.late_s)
            told_s += sum(came) * (unit.receive_s_per_byte + late.late_s_per_byte)
            if sent or came:
                more_s = max(between_s(run, rank, unit.busy_part) - told_s, 0.0)
                found.append((rank.device, Turned(len(sent) + len(came), sum(sent) + sum(came), more_s)))
    return found


def _turn(rows: Sequence[Turned]) -> dict[str, float]:
    """Fields of ``Waiting``: as much a message and a byte as no rank takes less. Who waits has looked for messages,
    too, so most take more."""
    messages, size_bytes, more_s = np.array(rows, dtype=np.float64).reshape(-1, len(Turned._fields)).T
    if not rows or not more_s.all():
        return {}
    scale = np.array([messages.mean(), size_bytes.mean()]) / more_s.mean()
    parts = np.column_stack([messages, size_bytes]) / more_s[:, None] / scale
    x = scipy.optimize.linprog(-parts.sum(axis=0), A_ub=parts, b_ub=np.ones(len(parts))).x / scale
    return {"turn_per_message_s": float(x[0]), "turn_s_per_byte": float(x[1])}


def _take(rows: Sequence[Taken], likely: float) -> float:
    """Seconds a byte, at most what attending to one that leaves is likely to take: hosts that all compute at once may
    take longer, messages or not. Where streams tell little it is near that.
    """
    if not rows or not likely:
        return 0.0
    came, more, error = np.array(rows, dtype=np.float64).T
    known = float(np.sum((came / error) ** 2)) * likely**2
    told = float(np.sum(came * more / error**2)) * likely**2
    return min(max(0.0, (told + likely) / (known + 1.0)), likely)
