"""Quantised networks in QDQ form: what is one layer, how it is cut, and that the integers stay the same.

Every quantised tensor is compared, not only what comes out at the end, and must be equal, not nearly so: a part of a
layer has its operator between the same DequantizeLinear and QuantizeLinear as the whole, so that ONNX Runtime runs the
same integer kernel for both. Where it has none for an operator it computes in floats, whose last bit depends on the
shape of the part; that can move a value that lies between two steps by one, which no network here comes upon.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from onnx import ModelProto, NodeProto, TensorProto, helper, version_converter
from onnxruntime.quantization import QuantFormat, QuantType

from codegen import zoo
from codegen.slicing import segment
from dse.show import layer_rows
from model.mappings.autodice import read
from model.mappings.gather import gathered
from model.mappings.mapping import Mapping, Shard
from model.mappings.planning import plan
from model.network import boxes
from model.network.boxes import WHOLE, Need
from model.network.graph import Graph, Layer
from model.network.load import load
from model.network.quantised import SUMS
from runtime.errors import CleaveError
from runtime.plan import Send
from runtime.segment import choose_kernels
from tests.cuts import DEVICES, EVERY_KIND, LETTERS, Draw, around, assert_equal, cut, randoms, ways
from tests.model.network.test_boxes import TYPICAL
from tests.tiny_cnn import (
    NEWEST,
    branches,
    examples,
    frame,
    graph_of,
    network,
    node,
    platform,
    random_mapping,
    run_mapping,
    run_whole,
    runs,
    six_layers,
    weight,
)
from tests.tiny_qdq import by_onnxruntime, in_qdq_form

IMAGE = (2, 6, 8, 8)


def quantised(folder: Path, model: ModelProto, draw: Draw, dtype: str = "uint8", per_axis: bool = True) -> Graph:
    """The graph of a float network in QDQ form."""
    feeds = frame(graph_of(folder, model), positive=True)
    return graph_of(folder, in_qdq_form(model, feeds, draw, dtype, per_axis))


PAIR = ["s", "z"]
BASE = {
    "s": np.array(0.05, np.float32),
    "z": np.array(128, np.uint8),
    "w": np.random.default_rng(0).integers(-100, 100, (8, 6, 3, 3)).astype(np.int8),
    "ws": np.linspace(0.01, 0.02, 8).astype(np.float32),
    "wz": np.zeros(8, np.int8),
    "b": np.arange(8, dtype=np.int32) * 100,
    "bs": np.linspace(0.01, 0.02, 8).astype(np.float32) * np.float32(0.05),
}


def opened(name: str, **attributes: object) -> NodeProto:
    """DequantizeLinear of ``NAME/q``."""
    return node("DequantizeLinear", [f"{name}/q", *PAIR], [name], f"{name}/DQ", **attributes)


def closed(name: str) -> NodeProto:
    """QuantizeLinear to ``NAME/q``."""
    return node("QuantizeLinear", [name, *PAIR], [f"{name}/q"], f"{name}/Q")


def convolution(
    rest: list[NodeProto], outputs: dict[str, str], more: dict[str, np.ndarray] | None = None
) -> ModelProto:
    """As exporters write it: x is quantised, a convolution of int8 weights makes c, and so on."""
    nodes = [
        node("QuantizeLinear", ["x", *PAIR], ["h/q"], "h/Q"),
        opened("h"),
        node("DequantizeLinear", ["w", "ws", "wz"], ["w/dq"], "w/DQ", axis=0),
        node("DequantizeLinear", ["b", "bs"], ["b/dq"], "b/DQ", axis=0),
        node("Conv", ["h", "w/dq", "b/dq"], ["c"], "conv", pads=[1, 1, 1, 1]),
        *rest,
    ]
    used = {name for n in nodes for name in n.input}
    weights = {name: value for name, value in (BASE | (more or {})).items() if name in used}
    return network(nodes, {"x": IMAGE}, outputs, weights)


def names(graph: Graph) -> list[str]:
    return [layer.name for layer in graph.layers]


def one(folder: Path) -> tuple[Graph, Layer]:
    graph = graph_of(folder, convolution([closed("c")], {"c/q": "uint8"}))
    return graph, graph.by_name["conv"]


# --- what is a layer ---


def test_an_operator_and_its_quantisation_are_one_layer(tmp_path: Path) -> None:
    graph, layer = one(tmp_path)
    assert names(graph) == ["h/Q", "conv"]
    assert (layer.op, layer.inputs, layer.outputs) == ("Conv", ("h/q", "w", "b"), ("c/q",))
    assert layer.parameters == ("s", "z", "ws", "wz", "bs", "s", "z")
    assert layer.origins == ("h/DQ", "w/DQ", "b/DQ", "conv", "c/Q")
    assert layer.macs == 2 * 8 * 8 * 8 * 6 * 9
    assert graph.weight_bytes(layer) == 8 * 6 * 9 + 4 * 8 + (4 * 8 + 8 + 4 * 8) + (4 + 1)
    assert boxes.is_heavy(graph, layer)


def test_scales_of_channels_are_cut_with_the_channels(tmp_path: Path) -> None:
    graph, layer = one(tmp_path)
    along, single = Need(0), {"s": WHOLE, "z": WHOLE}
    cut_ = {"w": along, "b": along, "ws": along, "wz": along, "bs": along}
    assert boxes.constants(graph, layer, boxes.CHANNELS) == cut_ | single
    assert boxes.constants(graph, layer, boxes.ROWS) == dict.fromkeys(cut_, WHOLE) | single
    assert boxes.rule(graph, layer, boxes.PARTIAL) is None


def test_partial_sums_of_a_quantised_convolution_are_floats_and_have_the_bias_once(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, convolution([], {"c": "float32"}))
    layer = graph.by_name["conv"]
    needs = boxes.constants(graph, layer, boxes.PARTIAL)
    assert (needs["w"], needs["ws"], needs["b"]) == (Need(1), WHOLE, WHOLE)
    shards = [Shard(0, 0, 6, 0), *[Shard(1, a, a + 2, d, boxes.PARTIAL) for d, a in enumerate((0, 2, 4))]]
    feeds = frame(graph)
    got, wanted = run_mapping(graph, Mapping.of(shards), DEVICES, feeds), run_whole(graph.path, feeds)
    np.testing.assert_allclose(got["c"], wanted["c"], rtol=1e-4, atol=1e-4)


def test_scales_of_input_channels_are_cut_with_partial_sums(tmp_path: Path) -> None:
    model = convolution(
        [], {"c": "float32"}, {"ws": np.linspace(0.1, 0.2, 6, dtype=np.float32), "wz": np.zeros(6, np.int8)}
    )
    next(n for n in model.graph.node if n.name == "w/DQ").attribute[0].i = 1
    graph = graph_of(tmp_path, model)
    assert boxes.constants(graph, graph.by_name["conv"], boxes.PARTIAL)["ws"] == Need(0)
    assert boxes.constants(graph, graph.by_name["conv"], boxes.CHANNELS)["ws"] == WHOLE
    shards = [Shard(0, 0, 6, 0), Shard(1, 0, 4, 1, boxes.PARTIAL), Shard(1, 4, 6, 2, boxes.PARTIAL)]
    feeds = frame(graph)
    got, wanted = run_mapping(graph, Mapping.of(shards), DEVICES, feeds), run_whole(graph.path, feeds)
    np.testing.assert_allclose(got["c"], wanted["c"], rtol=1e-4, atol=1e-4)


def test_a_dequantize_is_repeated_in_each_reader(tmp_path: Path) -> None:
    rest = [closed("c"), opened("c"), node("Neg", ["c"], ["n"], "neg"), node("Add", ["c", "n"], ["y"], "add")]
    for own in rest[1:]:
        own.input[:] = ["c'" if name == "c" else name for name in own.input]
    rest[1].output[0] = "c'"
    graph = graph_of(tmp_path, convolution(rest, {"y": "float32"}))
    assert names(graph) == ["h/Q", "conv", "neg", "add"]
    assert [graph.by_name[name].inputs for name in ("neg", "add")] == [("c/q",), ("c/q", "n")]
    whole = plan(graph, platform(1), Mapping.whole(graph, [0] * 4))
    made = Counter(n.name for n in segment(graph, whole, runs(whole)[0]).light.graph.node)
    assert made["c/DQ"] == 1  # once for all its readers in a segment
    assert_equal(graph, Mapping.whole(graph, [0, 1, 2, 3]))


def test_what_a_quantize_shares_stays_a_layer(tmp_path: Path) -> None:
    rest = [closed("c"), node("Neg", ["c"], ["n"], "neg")]
    graph = graph_of(tmp_path, convolution(rest, {"c/q": "uint8", "n": "float32"}))
    assert names(graph) == ["h/Q", "conv", "c/Q", "neg"]
    assert graph.by_name["conv"].outputs == ("c",)


def test_what_an_output_of_the_network_needs_stays_a_layer(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, convolution([closed("c")], {"c": "float32", "c/q": "uint8", "h": "float32"}))
    assert names(graph) == ["h/Q", "h/DQ", "conv", "c/Q"]
    assert graph.by_name["conv"].inputs[0] == "h/q"  # the quantised one, all the same
    for devices in ([0, 1, 2, 3], [0, 0, 0, 0]):
        assert_equal(graph, Mapping.whole(graph, devices))


def test_a_change_of_scale_is_a_layer_that_is_cut_like_others(tmp_path: Path) -> None:
    rest = [
        closed("c"),
        node("DequantizeLinear", ["c/q", *PAIR], ["d"]),
        node("QuantizeLinear", ["d", "t", "z"], ["y"]),
    ]
    graph = graph_of(tmp_path, convolution(rest, {"y": "uint8"}, {"t": np.array(0.1, np.float32)}))
    assert [(layer.op, layer.inputs[0]) for layer in graph.layers[1:]] == [("Conv", "h/q"), ("QuantizeLinear", "c/q")]
    assert ways(graph, graph.layers[2]) == "nch"
    assert_equal(graph, random_mapping(random.Random(0), graph, DEVICES))


@pytest.mark.parametrize("rest", [["Relu"], []])
def test_what_is_opened_stays_an_output_where_it_is_closed_again(rest: list[str], tmp_path: Path) -> None:
    """No layer reads it but inside itself."""
    ends = [
        node("DequantizeLinear", ["c/q", *PAIR], ["d"], "d/DQ"),
        *[node(op, ["d"], ["r"], "relu") for op in rest],
        node("QuantizeLinear", ["r" if rest else "d", "t", "z"], ["y"], "y/Q"),
    ]
    scale = {"t": np.array(0.1, np.float32)}
    graph = graph_of(tmp_path, convolution([closed("c"), *ends], {"d": "float32", "y": "uint8"}, scale))
    assert names(graph) == ["h/Q", "conv", "d/DQ", "relu" if rest else "y/Q"]
    for seed in range(4):
        assert_equal(graph, random_mapping(random.Random(seed), graph, DEVICES))


@pytest.mark.parametrize("between", [["Relu"], ["Clip", "low", "high"], ["Clip", "", "high"]])
def test_a_relu_before_a_quantize_is_part_of_the_layer(between: list[str], tmp_path: Path) -> None:
    bounds = {"low": np.array(0.5, np.float32), "high": np.array(6, np.float32)}
    rest = [node(between[0], ["c", *between[1:]], ["r"], "relu"), closed("r")]
    graph = graph_of(tmp_path, convolution(rest, {"r/q": "uint8"}, bounds))
    assert names(graph) == ["h/Q", "conv"]
    layer = graph.by_name["conv"]
    assert layer.outputs == ("r/q",)
    assert layer.origins[-3:] == ("conv", "relu", "r/Q")
    for seed in range(4):
        assert_equal(graph, random_mapping(random.Random(seed), graph, DEVICES))


def test_a_relu_that_another_reads_too_stays_a_layer(tmp_path: Path) -> None:
    rest = [node("Relu", ["c"], ["r"], "relu"), closed("r"), node("Neg", ["c"], ["n"], "neg")]
    graph = graph_of(tmp_path, convolution(rest, {"r/q": "uint8", "n": "float32"}))
    assert names(graph) == ["h/Q", "conv", "relu", "neg"]
    assert graph.by_name["relu"].outputs == ("r/q",)


def exotic(kind: str) -> ModelProto:
    """A fully connected layer whose weights come through an unusual DequantizeLinear."""
    opset, scale, attributes = NEWEST, np.full((2, 5), 0.01, np.float32), {"axis": 0, "block_size": 3}
    values = np.random.default_rng(0).integers(-7, 8, (6, 5))
    q = helper.make_tensor("q", TensorProto.INT8, (6, 5), values.flatten().tolist())
    nodes: list[NodeProto] = []
    if kind == "packed":
        q = helper.make_tensor("q", TensorProto.INT4, (6, 5), values.flatten().tolist())
        scale, attributes = np.array(0.01, np.float32), {}
    elif kind == "computed":
        scale, attributes = np.array(0.01, np.float32), {}
        nodes = [node("ReduceMax", ["x"], ["top"], keepdims=0), node("Mul", ["top", "scale"], ["found"])]
    elif kind == "turned":
        q = helper.make_tensor("q", TensorProto.INT8, (5, 6), values.T.flatten().tolist())
        scale, attributes = np.array(0.01, np.float32), {}
    nodes.append(node("DequantizeLinear", ["q", "found" if nodes else "scale"], ["w"], "w/DQ", **attributes))
    if kind == "turned":
        nodes.append(node("Transpose", ["w"], ["t"], "w/T"))
    nodes += [
        node("Relu", ["x"], ["r"], "relu"),
        node("MatMul", ["r", "t" if kind == "turned" else "w"], ["m"], "dense"),
    ]
    nodes.append(node("Sqrt", ["m"], ["y"], "sqrt"))
    model = network(nodes, {"x": (4, 6)}, ["y"], {"scale": scale}, min(opset, 21), 10)
    model.graph.initializer.append(q)
    return model


def test_a_scale_that_is_computed_stays_as_it_is(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, exotic("computed"))
    assert names(graph)[2:] == ["w/DQ", "relu", "dense", "sqrt"]
    assert ways(graph, graph.by_name["dense"]) == ""
    assert_equal(graph, Mapping.whole(graph, [0] * len(graph.layers)))  # apart, float weights multiply: less rounding


@pytest.mark.parametrize("kind", ["blocked", "packed", "turned"])
def test_weights_of_an_unusual_quantisation_are_where_they_are_read(kind: str, tmp_path: Path) -> None:
    """ONNX Runtime makes one kernel of both, and what is made of weights alone is not sent with every frame."""
    graph = graph_of(tmp_path, exotic(kind))
    assert names(graph) == ["relu", "dense", "sqrt"]
    assert [ways(graph, layer) for layer in graph.layers] == ["nc", "", "nc"]
    assert graph.weight_bytes(graph.by_name["dense"]) > 0
    assert_equal(graph, Mapping.whole(graph, [0, 1, 0]))
    assert_equal(graph, random_mapping(random.Random(0), graph, DEVICES))


def test_what_is_made_of_weights_is_made_again_for_each_reader(tmp_path: Path) -> None:
    made = exotic("turned")
    made.graph.node.extend([node("MatMul", ["y", "again"], ["s"], "second"), node("Transpose", ["t"], ["again"])][::-1])
    made.graph.output[0].CopyFrom(onnx.ValueInfoProto(name="s"))
    graph = graph_of(tmp_path, made)
    assert names(graph) == ["relu", "dense", "sqrt", "second"]
    assert [dq.op_type for dq in graph.by_name["second"].before] == ["DequantizeLinear", "Transpose", "Transpose"]
    assert_equal(graph, Mapping.whole(graph, [0, 1, 2, 3]))


def pairs(rest: list[str]) -> list[NodeProto]:
    """A tensor quantised twice, and what reads it."""
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["d"])]
    nodes += [node("QuantizeLinear", ["d", "t", "z"], ["p"], "again"), node("DequantizeLinear", ["p", "t", "z"], ["e"])]
    return [*nodes, *(node("Relu", ["e" if name == "y" else name], [f"{name}/out"]) for name in rest)]


def test_a_second_quantisation_that_onnxruntime_would_merge_is_merged_before_it_is_cut(tmp_path: Path) -> None:
    weights = {name: BASE[name] for name in "sz"} | {"t": np.array(0.07, np.float32)}
    model = network(pairs(["y"]), {"x": IMAGE}, ["y/out"], weights)
    with pytest.raises(CleaveError, match=r"layer 'e' is one of several quantisations .* by other scales, .* --fold"):
        graph_of(tmp_path, model)
    graph = graph_of(tmp_path, model, folded=True)
    assert names(graph) == ["q", "y/out"]
    assert_equal(graph, Mapping.whole(graph, [0, 1]))


@pytest.mark.parametrize("rest", [["d"], ["y", "d"]])
def test_a_second_quantisation_that_onnxruntime_leaves_is_cut(rest: list[str], tmp_path: Path) -> None:
    weights = {name: BASE[name] for name in "sz"} | {"t": np.array(0.07, np.float32)}
    outputs = {**dict.fromkeys((f"{name}/out" for name in rest), "float32"), **({} if "y" in rest else {"p": "uint8"})}
    graph = graph_of(tmp_path, network(pairs(rest), {"x": IMAGE}, outputs, weights))
    assert_equal(graph, Mapping.whole(graph, [k % 3 for k in range(len(graph.layers))]))


GONE = {
    "Mul 1": [node("Mul", ["d", "one"], ["g"])],
    "Cast": [node("Cast", ["d"], ["g"], to=TensorProto.FLOAT)],
    "Expand": [node("Expand", ["d", "ones"], ["g"])],
    "Transposes": [
        node("Transpose", ["d"], ["f"], perm=[0, 2, 3, 1]),
        node("Transpose", ["f"], ["g"], perm=[0, 3, 1, 2]),
    ],
    "Reshapes": [node("Flatten", ["d"], ["f"], axis=2), node("Reshape", ["f", "shape"], ["g"])],
}


def test_a_quantisation_without_a_name_does_not_take_that_of_a_layer(tmp_path: Path) -> None:
    """Its tensor is called as the layer is whose output it stands for."""
    nodes = [
        node("Conv", ["x", "w"], ["t"], "c"),
        node("QuantizeLinear", ["t", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["c"]),
        node("Relu", ["c"], ["y"], "r"),
    ]
    for each in nodes[1:3]:
        each.ClearField("name")
    weights = {"w": weight(8, 6, 3, 3), "s": BASE["s"], "z": BASE["z"]}
    graph = graph_of(tmp_path, network(nodes, {"x": IMAGE}, ["y"], weights))
    assert_equal(graph, Mapping.whole(graph, [0] * len(graph.layers)))


@pytest.mark.parametrize("unnamed", [False, True])
@pytest.mark.parametrize("what", GONE)
def test_quantisations_that_onnxruntime_brings_together_are_merged_before_they_are_cut(
    what: str, unnamed: bool, tmp_path: Path
) -> None:
    """It takes out what lies between them and changes no value; nodes of files need not have names."""
    weights = {name: BASE[name] for name in "sz"} | {"t": np.array(0.07, np.float32), "one": np.array(1, np.float32)}
    weights |= {"ones": np.ones(4, np.int64), "shape": np.array(IMAGE)}
    first, second, third, *rest = pairs(["y"])
    third.input[0] = "g"
    nodes = [first, second, *GONE[what], third, *rest]
    for each in nodes if unnamed else []:
        each.ClearField("name")
    used = {name for each in nodes for name in each.input}
    model = network(nodes, {"x": IMAGE}, ["y/out"], {name: value for name, value in weights.items() if name in used})
    with pytest.raises(
        CleaveError, match=r"is one of several quantisations|computes in floats between two quantisations"
    ):
        graph_of(tmp_path, model)
    graph = graph_of(tmp_path, model, folded=True)
    assert_equal(graph, Mapping.whole(graph, [k % 3 for k in range(len(graph.layers))]))


def between(kind: str) -> ModelProto:
    """Two quantisations with more than one layer between them."""
    draw = np.random.default_rng(3)
    weights = {"s": BASE["s"], "z": BASE["z"], "t": np.array(0.3, np.float32), "k": draw.standard_normal(6)}
    weights = {
        name: np.asarray(value, weights["z"].dtype if name == "z" else np.float32) for name, value in weights.items()
    }
    nodes, shape = [node("QuantizeLinear", ["x", *PAIR], ["h/q"], "h/Q"), opened("h")], (4, 6)
    if kind == "bias":  # ONNX Runtime: one product of integers, with a bias of integers
        weights |= {"v": draw.integers(-100, 100, (6, 6)).astype(np.int8), "vs": np.array(0.01, np.float32)}
        nodes += [
            node("DequantizeLinear", ["v", "vs"], ["v/dq"], "v/DQ"),
            node("MatMul", ["h", "v/dq"], ["m"], "first"),
        ]
        nodes += [node("Add", ["m", "k"], ["c"], "second")]
    elif kind == "moved":  # ... a Softmax of integers, since the Transpose moves whatever it is given
        nodes += [node("Softmax", ["h"], ["m"], "first"), node("Transpose", ["m"], ["c"], "second")]
    else:  # ... weights of integers
        shape, weights["v"] = (1, 4, 8, 8), draw.standard_normal((6, 4, 3, 3)).astype(np.float32)
        weights["k"] = weights["k"].reshape(6, 1, 1)
        nodes += [node("Conv", ["h", "v"], ["m"], "first"), node("Mul", ["m", "k"], ["c"], "second")]
    nodes += [node("QuantizeLinear", ["c", "t", "z"], ["c/q"]), node("DequantizeLinear", ["c/q", "t", "z"], ["y"])]
    used = {name for n in nodes for name in n.input}
    return network(nodes, {"x": shape}, ["y"], {name: value for name, value in weights.items() if name in used})


@pytest.mark.parametrize("kind", ["bias", "moved", "weights"])
def test_floats_that_onnxruntime_would_make_integers_are_made_so_before_it_is_cut(kind: str, tmp_path: Path) -> None:
    with pytest.raises(
        CleaveError, match=r"layer 'first' computes in floats between two quantisations, .* with --fold"
    ):
        graph_of(tmp_path, between(kind))
    graph = graph_of(tmp_path, between(kind), folded=True)
    assert_equal(graph, Mapping.whole(graph, [k % 2 for k in range(len(graph.layers))]))
    for seed in range(4):
        assert_equal(graph, random_mapping(random.Random(seed), graph, DEVICES))


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("op", ["Conv", "Gemm"])
def test_floats_become_integers_also_where_they_are_an_output_or_a_scale_is_computed(
    op: str, computed: bool, tmp_path: Path
) -> None:
    """An output does not keep ONNX Runtime from quantising the weights, nor does a scale that it does not know."""
    pair = ["s2", "z"] if computed else PAIR
    how = {"kernel_shape": [1, 1]} if op == "Conv" else {}
    nodes = [node("QuantizeLinear", ["x", *PAIR], ["h/q"], "h/Q"), node("DequantizeLinear", ["h/q", *pair], ["h"])]
    nodes += [node(op, ["h", "v"], ["c"], "heavy", **how), closed("c")]
    weights = {name: BASE[name] for name in PAIR} | {"v": weight(6, 4, 1, 1) if op == "Conv" else weight(4, 6)}
    shape = (1, 4, 8, 8) if op == "Conv" else (5, 4)
    inputs = {"x": shape} | ({"s2": ()} if computed else {})
    model = network(nodes, inputs, {"c/q": "uint8"} if computed else {"c": "float32", "c/q": "uint8"}, weights)
    with pytest.raises(CleaveError, match=r"layer 'heavy' computes in floats between two quantisations, .* --fold"):
        graph_of(tmp_path, model)


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceSum"])
def test_sums_that_are_rounded_to_steps_are_not_split(op: str, tmp_path: Path) -> None:
    nodes = [node("QuantizeLinear", ["x", *PAIR], ["h/q"], "h/Q"), opened("h")]
    axes = {"axes": [2]} if op == "ReduceMean" else {}
    nodes += [node(op, ["h"] if axes else ["h", "k"], ["c"], "sum", **axes), closed("c")]
    weights = {name: BASE[name] for name in PAIR} | ({} if axes else {"k": np.array([2])})
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 4, 16, 10)}, {"c/q": "uint8"}, weights))
    assert ways(graph, graph.by_name["sum"]) == ""


@pytest.mark.parametrize("also", ["output", "reader"])
@pytest.mark.parametrize(
    "move",
    [
        node("MaxPool", ["h"], ["m"], "move", kernel_shape=[2, 2]),
        node("Transpose", ["h"], ["m"], "move", perm=[0, 1, 3, 2]),
    ],
)
def test_quantisation_moves_past_what_others_read_too(move: NodeProto, also: str, tmp_path: Path) -> None:
    """To each reader, and past an output of the network: float weights become integers in the whole."""
    nodes = [
        node("QuantizeLinear", ["x", *PAIR], ["h/q"], "h/Q"),
        opened("h"),
        move,
        node("Conv", ["m", "v"], ["c"], "conv"),
        closed("c"),
        *([node("Sigmoid", ["m"], ["m2"], "other")] if also == "reader" else []),
    ]
    weights = {name: BASE[name] for name in PAIR} | {"v": weight(6, 4, 3, 3)}
    outputs = {"c/q": "uint8", "m2" if also == "reader" else "m": "float32"}
    model = network(nodes, {"x": (1, 4, 8, 8)}, outputs, weights)
    with pytest.raises(CleaveError, match=r"layer 'move' computes in floats between two quantisations"):
        graph_of(tmp_path, model)
    graph = graph_of(tmp_path, model, folded=True)
    for seed in range(4):
        assert_equal(graph, random_mapping(random.Random(seed), graph, DEVICES))


def test_floats_that_stay_floats_between_two_quantisations_are_cut(tmp_path: Path) -> None:
    """A residual, as TensorRT has it quantised: the convolution's result is not."""
    rest = [node("Add", ["c", "c2"], ["e"], "add"), node("Relu", ["e"], ["f"], "relu"), closed("f")]
    model = convolution([node("Conv", ["h", "w/dq", "b/dq"], ["c2"], "conv2", pads=[1] * 4), *rest], {"f/q": "uint8"})
    graph = graph_of(tmp_path, model)
    assert {"conv", "conv2", "add"} < {*names(graph)}
    for seed in range(4):
        assert_equal(graph, random_mapping(random.Random(seed), graph, DEVICES))


