"""Blocks of modern networks, every layer cut along an axis of its own: exact whatever meets whatever."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from onnx import ModelProto

from model.network import boxes
from tests.cuts import DEVICES, Draw, assert_every_cut_is_exact, chain, randoms
from tests.tiny_cnn import (
    NEWEST,
    assert_cut_exactly,
    examples,
    frame,
    graph_of,
    network,
    node,
    random_mapping,
    run_mapping,
    run_whole,
    weight,
)


def residual() -> ModelProto:
    """ResNet: the shortcut is narrowed by a convolution with stride."""
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", ["a", "k", "k", "k", "k"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("Conv", ["r", "w2"], ["b"], pads=[1, 1, 1, 1]),
        node("Conv", ["x", "w3"], ["short"], strides=[2, 2]),
        node("Add", ["b", "short"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    weights = {"w1": weight(6, 4, 3, 3), "w2": weight(6, 6, 3, 3), "w3": weight(6, 4, 1, 1)}
    return network(nodes, {"x": (2, 4, 9, 7)}, ["y"], {**weights, "k": np.abs(weight(6)) + 0.5})


def squeeze_and_excite() -> ModelProto:
    """Each channel is scaled by what its average says; the average has one row."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], group=6),
        node("GlobalAveragePool", ["c"], ["p"]),
        node("Conv", ["p", "down"], ["d"]),
        node("Relu", ["d"], ["r"]),
        node("Conv", ["r", "up"], ["u"]),
        node("HardSigmoid", ["u"], ["g"]),
        node("Mul", ["g", "c"], ["y"]),
    ]
    weights = {"w": weight(6, 1, 3, 3), "down": weight(3, 6, 1, 1), "up": weight(6, 3, 1, 1)}
    return network(nodes, {"x": (2, 6, 5, 5)}, ["y"], weights)


def shuffled() -> ModelProto:
    """ShuffleNet: channels go from group to group between two grouped convolutions."""
    nodes = [
        node("Conv", ["x", "w1"], ["c"], group=2),
        node("Reshape", ["c", "apart"], ["a"]),
        node("Transpose", ["a"], ["t"], perm=[0, 2, 1, 3, 4]),
        node("Reshape", ["t", "together"], ["s"]),
        node("Conv", ["s", "w2"], ["d"], group=8, pads=[1, 1, 1, 1]),
        node("Concat", ["d", "c"], ["y"], axis=1),
    ]
    weights = {"w1": weight(8, 3, 1, 1), "w2": weight(8, 1, 3, 3)}
    shapes = {"apart": np.array([2, 2, 4, 5, 3]), "together": np.array([2, 8, 5, 3])}
    return network(nodes, {"x": (2, 6, 5, 3)}, ["y"], {**weights, **shapes})


