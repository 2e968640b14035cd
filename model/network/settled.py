"""What ONNX Runtime rewrites in a quantised network where it sees more of it than a part.

Parts on several devices would not be rewritten, or in another way, and give another answer. Its basic passes leave
nothing to be rewritten across layers: a network that has such places is to be loaded with ``--fold``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from model.network import fold
from model.network.graph import Layer, Tensor, read_constant
from model.network.quantised import DEQUANTIZE, QUANTIZE, WEIGHTED, opens

MOVES = frozenset(
    {"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Split", "MaxPool", "Pad", "Gather", "Expand"}
    | {"DepthToSpace", "SpaceToDepth", "Resize", "Upsample", "Concat", "Tile"}
)
"""Operators past which it moves quantisation, and others that only choose elements or move them."""


def refused(
    alone: Iterable[Layer],
    layers: Sequence[Layer],
    tensors: Mapping[str, Tensor],
    constants: Mapping[str, onnx.TensorProto],
    outputs: Container[str],
    path: Path,
) -> list[str]:
    """A sentence for each layer that another answer could come of.

    alone: layers of one node each; layers: with their quantisation; outputs: of the network
    """
    twice = "is one of several quantisations of the same values by other scales, of which ONNX Runtime makes one"
    floats = "computes in floats between two quantisations, which ONNX Runtime may make one where it sees both"
    output = (
        "is between an output and a quantisation, which ONNX Runtime may move past it, so that the output has steps"
    )
    found = [(name, twice) for name in _rescaled(alone, constants, path)]
    found += [(name, floats) for name in _between(layers, tensors, constants)]
    found += [(name, output) for name in _passed(layers, outputs)]
    return [f"layer '{name}' {why}: let it, with --fold" for name, why in found]


def without_twins(graph: onnx.GraphProto, constants: Mapping[str, onnx.TensorProto]) -> list[onnx.NodeProto]:
    """The nodes of a graph, but of those that quantise the same in the same way only the first, which others read then.

    ONNX Runtime does so, and computes in integers what only one node reads.
    """
    outputs, first, alias = {o.name for o in graph.output}, dict[Any, str](), dict[str, str]()
    kept = []
    for node in graph.node:
        node.input[:] = [alias.get(name, name) for name in node.input]
        if node.op_type == QUANTIZE and node.output[0] not in outputs:
            how = [attribute.SerializeToString(deterministic=True) for attribute in node.attribute]
            key = (*(_content(name, constants) for name in node.input), *how)
            alias[node.output[0]] = first.setdefault(key, node.output[0])
            if alias[node.output[0]] != node.output[0]:
                continue
        kept.append(node)
    return kept


def _between(layers: Sequence[Layer], tensors: Mapping[str, Tensor], constants: Container[str]) -> list[str]:
    """Names of layers that make floats between two quantisations which ONNX Runtime may make integers: it quantises
    constants on the way, and moves quantisation past operators that move elements.
    """
    readers = defaultdict(list)
    for layer in layers:
        for name in {*layer.inputs}:
            readers[name].append(layer)

    def followers(layer: Layer) -> list[Layer]:
        """Who reads the floats that a layer makes: past one that moves elements, quantisation goes to every reader. An
        output of the network stops nothing.
        """
        name = layer.outputs[0]
        floats = len(layer.outputs) == 1 and tensors[name].dtype.startswith("float")
        alone = len(readers[name]) == 1
        return readers[name] if floats and (alone or layer.op in MOVES) else []

    def changes(layer: Layer) -> bool:
        own = [name for name in layer.node.input if name in constants and tensors[name].dtype.startswith("float")]
        return layer.op in MOVES or any(tensors[name].elements > 1 for name in own)

    def is_between(first: Layer) -> bool:
        """Whether there is a way from a layer to a quantisation on which something changes."""
        ways, seen = [(first, changes(first))], set[tuple[str, bool]]()
        while ways:
            layer, changed = ways.pop()
            for each in followers(layer):
                by_then, ends = changed or changes(each), bool(each.after) or each.op == QUANTIZE
                if ends and by_then:
                    return True
                if not ends and (each.outputs[0], by_then) not in seen:
                    seen.add((each.outputs[0], by_then))
                    ways.append((each, by_then))
        return False

    apart = {layer.outputs[0] for layer in layers if layer.op == DEQUANTIZE}

    def is_quantised(layer: Layer) -> bool:
        """Whether one that reads what is dequantised apart from it, by a scale that is computed, is itself between."""
        return layer.op in WEIGHTED and bool(layer.after) and changes(layer)

    return [
        layer.name
        for layer in layers
        if (opens(layer, constants) and is_between(layer))
        or (not apart.isdisjoint(layer.inputs) and (is_between(layer) or is_quantised(layer)))
    ]


def _passed(layers: Sequence[Layer], outputs: Container[str]) -> list[str]:
    """Names of layers that move elements of an output of the network on their way to a quantisation."""
    makers = {name: layer for layer in layers for name in layer.outputs}
    found = []
    for layer in layers:
        last = makers.get(layer.node.input[0]) if layer.op == QUANTIZE else layer if layer.after else None
        while last and last.op in MOVES:
            if last.node.input[0] in outputs:
                found.append(last.name)
            last = makers.get(last.node.input[0])
    return list(dict.fromkeys(found))


def _rescaled(layers: Iterable[Layer], constants: Mapping[str, onnx.TensorProto], path: Path) -> list[str]:
    """Names of layers that (de)quantise by other numbers after ONNX Runtime's basic passes than the file says.

    Of quantisations that follow each other, or will once it has taken out what changes no value, it makes one.
    """
    quantisers = {layer.outputs[0]: layer for layer in layers if layer.op in (QUANTIZE, DEQUANTIZE)}
    left = fold.parameters(path) if quantisers else {}

    def is_as_it_was(layer: Layer) -> bool:
        own = [read_constant(constants[name], path) for name in layer.node.input[1:] if name in constants]
        now = left.get(layer.outputs[0], own)
        return all(np.array_equal(a.ravel(), b.ravel()) for a, b in zip(own, now, strict=False))

    return [layer.name for layer in quantisers.values() if not is_as_it_was(layer)]


def _content(name: str, constants: Mapping[str, onnx.TensorProto]) -> str | bytes:
    """All of a constant but its name; the name of what is none."""
    if name not in constants:
        return name
    found = onnx.TensorProto()
    found.CopyFrom(constants[name])
    found.ClearField("name")
    return found.SerializeToString(deterministic=True)