def test_what_is_quantised_twice_alike_is_quantised_once(tmp_path: Path) -> None:
    """Then ONNX Runtime computes the convolution in integers, whole and in parts."""
    rest = [node("QuantizeLinear", ["c", "s2", "z"], ["c/again"], "c/Q2"), closed("c"), opened("c")]
    rest[2].output[0] = "c1"
    rest += [node("DequantizeLinear", ["c/again", *PAIR], ["c2"]), node("Relu", ["c1"], ["d"], "relu"), closed("d")]
    rest += [node("MaxPool", ["c2"], ["e"], "pool", kernel_shape=[2, 2]), closed("e")]
    model = convolution(rest, {"d/q": "uint8", "e/q": "uint8"}, {"s2": BASE["s"]})
    graph = graph_of(tmp_path, model)
    assert names(graph) == ["h/Q", "conv", "relu", "pool"]
    for seed in range(6):
        assert_equal(graph, random_mapping(random.Random(seed), graph, DEVICES))


def test_float_weights_that_onnxruntime_would_quantise_are_whole(tmp_path: Path) -> None:
    nodes = [node("QuantizeLinear", ["x", *PAIR], ["h/q"], "h/Q"), opened("h")]
    nodes += [node("Conv", ["h", "v"], ["c"], "conv"), closed("c")]
    weights = {name: BASE[name] for name in PAIR} | {"v": weight(8, 6, 3, 3)}
    graph = graph_of(tmp_path, network(nodes, {"x": IMAGE}, {"c/q": "uint8"}, weights))
    assert ways(graph, graph.by_name["conv"]) == ""
    assert_equal(graph, Mapping.whole(graph, [0, 1]))
    folded = graph_of(tmp_path, network(nodes, {"x": IMAGE}, {"c/q": "uint8"}, weights), folded=True)
    assert "c" in ways(folded, folded.by_name["conv"])
    for seed in range(4):
        assert_equal(folded, random_mapping(random.Random(seed), folded, DEVICES))


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_quantised_weights_that_meet_floats_multiply_floats(op: str, tmp_path: Path) -> None:
    """Blocks of 32 input channels are of one part, and of another, and none is rounded for itself."""
    draw = np.random.default_rng(0)
    nodes = [node("Abs", ["x"], ["h"], "abs"), node("DequantizeLinear", ["v", "vs", "vz"], ["w"], "w/DQ", axis=1)]
    nodes += [node(op, ["h", "w"], ["m"], "dense"), node("Neg", ["m"], ["y"], "neg")]
    weights = {
        "v": draw.integers(-100, 100, (70, 40)).astype(np.int8),
        "vs": np.linspace(0.004, 0.006, 40, dtype=np.float32),
    }
    graph = graph_of(tmp_path, network(nodes, {"x": (2, 70)}, ["y"], weights | {"vz": np.zeros(40, np.int8)}, 21, 10))
    feeds = {"x": (draw.standard_normal((2, 70)) * np.exp(draw.standard_normal(70))).astype(np.float32)}
    wanted = run_whole(graph.path, feeds)["y"]
    for kind, size in ((boxes.CHANNELS, 40), (boxes.PARTIAL, 70)):
        parts = [Shard(1, 0, 33, 1, kind), Shard(1, 33, size, 2, kind)]
        got = run_mapping(graph, Mapping.of([Shard(0, 0, 70, 0), *parts, Shard(2, 0, 40, 0)]), DEVICES, feeds)["y"]
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [10, 12, 13])
def test_folding_writes_nothing_that_its_opset_does_not_have(opset: int, tmp_path: Path) -> None:
    weights = {"s": np.array(0.1, np.float32), "z": np.array(0, np.int8), "k": np.arange(3, dtype=np.int8)}
    pair = ["s", "z"]
    nodes = [node("QuantizeLinear", ["x", *pair], ["xq"]), node("DequantizeLinear", ["xq", *pair], ["xd"])]
    nodes += [node("Transpose", ["xd"], ["t"], "t1", perm=[0, 2, 3, 1]), node("QuantizeLinear", ["t", *pair], ["tq"])]
    nodes += [node("DequantizeLinear", ["tq", *pair], ["td"]), node("DequantizeLinear", ["k", *pair], ["kd"])]
    nodes += [node("Mul", ["td", "kd"], ["m"], "mul"), node("QuantizeLinear", ["m", *pair], ["mq"])]
    nodes += [
        node("DequantizeLinear", ["mq", *pair], ["md"]),
        node("Transpose", ["md"], ["u"], "t2", perm=[0, 3, 1, 2]),
    ]
    nodes += [node("QuantizeLinear", ["u", *pair], ["y"])]
    model = network(nodes, {"x": (1, 3, 2, 4)}, {"y": "int8"}, weights, opset, 8)
    graph = graph_of(tmp_path, model, folded=True)
    assert_equal(graph, random_mapping(random.Random(0), graph, DEVICES))


