"""How far a prediction may be off: the errors that calibration found, carried to a mapping."""

from __future__ import annotations

import numpy as np

from model import coefficients, layer_kinds
from model.coefficients import PAPER, UnitCost
from model.graph import Graph, Layer
from model.mapping import Mapping
from model.platform import Platform
from model.priced import Priced, priced
from model.signature import signature

FEW = 1.0
"""Relative error of a layer of whose like calibration has measured some, but too few to tell one: all of its time."""


def of_mapping(graph: Graph, platform: Platform, mapping: Mapping) -> float | None:
    """``expected_error`` of a checked mapping."""
    known = all(coefficients.load(device.coefficients).calibrated for device in platform.devices)
    return expected_error(graph, platform, priced(graph, platform, mapping)) if known else None


def expected_error(graph: Graph, platform: Platform, found: Priced) -> float | None:
    """Relative error to expect of what a mapping computes, and so of its latency and period; None: unknown.

    Each layer's error by its part of the time, as if all were off in the same direction. Of layers that were measured
    it is that of the network's frames, of others that of their kind, held out, or ``FEW``.
    """
    first, s, sums = found.g.n_inputs, found.shards, np.zeros(2)
    for layer in graph.layers:
        rows = slice(s.ptr[first + layer.index], s.ptr[first + layer.index + 1])
        for device, seconds in zip(s.device[rows], found.ledger.seconds[rows], strict=True):
            d = platform.devices[device]
            error = _error(graph, layer, coefficients.load(d.coefficients).unit(d.unit))
            if error is None:
                return None
            sums += seconds * np.array([error, 1.0])
    return float(sums[0] / sums[1]) if sums[1] else None


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
    if unit.kernels and signature(graph, layer) in unit.kernels:
        return unit.frame_error(graph.name)
    error = unit.layers[layer_kinds.kind(graph, layer)].error
    few = error is None and any(kernel.op == layer.op for kernel in unit.kernels.values())
    return FEW if few else error
