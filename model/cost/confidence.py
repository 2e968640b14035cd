"""How far a prediction may be off: the errors that calibration found, carried to a mapping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

import numpy as np
from numpy.typing import NDArray

from model.cluster import coefficients
from model.cluster.coefficients import PAPER, FrameError, UnitCost
from model.cluster.platform import Platform
from model.cost.case import Case
from model.cost.costs import costs
from model.cost.ledger import MEMORY
from model.cost.priced import Priced, charged
from model.mappings.arrays import Floats, arrays
from model.mappings.mapping import Mapping
from model.network import layer_kinds
from model.network.graph import Graph, Layer
from model.network.signature import signatures

FEW = 1.0
"""Relative error of a layer of whose like calibration has measured some, but too few to tell one: all of its time."""


@dataclass(frozen=True)
class Expected:
    """Relative errors to expect of what is told of a mapping, beside those of declared watts; None: unknown."""

    latency: float | None
    energy: float | None
    memory: float | None
    period: float | None


def of_mapping(graph: Graph, platform: Platform, mapping: Mapping) -> Expected | None:
    """``expected_error`` of a checked mapping."""
    return of_mappings(graph, platform, [mapping])[0]


def of_mappings(graph: Graph, platform: Platform, mappings: Sequence[Mapping]) -> list[Expected | None]:
    """``expected_error`` of each checked mapping."""
    known, g = _Known.of(graph, platform), arrays(graph)
    if np.isnan(known.frames).all():
        return [None] * len(mappings)
    shared = costs(graph, g, platform)
    return [known.expected(charged(Case.lowered(g, shared, mapping))) for mapping in mappings]


def expected_error(graph: Graph, platform: Platform, found: Priced) -> Expected | None:
    """What to expect of a mapping, by what it computes; None: unknown.

    Frames are off although all of their layers were measured; layers that were not by their kind's error, held out, or
    ``FEW``, each by its part of the time. Layers of a kind are off in the same direction, kinds and frames each by
    themselves. Energy is as far off as what processors compute.
    """
    return _Known.of(graph, platform).expected(found)


@dataclass(frozen=True, eq=False)
class _Known:
    """Relative errors that calibration found; NaN: unknown.

    layers: (L, D) of what a layer takes, beyond what frames are off by; kinds: (L,) number of its kind
    frames: (D, 3) fields of a ``FrameError``; memory: (D,)
    """

    layers: Floats
    kinds: NDArray[np.intp]
    frames: Floats
    memory: Floats

    @staticmethod
    def of(graph: Graph, platform: Platform) -> _Known:
        """Of a network on the devices of a platform."""
        sets = [(device.coefficients, device.unit) for device in platform.devices]
        units = {each: coefficients.load(each[0]).unit(each[1]) for each in sets}
        column = [[*units].index(each) for each in sets]
        kinds = [layer_kinds.kind(graph, layer) for layer in graph.layers]
        return _Known(
            _layers(graph, [*units.values()])[:, column],
            np.unique(kinds, return_inverse=True)[1],
            np.array([_frame(unit, graph.name) for unit in units.values()])[column],
            np.array([np.nan if unit.memory_error is None else unit.memory_error for unit in units.values()])[column],
        )

    def expected(self, found: Priced) -> Expected | None:
        """See ``expected_error``."""
        bounds = found.shards.ptr[found.g.n_inputs :][: len(self.kinds) + 1]
        rows, layer = slice(bounds[0], bounds[-1]), np.repeat(np.arange(len(self.kinds)), np.diff(bounds))
        device, seconds = found.shards.device[rows], found.ledger.seconds[rows]
        by_kind = np.bincount(self.kinds[layer], seconds * self.layers[layer, device])
        frames = (seconds[:, None] * self.frames[device]).sum(axis=0)
        total, off = seconds.sum(), np.hypot(frames, np.sqrt(np.square(by_kind).sum()))
        if not total or np.isnan(off).any():
            return None
        latency, period, computing = (off / total).tolist()
        return Expected(latency, computing, self._resident(found.account[:, MEMORY]), period)

    def _resident(self, held: Floats) -> float | None:
        """Of resident memory, by how much of it each device has."""
        there = held > 0
        error = float(np.average(self.memory[there], weights=held[there])) if there.any() else math.nan
        return None if math.isnan(error) else error


def untold(graph: Graph, platform: Platform) -> tuple[str, ...]:
    """Operators of a network of which calibration has not measured any layer on some device.

    What these take is a guess, and so predictions with them have no error to expect. The thesis' equations know of no
    layer that was measured.
    """
    sets = {(d.coefficients, d.unit): coefficients.load(d.coefficients) for d in platform.devices}
    units = [s.unit(unit) for (name, unit), s in sets.items() if s.calibrated and not name.endswith(PAPER)]
    return tuple(dict.fromkeys(graph.layers[at].op for at, _ in np.argwhere(np.isnan(_layers(graph, units)))))


def _frame(unit: UnitCost, network: str) -> tuple[float, ...]:
    """Fields of a ``FrameError``; NaN: unknown."""
    error = unit.frame_error(network)
    return (math.nan,) * len(fields(FrameError)) if error is None else astuple(error)


def _layers(graph: Graph, units: Sequence[UnitCost]) -> Floats:
    """(L, units) errors of what layers take, beyond what frames are off by; NaN: unknown."""
    names = signatures(graph)
    rows = [
        [_error(graph, layer, name, unit) for unit in units] for layer, name in zip(graph.layers, names, strict=True)
    ]
    return np.array(rows, dtype=float).reshape(len(names), len(units))


def _error(graph: Graph, layer: Layer, name: str, unit: UnitCost) -> float:
    if name in unit.kernels:
        return 0.0
    error = unit.layers[layer_kinds.kind(graph, layer)].error
    if error is None:
        return FEW if any(kernel.op == layer.op for kernel in unit.kernels.values()) else math.nan
    return error