def test_constants_whose_values_a_rule_reads_are_not_quantised_to_it(tmp_path: Path) -> None:
    """The padding of a Pad is the number that DequantizeLinear makes."""
    pads = np.array([0, 0, 2, 0, 0, 0, 1, 0])
    nodes = [
        node("QuantizeLinear", ["x", *PAIR], ["x/q"]),
        node("DequantizeLinear", ["x/q", *PAIR], ["h"]),
        node("DequantizeLinear", ["v", *PAIR], ["v/dq"], "v/DQ"),
        node("Pad", ["h", "pads", "v/dq"], ["m"], "pad"),
        node("QuantizeLinear", ["m", *PAIR], ["y"]),
    ]
    weights = {name: BASE[name] for name in PAIR} | {"pads": pads, "v": np.array(150, np.uint8)}
    graph = graph_of(tmp_path, network(nodes, {"x": IMAGE}, {"y": "uint8"}, weights))
    assert "v/DQ" in names(graph)
    assert_equal(graph, Mapping.whole(graph, [0, 1, 2]))


# --- how it is cut ---


@pytest.mark.parametrize(
    "op", sorted(set(TYPICAL) - {"Upsample", "Identity"})
)  # one older than QuantizeLinear, one no layer
@given(draw=randoms)
@examples(2)
def test_an_operator_is_cut_as_without_quantisation_and_equal(
    op: str, draw: Draw, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kinds, model = TYPICAL[op]
    graph = quantised(tmp_path_factory.mktemp("op"), model, draw, draw.choice(["uint8", "int8"]), draw.random() < 0.7)
    layer = next(i for i in graph.layers if "m" in i.node.output)
    lost = {"AveragePool": "ph", **dict.fromkeys(SUMS, "nchp")}.get(op, "p") if layer.after else ""
    assert ways(graph, layer) == "".join(kind for kind in kinds if kind not in lost)
    for kind in map(LETTERS.index, ways(graph, layer)):
        rest = [s for other in graph.layers if other != layer for s in around(draw, graph, other, kind)]
        assert_equal(graph, Mapping.of([*cut(draw, graph, layer, kind), *rest]))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, None])
