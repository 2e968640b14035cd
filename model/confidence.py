"""How far a prediction may be off: the errors that calibration found, carried to a mapping."""

from __future__ import annotations

import math
from collections import defaultdict

from model import coefficients, layer_kinds
from model.coefficients import PAPER, UnitCost
from model.graph import Graph, Layer
from model.mapping import Mapping
from model.platform import Platform
from model.priced import Priced, priced
from model.signature import signature

MEASURED = "measured"
"""In place of a kind: of all layers that were measured."""
FEW = 1.0
"""Relative error of a layer of whose like calibration has measured some, but too few to tell one: all of its time."""


def of_mapping(graph: Graph, platform: Platform, mapping: Mapping) -> float | None:
    """``expected_error`` of a checked mapping."""
    known = all(coefficients.load(device.coefficients).calibrated for device in platform.devices)
    return expected_error(graph, platform, priced(graph, platform, mapping)) if known else None


def expected_error(graph: Graph, platform: Platform, found: Priced) -> float | None:
    """Relative error to expect of what a mapping computes, and so of its latency and period; None: unknown.

    Each layer's error by its part of the time: of layers that were measured that of the network's frames, of others
    that of their kind, held out, or ``FEW``. Layers of a kind are off in the same direction, kinds each by themselves.
    """
    first, s, off_s = found.g.n_inputs, found.shards, defaultdict[str, float](float)
    for layer in graph.layers:
        rows = slice(s.ptr[first + layer.index], s.ptr[first + layer.index + 1])
        for device, seconds in zip(s.device[rows], found.ledger.seconds[rows], strict=True):
            d = platform.devices[device]
            like, error = _error(graph, layer, coefficients.load(d.coefficients).unit(d.unit))
            if error is None:
                return None
            off_s[like] += seconds * error
    total_s = float(found.ledger.seconds[: s.ptr[first + len(graph.layers)]].sum())
    return math.hypot(*off_s.values()) / total_s if total_s else None


def untold(graph: Graph, platform: Platform) -> tuple[str, ...]:
    """Operators of a network of which calibration has not measured any layer on some device.

    What these take is a guess, and so predictions with them have no error to expect. The thesis' equations know of no
    layer that was measured.
    """
    sets = {(d.coefficients, d.unit): coefficients.load(d.coefficients) for d in platform.devices}
    units = [s.unit(unit) for (name, unit), s in sets.items() if s.calibrated and not name.endswith(PAPER)]
    layers = [layer for layer in graph.layers if any(_error(graph, layer, unit)[1] is None for unit in units)]
    return tuple(dict.fromkeys(layer.op for layer in layers))


def _error(graph: Graph, layer: Layer, unit: UnitCost) -> tuple[str, float | None]:
    """Whose error a layer shares: its kind's, or that of all that were measured; and the error, None: unknown."""
    if unit.kernels and signature(graph, layer) in unit.kernels:
        return MEASURED, unit.frame_error(graph.name)
    kind = layer_kinds.kind(graph, layer)
    error = unit.layers[kind].error
    few = error is None and any(kernel.op == layer.op for kernel in unit.kernels.values())
    return kind, FEW if few else error
