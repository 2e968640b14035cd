"""Where a convolution finds what it reads in the layout that it computes in.

ONNX Runtime computes convolutions on blocks of channels. It brings their inputs into that layout and their outputs
back, but not between convolutions of a session with nothing between them but what works in either layout. To cut such a
way anywhere costs both changes, to cut it once more costs nothing else: no sum over edges says that.
"""

from __future__ import annotations

from model.network import boxes, layer_kinds
from model.network.fused import by_channel, fused
from model.network.graph import Graph, Layer
from model.network.rule import length

NONE = -1
BLOCK = 8
"""Channels; fewer are read as they are. Some processors have blocks of 16."""
QUARTERS = 4
"""Channels that are read at a time."""
SINGLY = boxes.KINDS
"""In place of channels among kinds of splits: shards of channels that are computed one by one."""
KEEPING = ("norm", "activation", "pool")
"""Kinds of layers that keep the layout, if all that they read has it."""


def origins(graph: Graph) -> list[int]:
    """(layers,) index of the first of the convolutions that made what a layer's output is made of, itself where it is
    one: if that and all in between are in one segment, the output is in their layout. ``NONE``: it never is.
    """
    found: list[int] = []
    along = fused(graph)
    for layer in graph.layers:
        if layer.op == "Conv":
            found.append(layer.index if _by_blocks(graph, layer) else NONE)
        else:
            keeps = along[layer.index] or _keeps(graph, layer)
            makers = [graph.producer.get(name) for name in graph.activations(layer)] if keeps else []
            found.append(min((NONE if maker is None else found[maker] for maker in makers), default=NONE))
    return found


def origin(graph: Graph, of: list[int], maker: int, reader: int) -> int:
    """The convolution from which on all must be in one segment for what ``reader`` reads of ``maker`` to need no other
    layout; ``NONE`` where that does not matter, or ``maker`` is one itself: then the edge tells. of: ``origins``
    """
    made, reads = graph.layers[maker], graph.layers[reader]
    other = made.op != "Conv" and reads.op == "Conv" and _by_blocks(graph, reads) and _inputs(graph, reads) >= BLOCK
    return of[maker] if other else NONE


def _by_blocks(graph: Graph, conv: Layer) -> bool:
    """Whether a convolution is computed by blocks, as ONNX Runtime 1.32 decides: channels are filled up to whole
    blocks, but not those of groups, nor those that are read unless they are whole quarters, nor single ones."""
    inputs, outputs = _inputs(graph, conv), length(graph, conv, boxes.CHANNELS)
    group = conv.integer("group", 1)
    if group == 1:
        return inputs < BLOCK or not inputs % QUARTERS
    if is_depthwise(graph, conv):
        return not outputs % QUARTERS
    return not (inputs // group % BLOCK or outputs // group % BLOCK)


def is_depthwise(graph: Graph, conv: Layer) -> bool:
    """Whether each of its channels, of several, is made of one of those that it reads."""
    return 1 < conv.integer("group", 1) == _inputs(graph, conv) == length(graph, conv, boxes.CHANNELS)


def _inputs(graph: Graph, conv: Layer) -> int:
    """Channels."""
    return graph.tensors[conv.inputs[0]].shape[boxes.CHANNELS]


def _keeps(graph: Graph, layer: Layer) -> bool:
    """A constant that is added has the layout of a frame; to multiply each channel becomes a convolution."""
    read = [graph.tensors[name].shape for name in graph.activations(layer)]
    if layer.op == "Concat":
        side_by_side = layer.integer("axis", boxes.CHANNELS) == boxes.CHANNELS
        return side_by_side and not any(shape[boxes.CHANNELS] % BLOCK for shape in read)
    kind = layer_kinds.kind(graph, layer)
    if kind != "elementwise":
        return kind in KEEPING
    if len(read) < len(layer.inputs):
        return layer.op == "Mul" and by_channel(graph, layer)
    return layer.op in ("Add", "Sum", "Mul") and len(set(read)) == 1