@given(draw=randoms)
@examples(4)
def test_activations_with_a_scale_for_each_element_of_an_axis(
    axis: int | None, draw: Draw, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Transpose moves the axis: the scale of the one side is cut along another axis than that of the other."""
    size = 1 if axis is None else IMAGE[axis]
    attributes = {} if axis is None else {"axis": axis}
    parameters = {"t": np.linspace(0.01, 0.05, size, dtype=np.float32), "zt": np.arange(size, dtype=np.int8)}
    nodes = [
        node("QuantizeLinear", ["x", "t", "zt"], ["x/q"], **attributes),
        node("DequantizeLinear", ["x/q", "t", "zt"], ["h"], **attributes),
        node("Tanh", ["h"], ["m"], "tanh"),
        node("QuantizeLinear", ["m", "t", "zt"], ["m/q"], **attributes),
        node("DequantizeLinear", ["m/q", "t", "zt"], ["d"], **attributes),
        node("Transpose", ["d"], ["y"], "transpose", perm=[1, 2, 0, 3]),
    ]
    model = network(nodes, {"x": IMAGE}, {"y": "float32", "m/q": "int8"}, parameters)
    graph = graph_of(tmp_path_factory.mktemp("axis"), model)
    assert names(graph)[1:] == ["tanh", "transpose"]
    assert_equal(graph, random_mapping(draw, graph, DEVICES))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("model", [six_layers, branches])
@given(draw=randoms)
@examples(4)
def test_random_mappings_of_small_networks_are_equal(
    model: Callable[[], ModelProto], dtype: str, draw: Draw, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of 16 bits ONNX Runtime computes in floats: they may differ by some steps of their 65536."""
    source = model()
    source.opset_import[0].version, source.ir_version = 21, 10
    graph = quantised(tmp_path_factory.mktemp("small"), source, draw, dtype)
    feeds = frame(graph, positive=True)
    got = run_mapping(graph, random_mapping(draw, graph, DEVICES), DEVICES, feeds)
    for name, value in run_whole(graph.path, feeds).items():
        assert np.abs(got[name].astype(int) - value).max() <= (16 if "16" in dtype else 0), name


def test_scales_may_be_float16(tmp_path: Path) -> None:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["x/q"]),
        node("DequantizeLinear", ["x/q", "s", "z"], ["h"]),
        node("DequantizeLinear", ["w", "ws"], ["w/dq"], axis=1),
        node("MatMul", ["h", "w/dq"], ["y"], "dense"),
    ]
    weights = {
        "s": np.array(0.05, np.float16),
        "z": np.array(0, np.int8),
        "w": np.random.default_rng(0).integers(-100, 100, (6, 8)).astype(np.int8),
        "ws": np.linspace(0.01, 0.02, 8).astype(np.float16),
    }
    graph = graph_of(tmp_path, network(nodes, {"x": (4, 6)}, ["y"], weights, 19, 9, "float16"))
    layer = graph.by_name["dense"]
    assert ways(graph, layer) == "nc"
    assert boxes.constants(graph, layer, boxes.CHANNELS)["ws"] == Need(0)
    shards = [Shard(0, 0, 6, 0), Shard(1, 0, 3, 1), Shard(1, 3, 8, 2)]
    feeds = frame(graph)
    got, wanted = run_mapping(graph, Mapping.of(shards), DEVICES, feeds), run_whole(graph.path, feeds)
    np.testing.assert_allclose(got["y"], wanted["y"], rtol=1e-2, atol=1e-2)


