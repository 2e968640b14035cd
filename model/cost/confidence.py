"""How far a prediction may be off: the errors that calibration found, carried to a mapping."""

from __future__ import annotations

import math
from collections import defaultdict

from model.cluster import coefficients
from model.cluster.coefficients import PAPER, UnitCost
from model.cluster.platform import Platform
from model.cost.priced import Priced, priced
from model.mappings.mapping import Mapping
from model.network import layer_kinds
from model.network.graph import Graph, Layer
from model.network.signature import signature

FRAME = "frame"
"""In place of a kind: of all layers, measured or not."""
FEW = 1.0
"""Relative error of a layer of whose like calibration has measured some, but too few to tell one: all of its time."""


def of_mapping(graph: Graph, platform: Platform, mapping: Mapping) -> float | None:
    """``expected_error`` of a checked mapping."""
    return expected_error(graph, platform, priced(graph, platform, mapping))


def expected_error(graph: Graph, platform: Platform, found: Priced) -> float | None:
    """Relative error to expect of what a mapping computes, and so of its latency and period; None: unknown.

    Frames are off although all of their layers were measured; layers that were not by their kind's error, held out, or
    ``FEW``, each by its part of the time. Layers of a kind are off in the same direction, kinds and frames each by
    themselves.
    """
    first, s, off_s = found.g.n_inputs, found.shards, defaultdict[str, float](float)
    for layer in graph.layers:
        rows = slice(s.ptr[first + layer.index], s.ptr[first + layer.index + 1])
        for device, seconds in zip(s.device[rows], found.ledger.seconds[rows], strict=True):
            d = platform.devices[device]
            unit = coefficients.load(d.coefficients).unit(d.unit)
            frame, error = unit.frame_error(graph.name), _error(graph, layer, unit)
            if frame is None or error is None:
                return None
            off_s[FRAME] += seconds * frame
            off_s[layer_kinds.kind(graph, layer)] += seconds * error
    total_s = float(found.ledger.seconds[: s.ptr[first + len(graph.layers)]].sum())
    return math.hypot(*off_s.values()) / total_s if total_s else None


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
