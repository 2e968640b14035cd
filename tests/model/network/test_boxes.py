"""Every operator that has a rule, cut at random places through the real path, equals the whole operator."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from onnx import ModelProto, NodeProto

from model.mappings.mapping import Mapping, Shard
from model.mappings.planning import plan
from model.network import boxes, contrib, layout
from model.network.boxes import Need
from model.network.graph import Graph
from runtime.plan import Send
from tests.cuts import DEVICES, EVERY_KIND, Draw, assert_every_cut_is_exact, chain, randoms
from tests.tiny_cnn import (
    NEWEST,
    OPSET,
    assert_cut_exactly,
    examples,
    graph_of,
    network,
    node,
    platform,
    random_mapping,
    weight,
)


def convolution(draw: Draw, rank: int) -> tuple[dict, np.ndarray]:
    """Attributes and weights of a random convolution with ``rank`` spatial axes, maybe grouped or depthwise."""
    groups = draw.choice([1, 1, 2, 3, 4])
    kernel = [draw.randint(1, 3) for _ in range(rank)]
    attributes: dict = {"group": groups, "strides": [draw.randint(1, 2) for _ in range(rank)]}
    pads = draw.choice(["none", "odd", "auto"])
    if pads == "odd":
        attributes["pads"] = [draw.randint(0, 2) for _ in range(2 * rank)]
    elif pads == "auto":
        attributes["auto_pad"] = draw.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    if pads != "auto":
        attributes["dilations"] = [draw.randint(1, 2) for _ in range(rank)]
    return attributes, weight(max(2, groups * draw.randint(1, 5)), draw.randint(1, 3), *kernel)


@pytest.mark.parametrize("rank", [1, 2, 3])
@given(draw=randoms)
@examples(8)
def test_a_convolution(rank: int, draw: Draw) -> None:
    attributes, w = convolution(draw, rank)
    bias = {"b": weight(len(w))} if draw.random() < 0.5 else {}
    channels = w.shape[1] * attributes["group"]
    dtype, opset = draw.choice(["float32", "float32", "float16"]), draw.choice([9, NEWEST])
    shape = (draw.randint(1, 2), channels, *[draw.randint(5, 8) for _ in range(rank)])
    middle = node("Conv", ["h", "w", *bias], ["m"], **attributes)
    assert_every_cut_is_exact(chain(middle, shape, {"w": w, **bias}, opset, dtype), draw)


@given(draw=randoms)
@examples(8)
def test_grouped_and_depthwise_convolutions_in_a_row(draw: Draw) -> None:
    """Pieces of one are what pieces of the next need, in other groups."""
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1], group=2),
        node("Conv", ["a", "w2"], ["b"], pads=[1, 1, 1, 1], group=12),
        node("Conv", ["b", "w3"], ["y"], group=3, strides=[2, 2]),
    ]
    weights = {"w1": weight(12, 2, 3, 3), "w2": weight(24, 1, 3, 3), "w3": weight(9, 8, 1, 1)}
    opset = draw.choice([9, NEWEST])
    assert_every_cut_is_exact(network(nodes, {"x": (1, 4, 5, 5)}, ["y"], weights, opset), draw, "b")


def test_a_cut_inside_a_group_is_refused(tmp_path: Path) -> None:
    layer = node("Conv", ["x", "w"], ["y"], "conv", group=3)
    graph = graph_of(tmp_path, network([layer], {"x": (1, 6, 4, 4)}, ["y"], {"w": weight(12, 2, 1, 1)}))
    assert boxes.rule(graph, graph.layers[0]) == boxes.Rule((Need(1, mul=2, div=4), Need(0)), 12, grain=4)
    inside = Mapping.of([Shard(0, 0, 6, 0), Shard(0, 6, 12, 1)])
    sentence = "layer 'conv': the cut at 6 lies inside a group of 4 channels; cut at a multiple of it"
    assert inside.check(graph, platform(2)) == [sentence]
    assert Mapping.of([Shard(0, 0, 8, 0), Shard(0, 8, 12, 1)]).check(graph, platform(2)) == []


@pytest.mark.parametrize("rank", [1, 2, 3])
@given(draw=randoms)
@examples(8)
def test_a_transposed_convolution(rank: int, draw: Draw) -> None:
    into, out = draw.randint(1, 4), draw.randint(2, 7)
    strides = [draw.randint(1, 3) for _ in range(rank)]
    attributes: dict = {"strides": strides, "output_padding": [draw.randint(0, s - 1) for s in strides]}
    if draw.random() < 0.5:
        attributes["pads"] = [draw.randint(0, 1) for _ in range(2 * rank)]
    bias = {"b": weight(out)} if draw.random() < 0.5 else {}
    w = weight(into, out, *[draw.randint(2, 3) for _ in range(rank)])
    middle = node("ConvTranspose", ["h", "w", *bias], ["m"], **attributes)
    assert_every_cut_is_exact(chain(middle, (1, into, *[4] * rank), {"w": w, **bias}), draw)


def test_a_grouped_transposed_convolution_stays_whole(tmp_path: Path) -> None:
    layer = node("ConvTranspose", ["x", "w"], ["y"], "up", group=2)
    graph = graph_of(tmp_path, network([layer], {"x": (1, 4, 4, 4)}, ["y"], {"w": weight(4, 3, 2, 2)}))
    assert boxes.rule(graph, graph.layers[0]) is None
    halves = Mapping.of([Shard(0, 0, 3, 0), Shard(0, 3, 6, 1)])
    sentence = "layer 'up': operator ConvTranspose cannot be split by channels here; keep it whole"
    assert halves.check(graph, platform(2)) == [sentence]


BIASES = ["absent", "left out", "(N,)", "(1,N)", "(M,1)", "(1,)", "()", "(M,N)"]


@pytest.mark.parametrize("bias", BIASES)
@given(draw=randoms)
@examples(8)
def test_a_fully_connected_layer(bias: str, draw: Draw) -> None:
    m, k, n = draw.randint(1, 3), draw.randint(2, 5), draw.randint(2, 9)
    trans_a, trans_b = (int(draw.random() < 0.5) for _ in range(2))
    shapes = {"(N,)": (n,), "(1,N)": (1, n), "(M,1)": (m, 1), "(1,)": (1,), "()": (), "(M,N)": (m, n)}
    c = {"c": weight(*shapes[bias])} if bias in shapes else {}
    names = ["h", "w", *(c or ([""] if bias == "left out" else []))]
    attributes = {"transA": trans_a, "transB": trans_b, "alpha": draw.uniform(0.5, 2), "beta": draw.uniform(0.5, 2)}
    middle = node("Gemm", names, ["m"], **attributes)
    w = {"w": weight(n, k) if trans_b else weight(k, n), **c}
    assert_every_cut_is_exact(chain(middle, (k, m) if trans_a else (m, k), w, draw.choice([11, NEWEST])), draw)


@given(draw=randoms)
@examples(8)
def test_a_matrix_product_with_a_bias(draw: Draw) -> None:
    k, n = draw.randint(2, 5), draw.randint(2, 9)
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["y"])]
    model = network(nodes, {"x": (draw.randint(1, 3), k)}, ["y"], {"w": weight(k, n), "b": weight(n)})
    assert_every_cut_is_exact(model, draw)


def test_products_of_two_activations_stay_whole_and_a_matrix_may_stand_right_of_more_axes(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "x"], ["square"]),
        node("MatMul", ["square", "w"], ["y"]),
        node("Gemm", ["a", "a"], ["z"], transB=1),
    ]
    model = network(nodes, {"x": (1, 4, 4), "a": (3, 4)}, ["y", "z"], {"w": weight(4, 6)})
    graph = graph_of(tmp_path, model)
    rules = [[boxes.rule(graph, layer, kind) for kind in range(boxes.KINDS)] for layer in graph.layers]
    assert rules[0] == rules[2] == [None] * boxes.KINDS
    assert all(rules[1][kind] for kind in (boxes.CHANNELS, boxes.ROWS, boxes.PARTIAL))


PER_CHANNEL = {
    "BatchNormalization": ("scale", "shift", "mean", "variance"),
    "InstanceNormalization": ("scale", "shift"),
}


@pytest.mark.parametrize("op", PER_CHANNEL)
@given(draw=randoms)
@examples(8)
def test_a_normalisation(op: str, draw: Draw) -> None:
    channels = draw.randint(2, 9)
    names = PER_CHANNEL[op]
    weights = {name: np.abs(weight(channels, seed=i)) + 0.5 for i, name in enumerate(names)}
    shape = (draw.randint(1, 2), channels, *[draw.randint(3, 4)] * draw.randint(1, 3))
    opset = draw.choice([9, 14, NEWEST])
    assert_every_cut_is_exact(chain(node(op, ["h", *names], ["m"], epsilon=1e-3), shape, weights, opset), draw)


POOLS = {
    "MaxPool": {"ceil_mode": 1, "dilations": [1, 2]},
    "AveragePool": {"ceil_mode": 1, "count_include_pad": 1},
    "LpPool": {"p": 3},
}


@pytest.mark.parametrize("op", POOLS)
@given(draw=randoms)
@examples(8)
def test_a_pooling(op: str, draw: Draw) -> None:
    attributes = dict(POOLS[op]) if draw.random() < 0.7 else {}
    pads = draw.choice([{}, {"pads": [0, 1, 1, 0]}, {"auto_pad": "SAME_UPPER"}])
    if "auto_pad" in pads:
        attributes.pop("ceil_mode", None), attributes.pop("dilations", None)
    strides = [draw.randint(1, 2), draw.randint(1, 3)]
    middle = node(op, ["h"], ["m"], kernel_shape=[2, 2], strides=strides, **attributes, **pads)
    opset = draw.choice([10, NEWEST]) if op != "LpPool" else NEWEST
    assert_every_cut_is_exact(chain(middle, (1, draw.randint(2, 9), 6, 7), {}, opset), draw)


GLOBAL_POOLS = ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")


@pytest.mark.parametrize("op", GLOBAL_POOLS)
@given(draw=randoms)
@examples(6)
def test_a_global_pooling(op: str, draw: Draw) -> None:
    assert_every_cut_is_exact(chain(node(op, ["h"], ["m"]), (2, draw.randint(2, 9), 3, 4), {}, OPSET), draw)


def test_a_pooling_whose_indices_are_read_stays_whole(tmp_path: Path) -> None:
    layer = node("MaxPool", ["x"], ["y", "where"], kernel_shape=[2, 2])
    graph = graph_of(tmp_path, network([layer], {"x": (1, 4, 4, 4)}, {"y": "float32", "where": "int64"}))
    assert boxes.rule(graph, graph.layers[0]) is None


UNARY: dict[str, dict] = {
    **{op: {} for op in ("Relu", "Selu", "Sigmoid", "HardSwish", "Mish", "Gelu", "Tanh", "Softplus", "Softsign")},
    **{op: {} for op in ("Exp", "Log", "Sqrt", "Reciprocal", "Neg", "Abs", "Erf", "Floor", "Ceil", "Round", "Sign")},
    "Identity": {},
    "LeakyRelu": {"alpha": 0.3},
    "Elu": {"alpha": 0.3},
    "Celu": {"alpha": 0.3},
    "ThresholdedRelu": {"alpha": 0.7},
    "HardSigmoid": {"alpha": 0.1, "beta": 0.3},
    "Clip": {},
    "Cast": {"to": 1},
}


@pytest.mark.parametrize("op", UNARY)
@given(draw=randoms)
@examples(4)
def test_an_operator_on_each_element(op: str, draw: Draw) -> None:
    shape = (1, draw.randint(2, 9), *[3] * draw.randint(0, 2))
    model = network([node("Neg", ["x"], ["h"]), node(op, ["n"], ["y"], **UNARY[op])], {"x": shape}, ["y"], opset=NEWEST)
    model.graph.node.insert(1, node("Abs", ["h"], ["n"]))
    assert_every_cut_is_exact(model, draw, "y", positive=True)


@pytest.mark.parametrize("bounds", [["low", "high"], ["low"], ["", "high"]])
@given(draw=randoms)
@examples(5)
def test_a_clip_with_bounds_as_inputs(bounds: list[str], draw: Draw) -> None:
    values = {name: np.array(value, np.float32) for name, value in (("low", 0.2), ("high", 0.6)) if name in bounds}
    middle = node("Clip", ["h", *bounds], ["m"])
    assert_every_cut_is_exact(chain(middle, (1, draw.randint(2, 9), 3, 3), values), draw)


LOGICAL = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor")
BINARY = ["Add", "Sub", "Mul", "Div", "Pow", "Sum", "Max", "Min", "Mean", "PRelu"]


@pytest.mark.parametrize("op", BINARY)
@given(draw=randoms)
@examples(5)
def test_an_operator_that_broadcasts_a_constant(op: str, draw: Draw) -> None:
    c = draw.randint(2, 9)
    shapes = [(c, 1, 1), (1, c, 1, 1), (c, 3, 4), (1, 1, 3, 4), (4,), (1,), (), (1, c, 3, 4), (2, c, 3, 4)]
    constant = {"k": np.abs(weight(*draw.choice(shapes))) + 0.5}
    names = ["k", "h"] if op != "PRelu" and draw.random() < 0.3 else ["h", "k"]
    assert_every_cut_is_exact(chain(node(op, names, ["m"]), (2, c, 3, 4), constant), draw, positive=True)


@pytest.mark.parametrize("op", BINARY)
@given(draw=randoms)
@examples(4)
def test_an_operator_on_two_activations(op: str, draw: Draw) -> None:
    c = draw.randint(2, 9)
    other = draw.choice([(2, c, 3, 4), (1, c, 1, 1), (2, 1, 3, 4), (1, 1, 1, 1)])
    nodes = [node("Abs", ["x"], ["a"]), node("Sqrt", ["z"], ["b"]), node(op, ["a", "b"], ["y"])]
    assert_every_cut_is_exact(network(nodes, {"x": (2, c, 3, 4), "z": other}, ["y"]), draw, "y", positive=True)


@pytest.mark.parametrize("shape", [(5, 1, 1), (5, 3, 4), (3, 4), (1, 3, 4), (4,), (1,), ()])
@given(draw=randoms)
@examples(6)
def test_an_activation_with_fewer_axes_is_broadcast(shape: tuple[int, ...], draw: Draw) -> None:
    nodes = [node("Abs", ["x"], ["a"]), node("Sqrt", ["z"], ["b"]), node("Add", ["a", "b"], ["y"])]
    model = network(nodes, {"x": (2, 5, 3, 4), "z": shape}, ["y"])
    with tempfile.TemporaryDirectory() as folder:
        graph = graph_of(Path(folder), model)
        assert boxes.rule(graph, graph.by_name["y"]) is not None
        assert_cut_exactly(graph, random_mapping(draw, graph, DEVICES), DEVICES, positive=True)


@pytest.mark.parametrize("op", ["Add", "Mul", "PRelu"])
def test_a_vector_added_to_a_matrix_of_activations(op: str, tmp_path: Path) -> None:
    nodes = [node("Abs", ["x"], ["a"]), node("Sqrt", ["z"], ["b"]), node(op, ["a", "b"], ["y"])]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 6), "z": (6,)}, ["y"]))
    for seed in range(5):
        assert_cut_exactly(graph, random_mapping(random.Random(seed), graph, DEVICES), DEVICES, positive=True)


@given(draw=randoms)
@examples(15)
def test_a_concat_along_the_channels(draw: Draw) -> None:
    """Most boxes need nothing of some inputs; one input may stand twice, one may be constant."""
    sizes = [draw.randint(1, 5) for _ in range(3)]
    inputs = {f"x{i}": (1, size, 2, 3) for i, size in enumerate(sizes)}
    nodes = [node("Abs", [name], [f"a{i}"]) for i, name in enumerate(inputs)]
    names = [f"a{i}" for i in range(3)] + draw.choice([[], ["a0"], ["k"]])
    draw.shuffle(names)
    nodes += [node("Concat", names, ["c"], axis=draw.choice([1, -3])), node("Neg", ["c"], ["y"])]
    model = network(nodes, inputs, ["y"], {"k": weight(1, 3, 2, 3)} if "k" in names else {}, draw.choice([11, NEWEST]))
    assert_every_cut_is_exact(model, draw, "c")


@pytest.mark.parametrize("axis", [0, 2, 3, -1])
@given(draw=randoms)
@examples(6)
def test_a_concat_along_another_axis(axis: int, draw: Draw) -> None:
    nodes = [node("Abs", ["x"], ["a"]), node("Neg", ["x"], ["b"]), node("Concat", ["a", "b"], ["y"], axis=axis)]
    assert_every_cut_is_exact(network(nodes, {"x": (1, draw.randint(2, 7), 2, 3)}, ["y"]), draw, "y")


IMAGE = (2, 6, 6, 4)
BOOL, FLOAT, INT8 = onnx.TensorProto.BOOL, onnx.TensorProto.FLOAT, onnx.TensorProto.INT8
QUANTIZED = {
    "s": np.array(0.05, np.float32),
    "z": np.array(128, np.uint8),
    "ws": np.linspace(0.01, 0.02, 6).astype(np.float32),
    "wz": np.zeros(6, np.int8),
    "one": np.array(0.01, np.float32),
    "zero": np.array(0, np.int8),
    "w": np.random.default_rng(0).integers(-100, 100, (6, 6, 3, 3)).astype(np.int8),
    "v": np.random.default_rng(1).integers(-100, 100, (6, 5)).astype(np.int8),
}


def image(op: str, *constants: np.ndarray, **attributes: object) -> ModelProto:
    """An operator on an image, and constants."""
    weights = {f"k{i}": value for i, value in enumerate(constants)}
    return chain(node(op, ["h", *weights], ["m"], **attributes), IMAGE, weights)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def matrix(op: str, *constants: np.ndarray, **attributes: object) -> ModelProto:
    """An operator on a matrix, and constants."""
    weights = {f"k{i}": value for i, value in enumerate(constants)}
    return chain(node(op, ["h", *weights], ["m"], **attributes), (4, 6), weights)


def quantized(middle: NodeProto, shape: tuple[int, ...], after: str) -> ModelProto:
    """A layer that reads ``q`` of uint8 and makes ``m``, which ``after`` turns into floats again."""
    last = {
        "DequantizeLinear": node("DequantizeLinear", ["m", "s", "z"], ["y"]),
        "Cast": node("Cast", ["m"], ["y"], to=FLOAT),
    }
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), middle, last[after]]
    used = {name for n in nodes for name in n.input}
    return network(nodes, {"x": shape}, ["y"], {k: v for k, v in QUANTIZED.items() if k in used}, NEWEST)


def logical(op: str) -> ModelProto:
    """A comparison, or an operator on what two comparisons give."""
    nodes = [node("Abs", ["x"], ["a"]), node("Sin", ["x"], ["b"])]
    if op in ("And", "Or", "Xor", "Not"):
        nodes += [node("Greater", ["x", "a"], ["c"]), node("LessOrEqual", ["b", "a"], ["d"])]
        nodes.append(node(op, ["c", "d"][: 1 if op == "Not" else 2], ["m"]))
    else:
        nodes.append(node(op, ["x", "a"], ["m"]))
    return network([*nodes, node("Cast", ["m"], ["y"], to=FLOAT)], {"x": IMAGE}, ["y"])


def choice() -> ModelProto:
    """Where, with an operand of fewer axes."""
    nodes = [node("Abs", ["x"], ["a"]), node("Neg", ["z"], ["b"]), node("Greater", ["x", "b"], ["c"])]
    nodes += [node("Where", ["c", "a", "b"], ["m"]), node("Neg", ["m"], ["y"])]
    return network(nodes, {"x": IMAGE, "z": (6, 1, 4)}, ["y"])


def two(op: str) -> ModelProto:
    nodes = [node("Abs", ["x"], ["a"]), node("Sqrt", ["z"], ["b"]), node(op, ["a", "b"], ["m"])]
    return network([*nodes, node("Neg", ["m"], ["y"])], {"x": IMAGE, "z": IMAGE}, ["y"])


def joined() -> ModelProto:
    nodes = [node("Abs", ["x"], ["a"]), node("Neg", ["x"], ["b"]), node("Concat", ["a", "b"], ["m"], axis=1)]
    return network([*nodes, node("Neg", ["m"], ["y"])], {"x": IMAGE}, ["y"])


def divided() -> ModelProto:
    nodes = [
        node("Abs", ["x"], ["h"]),
        node("Split", ["h", "k"], ["m", "n"], axis=1),
        node("Concat", ["n", "m"], ["y"], axis=1),
    ]
    return network(nodes, {"x": IMAGE}, ["y"], {"k": ints(2, 4)})


def kept_identity() -> ModelProto:
    """Only an Identity that makes an output of the network is a layer."""
    nodes = [node("Abs", ["x"], ["h"]), node("Identity", ["h"], ["m"]), node("Neg", ["m"], ["y"])]
    return network(nodes, {"x": IMAGE}, ["y", "m"])


TYPICAL: dict[str, tuple[str, ModelProto]] = {
    "Conv": ("nchp", image("Conv", weight(5, 6, 3, 3), weight(5), pads=[1, 1, 1, 1])),
    "ConvTranspose": ("ncp", image("ConvTranspose", weight(6, 5, 3, 3), weight(5), strides=[2, 2])),
    "Gemm": ("ncp", matrix("Gemm", weight(6, 5), weight(5), alpha=0.5, beta=2.0)),
    "MatMul": ("ncp", matrix("MatMul", weight(6, 5))),
    "QLinearConv": (
        "nch",
        quantized(
            node("QLinearConv", ["q", "s", "z", "w", "ws", "wz", "s", "z"], ["m"]), IMAGE, after="DequantizeLinear"
        ),
    ),
    "ConvInteger": ("nch", quantized(node("ConvInteger", ["q", "w", "z"], ["m"]), IMAGE, after="Cast")),
    "QLinearMatMul": (
        "nc",
        quantized(
            node("QLinearMatMul", ["q", "s", "z", "v", "one", "zero", "s", "z"], ["m"]), (4, 6), "DequantizeLinear"
        ),
    ),
    "MatMulInteger": ("nc", quantized(node("MatMulInteger", ["q", "v", "z"], ["m"]), (4, 6), after="Cast")),
    "QuantizeLinear": (
        "nch",
        network(
            [
                node("Abs", ["x"], ["a"]),
                node("QuantizeLinear", ["a", "ws", "wz"], ["m"], axis=1),
                node("Cast", ["m"], ["y"], to=FLOAT),
            ],
            {"x": IMAGE},
            {"y": "float32", "a": "float32"},  # which keeps it a layer of its own
            {name: QUANTIZED[name] for name in ("ws", "wz")},
        ),
    ),
    "DequantizeLinear": (
        "nch",
        network(
            [
                node("Cast", ["x"], ["a"], to=INT8),
                node("DequantizeLinear", ["a", "ws", "wz"], ["m"], axis=1),
                node("Neg", ["m"], ["y"]),
            ],
            {"x": IMAGE},
            ["y", "m"],
            {name: QUANTIZED[name] for name in ("ws", "wz")},
        ),
    ),
    "BatchNormalization": (
        "nch",
        image("BatchNormalization", *[np.abs(weight(6, seed=i)) + 0.5 for i in range(4)]),
    ),
    "InstanceNormalization": ("nc", image("InstanceNormalization", weight(6), weight(6, seed=1))),
    "LayerNormalization": ("nch", image("LayerNormalization", weight(4), weight(4, seed=1))),
    "LRN": ("nch", image("LRN", size=3, alpha=0.5, beta=0.6)),
    "Concat": ("nch", joined()),
    "Transpose": ("nch", image("Transpose", perm=[1, 2, 0, 3])),
    "Expand": ("nch", chain(node("Expand", ["h", "k"], ["m"]), (2, 6, 1, 1), {"k": np.array([6, 4])})),
    "Softmax": ("nch", image("Softmax")),
    "LogSoftmax": ("nh", image("LogSoftmax", axis=1)),
    "Reshape": ("nc", image("Reshape", ints(0, 12, -1))),
    "Flatten": ("nc", image("Flatten")),
    "Squeeze": ("nc", chain(node("Squeeze", ["h", "k"], ["m"]), (2, 6, 1, 4), {"k": ints(2)})),
    "Unsqueeze": ("nc", image("Unsqueeze", ints(3))),
    "Pad": ("nch", image("Pad", ints(0, 0, 1, 2, 0, 0, 0, 1), np.array(1.5, np.float32))),
    "Slice": ("nc", image("Slice", ints(4, 0), ints(-9, 3), ints(2, -1), ints(-2, 1))),
    "Resize": ("nc", image("Resize", np.array([], np.float32), np.array([1, 1, 2, 2], np.float32))),
    "Upsample": (
        "nc",
        chain(node("Upsample", ["h", "k"], ["m"]), IMAGE, {"k": np.array([1, 1, 2, 3], np.float32)}, opset=9),
    ),
    **{op: ("nc", image(op, ints(2, 3))) for op in layout.REDUCTIONS},
    "Split": ("nh", divided()),
    "DepthToSpace": ("nh", chain(node("DepthToSpace", ["h"], ["m"], blocksize=2), (2, 8, 6, 4))),
    "SpaceToDepth": ("nh", image("SpaceToDepth", blocksize=2)),
    **{op: ("nch", image(op, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])) for op in POOLS},
    **{op: ("nc", chain(node(op, ["h"], ["m"]), IMAGE, opset=OPSET)) for op in GLOBAL_POOLS},
    **{op: ("nch", image(op, **attributes)) for op, attributes in UNARY.items()},
    "Identity": ("nch", kept_identity()),
    **{op: ("nch", two(op)) for op in BINARY},
    **{op: ("nch", logical(op)) for op in LOGICAL},
    "Not": ("nch", logical("Not")),
    "Where": ("nch", choice()),
}
"""For each operator the ways in which a typical layer of it can be cut, and a network with it, the layer ``m``."""


def test_every_operator_with_a_rule_is_tested_here() -> None:
    """But for those of ONNX Runtime alone, which ``test_contrib`` has."""
    assert set(TYPICAL) == {op for op in boxes.RULES if not op.startswith(contrib.DOMAIN)}


@pytest.mark.parametrize("op", TYPICAL)
@given(draw=randoms)
@examples(2)
def test_an_operator_is_exact_along_every_axis_that_its_rule_allows(op: str, draw: Draw) -> None:
    kinds, model = TYPICAL[op]
    assert assert_every_cut_is_exact(model, draw, positive=True) == kinds


@pytest.mark.parametrize("op", TYPICAL)
def test_an_operator_on_one_channel_one_row_and_one_sample_is_not_cut_there(op: str, tmp_path: Path) -> None:
    """Where a way of cutting is allowed, there is something to divide."""
    graph = graph_of(tmp_path, TYPICAL[op][1])
    for layer in graph.layers:
        for kind in EVERY_KIND:
            rule = boxes.rule(graph, layer, kind)
            assert rule is None or rule.size // rule.grain > 1


@pytest.mark.parametrize(("op", "kinds"), [("ConvInteger", "nch"), ("MatMulInteger", "nc")])
@given(draw=randoms)
@examples(4)
def test_what_is_quantised_frame_by_frame_is_cut_as_what_is_quantised_by_constants(
    op: str, kinds: str, draw: Draw
) -> None:
    weights = "w" if op == "ConvInteger" else "v"
    pads = {"pads": [1, 0, 1, 2]} if op == "ConvInteger" else {}
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node(op, ["q", weights, "z", "zero"], ["m"], **pads),
        node("Cast", ["m"], ["f"], to=FLOAT),
        node("Mul", ["s", "one"], ["scale"]),
        node("Mul", ["f", "scale"], ["y"]),
    ]
    constants = {name: QUANTIZED[name] for name in (weights, "zero", "one")}
    model = network(nodes, {"x": IMAGE if pads else (4, 6)}, ["y"], constants, NEWEST)
    assert assert_every_cut_is_exact(model, draw) == kinds


def test_a_zero_point_a_row_that_is_found_frame_by_frame_keeps_a_matrix_whole(tmp_path: Path) -> None:
    nodes = [node("MatMulInteger", ["q", "v", "z"], ["m"]), node("Cast", ["m"], ["y"], to=FLOAT)]
    nodes = [node("Cast", ["x"], ["q"], to=INT8), node("Cast", ["x1"], ["z"], to=INT8), *nodes]
    graph = graph_of(tmp_path, network(nodes, {"x": (4, 6), "x1": (4,)}, ["y"], {"v": QUANTIZED["v"]}))
    product = next(layer for layer in graph.layers if layer.op == "MatMulInteger")
    assert not any(boxes.rule(graph, product, kind) for kind in EVERY_KIND)


@pytest.mark.parametrize(("axis", "kinds"), [(1, "n"), (-2, "nc"), (3, "nch")])
@given(draw=randoms)
@examples(4)
def test_a_normalisation_over_the_last_axes_is_cut_along_those_before_them(axis: int, kinds: str, draw: Draw) -> None:
    shape = IMAGE[axis:]
    model = image("LayerNormalization", weight(*shape), weight(*shape, seed=1), axis=axis, epsilon=0.1)
    assert assert_every_cut_is_exact(model, draw) == kinds


def test_parameters_that_lie_along_other_axes_keep_a_normalisation_whole(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, image("LayerNormalization", weight(6, 1, 4), axis=3))
    normalisation = next(layer for layer in graph.layers if layer.op == "LayerNormalization")
    assert not any(boxes.rule(graph, normalisation, kind) for kind in EVERY_KIND)


def test_rows_stay_where_they_are_between_convolutions_and_a_normalisation_of_channels(tmp_path: Path) -> None:
    """A block of ConvNeXt: what is rows to a convolution is the second axis where channels come last."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], group=6),
        node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
        node("LayerNormalization", ["t", "s"], ["l"]),
        node("MatMul", ["l", "v"], ["m"]),
        node("Transpose", ["m"], ["y"], perm=[0, 3, 1, 2]),
    ]
    weights = {"w": weight(6, 1, 3, 3), "s": weight(6), "v": weight(6, 6, seed=1)}
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 6, 6, 4)}, ["y"], weights))
    ways = (boxes.ROWS, boxes.CHANNELS, boxes.CHANNELS, boxes.CHANNELS, boxes.ROWS)
    shards = [Shard(i, 3 * k, 3 * k + 3, k, way) for i, way in enumerate(ways) for k in range(2)]
    assert sum(isinstance(step, Send) for rank in plan(graph, platform(2), Mapping.of(shards)).plan.ranks
               for step in rank.steps) <= 2  # the halo, and what ends on another device than the output  # fmt: skip
    assert_cut_exactly(graph, Mapping.of(shards), 2)