def test_a_part_runs_as_the_integer_kernel(tmp_path: Path) -> None:
    graph, _ = one(tmp_path)
    planned = plan(graph, platform(2), Mapping.of([Shard(0, 0, 6, 0), Shard(1, 0, 3, 0), Shard(1, 3, 8, 1)]))
    parts = [run for run in runs(planned) if any(part.layer == "conv" for part in run.parts)]
    found = [optimised(tmp_path, segment(graph, planned, run).model()) for run in parts]
    assert [(count["QLinearConv"], count["Conv"]) for count in found] == [(1, 0), (1, 0)]


def optimised(folder: Path, model: ModelProto) -> Counter[str]:
    """The operators that ONNX Runtime makes of a model."""
    options = ort.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(folder / "optimised.onnx"), 3
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return Counter(n.op_type for n in onnx.load(folder / "optimised.onnx").graph.node)


def test_whole_layers_keep_the_names_of_their_nodes_and_parts_carry_their_box(tmp_path: Path) -> None:
    graph, _ = one(tmp_path)
    planned = plan(graph, platform(2), Mapping.of([Shard(0, 0, 6, 0), Shard(1, 0, 3, 0), Shard(1, 3, 8, 1)]))
    nodes = {n.name: n for run in runs(planned) for n in segment(graph, planned, run).light.graph.node}
    assert {name for name in nodes if not name.endswith("/concat")} == {
        *("h/Q", "h/DQ", "w/DQ[0:3]", "b/DQ[0:3]", "conv[:,0:3]", "c/Q[:,0:3]"),
        *("w/DQ[3:8]", "b/DQ[3:8]", "conv[:,3:8]", "c/Q[:,3:8]"),
    }
    assert list(nodes["w/DQ[3:8]"].input) == ["w[3:8]", "ws[3:8]", "wz[3:8]"]
    assert list(nodes["c/Q[:,0:3]"].output) == ["c/q[:,0:3]"]


