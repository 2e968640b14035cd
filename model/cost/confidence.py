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
from model.cost.ledger import ENERGY, MEMORY
from model.cost.priced import Priced, pricer
from model.mappings.arrays import Floats
from model.mappings.mapping import Mapping
from model.network import boxes, layer_kinds
from model.network.graph import Graph, Layer
from model.network.signature import signatures

WHOLE = 0
"""Column of what is known of whole layers; those of parts follow, by kind of split."""
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
    known = _Known.of(graph, platform)
    if np.isnan(known.frames).all() and np.isnan(known.memory).all():
        return [None] * len(mappings)
    price = pricer(graph, platform)
    return [known.expected(price(mapping)) for mapping in mappings]


def expected_error(graph: Graph, platform: Platform, found: Priced) -> Expected | None:
    """What to expect of a mapping, by what it computes; None: unknown.

    Frames are off although all of their layers were measured; layers that were not by their kind's error, held out, or
    ``FEW``, each by its part of the time; parts of a layer of which none of their kind were measured by that error.
    Layers of a kind are off in the same direction, kinds and frames each by themselves. Energy is as far off as what
    processors compute, and what a host draws all the time as the latency.
    """
    return _Known.of(graph, platform).expected(found)


@dataclass(frozen=True, eq=False)
class _Known:
    """Relative errors that calibration found; NaN: unknown.

    layers: (L, D, 1 + KINDS) of what a layer takes, beyond what frames are off by: the WHOLE, and parts of it, by kind
            of split; kinds: (L,) number of its kind
    frames: (D, 3) fields of a ``FrameError``; memory: (D,); idle_w: (D,) watts that machines draw all the time, as seen
            with each device; machine: (D,) that it is in
    """

    layers: Floats
    kinds: NDArray[np.intp]
    frames: Floats
    memory: Floats
    idle_w: Floats
    machine: NDArray[np.intp]

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
            np.array([unit.idle_w or 0.0 for unit in units.values()])[column],
            np.array([*platform.machines.values()]),
        )

    def expected(self, found: Priced) -> Expected | None:
        """See ``expected_error``."""
        bounds = found.shards.ptr[found.g.n_inputs :][: len(self.kinds) + 1]
        rows, layer = slice(bounds[0], bounds[-1]), np.repeat(np.arange(len(self.kinds)), np.diff(bounds))
        device, seconds = found.shards.device[rows], found.ledger.seconds[rows]
        split = np.where(np.diff(bounds) > 1, 1 + found.shards.kind[found.g.n_inputs :][: len(self.kinds)], WHOLE)
        by_kind = np.bincount(self.kinds[layer], seconds * self.layers[layer, device, split[layer]])
        frames = (seconds[:, None] * self.frames[device]).sum(axis=0)
        total, off = seconds.sum(), np.hypot(frames, np.sqrt(np.square(by_kind).sum()))
        latency, period, computing = (off / total).tolist() if total else [math.nan] * len(off)
        idle = self._idle(found)
        each = (latency, idle * latency + (1 - idle) * computing, self._resident(found.account[:, MEMORY]), period)
        return None if np.isnan(each).all() else Expected(*(None if math.isnan(error) else error for error in each))

    def _idle(self, found: Priced) -> float:
        """Of the energy of the device that takes most, the part that its machine draws all the time."""
        most = int(found.account[:, ENERGY].argmax())
        beside = found.takes_part & (self.machine == self.machine[most])
        always_j = found.latency_s * self.idle_w[beside].max(initial=0.0)
        return min(float(always_j / max(found.account[most, ENERGY], 1e-300)), 1.0)

    def _resident(self, held: Floats) -> float:
        """Of resident memory, by how much of it each device has; NaN: unknown."""
        there = held > 0
        return float(np.average(self.memory[there], weights=held[there])) if there.any() else math.nan


def untold(graph: Graph, platform: Platform) -> tuple[str, ...]:
    """Operators of a network of which calibration has not measured any layer on some device.

    What these take is a guess, and so predictions with them have no error to expect. The thesis' equations know of no
    layer that was measured.
    """
    sets = {(d.coefficients, d.unit): coefficients.load(d.coefficients) for d in platform.devices}
    units = [s.unit(unit) for (name, unit), s in sets.items() if s.calibrated and not name.endswith(PAPER)]
    unknown = np.isnan(_layers(graph, units)[..., WHOLE])
    return tuple(dict.fromkeys(graph.layers[at].op for at, _ in np.argwhere(unknown)))


def _frame(unit: UnitCost, network: str) -> tuple[float, ...]:
    """Fields of a ``FrameError``; NaN: unknown."""
    error = unit.frame_error(network)
    return (math.nan,) * len(fields(FrameError)) if error is None else astuple(error)


def _layers(graph: Graph, units: Sequence[UnitCost]) -> Floats:
    """(L, units, 1 + KINDS) errors of what layers and parts of them take, see ``_Known``; NaN: unknown."""
    names = signatures(graph)
    rows = [
        [_errors(graph, layer, name, unit) for unit in units] for layer, name in zip(graph.layers, names, strict=True)
    ]
    return np.array(rows, dtype=float).reshape(len(names), len(units), 1 + boxes.KINDS)


def _errors(graph: Graph, layer: Layer, name: str, unit: UnitCost) -> list[float]:
    error, kernel = unit.layers[layer_kinds.kind(graph, layer)].error, unit.kernels.get(name)
    if kernel is not None:
        unseen = FEW if error is None else error
        return [0.0, *(0.0 if kind in kernel.splits else unseen for kind in range(boxes.KINDS))]
    if error is None:
        error = FEW if any(each.op == layer.op for each in unit.kernels.values()) else math.nan
    return [error] * (1 + boxes.KINDS)
