"""What makes a layer cost what it costs: layers with equal signatures run the same kernel on the same amount of work.

A table of measured layers is kept by signature, so that a network may repeat a layer, share it with another network,
or come again under other names and be measured once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import onnx

from model.network.graph import Graph, Layer

DIGITS = 12


def signature(graph: Graph, layer: Layer) -> str:
    """``Conv-0123456789ab``: operator, and a hash of its attributes, shapes, types, and which inputs are constant.

    Neither names nor values of weights are part of it, nor the opset: a kernel is chosen by what it is given.
    """
    said = (
        [_operator(node) for node in (*layer.before, layer.node, *layer.after)],
        [_tensor(graph, name) for name in (*layer.inputs, *layer.parameters)],
        [_tensor(graph, name) for name in layer.outputs],
    )
    return f"{layer.op}-{blake2b(repr(said).encode(), digest_size=DIGITS // 2).hexdigest()}"


def signatures(graph: Graph) -> tuple[str, ...]:
    """Of every layer of a graph, in order."""
    return tuple(signature(graph, layer) for layer in graph.layers)


def edge_name(names: Sequence[str], maker: int, reader: int) -> str:
    """``Conv-0123456789ab>Relu-ba9876543210``: between two layers, by their signatures."""
    return f"{names[maker]}>{names[reader]}"


def _tensor(graph: Graph, name: str) -> tuple[object, ...]:
    """Shape and type of an input or output; nothing of an input that is left out."""
    return (*graph.tensors[name].shape, graph.tensors[name].dtype, graph.is_constant(name)) if name else ()


def _operator(node: onnx.NodeProto) -> tuple[object, ...]:
    return node.domain, node.op_type, *_attributes(node.attribute)


def _attributes(attributes: Iterable[onnx.AttributeProto]) -> list[bytes]:
    """Names and values, in the order of names; without what a person wrote beside them."""
    found = []
    for attribute in sorted(attributes, key=lambda a: a.name):
        bare = onnx.AttributeProto()
        bare.CopyFrom(attribute)
        bare.ClearField("doc_string")
        bare.t.ClearField("name") if bare.HasField("t") else None
        found.append(bare.SerializeToString(deterministic=True))
    return found