# --- what exporters write ---


@pytest.mark.parametrize("format_", QuantFormat)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("activations", [QuantType.QUInt8, QuantType.QInt8])
def test_networks_that_onnxruntime_quantises_are_equal(
    format_: QuantFormat, per_channel: bool, activations: QuantType, tmp_path: Path
) -> None:
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], "first", pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"], "relu"),
        node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "v"], ["y"], "second", strides=[2, 2]),
    ]
    weights = {"w": weight(8, 3, 3, 3), "b": weight(8), "v": weight(6, 8, 3, 3)}
    model = network(nodes, {"x": (1, 3, 12, 12)}, ["y"], weights)
    graph = load(
        by_onnxruntime(tmp_path, model, quant_format=format_, per_channel=per_channel, activation_type=activations)
    )
    assert [layer.op.removeprefix("QLinear") for layer in graph.layers if boxes.is_heavy(graph, layer)] == ["Conv"] * 2
    for seed in range(8):
        assert_equal(graph, random_mapping(random.Random(seed), graph, DEVICES))


def test_parts_of_signed_integers_are_computed_as_integers(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["c"], "first"), node("Conv", ["c", "v"], ["y"], "second")]
    model = network(nodes, {"x": (1, 3, 12, 12)}, ["y"], {"w": weight(8, 3, 3, 3), "v": weight(6, 8, 3, 3)})
    graph = load(by_onnxruntime(tmp_path, model, activation_type=QuantType.QInt8))
    planned = plan(graph, platform(DEVICES), random_mapping(random.Random(1), graph, DEVICES))
    for run in runs(planned):
        options, file = ort.SessionOptions(), tmp_path / "optimised.onnx"
        options.log_severity_level, options.optimized_model_filepath = 3, str(file)
        choose_kernels(options)
        part = segment(graph, planned, run).model()
        ort.InferenceSession(part.SerializeToString(), options, providers=["CPUExecutionProvider"])
        heavy = [graph.by_name[each.layer].op == "Conv" for each in run.parts]
        found = [each.op_type for each in onnx.load(file).graph.node if "Conv" in each.op_type]
        assert found == ["QLinearConv"] * sum(heavy)


