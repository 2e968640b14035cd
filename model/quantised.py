"""Quantised networks in QDQ form: an operator and its quantisation are one layer.

Exporters write ``DequantizeLinear -> Conv -> QuantizeLinear``, which ONNX Runtime runs as one integer kernel. So that
the three stay together on every device, and the quantised tensor is what moves between devices, a DequantizeLinear
goes to each reader of what it makes (to repeat it is cheap and exact), and a QuantizeLinear to the maker of what it
reads, where nobody else reads that; a Relu between them goes along. Any other one stays a layer like all operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import replace

import onnx

from model.graph import Graph, Layer, Tensor
from model.rule import WHOLE, Need

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
INTEGERS = frozenset({"int8", "uint8", "int16", "uint16", "int32"})
"""Quantised types that are absorbed; elements of less than a byte are not."""
ACTIVATIONS = frozenset({"Relu", "Clip"})
"""What exporters leave between an operator and its QuantizeLinear, which does its work as well where it saturates."""
READ_VALUES = frozenset({"Pad", "Resize", "Upsample"})
"""Operators whose rules read the values of constants: these must be what the operator sees."""


def absorbed(
    layers: Iterable[Layer], tensors: dict[str, Tensor], constants: Container[str], outputs: tuple[str, ...]
) -> list[Layer]:
    """Layers of one node each, without those that became part of another layer. ``outputs``: of the network."""
    return _close(_open(list(layers), tensors, constants, outputs), tensors, constants, outputs)


def _open(
    layers: list[Layer], tensors: dict[str, Tensor], constants: Container[str], outputs: tuple[str, ...]
) -> list[Layer]:
    """Every DequantizeLinear goes to its readers; it stays where somebody is left who reads it."""
    openers = {i.outputs[0]: i.node for i in layers if i.op == DEQUANTIZE and _is_usual(i.node, tensors, constants)}
    found = [replace(layer, before=_before(layer, openers, constants)) for layer in layers]
    read = {name for layer in found for name in layer.inputs} | set(outputs)
    return [layer for layer in found if layer.outputs[0] not in openers or layer.outputs[0] in read]


def _before(layer: Layer, openers: dict[str, onnx.NodeProto], constants: Container[str]) -> tuple[onnx.NodeProto, ...]:
    found = [openers[name] for name in dict.fromkeys(layer.inputs) if name in openers]
    return tuple(dq for dq in found if layer.op not in READ_VALUES or dq.input[0] not in constants)


def _close(
    layers: list[Layer], tensors: dict[str, Tensor], constants: Container[str], outputs: tuple[str, ...]
) -> list[Layer]:
    """Every QuantizeLinear that alone reads what a layer makes goes to that layer; so does an activation between.

    What a layer opens for itself counts as read under both names: where another layer makes it too, somebody needs it.
    """
    read = Counter(name for layer in layers for name in {*layer.inputs, *layer.node.input})
    read.update(outputs)
    makers = {name: layer for layer in layers for name in layer.outputs if read[name] == 1}
    chains: dict[str, list[Layer]] = {}
    for layer in layers:
        if layer.op == QUANTIZE and layer.node.input[0] in makers and _is_usual(layer.node, tensors, constants):
            maker = makers[layer.node.input[0]]
            chain = [maker, layer] if _is_activation(maker, constants) and maker.node.input[0] in makers else [layer]
            chains[chain[0].node.input[0]] = chain
    gone = {layer.index for chain in chains.values() for layer in chain}
    return [
        replace(layer, after=tuple(i.node for name in layer.outputs for i in chains.get(name, ())))
        for layer in layers
        if layer.index not in gone
    ]


def _is_activation(layer: Layer, constants: Container[str]) -> bool:
    """Whether ONNX Runtime may run a layer as the end of the integer kernel before it."""
    return layer.op in ACTIVATIONS and all(name in constants for name in layer.node.input[1:] if name)


def _is_usual(node: onnx.NodeProto, tensors: dict[str, Tensor], constants: Container[str]) -> bool:
    """Whether scale and zero point are constants, one for all or one for each element along the axis."""
    values = tensors[node.input[0] if node.op_type == DEQUANTIZE else node.output[0]]
    parameters = [name for name in node.input[1:] if name]
    if values.dtype not in INTEGERS or any(name not in constants for name in parameters):
        return False
    axis, rank = _integer(node, "axis", 1), len(values.shape)
    shapes = {(), (1,)} | ({(values.shape[axis],)} if -rank <= axis < rank else set())
    return not _integer(node, "block_size", 0) and all(tensors[name].shape in shapes for name in parameters)


def parameter_needs(graph: Graph, node: onnx.NodeProto, need: Need) -> dict[str, Need]:
    """What of the scale and the zero point of ``node`` goes with ``need`` of the tensor that it (de)quantises."""
    rank = len(graph.tensors[node.input[0]].shape)
    along = need.axis >= 0 and _integer(node, "axis", 1) % rank == need.axis
    names = [name for name in node.input[1:] if name]
    return {name: replace(need, axis=0) if along and graph.tensors[name].elements > 1 else WHOLE for name in names}


def _integer(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((a.i for a in node.attribute if a.name == name), default)
