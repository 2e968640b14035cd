"""What is refused of a network before anything is made of it: weights elsewhere, control flow, training, chance."""

from __future__ import annotations

from pathlib import Path

import onnx

from model.network import constants, contrib
from model.network.graph import opset_of, where_is
from runtime.errors import CleaveError

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
OLDEST_OPSET = 7
"""Before it, element-wise operators named the axis that they broadcast along; ONNX Runtime runs none of those."""
INDEPENDENT = "does not depend on any input"
"""Of an output."""


def check_dense(graph: onnx.GraphProto, path: Path) -> None:
    """``CleaveError`` where weights or constants are sparse."""
    problems = [f"{path}: sparse weights are not supported; export them dense"] if graph.sparse_initializer else []
    problems += [
        f"{where_is(node, path)}: sparse constants are not supported; export them dense"
        for node in graph.node
        if any(held.HasField("sparse_tensor") for held in node.attribute)
    ]
    if problems:
        raise CleaveError(*problems[:10])


def check_external(model: onnx.ModelProto, path: Path) -> None:
    """External data must lie beside the file, inside its folder; or in the file, which may be a link to elsewhere."""
    folder = path.parent.resolve()
    for node in model.graph.node:
        for held in node.attribute:
            parts = (held.t, *held.tensors, held.sparse_tensor.values, held.sparse_tensor.indices)
            if any(tensor.external_data for tensor in parts):
                raise CleaveError(f"{where_is(node, path)}: its constant lies in another file; "
                                  "save the model without convert_attribute")  # fmt: skip
    for tensor in model.graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        location = place.get("location", path.name)
        if location == path.name:
            continue
        file = (folder / location).resolve()
        if not file.is_relative_to(folder):
            raise CleaveError(f"{path}: weight '{tensor.name}' lies outside the model's folder: {location}")
        if not file.is_file():
            raise CleaveError(f"{path}: the external data of weight '{tensor.name}' is missing: {location}")
        ends = (place.get(key, "") for key in ("offset", "length"))
        end, size = sum(int(part) for part in ends if part.isdigit()), file.stat().st_size
        if size < end:
            raise CleaveError(f"{path}: the external data of weight '{tensor.name}' ends at {end} bytes, but "
                              f"{location} has {size}: copy or fetch it again")  # fmt: skip


def check(model: onnx.ModelProto, weights: constants.Constants, path: Path) -> None:
    """Say at once everything about the file that cannot be cut."""
    problems = [
        f"{where_is(n, path)}: operator '{n.op_type}' is not supported (control flow)"
        for n in model.graph.node
        if n.op_type in CONTROL_FLOW
    ]
    problems += [
        f"{where_is(n, path)}: {n.op_type} of ONNX Runtime's own cannot be cut; export it as ONNX's, which is for 16 "
        f"bits from opset {contrib.MORE_TYPES} on"
        for n in model.graph.node
        if contrib.is_quantiser(n)
    ]
    opset = opset_of(model)
    if 0 < opset < OLDEST_OPSET:
        problems.append(f"{path}: opset {opset} is older than {OLDEST_OPSET}; convert it (onnx.version_converter)")
    if model.functions:
        names = ", ".join(sorted(f"'{f.name}'" for f in model.functions))
        problems.append(f"{path}: model-local functions are not supported ({names}); inline them when exporting")
    if not model.graph.input:
        problems.append(f"{path}: the network has no input")
    problems += [f"{path}: output '{o.name}' {INDEPENDENT}" for o in model.graph.output if o.name in weights]
    problems.extend(_unordered(model.graph, set(weights), path))
    if problems:
        raise CleaveError(*problems[:10])


def check_inference(model: onnx.ModelProto, weights: constants.Constants, path: Path) -> None:
    """``CleaveError`` that names layers which give another answer each time, or for other frames beside one."""
    problems = [
        f"{where_is(n, path)}: {n.op_type} {why}; export the network for inference"
        for n in model.graph.node
        if (why := _of_chance(n, weights, path))
    ]
    if problems:
        raise CleaveError(*problems[:10])


def _of_chance(node: onnx.NodeProto, weights: constants.Constants, path: Path) -> str:
    """Why two runs of a layer may differ, or one frame depends on the others; nothing where neither is so."""
    if constants.trains(node, weights, path):
        return "is in training mode"
    return "draws other numbers each time" if node.op_type in constants.RANDOM else ""


def _unordered(graph: onnx.GraphProto, known: set[str], path: Path) -> list[str]:
    """Sentences about inputs of nodes that nothing before them makes."""
    known = known | {i.name for i in graph.input} | {""}
    problems = []
    for node in graph.node:
        missing = [name for name in node.input if name not in known]
        problems += [f"{where_is(node, path)}: input '{n}' is made nowhere before it" for n in missing]
        known.update(node.output)
    return problems