@pytest.fixture(scope="module")
def squeezenet(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    model = version_converter.convert_version(onnx.load(zoo.cached("squeezenet")), 13)
    return load(
        by_onnxruntime(tmp_path_factory.mktemp("zoo"), model, per_channel=True, activation_type=QuantType.QUInt8)
    )


@pytest.mark.parametrize("kinds", [EVERY_KIND, [boxes.CHANNELS], [boxes.ROWS]])
def test_a_quantised_network_of_the_zoo_is_equal_in_every_tensor(
    squeezenet: Graph, kinds: list[int], tmp_path: Path
) -> None:
    model = onnx.load(squeezenet.path)
    inner = [name for layer in squeezenet.layers for name in layer.outputs if name.endswith("QuantizeLinear_Output")]
    model.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.UINT8, None) for name in inner)
    graph = graph_of(tmp_path, model)
    assert len(inner) > 40
    assert_equal(graph, random_mapping(random.Random(1), graph, DEVICES, kinds=kinds))


def test_a_quantised_network_of_the_zoo_has_the_layers_of_the_float_one(squeezenet: Graph) -> None:
    """Without its Relus, and with a layer where a frame comes in, one where it leaves and one for a Dropout."""
    count = Counter(layer.op for layer in load(zoo.cached("squeezenet")).layers)
    found = Counter(layer.op for layer in squeezenet.layers)
    assert found - count == {"QuantizeLinear": 2, "DequantizeLinear": 1, "Flatten": 1, "Reshape": 1}
    assert sum(boxes.is_heavy(squeezenet, layer) for layer in squeezenet.layers) == count["Conv"]


def test_what_moves_is_quantised(squeezenet: Graph) -> None:
    cluster = platform(DEVICES)
    mapping = Mapping.whole(squeezenet, [i % DEVICES for i in range(len(squeezenet.layers))])
    planned = plan(squeezenet, cluster, mapping).plan
    sent = {r.buffer(s.buffer).dtype for r in planned.ranks for s in r.steps if isinstance(s, Send)}
    assert sent == {"uint8"}


# --- who else looks at layers ---


def test_folding_leaves_quantisation_as_it_is(tmp_path: Path) -> None:
    graph, _ = one(tmp_path)
    folded = load(graph.path, folded=True)
    assert [(i.op, i.outputs) for i in folded.layers] == [(i.op, i.outputs) for i in graph.layers]
    assert_equal(folded, random_mapping(random.Random(0), folded, DEVICES))


@pytest.mark.parametrize("outputs", [{"y": "float32"}, {"y": "float32", "d": "float32"}])
def test_folding_may_dequantise_a_tensor_once_for_each_reader(outputs: dict[str, str], tmp_path: Path) -> None:
    """ONNX Runtime writes a DequantizeLinear of two readers twice."""
    rest = [
        closed("c"),
        node("DequantizeLinear", ["c/q", *PAIR], ["d"], "d/DQ"),
        node("Neg", ["d"], ["n"], "neg"),
        node("Relu", ["d"], ["r"], "relu"),
        node("Add", ["n", "r"], ["y"], "add"),
    ]
    graph = graph_of(tmp_path, convolution(rest, outputs), folded=True)
    assert [name for name in names(graph) if name != "d/DQ"] == ["h/Q", "conv", "neg", "relu", "add"]
    assert_equal(graph, random_mapping(random.Random(0), graph, DEVICES))


def test_a_gathered_layer_stays_quantised(tmp_path: Path) -> None:
    rest = [closed("c"), opened("c"), node("Neg", ["d"], ["y"], "neg")]
    rest[1].output[0] = "d"
    graph = graph_of(tmp_path, convolution(rest, {"y": "float32", "c/q": "uint8"}))
    shards = [Shard(0, 0, 6, 0), Shard(1, 0, 3, 1), Shard(1, 3, 8, 2), Shard(2, 0, 4, 3), Shard(2, 4, 8, 0)]
    woven, moved = gathered(graph, Mapping.of(shards))
    assert woven.by_name["conv/gather"].inputs == ("c/q/parts",)
    assert woven.tensors["c/q/parts"].dtype == "uint8"
    assert woven.by_name["neg"].inputs == ("c/q",)
    assert_equal(woven, moved)