def quantized_pair() -> ModelProto:
    """QDQ around a convolution whose own weights are quantized too."""
    draw = np.random.default_rng(0)
    constants = {"s": np.array(0.05, np.float32), "z": np.array(128, np.uint8), "ws": np.full(6, 0.01, np.float32)}
    constants |= {"w": draw.integers(-100, 100, (6, 4, 3, 3)).astype(np.int8), "wz": np.zeros(6, np.int8)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["dw"], axis=0),
        node("Conv", ["d", "dw", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("QuantizeLinear", ["r", "s", "z"], ["p"]),
        node("DequantizeLinear", ["p", "s", "z"], ["y"]),
    ]
    return network(nodes, {"x": (2, 4, 5, 5)}, ["y"], {**constants, "b": weight(6)})


def decoder() -> ModelProto:
    """U-Net: up, cut to fit, joined with what came before, padded, and halved again."""
    nodes = [
        node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("ConvTranspose", ["p", "w1"], ["u"], strides=[2, 2]),
        node("Pad", ["u", "pads"], ["e"]),
        node("Slice", ["x", "from", "to", "axes"], ["part"]),
        node("Concat", ["e", "part"], ["c"], axis=1),
        node("Split", ["c", "parts"], ["one", "two"], axis=1),
        node("Resize", ["one", "", "twice"], ["big"]),
        node("DepthToSpace", ["two"], ["deep"], blocksize=2),
        node("Add", ["big", "deep"], ["y"]),
    ]
    shapes = {"pads": np.array([0, 0, -1, 0, 0, 0, 0, 1]), "from": np.array([1]), "to": np.array([9])}
    shapes |= {"axes": np.array([2]), "parts": np.array([1, 4])}
    constants = {**shapes, "twice": np.array([1, 1, 2, 2], np.float32), "w1": weight(2, 3, 2, 2)}
    return network(nodes, {"x": (1, 2, 8, 7)}, ["y"], constants, NEWEST)


def recurrent_like() -> ModelProto:
    """A transformer's feed-forward part: products along the last of three axes, and a mean over it."""
    nodes = [
        node("MatMul", ["x", "w1"], ["a"]),
        node("Add", ["a", "b"], ["c"]),
        node("Gelu", ["c"], ["g"]),
        node("MatMul", ["g", "w2"], ["m"]),
        node("Add", ["m", "x"], ["s"]),
        node("ReduceMean", ["s", "last"], ["mean"]),
        node("Sub", ["s", "mean"], ["y"]),
    ]
    weights = {"w1": weight(4, 9), "b": weight(9), "w2": weight(9, 4), "last": np.array([-1])}
    return network(nodes, {"x": (2, 5, 4)}, ["y"], weights, NEWEST)


BLOCKS = [residual, squeeze_and_excite, shuffled, decoder, recurrent_like]


@pytest.mark.parametrize("block", BLOCKS)
@given(draw=randoms)
@examples(12)
def test_a_block_is_exact_however_its_layers_are_cut(
    block: object, draw: Draw, tmp_path_factory: pytest.TempPathFactory
) -> None:
    graph = graph_of(tmp_path_factory.mktemp("block"), block())  # type: ignore[operator]
    kinds = draw.choice([[boxes.SAMPLES], [boxes.CHANNELS], [boxes.ROWS], [boxes.PARTIAL], range(boxes.KINDS)])
    assert_cut_exactly(graph, random_mapping(draw, graph, DEVICES, kinds=kinds), DEVICES)


@given(draw=randoms)
@examples(12)
def test_a_quantized_block_is_exact_but_for_a_step_of_its_scale(
    draw: Draw, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """ONNX Runtime computes what it can fuse in whole numbers, and a half may be rounded up or down."""
    graph = graph_of(tmp_path_factory.mktemp("quantized"), quantized_pair())
    feeds = frame(graph)
    wanted = run_whole(graph.path, feeds)["y"]
    got = run_mapping(graph, random_mapping(draw, graph, DEVICES), DEVICES, feeds)["y"]
    off = np.abs(got - wanted)
    assert np.max(off) < 0.051
    assert np.mean(off > 0.01) < 0.02


@pytest.mark.parametrize("size", [1, 3, 5, 9])
@given(draw=randoms)
@examples(5)
def test_normalisation_over_channels_asks_its_neighbours(size: int, draw: Draw) -> None:
    middle = node("LRN", ["h"], ["m"], size=size, alpha=0.9, beta=0.7, bias=0.5)
    assert assert_every_cut_is_exact(chain(middle, (2, 7, 3, 2)), draw) == "nch"


@pytest.mark.parametrize("opset", [9, 11, NEWEST])
@pytest.mark.parametrize("shape", [(5,), (1, 5), (3, 1), (1,), (), (3, 5), None])
@given(draw=randoms)
@examples(2)
def test_partial_sums_of_a_fully_connected_layer_have_its_bias_once(
    opset: int, shape: tuple[int, ...] | None, draw: Draw
) -> None:
    """Before opset 11 the other sums need a bias too: zero."""
    bias = {"c": 10 * weight(*shape)} if shape is not None else {}
    if not bias and opset < 11:
        return
    middle = node("Gemm", ["h", "w", *bias], ["m"], alpha=0.5, beta=3.0)
    assert assert_every_cut_is_exact(chain(middle, (3, 6), {"w": weight(6, 5), **bias}, opset), draw) == "ncp"


@pytest.mark.parametrize(("shape", "allowed"), [((3, 6), "ncp"), ((2, 3, 6), "nchp"), ((2, 3, 4, 6), "nch")])
@given(draw=randoms)
@examples(4)
def test_a_matrix_product_with_more_axes_on_the_left(shape: tuple[int, ...], allowed: str, draw: Draw) -> None:
    assert (
        assert_every_cut_is_exact(chain(node("MatMul", ["h", "w"], ["m"]), shape, {"w": weight(6, 5)}), draw) == allowed
    )


@pytest.mark.parametrize("slope", [(6, 1, 1), (1,), (), (6, 5, 4), (1, 1, 4), (5, 1)])
@given(draw=randoms)
@examples(3)
def test_slopes_of_every_shape(slope: tuple[int, ...], draw: Draw) -> None:
    model = chain(node("PRelu", ["h", "k"], ["m"]), (2, 6, 5, 4), {"k": weight(*slope)})
    model.graph.node[0].op_type = "Neg"
    assert assert_every_cut_is_exact(model, draw) == "nch"


@given(draw=randoms)
@examples(6)
def test_half_precision_has_no_partial_sums(draw: Draw) -> None:
    """One of them may be infinite where all of them together are not."""
    weights = {"w": weight(3, 5, 2, 2) / 4, "b": weight(3)}
    model = chain(node("Conv", ["h", "w", "b"], ["m"]), (1, 5, 4, 4), weights, dtype="float16")
    assert assert_every_cut_is_exact(model, draw) == "ch"


@pytest.mark.parametrize("op", ["ArgMax", "TopK", "CumSum"])
def test_what_has_no_rule_stays_whole(op: str, tmp_path: Path) -> None:
    constants = {"TopK": {"k": np.array([2])}, "CumSum": {"k": np.array(1)}}.get(op, {})
    outputs = ["y", "where"] if op == "TopK" else ["y"]
    names = dict(zip(outputs, ["float32" if op != "ArgMax" else "int64", "int64"], strict=False))
    graph = graph_of(tmp_path, network([node(op, ["x", *constants], outputs)], {"x": (2, 6, 4, 4)}, names, constants))
    assert [boxes.rule(graph, graph.layers[0], kind) for kind in range(boxes.KINDS)] == [None] * boxes.KINDS
