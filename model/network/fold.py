"""ONNX Runtime's own passes: folding normalisation and scale/shift chains into convolutions, and what they requantise.

Names stay traceable: tensors keep theirs, and every layer lists the nodes of the file that it stands for.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from model.network.contrib import AXES, name_as_onnx
from model.network.graph import Layer, opset_of
from model.network.quantised import DEQUANTIZE, QUANTIZE
from runtime.errors import CleaveError


def folded(path: Path, original: onnx.ModelProto) -> onnx.ModelProto:
    """The model after ONNX Runtime's basic passes (exact, standard operators), in the file's order."""
    model = _passed(path, f"{path}: cannot be folded")
    _restore_order(model, original)
    name_as_onnx(model)
    _drop_axes(model)
    model.ir_version = original.ir_version
    return model


def parameters(path: Path) -> dict[str, list[np.ndarray]]:
    """Constant scales and zero points of what (de)quantises after ONNX Runtime's basic passes, by what it made before.

    These passes rename what nodes make, but leave them their own names; so each node has that of its first output.
    """
    model = onnx.load(path)
    for node in model.graph.node:
        node.name = next(filter(None, node.output))
    with tempfile.TemporaryDirectory() as folder:
        named = Path(folder) / "named.onnx"
        onnx.save(model, named, save_as_external_data=True, location="values.bin")
        passed = _passed(named, f"{path}: ONNX Runtime does not run it")
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in passed.graph.initializer}
    quantisers = [node for node in passed.graph.node if node.op_type in (QUANTIZE, DEQUANTIZE)]
    names = {node.name: [*filter(None, node.input[1:])] for node in quantisers}
    return {name: [values[n] for n in of] for name, of in names.items() if values.keys() >= {*of}}


def _passed(path: Path, else_say: str) -> onnx.ModelProto:
    """What ONNX Runtime's basic passes make of a model. else_say: what is wrong where they fail"""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "folded.onnx")
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
        try:
            ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            return onnx.load(options.optimized_model_filepath)
        except Exception as error:  # ONNX Runtime raises its own kinds, of no common base
            raise CleaveError(f"{else_say}: {str(error).splitlines()[0]}") from error


def _drop_axes(model: onnx.ModelProto) -> None:
    """ONNX Runtime writes an axis on what (de)quantises by one scale, also where its opset has none."""
    if opset_of(model) < AXES:
        for node in model.graph.node:
            if node.op_type in (QUANTIZE, DEQUANTIZE):
                del node.attribute[:]


def _restore_order(model: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Sort nodes as the file has them: tensors keep their names, and the file's order is topological."""
    places = _places(model.graph.node, original)
    order = sorted(range(len(places)), key=lambda i: (places[i], i))
    nodes = [model.graph.node[i] for i in order]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _places(nodes: Sequence[onnx.NodeProto], original: onnx.ModelProto) -> list[int]:
    """Where each node stands in the file, or, if that is earlier, where the first that reads it stands.

    Folding adds nodes that the file does not have, and of two that make the same it may keep the later.
    nodes: in topological order, as ONNX Runtime saves them
    """
    made = {name: i for i, node in enumerate(original.graph.node) for name in node.output}
    read: dict[str, int] = {}
    places = []
    for node in reversed(nodes):
        outputs = [name for name in node.output if name]
        place = min((at[name] for at in (made, read) for name in outputs if name in at), default=len(made))
        read |= {name: min(place, read.get(name, place)) for name in node.input}
        places.append(place)
    return places[::-1]


def origins(original: onnx.ModelProto, names: list[str], layers: Sequence[Layer]) -> list[tuple[str, ...]]:
    """For each layer, the file's nodes between its inputs and its outputs, in the file's order, by their ``names``."""
    makers = {name: i for i, node in enumerate(original.graph.node) for name in node.output}
    made = {name for layer in layers for name in layer.outputs}
    return [tuple(names[i] for i in sorted(_cone(original, makers, layer, made))) for layer in layers]


def _cone(original: onnx.ModelProto, makers: dict[str, int], layer: Layer, made: set[str]) -> set[int]:
    """Indices of the file's nodes met on the way back from the outputs of ``layer`` to its inputs.

    made: by the layers; what the file has in place of an input of another name comes from one of them
    """
    stop = made.difference(dq.output[0] for dq in layer.before).union(layer.inputs)
    found: set[int] = set()
    todo = [name for name in layer.outputs if name in makers]
    while todo:
        i = makers[todo.pop()]
        if i not in found:
            found.add(i)
            todo.extend(n for n in original.graph.node[i].input if n in makers and n not in stop)
    return found
