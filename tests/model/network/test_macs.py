"""Multiply-accumulates against figures worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto

from codegen import zoo
from model.network.load import load
from tests.tiny_cnn import graph_of, network, node, weight

IMAGE = (1, 4, 8, 6)
W = {"w": (10, 4, 3, 3)}
CASES: list[tuple[str, NodeProto, tuple[int, ...], dict[str, tuple[int, ...]], int]] = [
    ("a convolution", node("Conv", ["x", "w"], ["y"]), IMAGE, W, 10 * 6 * 4 * (4 * 3 * 3)),
    ("with pads", node("Conv", ["x", "w"], ["y"], pads=[1] * 4), IMAGE, W, 10 * 8 * 6 * (4 * 3 * 3)),
    ("with strides", node("Conv", ["x", "w"], ["y"], strides=[2, 2]), IMAGE, W, 10 * 3 * 2 * (4 * 3 * 3)),
    ("in groups", node("Conv", ["x", "w"], ["y"], group=2), IMAGE, {"w": (10, 2, 3, 3)}, 10 * 6 * 4 * (2 * 3 * 3)),
    ("depthwise", node("Conv", ["x", "w"], ["y"], group=4), IMAGE, {"w": (4, 1, 3, 3)}, 4 * 6 * 4 * 9),
    ("on a line", node("Conv", ["x", "w"], ["y"]), (2, 3, 7), {"w": (5, 3, 3)}, 2 * 5 * 5 * 9),
    ("a bias is free", node("Conv", ["x", "w", "b"], ["y"]), IMAGE, {**W, "b": (10,)}, 10 * 6 * 4 * 36),
    ("transposed", node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2]), IMAGE, {"w": (4, 5, 2, 2)}, 192 * 20),
    ("Gemm", node("Gemm", ["x", "w"], ["y"]), (2, 5), {"w": (5, 7)}, 2 * 5 * 7),
    ("Gemm, B transposed", node("Gemm", ["x", "w"], ["y"], transB=1), (2, 5), {"w": (7, 5)}, 2 * 5 * 7),
    ("Gemm, A transposed", node("Gemm", ["x", "w"], ["y"], transA=1), (5, 2), {"w": (5, 7)}, 2 * 5 * 7),
    ("MatMul", node("MatMul", ["x", "w"], ["y"]), (3, 2, 5), {"w": (5, 7)}, 3 * 2 * 5 * 7),
    ("pooling", node("MaxPool", ["x"], ["y"], kernel_shape=[2, 3], strides=[2, 3]), IMAGE, {}, 4 * 4 * 2 * 6),
    ("global pooling", node("GlobalAveragePool", ["x"], ["y"]), IMAGE, {}, 4 * 8 * 6),
    ("a mean", node("ReduceMean", ["x"], ["y"], axes=[2, 3]), IMAGE, {}, 4 * 8 * 6),
    ("LRN", node("LRN", ["x"], ["y"], size=5), IMAGE, {}, 4 * 8 * 6 * 5),
    ("an activation", node("Relu", ["x"], ["y"]), IMAGE, {}, 4 * 8 * 6),
    ("broadcasting", node("Add", ["x", "w"], ["y"]), (1, 4, 1, 6), {"w": (8, 1)}, 4 * 8 * 6),
    ("joining", node("Concat", ["x", "x"], ["y"], axis=1), IMAGE, {}, 2 * 4 * 8 * 6),
    ("parting", node("Split", ["x"], ["y", "z"], axis=1), IMAGE, {}, 4 * 8 * 6),
    ("a view", node("Flatten", ["x"], ["y"]), IMAGE, {}, 0),
]


@pytest.mark.parametrize(("layer", "shape", "weights", "macs"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_macs_of_one_layer(
    layer: NodeProto, shape: tuple[int, ...], weights: dict[str, tuple[int, ...]], macs: int, tmp_path: Path
) -> None:
    opset = 13 if layer.op_type == "Split" else 17
    model = network([layer], {"x": shape}, ["y"], {n: weight(*s) for n, s in weights.items()}, opset)
    assert graph_of(tmp_path, model).layers[0].macs == macs


def test_a_reshape_is_a_view(tmp_path: Path) -> None:
    model = network([node("Reshape", ["x", "t"], ["y"])], {"x": IMAGE}, ["y"], {"t": np.array([1, -1])})
    assert graph_of(tmp_path, model).layers[0].macs == 0


@pytest.mark.parametrize(("name", "giga"), [("resnet50", 4.09), ("densenet121", 2.83), ("squeezenet", 0.349)])
def test_well_known_networks_have_their_published_work(name: str, giga: float) -> None:
    graph = load(zoo.cached(name))
    work = sum(layer.macs for layer in graph.layers if layer.op in ("Conv", "Gemm"))
    assert work == pytest.approx(giga * 1e9, rel=2e-3)
