"""Layers that a convolution computes along, so that they take no time of their own in one session with it.

ONNX Runtime lets the weights of a convolution normalise, scale and shift what it makes, and an activation follow before
it is written.
"""

from __future__ import annotations

from collections import Counter

from model.network import boxes
from model.network.graph import Graph, Layer

ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip")
"""Operators that may follow, as ONNX Runtime 1.32 has it."""
SCALES = ("BatchNormalization", "Mul", "Add")
"""Operators that weights may do."""


def fused(graph: Graph) -> list[bool]:
    """Of each layer, whether a convolution computes it along; what goes on from an output of the network is not."""
    readers = Counter(graph.outputs) + Counter(name for layer in graph.layers for name in graph.activations(layer))
    found: list[bool] = []
    for layer in graph.layers:
        read = graph.activations(layer)
        maker = graph.producer.get(read[0]) if len(read) == 1 and readers[read[0]] == 1 else None
        before = "" if maker is None else graph.layers[maker].op
        goes_on = before == "Conv" or (maker is not None and found[maker] and before in SCALES)
        found.append(goes_on and (layer.op in ACTIVATIONS or (layer.op in SCALES and by_channel(graph, layer))))
    return found


def by_channel(graph: Graph, layer: Layer) -> bool:
    """Whether its constants have a number for each channel, as those of a normalisation do."""
    if layer.op == "BatchNormalization":
        return True
    (made,) = (graph.tensors[name].shape for name in layer.outputs)
    constants = [graph.tensors[name].shape for name in layer.inputs if name and graph.is_constant(name)]
    each = tuple(size if axis == boxes.CHANNELS else 1 for axis, size in enumerate(made))
    return all((1,) * (len(made) - len(shape)) + shape == each for shape in constants)