def test_all_outputs_of_a_quantised_split_are_gathered(tmp_path: Path) -> None:
    rest = [
        closed("c"),
        node("DequantizeLinear", ["c/q", *PAIR], ["d"], "d/DQ"),
        node("Split", ["d", "sizes"], ["e", "f"], "split", axis=1),
        closed("e"),
        closed("f"),
        opened("e"),
        node("Neg", ["e'"], ["y"], "neg"),
    ]
    rest[-2].output[0] = "e'"
    model = convolution(rest, {"y": "float32", "f/q": "uint8"}, {"sizes": np.array([3, 5])})
    graph = graph_of(tmp_path, model)
    halves = [Shard(2, 0, 3, 1, boxes.ROWS), Shard(2, 3, 8, 2, boxes.ROWS)]
    woven, moved = gathered(graph, Mapping.of([Shard(0, 0, 6, 0), Shard(1, 0, 8, 0), *halves, Shard(3, 0, 3, 3)]))
    assert woven.by_name["split"].outputs == ("e/q", "f/q/parts")
    assert woven.by_name["neg"].inputs == ("e/q/gathered",)
    assert_equal(woven, moved)


def test_weights_that_are_an_output_are_gathered_where_their_first_part_is(tmp_path: Path) -> None:
    """Their DequantizeLinear is a layer that reads no activation."""
    graph = graph_of(tmp_path, convolution([closed("c")], {"c/q": "uint8", "w/dq": "float32"}))
    assert names(graph) == ["h/Q", "w/DQ", "conv"]
    halves = [Shard(1, 0, 4, 2), Shard(1, 4, 6, 1)]
    woven, moved = gathered(graph, Mapping.of([Shard(0, 0, 6, 0), *halves, Shard(2, 0, 8, 0)]))
    assert moved.shards[-2] == Shard(2, 0, 6, 2)
    assert_equal(woven, moved)


def test_files_of_autodice_may_name_what_became_part_of_a_layer(tmp_path: Path) -> None:
    graph, _ = one(tmp_path)
    cluster = platform(2)
    names_ = [f"{host}_cpu0" for host in ("h0", "h1")]
    text = f'{{"{names_[0]}": ["h/Q", "h/DQ", "w/DQ"], "{names_[1]}": ["conv", "c/Q", "b/DQ"]}}'
    assert read(text, None, graph, cluster) == Mapping.whole(graph, [0, 1])
    with pytest.raises(CleaveError, match="split layer 'conv', which does its work"):
        read(text, f'{{"w/DQ": ["lop", [4, 8], ["{names_[0]}", "{names_[1]}"]]}}', graph, cluster)


def test_inspect_says_what_is_quantised(tmp_path: Path) -> None:
    graph, _ = one(tmp_path)
    rows = layer_rows(graph)
    assert [(r["quantised"], r["types"]) for r in rows] == [(False, ["float32", "uint8"]), (True, ["uint8", "uint8"])]
    assert [r["lop"] for r in rows] == [False, True]
    assert rows[1]["origins"] == ["h/DQ", "w/DQ", "b/DQ", "conv", "c/Q"]


# --- what is between two steps ---


def resized(mode: str, dequantised: bool = True) -> ModelProto:
    """An image twice as large, between two quantisations or as integers."""
    scales = {"s": np.float32(0.02), "z": np.uint8(128), "k": np.array([1, 1, 2, 2], np.float32)}
    between = [
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("Resize", ["d", "", "k"], ["f"], "resize", mode=mode),
        node("QuantizeLinear", ["f", "s", "z"], ["r"]),
    ]
    alone = [node("Resize", ["q", "", "k"], ["r"], "resize", mode=mode)]
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), *(between if dequantised else alone)]
    nodes.append(node("DequantizeLinear", ["r", "s", "z"], ["y"]))
    return network(nodes, {"x": (1, 6, 8, 8)}, ["y"], scales)


@pytest.mark.parametrize(("mode", "splits"), [("nearest", True), ("linear", False)])
def test_what_is_interpolated_and_rounded_to_steps_is_not_split(mode: str, splits: bool, tmp_path: Path) -> None:
    graph = graph_of(tmp_path, resized(mode))
    assert (boxes.rule(graph, graph.by_name["resize"]) is not None) == splits
    for seed in range(4):
        assert_equal(graph, random_mapping(random.Random(seed), graph, DEVICES))


def averaged(channels: int, floats: bool, size: tuple[int, int] = (12, 12), window: int = 2) -> ModelProto:
    """Means of quantised values, which often lie half-way between two steps; of floats, or of what it dequantises."""
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["d"])]
    nodes += [node("Abs", ["d"], ["f"])] if floats else []
    how = {"kernel_shape": [2, window], "strides": [2, window]}
    nodes += [node("AveragePool", ["f" if floats else "d"], ["a"], "pool", **how)]
    nodes += [node("QuantizeLinear", ["a", "s", "z"], ["b"]), node("DequantizeLinear", ["b", "s", "z"], ["y"])]
    scale = {"s": np.float32(0.0173), "z": np.int8(0)}
    return network(nodes, {"x": (1, channels, *size)}, ["y"], scale)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("channels", [16, 20, 24, 32])
def test_means_of_floats_that_are_rounded_to_steps_are_not_split(channels: int, folded: bool, tmp_path: Path) -> None:
    """ONNX Runtime adds them up in another order where channels come in whole blocks."""
    graph = graph_of(tmp_path, averaged(channels, floats=True), folded=folded)
    assert ways(graph, graph.by_name["pool"]) == ""
    assert_equal(graph, Mapping.whole(graph, [k % 3 for k in range(len(graph.layers))]))


def test_means_of_integers_are_split_but_not_by_rows(tmp_path: Path) -> None:
    """ONNX Runtime has another kernel for a part of one window."""
    graph = graph_of(tmp_path, averaged(16, floats=False, size=(12, 4), window=4))
    assert ways(graph, graph.by_name["pool"]) == "c"
    for seed in range(6):
        assert_equal(graph, random_mapping(random.Random(seed), graph, DEVICES))


@pytest.mark.parametrize(("mode", "dequantised", "why"), [
    ("linear", False, "interpolates integers"), ("cubic", False, "interpolates integers"),
    ("cubic", True, "its curves are rounded to integers"),
])  # fmt: skip
def test_what_the_layers_around_change_by_a_step_is_refused(
    mode: str, dequantised: bool, why: str, tmp_path: Path
) -> None:
    with pytest.raises(CleaveError, match=f"layer 'resize': {why}, which ONNX Runtime does in one way or another"):
        graph_of(tmp_path, resized(mode, dequantised))


def test_integers_of_the_nearest_are_resized_in_parts(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, resized("nearest", dequantised=False))
    assert boxes.rule(graph, graph.by_name["resize"]) is not None
    assert_equal(graph, random_mapping(random.Random(1), graph, DEVICES))
