"""Which coefficient prices which layer."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import NodeProto

from model.network import layer_kinds
from model.network.boxes import RULES
from tests.tiny_cnn import graph_of, network, node, weight


def conv(kernel: tuple[int, ...], group: int = 1, op: str = "Conv", **attributes: object) -> tuple[NodeProto, dict]:
    return node(op, ["x", "w"], ["y"], group=group, **attributes), {"w": weight(4, 4 // group, *kernel)}


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        (conv((3, 3)), "conv_winograd"),
        (conv((3, 3), strides=[1, 1], dilations=[1, 1], pads=[1] * 4), "conv_winograd"),
        (conv((3, 3), strides=[2, 1]), "conv_im2col"),
        (conv((3, 3), dilations=[1, 2]), "conv_im2col"),
        (conv((3, 3), group=2), "conv_im2col"),
        (conv((1, 1)), "conv_im2col"),
        (conv((5, 5)), "conv_im2col"),
        (conv((3, 1)), "conv_im2col"),
        (conv((3, 3), op="ConvTranspose"), "conv_im2col"),
        ((node("GlobalAveragePool", ["x"], ["y"]), {}), "pool"),
        ((node("BatchNormalization", ["x", "v", "v", "v", "v"], ["y"]), {"v": abs(weight(4)) + 1}), "norm"),
        ((node("LRN", ["x"], ["y"], size=3), {}), "lrn"),
        ((node("Relu", ["x"], ["y"]), {}), "activation"),
        ((node("Mul", ["x", "x"], ["y"]), {}), "elementwise"),
        ((node("Softmax", ["x"], ["y"]), {}), "softmax"),
        ((node("Concat", ["x", "x"], ["y"], axis=1), {}), "move"),
        ((node("Flatten", ["x"], ["y"]), {}), "view"),
        ((node("Erf", ["x"], ["y"]), {}), "other"),
    ],
)
def test_which_coefficient_prices_a_layer(layer: tuple[NodeProto, dict], kind: str, tmp_path: Path) -> None:
    graph = graph_of(tmp_path, network([layer[0]], {"x": (1, 4, 9, 9)}, ["y"], layer[1]))
    assert layer_kinds.kind(graph, graph.layers[0]) == kind


def test_the_gain_of_an_edge_goes_by_the_kinds_at_its_ends(tmp_path: Path) -> None:
    conv_, weights = conv((3, 3))
    graph = graph_of(tmp_path, network([conv_, node("Relu", ["y"], ["z"])], {"x": (1, 4, 9, 9)}, ["z"], weights))
    pairs = [layer_kinds.pair(graph, *graph.layers, along) for along in (False, True)]
    assert pairs == ["conv>activation", "conv>activation along"]
    assert set(pairs) <= set(layer_kinds.PAIRS)


@pytest.mark.parametrize("op", ["Gemm", "MatMul"])
def test_a_fully_connected_layer_has_its_own_coefficient(op: str, tmp_path: Path) -> None:
    graph = graph_of(tmp_path, network([node(op, ["x", "w"], ["y"])], {"x": (1, 4)}, ["y"], {"w": weight(4, 3)}))
    assert layer_kinds.kind(graph, graph.layers[0]) == "fc"


def test_every_kind_of_the_table_is_known() -> None:
    assert set(layer_kinds._KIND_OF.values()) <= set(layer_kinds.KINDS)
    assert {"Conv", "ConvTranspose", "Add", "MaxPool", "Gemm"} <= set(RULES)
