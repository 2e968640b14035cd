"""From an ONNX file to a ``Graph``: constants folded, no-ops gone, every shape known, or a clear refusal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, ValueInfoProto, helper

from model.network import constants, contrib, fold, quantised, refused, resizing, settled, shaping, unlike, wire
from model.network.graph import Graph, Layer, Tensor, operator, stamp_of, where_is
from model.network.macs import macs
from runtime.errors import CleaveError

UNREAD = "is an input that no operator reads; take it out"


def load(path: Path | str, shapes: Mapping[str, tuple[int, ...]] | None = None, folded: bool = False) -> Graph:
    """Read a CNN.

    shapes: sizes for inputs whose file shape is dynamic (or to be replaced), by input name
    folded: let BatchNormalization and scale/shift chains fold into convolutions where that is exact
    Raises ``CleaveError`` for what is no ONNX model, an unsupported operator, or a shape that is not known.
    """
    path = Path(path)
    stamp = stamp_of(path)
    try:
        graph = _load(path, shapes or {}, folded)
        return replace(graph, stamps={path: stamp} | {file: stamp_of(file) for file in sorted(graph.external)})
    except BROKEN as error:
        reason = f"{type(error).__name__}: {error}"
        raise CleaveError(f"{path}: is damaged, or says what no ONNX file may say ({reason})") from error


BROKEN = (KeyError, IndexError, TypeError, ValueError, AttributeError, AssertionError, OverflowError, StopIteration)
"""What reading runs into where a file leaves out what the standard demands: attributes, names, types."""


def _load(path: Path, shapes: Mapping[str, tuple[int, ...]], folded: bool) -> Graph:
    whole = _read(path)
    original, _ = constants.split(whole)
    unlike.check_outputs(original.graph, path)
    if folded:
        shaping.check_folded(original, shapes, path)
    model, weights = constants.split(fold.folded(path, original) if folded else whole)
    refused.check(model, weights, path)
    unlike.order_axes(model, path)
    assumed = shaping.give(model, shapes, path)
    infos = shaping.settle(model, weights, path)
    refused.check_inference(model, weights, path)
    unlike.check(model, weights, shaping.known(infos), path)
    _drop_no_ops(model.graph)
    constants.replace_nodes(model.graph, settled.without_twins(model.graph, weights))
    _drop_dead(model.graph)
    graph = _graph(path, original, model, weights, infos, folded)
    _check_types(graph)
    return replace(graph, assumed=assumed)


def _read(path: Path) -> onnx.ModelProto:
    if not path.is_file():
        raise CleaveError(f"{path}: there is no such file; give an ONNX file or zoo:NAME")
    try:
        model = wire.scan(path)
    except OSError as error:
        raise CleaveError(f"{path}: cannot be read: {error.strerror}") from error
    except (DecodeError, ValueError) as error:
        raise CleaveError(f"{path}: is no ONNX model ({error})") from error
    if not model.graph.node or not model.opset_import:
        raise CleaveError(f"{path}: is no ONNX model: it has no operators")
    for part in (*model.graph.node, *model.opset_import):
        if part.domain == "ai.onnx":  # ONNX's own, written out
            part.domain = ""
    contrib.name_as_onnx(model)
    refused.check_external(model, path)
    refused.check_dense(model.graph, path)
    return model


def _drop_no_ops(graph: onnx.GraphProto) -> None:
    """Identity and Dropout (at inference) vanish, unless they make an output of the network."""
    outputs = {o.name for o in graph.output}
    used = Counter(name for node in graph.node for name in node.input)
    alias: dict[str, str] = {}
    kept = []
    for node in graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = alias.get(name, name)
        mask_used = any(name and (used[name] or name in outputs) for name in node.output[1:])
        if node.op_type in ("Identity", "Dropout") and node.output[0] not in outputs and not mask_used:
            alias[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    constants.replace_nodes(graph, kept)


def _drop_dead(graph: onnx.GraphProto) -> None:
    """Nodes that no output of the network depends on go."""
    needed = {o.name for o in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(filter(None, node.input))
            kept.append(node)
    constants.replace_nodes(graph, reversed(kept))


def _graph(
    path: Path,
    original: onnx.ModelProto,
    model: onnx.ModelProto,
    weights: constants.Constants,
    infos: dict[str, ValueInfoProto],
    folded: bool,
) -> Graph:
    nodes = list(model.graph.node)
    if not nodes:
        raise CleaveError(f"{path}: the network computes nothing from its inputs")
    used = {name for node in nodes for name in node.input if name}
    tensors = {name: _constant(weights[name]) for name in used if name in weights}
    inputs = [i.name for i in model.graph.input if i.name in used]
    names = inputs + [name for node in nodes for name in node.output if name]
    tensors.update({t.name: t for t in _activations(names, infos, nodes, path)})
    _check_outputs(model, tensors, weights, path)
    _check_channels(nodes, tensors, path)
    outputs = tuple(o.name for o in model.graph.output)
    layer_names = _names(nodes)
    for node, name in zip(nodes, layer_names, strict=True):
        node.name = node.name or name
    alone = [
        Layer(i, name, operator(node), node, macs(node, tensors), ())
        for i, (name, node) in enumerate(zip(layer_names, nodes, strict=True))
    ]
    layers = quantised.absorbed(alone, tensors, weights, outputs)
    if not folded and (sentences := settled.refused(alone, layers, tensors, weights, outputs, path)):
        raise CleaveError(*(f"{path}: {sentence}" for sentence in sentences[:10]))
    resizing.check_steps(layers, tensors, path)
    origins = fold.origins(original, _names(list(original.graph.node)), layers)
    domains = {node.domain for node in nodes}
    return Graph(
        name=path.stem,
        path=path,
        layers=tuple(replace(layer, index=i, origins=origins[i]) for i, layer in enumerate(layers)),
        tensors=tensors,
        inputs=tuple(inputs),
        outputs=outputs,
        constants={name: weights[name] for name in used if name in weights},
        ir_version=model.ir_version,
        opsets=tuple((o.domain, o.version) for o in model.opset_import if o.domain in domains or not o.domain),
    )


def _constant(tensor: TensorProto) -> Tensor:
    return Tensor(tensor.name, tuple(tensor.dims), _dtype(tensor.data_type))


def _activations(
    names: list[str], infos: dict[str, ValueInfoProto], nodes: list[onnx.NodeProto], path: Path
) -> list[Tensor]:
    """Tensors of every name; those at which shapes end to be known are named at once, not what is made of them."""
    found, unknown = [], set()
    for name in names:
        info = infos.get(name)
        shape = shaping.static(info) if info is not None else None
        if info is None or shape is None:
            unknown.add(name)
        else:
            found.append(Tensor(name, shape, _dtype(info.type.tensor_type.elem_type)))
    problems = [
        _of_unknown_shape(node, name, infos.get(name), path)
        for node in nodes
        for name in node.output
        if name in unknown and unknown.isdisjoint(node.input)
    ]
    if problems:
        raise CleaveError(*problems[:10])
    return found


def _of_unknown_shape(node: onnx.NodeProto, name: str, info: ValueInfoProto | None, path: Path) -> str:
    where = f"{where_is(node, path)}: operator '{node.op_type}'"
    if node.domain != contrib.DOMAIN and not onnx.defs.has(node.op_type, domain=node.domain):
        what = f"of the domain '{node.domain}' is not supported" if node.domain else "is none of ONNX's"
        return f"{where} {what}; export the network with ONNX's own operators"
    if info is not None and (sizes := shaping.sizes(info)):
        return f"{where} would make '{name}' of shape {sizes}: nothing is left, its input is too small; see --shape"
    hint = "; export quantised networks in QDQ form" if node.domain == contrib.DOMAIN else ""
    return f"{where}: the shape of '{name}' is not known before running; it cannot be cut{hint}"


def _check_outputs(
    model: onnx.ModelProto, tensors: dict[str, Tensor], weights: constants.Constants, path: Path
) -> None:
    for output in model.graph.output:
        if output.name not in tensors or output.name in weights:
            idle = any(i.name == output.name for i in model.graph.input)
            raise CleaveError(f"{path}: output '{output.name}' {UNREAD if idle else refused.INDEPENDENT}")


def _check_types(graph: Graph) -> None:
    """What moves between devices must be of a type that they have: numpy's own numbers, without what the onnx package
    adds."""
    made = [(f"layer '{layer.name}': ", name) for layer in graph.layers for name in layer.outputs]
    problems = [
        f"{graph.path}: {where}'{name}' is of type {_type_name(graph.tensors[name])}, which is not passed on between "
        "devices; export the network with another type there"
        for where, name in [*(("input ", name) for name in graph.inputs), *made]
        if not _is_number(graph.tensors[name])
    ]
    if problems:
        raise CleaveError(*problems[:10])


def _is_number(tensor: Tensor) -> bool:
    """Whether numpy has its type, and as such: strings are objects for it."""
    return np.dtype(tensor.dtype).isbuiltin == 1 and np.dtype(tensor.dtype).kind != "O"


def _type_name(tensor: Tensor) -> str:
    return "string" if np.dtype(tensor.dtype).kind == "O" else tensor.dtype


def _check_channels(nodes: list[onnx.NodeProto], tensors: dict[str, Tensor], path: Path) -> None:
    """Convolutions of another number of channels than their input has: shape inference lets them pass."""
    problems = []
    for node in nodes:
        if node.op_type in ("Conv", "ConvTranspose"):
            weights, channels = tensors[node.input[1]].shape, tensors[node.input[0]].shape[1]
            groups = next((a.i for a in node.attribute if a.name == "group"), 1)
            wanted = weights[1] * groups if node.op_type == "Conv" else weights[0]
            if wanted != channels:
                what = f"its weights are for {wanted} channels, its input has {channels}"
                problems.append(f"{where_is(node, path)}: {what}")
    if problems:
        raise CleaveError(*problems[:10])


def _dtype(elem_type: int) -> str:
    return str(helper.tensor_dtype_to_np_dtype(elem_type))


def _names(nodes: list[onnx.NodeProto]) -> list[str]:
    """A node's own name, or its first output where it has none or shares it."""
    often = Counter(node.name for node in nodes)
    first = [next(name for name in node.output if name) for node in nodes]
    names = [node.name if often[node.name] == 1 else "" for node in nodes]
    taken = {*names, ""}
    for i, out in enumerate(first):
        if not names[i]:
            names[i] = next(n for n in chain([out], (f"{out}#{k}" for k in count(i))) if n not in taken)
            taken.add(names[i])
    return names
