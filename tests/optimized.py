"""What ONNX Runtime makes of a model."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime as ort
import pytest

from tests.tiny_cnn import network, node, save, weight

ALL, WITHOUT_LAYOUTS = ort.GraphOptimizationLevel.ORT_ENABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED


def optimized(path: str, folder: Path, level: ort.GraphOptimizationLevel = ALL) -> list[onnx.NodeProto]:
    """The nodes that it runs."""
    options, file = ort.SessionOptions(), folder / "optimized.onnx"
    options.graph_optimization_level = level
    options.optimized_model_filepath, options.log_severity_level = str(file), 4
    ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return list(onnx.load(file).graph.node)


def conv(folder: Path, inputs: int, outputs: int, group: int) -> str:
    """The path of a model with one convolution, of so many channels."""
    layer = node("Conv", ["x", "w"], ["y"], "conv", group=group)
    weights = {"w": weight(outputs, inputs // group, 1, 1)}
    return save(folder, network([layer], {"x": (1, inputs, 8, 8)}, ["y"], weights))


def by_blocks(path: str, folder: Path) -> bool:
    """Whether it computes the only convolution of a model by blocks of channels."""
    (found,) = [n for n in optimized(path, folder) if n.op_type == "Conv"]
    return found.domain == "com.microsoft.nchwc"


def need_blocks(folder: Path) -> None:
    """Skip where it computes by no blocks of 8 channels."""
    if not by_blocks(conv(folder, 8, 8, 8), folder):
        pytest.skip("here ONNX Runtime has no blocks of 8 channels")
