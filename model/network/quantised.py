"""Quantised networks in QDQ form: an operator and its quantisation are one layer.

Exporters write ``DequantizeLinear -> Conv -> QuantizeLinear``, which ONNX Runtime runs as one integer kernel. So that
the three stay together on every device, and the quantised tensor is what moves between devices, a DequantizeLinear
goes to each reader of what it makes (to repeat it is cheap and exact), and a QuantizeLinear to the maker of what it
reads, where nobody else reads that; a Relu between them goes along. Any other one stays a layer like all operators,
unless it is of constants alone: that, and what else is computed of dequantised weights, goes to each reader, too, which
is whole then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import replace

import onnx

from model.network.constants import RANDOM
from model.network.graph import Graph, Layer, Tensor, attributes
from model.network.resizing import interpolates
from model.network.rule import WHOLE, Need

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
INTEGERS = frozenset({"int8", "uint8", "int16", "uint16", "int32"})
"""Quantised types that are absorbed; elements of less than a byte are not."""
ACTIVATIONS = frozenset({"Relu", "Clip"})
"""What exporters leave between an operator and its QuantizeLinear, which does its work as well where it saturates."""
WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators whose float weights, the second input, ONNX Runtime quantises where their neighbours are."""
AVERAGES = frozenset({"AveragePool", "GlobalAveragePool"})
SUMS = frozenset({"ReduceMean", "ReduceSum", "ReduceL1", "ReduceSumSquare"})
READ_VALUES = frozenset({"Pad", "Resize", "Upsample"})
"""Operators whose rules read the values of constants: these must be what the operator sees."""
Nodes = tuple[onnx.NodeProto, ...]


def absorbed(
    layers: Iterable[Layer], tensors: dict[str, Tensor], constants: Container[str], outputs: tuple[str, ...]
) -> list[Layer]:
    """Layers of one node each, without those that became part of another layer. ``outputs``: of the network."""
    found = _close(_open(list(layers), tensors, constants, outputs), tensors, constants, outputs)
    return [
        replace(layer, whole=layer.whole or _rounds(layer, constants) or _quantises_weights(layer, constants))
        for layer in found
    ]


def _rounds(layer: Layer, constants: Container[str]) -> bool:
    """Whether a layer makes many numbers that lie half-way between two steps: in a part the last bit may be another,
    and with it the step. Averages of floats are added up in another order where channels come in whole blocks, and
    sums where an axis has one element."""
    in_floats = layer.op in AVERAGES and not opens(layer, constants)
    return bool(layer.after) and (in_floats or layer.op in SUMS or interpolates(layer))


def _quantises_weights(layer: Layer, constants: Container[str]) -> bool:
    """Whether ONNX Runtime would quantise float weights since all else is: for a part of them by another scale."""
    weights = layer.node.input[1] if layer.op in WEIGHTED else ""
    return weights in constants and bool(layer.after) and opens(layer, constants)


def opens(layer: Layer, constants: Container[str]) -> bool:
    """Whether a layer dequantises an activation for itself."""
    return any(node.op_type == DEQUANTIZE and node.input[0] not in constants for node in layer.before)


def _open(
    layers: list[Layer], tensors: dict[str, Tensor], constants: Container[str], outputs: tuple[str, ...]
) -> list[Layer]:
    """Every DequantizeLinear goes to its readers; it stays where somebody is left who reads it."""
    usual = [layer for layer in layers if layer.op == DEQUANTIZE and _is_usual(layer.node, tensors, constants)]
    openers: dict[str, Nodes] = {layer.outputs[0]: (layer.node,) for layer in usual}
    fixed = {name: nodes for name, nodes in _fixed(layers, constants).items() if name not in openers}
    found = [_opened(layer, openers, fixed, constants) for layer in layers]
    read, kept = set(outputs), list[Layer]()
    for layer in reversed(found):
        name = layer.outputs[0]
        if name in read or not (name in openers or name in fixed):
            read.update(layer.inputs)
            kept.append(layer)
    return kept[::-1]


def _fixed(layers: list[Layer], constants: Container[str]) -> dict[str, Nodes]:
    """What is made of dequantised constants alone, by name, and the nodes that make it one after the other."""
    found: dict[str, Nodes] = {}
    for layer in layers:
        first, *others = layer.inputs or ("",)
        begins = layer.op == DEQUANTIZE and first in constants
        if layer.op in RANDOM or len(layer.outputs) > 1:
            continue
        if (begins or first in found) and all(not name or name in constants for name in others):
            found[layer.outputs[0]] = (*found.get(first, ()), layer.node)
    return found


def _opened(layer: Layer, openers: dict[str, Nodes], fixed: dict[str, Nodes], constants: Container[str]) -> Layer:
    """A layer with the nodes that make what it reads."""
    names = [name for name in dict.fromkeys(layer.inputs) if name in openers or name in fixed]
    if layer.op in READ_VALUES:
        names = [name for name in names if name in openers and openers[name][0].input[0] not in constants]
    before: list[onnx.NodeProto] = []
    for name in names:
        before += [node for node in openers.get(name) or fixed[name] if node not in before]
    return replace(layer, before=tuple(before), whole=any(name in fixed for name in names))


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
    axis, rank = attributes(node).get("axis", 1), len(values.shape)
    shapes = {(), (1,)} | ({(values.shape[axis],)} if -rank <= axis < rank else set())
    return not attributes(node).get("block_size", 0) and all(tensors[name].shape in shapes for name in parameters)


def parameter_needs(graph: Graph, node: onnx.NodeProto, need: Need) -> dict[str, Need]:
    """What of the scale and the zero point of ``node`` goes with ``need`` of the tensor that it (de)quantises."""
    rank = len(graph.tensors[node.input[0]].shape)
    along = need.axis >= 0 and attributes(node).get("axis", 1) % rank == need.axis
    names = [name for name in node.input[1:] if name]
    return {name: replace(need, axis=0) if along and graph.tensors[name].elements > 1 else WHOLE for name in names}
