"""Steps: what gives two floats that are a last digit apart, as sums in another order are, results far apart."""

from __future__ import annotations

import numpy as np

from model.network.graph import Graph, Layer
from model.network.layer_kinds import kind

STEPS = frozenset({"Sign", "Floor", "Ceil", "Round", "Hardmax"})
"""Of floats; what makes integers or truths of floats does so, too: comparisons, a Cast, ArgMax, the places of TopK."""
QUANTISING = frozenset({"QuantizeLinear", "DynamicQuantizeLinear"})

EACH = frozenset({"activation", "elementwise", "move", "view"})
"""Kinds of layers that compute each element by itself."""


def steps(graph: Graph) -> list[Layer]:
    """The layers that make steps of what layers before them have summed up in floats. Quantisations are no layers."""
    summed: set[str] = set()
    found = []
    for layer in graph.layers:
        after_sums = not summed.isdisjoint(layer.inputs)
        if after_sums and _makes_steps(graph, layer):
            found.append(layer)
        if after_sums or _sums_up(graph, layer):
            summed.update(name for name in layer.outputs if _floats(graph, name))
    return found


def _sums_up(graph: Graph, layer: Layer) -> bool:
    """Whether each element of what it makes is of many, in an order that is somebody else's choice."""
    return layer.macs > 0 and kind(graph, layer) not in EACH and "Max" not in layer.op


def _makes_steps(graph: Graph, layer: Layer) -> bool:
    if layer.after or layer.op in QUANTISING:
        return False
    return layer.op in STEPS or not all(_floats(graph, name) for name in layer.outputs if name)


def _floats(graph: Graph, name: str) -> bool:
    return np.dtype(graph.tensors[name].dtype).kind == "f"