@given(draw=randoms)
@examples(6)
def test_what_is_spread_over_a_larger_shape_is_cut_there_too(draw: Draw) -> None:
    """Where the input has one element along an axis, or no such axis, every part takes what there is."""
    shape, target = draw.choice([((1, 6, 1, 1), (2, 1, 6, 4)), ((6, 1), (2, 1, 6, 4)), (IMAGE, (1,)), ((1,), IMAGE)])
    model = chain(node("Expand", ["h", "k"], ["m"]), shape, {"k": ints(*target)})
    assert {*"nch"} >= {*assert_every_cut_is_exact(model, draw)} > set()


def test_a_shape_that_is_made_frame_by_frame_is_not_spread_in_parts(tmp_path: Path) -> None:
    nodes = [node("Cast", ["s"], ["i"], to=onnx.TensorProto.INT64), node("Expand", ["x", "i"], ["y"], "e")]
    model = network(nodes, {"x": (1, 6, 1, 1), "s": (4,)}, ["y"])
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", FLOAT, IMAGE))
    graph = graph_of(tmp_path, model)
    expand = next(layer for layer in graph.layers if layer.op == "Expand")
    assert not any(boxes.rule(graph, expand, kind) for kind in EVERY_KIND)


@pytest.mark.parametrize(("axes", "kinds"), [((1,), "nc"), ((0,), "nc"), ((2,), "nc"), ((0, 1), "n"), ((1, -1), "nc")])
@given(draw=randoms)
@examples(4)
def test_axes_behind_a_summed_one_are_cut_under_their_new_number(axes: tuple, kinds: str, draw: Draw) -> None:
    """Branches that lie one beside the other and are added, as by SKNet and ResNeSt."""
    model = chain(node("ReduceSum", ["h", "k"], ["m"], keepdims=0), (2, 3, 4, 5), {"k": ints(*axes)})
    assert assert_every_cut_is_exact(model, draw) == kinds


