"""Weights of a model, and the folding of what depends on weights alone.

``Unsqueeze`` of a weight, ``Constant`` nodes, and the Shape/Gather/Concat chains that exporters write for Reshape
are all known before the first frame. ONNX Runtime evaluates them, so their meaning is the operator's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from model.network.graph import read_constant
from runtime.errors import CleaveError

Constants = dict[str, TensorProto]

RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
KEPT = RANDOM | {"DequantizeLinear"}
"""Never folded: what draws numbers, and DequantizeLinear, which ONNX Runtime fuses with its consumer."""
OF_SHAPES = frozenset({"Shape", "Size"})
"""What depends on the shape of a tensor alone."""
UNSEEN = frozenset(
    f"tensor({name})" for name in ("bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")
)
"""Types of which ONNX Runtime gives the bits, as if they were integers."""


def elements(tensor: TensorProto) -> int:
    """Number of elements of an initializer."""
    return math.prod(tensor.dims)


def split(model: onnx.ModelProto) -> tuple[onnx.ModelProto, Constants]:
    """The model without its weights, and the weights (not copied).

    Inputs that only stood for initializers, as IR version 3 asks for, are gone.
    """
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    light = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    light.graph.node.extend(model.graph.node)
    light.graph.input.extend(i for i in model.graph.input if i.name not in weights)
    light.graph.output.extend(model.graph.output)
    light.graph.value_info.extend(model.graph.value_info)
    return light, weights


def fold(model: onnx.ModelProto, weights: Constants, shapes: dict[str, tuple[int, ...]], path: Path) -> bool:
    """Evaluate every node that depends on constants alone; their results join ``weights``. True if any was found.

    shapes: static shapes by tensor name; ``Shape`` and ``Size`` of a tensor in it are constants.
    """
    known = set(weights) | {""}
    foldable, rest = [], []
    for node in model.graph.node:
        if (stated := _stated(node)) is not None:
            known.update(node.output)
            weights[node.output[0]] = stated
        elif _may_fold(node, weights, path) and known.issuperset(node.input):
            known.update(node.output)
            foldable.append(node)
        elif node.op_type == "Shape" and node.input[0] in shapes:
            weights[node.output[0]] = _shape(node, shapes[node.input[0]])
        elif node.op_type == "Size" and node.input[0] in shapes:
            count = np.array(math.prod(shapes[node.input[0]]), dtype=np.int64)
            weights[node.output[0]] = numpy_helper.from_array(count, node.output[0])
        else:
            rest.append(node)
    found = len(rest) < len(model.graph.node)
    if foldable:
        needed = {n for node in rest for n in node.input} | {o.name for o in model.graph.output}
        _evaluate(model, foldable, weights, needed, path)
    if found:
        replace_nodes(model.graph, rest)
    return found


def _may_fold(node: onnx.NodeProto, weights: Constants, path: Path) -> bool:
    """Whether a layer's answer is the same each time, and may be evaluated ahead."""
    return node.op_type not in KEPT and not node.domain and not trains(node, weights, path)


def trains(node: onnx.NodeProto, weights: Constants, path: Path) -> bool:
    """Whether a layer's answer depends on chance, or on all samples together."""
    if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
        mode = weights.get(node.input[2])
        return mode is None or bool(read_constant(mode, path))
    return node.op_type == "BatchNormalization" and any(a.name == "training_mode" and a.i for a in node.attribute)


def _stated(node: onnx.NodeProto) -> TensorProto | None:
    """The tensor of a ``Constant`` node that has one, as it is: of a type that numpy lacks, too."""
    found = next((a.t for a in node.attribute if a.name == "value"), None) if node.op_type == "Constant" else None
    if found is None:
        return None
    stated = TensorProto()
    stated.CopyFrom(found)
    stated.name = node.output[0]
    return stated


def replace_nodes(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Make ``nodes``, some of the graph's own, all that it has."""
    kept = onnx.GraphProto(node=nodes)
    del graph.node[:]
    graph.node.extend(kept.node)


def _shape(node: onnx.NodeProto, shape: tuple[int, ...]) -> TensorProto:
    ends = {a.name: a.i for a in node.attribute}
    part = shape[ends.get("start", 0) : ends.get("end", len(shape))]
    return numpy_helper.from_array(np.array(part, dtype=np.int64), node.output[0])


def _evaluate(
    model: onnx.ModelProto, nodes: list[onnx.NodeProto], weights: Constants, needed: set[str], path: Path
) -> None:
    """Run the nodes in ONNX Runtime and add those results that others need to ``weights``."""
    made = [name for node in nodes for name in node.output if name]
    outputs = [name for name in made if name in needed]
    if not outputs:
        return
    used = {name for node in nodes for name in node.input} - set(made) - {""}
    infos = [onnx.ValueInfoProto(name=name) for name in outputs]
    inline = [_inline(weights[name], path) for name in sorted(used)]
    graph = helper.make_graph(nodes, "constants", [], infos, initializer=inline)
    part = helper.make_model(graph, opset_imports=model.opset_import, ir_version=max(model.ir_version, 4))
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(part.SerializeToString(), options, providers=["CPUExecutionProvider"])
        values = session.run(outputs, {})
    except Exception as error:  # ONNX Runtime raises its own kinds, of no common base
        raise CleaveError(f"{path}: constants cannot be folded: {str(error).splitlines()[0]}") from error
    for made_as, name, value in zip(session.get_outputs(), outputs, values, strict=True):
        if made_as.type in UNSEEN:
            raise CleaveError(f"{path}: constants cannot be folded: '{name}' is a {made_as.type}")
        weights[name] = numpy_helper.from_array(np.asarray(value), name)


def _inline(tensor: TensorProto, path: Path) -> TensorProto:
    """The tensor with its data in it, read from an external file where need be."""
    if not tensor.external_data:
        return tensor
    return numpy_helper.from_array(read_constant(tensor, path), tensor.name)
