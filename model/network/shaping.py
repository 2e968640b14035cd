"""The shapes of a network's tensors: those of its inputs given, all others inferred, constants folded on the way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import ValueInfoProto, helper, shape_inference

from model.network import constants, contrib, pools
from runtime.errors import CleaveError

SMALL_ELEMENTS = 4096
"""Constants up to this size keep their values during shape inference (targets of Reshape and the like)."""

SAME_SHAPE = frozenset({"GroupNormalization", "MeanVarianceNormalization"})
"""What makes a tensor like its first input, as onnx cannot tell: it looks into their functions, and fails there."""


def give(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], path: Path) -> tuple[str, ...]:
    """Give the inputs their sizes; refuse sizes that are unknown, or for inputs that do not exist.

    Where none is given, axes of samples that are open get one sample: names of these inputs.
    """
    inputs = {i.name: i for i in model.graph.input}
    unknown = sorted(set(shapes) - set(inputs))
    if unknown:
        raise CleaveError(f"{path}: there is no input '{unknown[0]}' (it has {', '.join(sorted(inputs))})")
    for name, shape in shapes.items():
        elem_type = inputs[name].type.tensor_type.elem_type
        inputs[name].CopyFrom(helper.make_tensor_value_info(name, elem_type, shape))
    read = {name for node in model.graph.node for name in node.input}
    used = [info for info in model.graph.input if info.name in read]
    assumed = [info for info in used if not shapes and _is_open(info)]
    for info in assumed:
        info.type.tensor_type.shape.dim[0].dim_value = 1
    if shapes or assumed:
        _forget(model.graph)
    problems = [_ask_shape(info, path) for info in used if static(info) is None]
    if problems:
        raise CleaveError(*problems)
    return tuple(info.name for info in assumed)


def _is_open(info: ValueInfoProto) -> bool:
    """Whether all is known of a shape but how many samples there are."""
    dims = info.type.tensor_type.shape.dim
    return len(dims) > 1 and not dims[0].HasField("dim_value") and all(size.dim_value > 0 for size in dims[1:])


def _ask_shape(info: ValueInfoProto, path: Path) -> str:
    dims = [
        d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "?") for d in info.type.tensor_type.shape.dim
    ]
    usual = ("1", "3", *["224"] * len(dims))
    example = ",".join(d if d.isdigit() and d != "0" else u for d, u in zip(dims, usual, strict=False))
    return (
        f"{path}: input '{info.name}' has a dynamic shape ({', '.join(dims)}); "
        f"say which to use: --shape {info.name}={example}"
    )


def static(info: ValueInfoProto) -> tuple[int, ...] | None:
    """The shape, or None where it or a part of it is unknown, or nothing is in it."""
    found = sizes(info)
    return None if found is None or any(size < 1 for size in found) else found


def sizes(info: ValueInfoProto) -> tuple[int, ...] | None:
    """What is stated of a shape, be it of nothing; None where it or a part of it is unknown."""
    if not info.type.HasField("tensor_type") or not info.type.tensor_type.HasField("shape"):
        return None
    dims = info.type.tensor_type.shape.dim
    return tuple(d.dim_value for d in dims) if all(d.HasField("dim_value") for d in dims) else None


def settle(model: onnx.ModelProto, weights: constants.Constants, path: Path) -> dict[str, ValueInfoProto]:
    """Infer shapes and fold constants until neither finds more; value infos by tensor name.

    What is computed of shapes onnx follows by itself, so that few rounds do, but not exactly: a Cast leaves values as
    they are. So does ONNX Runtime, here and there. ``CleaveError`` where a shape that was read turns out to be another.
    """
    read: dict[str, tuple[int, ...]] = {}
    while True:
        infos = _infer(model, weights, path)
        shapes = known(infos)
        if not pools.correct(model.graph, shapes, path):
            asked = {node.input[0] for node in model.graph.node if node.op_type in constants.OF_SHAPES}
            read = {name: shapes[name] for name in asked if name in shapes} | read
            if not constants.fold(model, weights, shapes, path):
                _check_read(read, shapes | {name: tuple(tensor.dims) for name, tensor in weights.items()}, path)
                return infos


def _check_read(read: Mapping[str, tuple[int, ...]], shapes: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Shapes that became constants must be those that there are in the end."""
    problems = [
        f"{path}: the shape of '{name}' is computed of other shapes, and comes out as {shape} or {shapes[name]}: "
        "ONNX and ONNX Runtime reckon it differently; export the network with fixed shapes"
        for name, shape in sorted(read.items())
        if shapes.get(name, shape) != shape
    ]
    if problems:
        raise CleaveError(*problems[:10])


def known(infos: Mapping[str, ValueInfoProto]) -> dict[str, tuple[int, ...]]:
    """Those that are known, by tensor name."""
    return {name: shape for name, info in infos.items() if (shape := static(info)) is not None}


def _infer(model: onnx.ModelProto, weights: constants.Constants, path: Path) -> dict[str, ValueInfoProto]:
    """Shape inference on a copy that carries small constants only: large weights are known by shape."""
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(model)
    for node in skeleton.graph.node:
        if node.op_type in SAME_SHAPE and not node.domain:
            node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))
        elif plain := contrib.in_onnx(node):
            node.CopyFrom(plain)
    inputs = {info.name: info for info in skeleton.graph.input}
    for output in skeleton.graph.output:  # an input that is one, too, has its shape
        output.CopyFrom(inputs.get(output.name, output))
    skeleton.ir_version = max(model.ir_version, 4)  # below, weights would have to be inputs, and have no values
    for name, tensor in weights.items():
        info = helper.make_tensor_value_info(name, tensor.data_type, tensor.dims)
        if constants.elements(tensor) <= SMALL_ELEMENTS and not tensor.external_data:
            skeleton.graph.initializer.append(tensor)
        else:
            skeleton.graph.input.append(info)
    try:
        inferred = _inferred(skeleton)
    except (shape_inference.InferenceError, ValueError) as error:
        raise CleaveError(f"{path}: shapes do not fit together: {_first_line(error)}") from error
    graph = inferred.graph
    return {info.name: info for infos in (graph.input, graph.value_info, graph.output) for info in infos}


def _inferred(skeleton: onnx.ModelProto) -> onnx.ModelProto:
    """With the shapes that the file states; without those that follow from others where they do not fit, as after a
    pooling that rounds up they do not before it is corrected.
    """
    try:
        return shape_inference.infer_shapes(skeleton, strict_mode=True, data_prop=True)
    except shape_inference.InferenceError:
        _forget(skeleton.graph)
        return shape_inference.infer_shapes(skeleton, strict_mode=True, data_prop=True)


def _forget(graph: onnx.GraphProto) -> None:
    """All stated shapes that follow from those of the inputs."""
    del graph.value_info[:]
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")


def _first_line(error: Exception) -> str:
    """The first thing that went wrong: what follows is often its consequence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].split("Inference error(s): ")[-1] if lines else type(error).__name__


def check_folded(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Folding computes with the shapes of the file: where it states others than are asked for, it would be wrong."""
    stated = known({info.name: info for info in model.graph.input})
    for name, shape in shapes.items():
        if stated.get(name, shape) != shape:
            text = ",".join(map(str, stated[name]))
            raise CleaveError(f"{path}: input '{name}' is {text} in the file, and is folded so: leave --shape {name} "
                              "or --fold out, or export the network with a dynamic shape")  # fmt: skip