@pytest.mark.parametrize("keep", [0, 1])
@given(draw=randoms)
@examples(4)
def test_a_sum_over_no_axes_that_does_nothing_is_cut_along_all(keep: int, draw: Draw) -> None:
    model = chain(node("ReduceSum", ["h"], ["m"], keepdims=keep, noop_with_empty_axes=1), (2, 3, 4, 5), {})
    assert assert_every_cut_is_exact(model, draw) == "nch"


def one_channel(op: str) -> Callable[[Path], Graph]:
    def build(folder: Path) -> Graph:
        return graph_of(folder, network([node(op, ["x"], ["y"])], {"x": (1, 1, 4, 4)}, ["y"]))

    return build


@pytest.mark.parametrize("build", [one_channel("Relu"), one_channel("GlobalAveragePool")])
def test_a_layer_with_one_channel_stays_whole(build: Callable[[Path], Graph], tmp_path: Path) -> None:
    graph = build(tmp_path)
    assert boxes.rule(graph, graph.layers[0]) is None


def test_what_multiplies_and_can_be_split_is_heavy(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "one"], ["y"]),
    ]
    graph = graph_of(
        tmp_path, network(nodes, {"x": (1, 3, 4, 4)}, ["y"], {"w": weight(4, 3, 1, 1), "one": weight(1, 4, 1, 1)})
    )
    assert [boxes.is_heavy(graph, layer) for layer in graph.layers] == [True, False, False]
