"""What layers cost on a unit: as they were measured, or what their kinds take."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from model.cluster.coefficients import Kernel, UnitCost
from model.cost import layer_time
from model.cost.vectors import quarter_of, vector_of, whole_filled
from model.network import boxes, layer_kinds
from model.network.graph import Graph, Layer
from model.network.relayout import SINGLY


def rows(graph: Graph, names: Sequence[str], unit: UnitCost, slower: float) -> list[list[float]]:
    """(layers, columns) of ``CostArrays.work`` on a unit with so many times fewer threads than its figures hold for.

    names: signatures of the layers
    """
    kernels = [unit.kernels.get(name) for name in names]
    both = list(zip(graph.layers, kernels, strict=True))
    frame_s = slower * sum(k.whole_s if k else sum(_not_measured(graph, layer, unit)) for layer, k in both)
    part = unit.caches.part(frame_s)
    return [_row(graph, layer, kernel, unit, slower, part) for layer, kernel in both]


def _not_measured(graph: Graph, layer: Layer, unit: UnitCost, part: float = 1.0) -> tuple[float, float]:
    """Seconds of a layer that was not measured, fixed and others. part: see ``layer_time.Work``"""
    done = layer_time.work(graph, layer, unit.vector)._replace(part=part)
    return layer_time.seconds(done, unit.layers[layer_kinds.kind(graph, layer)], unit.frequency_hz)


def _row(graph: Graph, layer: Layer, kernel: Kernel | None, unit: UnitCost, slower: float, part: float) -> list[float]:
    """As measured, or what its kind takes: then shards share what is not fixed."""
    kind_of = layer_kinds.kind(graph, layer)
    fixed, rest = _not_measured(graph, layer, unit, part)
    rest *= slower
    if kernel:
        measured = slower * kernel.whole_s
        told = fixed + rest
        fixed, rest = (fixed * measured / told, rest * measured / told) if told else (measured, 0.0)
    measured_splits, splits = kernel.splits if kernel else {}, unit.layers[kind_of].splits
    shared: list[list[float]] = []
    for kind in range(boxes.KINDS):
        if kind in measured_splits:
            shared.append([slower * s for s in measured_splits[kind]])
            continue
        same = fixed
        if kind in splits:
            start_s, each_s = splits[kind]
            same = min(fixed + rest, slower * (start_s + each_s * layer_time.repeated(graph, layer, kind)))
        computed = whole_filled(graph, layer, unit.vector, unit.singly) if kind == boxes.CHANNELS else 1.0
        shared.append([same, (fixed + rest - same) / computed])
    same, slope = shared[boxes.CHANNELS]
    singly = [slower * s for s in measured_splits.get(SINGLY, ())] or [same, slope * unit.singly]
    held = [unit.held(kind_of), unit.held(layer_kinds.part_of(kind_of)), layer_kinds.rebuilt(kind_of)]
    watts = unit.layers[kind_of].power_w - (unit.idle_w or 0.0)
    at_a_time = [vector_of(graph, layer, unit.vector), quarter_of(graph, layer, unit.vector)]
    return [fixed + rest, *chain(*shared), *singly, watts, *held, unit.memory_layer_bytes, *at_a_time]
