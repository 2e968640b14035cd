"""How far a prediction may be off: the errors that calibration found, carried to a mapping."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any

import numpy as np

from model.cluster import coefficients
from model.cluster.coefficients import PAPER, FrameError, UnitCost
from model.cluster.platform import Platform
from model.cost.ledger import MEMORY
from model.cost.priced import Priced, priced
from model.mappings.arrays import Floats
from model.mappings.mapping import Mapping
from model.network import layer_kinds
from model.network.graph import Graph, Layer
from model.network.signature import signature

FEW = 1.0
"""Relative error of a layer of whose like calibration has measured some, but too few to tell one: all of its time."""


@dataclass(frozen=True)
class Expected:
    """Relative errors to expect of what is told of a mapping, beside those of declared watts; memory None: unknown."""

    latency: float
    energy: float
    memory: float | None
    period: float


def of_mapping(graph: Graph, platform: Platform, mapping: Mapping) -> Expected | None:
    """``expected_error`` of a checked mapping."""
    return expected_error(graph, platform, priced(graph, platform, mapping))


def expected_error(graph: Graph, platform: Platform, found: Priced) -> Expected | None:
    """What to expect of a mapping, by what it computes; None: unknown.

    Frames are off although all of their layers were measured; layers that were not by their kind's error, held out, or
    ``FEW``, each by its part of the time. Layers of a kind are off in the same direction, kinds and frames each by
    themselves. Energy is as far off as what processors compute.
    """
    first, s, units = found.g.n_inputs, found.shards, _units(platform)
    frames = [_frame(unit, graph.name) for unit in units]
    frames_s, kinds_s, total_s = np.zeros(len(fields(FrameError))), defaultdict[str, float](float), 0.0
    for layer in graph.layers:
        rows = slice(s.ptr[first + layer.index], s.ptr[first + layer.index + 1])
        for device, seconds in zip(s.device[rows], found.ledger.seconds[rows], strict=True):
            frame, error = frames[device], _error(graph, layer, units[device])
            if frame is None or error is None:
                return None
            frames_s += float(seconds) * frame
            kinds_s[layer_kinds.kind(graph, layer)] += float(seconds) * error
            total_s += float(seconds)
    if not total_s:
        return None
    latency, period, computing = (math.hypot(each, *kinds_s.values()) / total_s for each in frames_s.tolist())
    return Expected(latency, computing, _memory(units, found), period)


def worst(errors: Iterable[Expected | None]) -> Expected | None:
    """The largest of each, of what is known."""
    rows = [asdict(each) for each in errors if each is not None]
    most: dict[str, Any] = {
        field.name: max((row[field.name] for row in rows if row[field.name] is not None), default=None)
        for field in fields(Expected)
    }
    return Expected(**most) if rows else None


def _units(platform: Platform) -> list[UnitCost]:
    """Of each device."""
    return [coefficients.load(d.coefficients).unit(d.unit) for d in platform.devices]


def _frame(unit: UnitCost, network: str) -> Floats | None:
    """Fields of a ``FrameError``; None: unknown."""
    error = unit.frame_error(network)
    return None if error is None else np.array(astuple(error))


def _memory(units: Sequence[UnitCost], found: Priced) -> float | None:
    """Of resident memory, by how much of it each device has."""
    held = {device: size for device, size in enumerate(found.account[:, MEMORY].tolist()) if size}
    errors = [error for device in held if (error := units[device].memory_error) is not None]
    return float(np.average(errors, weights=[*held.values()])) if len(errors) == len(held) else None


def untold(graph: Graph, platform: Platform) -> tuple[str, ...]:
    """Operators of a network of which calibration has not measured any layer on some device.

    What these take is a guess, and so predictions with them have no error to expect. The thesis' equations know of no
    layer that was measured.
    """
    sets = {(d.coefficients, d.unit): coefficients.load(d.coefficients) for d in platform.devices}
    units = [s.unit(unit) for (name, unit), s in sets.items() if s.calibrated and not name.endswith(PAPER)]
    layers = [layer for layer in graph.layers if any(_error(graph, layer, unit) is None for unit in units)]
    return tuple(dict.fromkeys(layer.op for layer in layers))


def _error(graph: Graph, layer: Layer, unit: UnitCost) -> float | None:
    """Of what a layer takes, beyond what frames are off by; None: unknown."""
    if unit.kernels and signature(graph, layer) in unit.kernels:
        return 0.0
    error = unit.layers[layer_kinds.kind(graph, layer)].error
    few = error is None and any(kernel.op == layer.op for kernel in unit.kernels.values())
    return FEW if few else error
