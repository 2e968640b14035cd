"""The models of segments: they run alone, hold the weights of their shards and no others, and keep their stamps."""

from __future__ import annotations

import random
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, numpy_helper

from codegen import zoo
from codegen.bundle import source, write_bundle
from codegen.slicing import segment
from codegen.verify import verify
from model.mappings.mapping import Mapping, Shard, extent
from model.mappings.planning import plan
from model.network import boxes
from model.network.graph import Graph
from model.network.load import load
from tests.tiny_cnn import (
    NEWEST,
    assert_cut_exactly,
    assert_same,
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
    weight,
)

DEVICES = 4


def cut(graph: Graph, mapping: Mapping) -> dict[str, ModelProto]:
    """The segments of a mapping by file name."""
    assert mapping.check(graph, platform(DEVICES)) == []
    planned = plan(graph, platform(DEVICES), mapping)
    return {run.file: segment(graph, planned, run).model() for run in runs(planned)}


def split(*boxes: tuple[int, int], layer: int = 0) -> list[Shard]:
    """Shards of one layer on devices 0, 1, …"""
    return [Shard(layer, start, stop, device) for device, (start, stop) in enumerate(boxes)]


def weights(model: ModelProto) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def one_layer(folder: Path, layer: onnx.NodeProto, shape: tuple[int, ...], **constants: np.ndarray) -> Graph:
    return graph_of(folder, network([layer], {"x": shape}, ["y"], constants))


@pytest.mark.parametrize(("opset", "ir"), [(9, 3), (9, 8), (13, 7), (NEWEST, 10)])
@given(draw=st.randoms(use_true_random=False))
@examples(6)
def test_segments_are_sound_models_that_run_alone(
    opset: int, ir: int, draw: random.Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    graph = graph_of(tmp_path_factory.mktemp("sound"), branches(opset, ir))
    cluster = platform(DEVICES)
    planned = plan(graph, cluster, random_mapping(draw, graph, DEVICES))
    for rank in planned.plan.ranks:
        for run in rank.runs:
            model = segment(graph, planned, run).model()
            onnx.checker.check_model(model, full_check=True)
            assert model.ir_version == ir
            assert [(o.domain, o.version) for o in model.opset_import] == [("", opset)]
            fixed = set(weights(model))
            declared = tuple(i.name for i in model.graph.input if i.name not in fixed)
            assert declared == run.inputs
            assert tuple(o.name for o in model.graph.output) == run.outputs
            assert (fixed <= {i.name for i in model.graph.input}) == (ir == 3 or not fixed)
            values = {name: np.ones(rank.buffer(name).shape, np.float32) for name in run.inputs}
            made = run_whole(model, values)
            assert {n: (v.shape, v.dtype.name) for n, v in made.items()} == {
                n: (rank.buffer(n).shape, rank.buffer(n).dtype) for n in run.outputs
            }


@given(draw=st.randoms(use_true_random=False))
@examples(20)
def test_every_node_computes_something_and_every_weight_is_used(
    draw: random.Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    graph = graph_of(tmp_path_factory.mktemp("used"), branches())
    for model in cut(graph, random_mapping(draw, graph, DEVICES)).values():
        read = {name for n in model.graph.node for name in n.input}
        made = [name for n in model.graph.node for name in n.output]
        outputs = {o.name for o in model.graph.output}
        assert len(set(made)) == len(made)
        assert set(weights(model)) <= read
        assert set(made) <= read | outputs
        assert len({n.name for n in model.graph.node}) == len(model.graph.node)
        assert all(tensor.size for tensor in weights(model).values())


def test_weights_and_bias_of_a_convolution_are_cut(tmp_path: Path) -> None:
    w, b = weight(7, 3, 2, 2), weight(7)
    graph = one_layer(tmp_path, node("Conv", ["x", "w", "b"], ["y"], "conv"), (1, 3, 4, 4), w=w, b=b)
    models = cut(graph, Mapping.of(split((0, 2), (2, 7))))
    found = weights(models["rank01/segment000.onnx"])
    assert set(found) == {"w[2:7]", "b[2:7]"}
    np.testing.assert_array_equal(found["w[2:7]"], w[2:7])
    np.testing.assert_array_equal(found["b[2:7]"], b[2:7])
    (layer,) = models["rank01/segment000.onnx"].graph.node
    assert (layer.name, list(layer.output)) == ("conv[:,2:7]", ["y[:,2:7]"])


def test_weights_together_are_the_whole_once(tmp_path: Path) -> None:
    w = weight(9, 4, 1, 1)
    graph = one_layer(tmp_path, node("Conv", ["x", "w"], ["y"]), (1, 4, 4, 4), w=w)
    models = cut(graph, Mapping.of(split((0, 4), (4, 5), (5, 9))))
    pieces = [value for model in models.values() for value in weights(model).values()]
    np.testing.assert_array_equal(np.concatenate(pieces), w)


@pytest.mark.parametrize(("trans_b", "shape", "name"), [(0, (4, 6), "w[:,2:6]"), (1, (6, 4), "w[2:6]")])
def test_a_fully_connected_layer_is_cut_along_its_outputs(
    trans_b: int, shape: tuple[int, int], name: str, tmp_path: Path
) -> None:
    w = weight(*shape)
    graph = one_layer(tmp_path, node("Gemm", ["x", "w", "c"], ["y"], transB=trans_b), (1, 4), w=w, c=weight(6))
    found = weights(cut(graph, Mapping.of(split((0, 2), (2, 6))))["rank01/segment000.onnx"])
    assert set(found) == {name, "c[2:6]"}
    np.testing.assert_array_equal(found[name], w[2:6] if trans_b else w[:, 2:6])


def test_a_grouped_convolution_keeps_whole_groups_and_their_attributes(tmp_path: Path) -> None:
    layer = node("Conv", ["x", "w"], ["y"], "conv", group=4, pads=[1, 0, 1, 0], auto_pad="NOTSET")
    graph = one_layer(tmp_path, layer, (1, 8, 5, 5), w=weight(12, 2, 3, 3))
    models = cut(graph, Mapping.of(split((0, 9), (9, 12))))
    groups = []
    for conv in [n for model in models.values() for n in model.graph.node if n.op_type == "Conv"]:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in conv.attribute}
        assert attributes["pads"] == [1, 0, 1, 0]
        groups.append(attributes["group"])
    assert groups == [3, 1]


def test_a_whole_layer_is_the_node_of_the_file(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, branches())
    (model,) = cut(graph, Mapping.whole(graph, [0] * len(graph.layers))).values()
    assert list(model.graph.node) == [layer.node for layer in graph.layers]
    assert set(weights(model)) == set(graph.constants)


def test_a_weight_that_two_layers_share_is_in_a_segment_once(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, branches())
    first, second = graph.by_name["first"].index, graph.by_name["second"].index
    rest = [s for s in Mapping.whole(graph, [0] * len(graph.layers)).shards if s.layer not in (first, second)]
    halves = Mapping.of([*rest, *split((0, 4), (4, 8), layer=first), *split((0, 4), (4, 8), layer=second)])
    names = [name for model in cut(graph, halves).values() for name in weights(model) if name.startswith("shared")]
    assert sorted(set(names)) == ["shared[0:4]", "shared[4:8]"]
    assert_cut_exactly(graph, halves, DEVICES)
    uneven = Mapping.of([*rest, Shard(first, 0, 8, 0), *split((0, 3), (3, 8), layer=second)])
    assert_cut_exactly(graph, uneven, DEVICES)


def concat(folder: Path, opset: int) -> Graph:
    nodes = [node("Relu", ["a"], ["r"], "relu"), node("Concat", ["r", "k", "b"], ["y"], "join", axis=1)]
    inputs = {"a": (1, 4, 2), "b": (1, 3, 2)}
    return graph_of(folder, network(nodes, inputs, ["y"], {"k": weight(1, 5, 2)}, opset))


def test_a_concat_leaves_out_what_its_box_needs_nothing_of(tmp_path: Path) -> None:
    graph = concat(tmp_path, NEWEST)
    mapping = Mapping.of([Shard(0, 0, 4, 0), *split((0, 4), (4, 6), (6, 10), (10, 12), layer=1)])
    models = cut(graph, mapping)
    joins = [n for model in models.values() for n in model.graph.node if n.name.startswith("join")]
    assert [list(n.input) for n in joins] == [["r"], ["k[:,0:2]"], ["k[:,2:5]", "b[:,0:1]"], ["b[:,1:3]"]]
    assert_cut_exactly(graph, mapping, DEVICES)


@pytest.mark.parametrize(("opset", "inputs"), [(9, 1), (10, 4), (NEWEST, 4)])
def test_slices_are_written_as_the_opset_asks(opset: int, inputs: int, tmp_path: Path) -> None:
    """Device 0 holds all of the ReLU, and joins a part of it."""
    graph = concat(tmp_path, opset)
    mapping = Mapping.of([Shard(0, 0, 4, 0), Shard(1, 0, 2, 0), Shard(1, 2, 12, 1)])
    models = cut(graph, mapping)
    slices = [n for model in models.values() for n in model.graph.node if n.op_type == "Slice"]
    assert [len(n.input) for n in slices] == [inputs]
    assert_cut_exactly(graph, mapping, DEVICES)


def test_a_held_piece_is_trimmed_once_for_all_its_readers(tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Neg", ["r"], ["n"]),
        node("Abs", ["r"], ["a"]),
        node("Sum", ["n", "a"], ["y"]),
    ]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 8)}, ["y"]))
    mapping = Mapping.of([Shard(0, 0, 8, 0), *[s for i in (1, 2, 3) for s in split((0, 3), (3, 8), layer=i)]])
    first = cut(graph, mapping)["rank00/segment001.onnx"]
    assert [n.op_type for n in first.graph.node].count("Slice") == 1
    assert_cut_exactly(graph, mapping, DEVICES)


def test_weights_in_external_files_come_into_the_segments(tmp_path: Path) -> None:
    w = weight(8, 3, 5, 5)
    layers = [node("Conv", ["x", "w"], ["c"]), node("Conv", ["c", "v"], ["y"])]
    model = network(layers, {"x": (1, 3, 6, 6)}, ["y"], {"w": w, "v": weight(4, 8, 1, 1)})
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    graph = load(tmp_path / "m.onnx")
    mapping = Mapping.of([*split((0, 3), (3, 8)), Shard(1, 0, 4, 2)])
    for model in cut(graph, mapping).values():
        assert not any(t.external_data for t in model.graph.initializer)
    assert_cut_exactly(graph, mapping, DEVICES)


@pytest.mark.parametrize("size", [5, 1501])
@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
def test_weights_of_less_than_a_byte_are_packed_again_where_they_are_read(
    dtype: type, size: int, tmp_path: Path
) -> None:
    """With their zero points, few of them and many, odd numbers of them too."""
    draw = np.random.default_rng(0)
    q, z = (draw.integers(0, 8, shape).astype(dtype) for shape in ((3, size), (size,)))
    parameters = {"q": q, "s": np.linspace(0.01, 0.02, size, dtype=np.float32), "z": z}
    nodes = [node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=1), node("Mul", ["x", "w"], ["m"])]
    nodes.append(node("Relu", ["m"], ["y"]))
    graph = graph_of(tmp_path, network(nodes, {"x": (3, size)}, ["y"], parameters, 21, 10))
    mapping = Mapping.of([Shard(0, 0, size, 2), Shard(1, 0, 2, 0), Shard(1, 2, size, 1)])
    write_bundle(graph, platform(3), mapping, source(graph, False, {}), tmp_path / "out", force=False)
    assert verify(tmp_path / "out", graph.path, frames=2, communicator="inprocess").passed


@pytest.mark.parametrize("first", [True, False])
def test_a_weight_that_is_called_like_a_part_of_another_is_not_taken_for_it(first: bool, tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["c"], "conv"), node("Conv", ["x", "w[0:4]"], ["d"], "other")]
    weights = {"w": weight(8, 4, 3, 3), "w[0:4]": weight(4, 4, 3, 3, seed=5)}
    nodes = [*(nodes if first else nodes[::-1]), node("Concat", ["c", "d"], ["y"], "join", axis=1)]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 4, 6, 5)}, ["y"], weights))
    conv, other = graph.by_name["conv"].index, graph.by_name["other"].index
    shards = [Shard(conv, 0, 4, 0), Shard(conv, 4, 8, 1), Shard(other, 0, 4, 0), Shard(2, 0, 12, 0)]
    feeds = frame(graph)
    got, wanted = run_mapping(graph, Mapping.of(shards), 2, feeds), run_whole(graph.path, feeds)
    np.testing.assert_allclose(got["y"], wanted["y"], rtol=1e-5, atol=1e-5)


def test_attributes_and_names_with_blanks_survive(tmp_path: Path) -> None:
    layer = node("Conv", ["in put", "w 1"], ["out/put:0"], "conv 1", pads=[1, 0, 0, 1], strides=[2, 1])
    graph = graph_of(tmp_path, network([layer], {"in put": (1, 3, 6, 6)}, ["out/put:0"], {"w 1": weight(6, 3, 2, 2)}))
    mapping = Mapping.of(split((0, 1), (1, 6)))
    assert_cut_exactly(graph, mapping, DEVICES)
    assert cut(graph, mapping)["rank01/segment000.onnx"].graph.node[0].name == "conv 1[:,1:6]"


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("name", ["shufflenet", "squeezenet"])
def test_a_random_mapping_of_a_real_network_is_exact(name: str, folded: bool) -> None:
    """Every layer that has a rule is cut; shuffled groups, Concats and residuals at their real sizes."""
    graph = load(zoo.cached(name), folded=folded)
    assert_cut_exactly(graph, random_mapping(random.Random(name), graph, DEVICES), DEVICES)


def quantized() -> ModelProto:
    """As quantizers write it: Q and DQ around a convolution, and DQ on its weights."""
    draw = np.random.default_rng(0)
    constants = {"s": np.array(0.05, np.float32), "z": np.array(128, np.uint8), "ws": np.full(6, 0.01, np.float32)}
    constants |= {"w": draw.integers(-100, 100, (6, 4, 3, 3)).astype(np.int8), "wz": np.zeros(6, np.int8)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["dw"], axis=0),
        node("Conv", ["d", "dw"], ["c"]),
        node("QuantizeLinear", ["c", "s", "z"], ["p"]),
        node("QLinearConv", ["p", "s", "z", "v", "s", "vz", "s", "z"], ["r"]),
        node("DequantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    constants |= {"v": draw.integers(-100, 100, (5, 6, 1, 1)).astype(np.int8), "vz": np.array(0, np.int8)}
    return network(nodes, {"x": (1, 4, 5, 5)}, ["y"], constants)


def shuffled() -> ModelProto:
    """Channels shuffled between groups, as ShuffleNet does, and a choice element by element."""
    nodes = [
        node("Reshape", ["x", "apart"], ["a"]),
        node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3, 4]),
        node("Reshape", ["b", "together"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("Greater", ["r", "x"], ["g"]),
        node("Where", ["g", "r", "x"], ["y"]),
    ]
    shapes = {"apart": np.array([1, 2, 3, 2, 2]), "together": np.array([1, 6, 2, 2])}
    return network(nodes, {"x": (1, 6, 2, 2)}, ["y"], shapes)


def upsampled(auto_pad: str) -> ModelProto:
    up = node("ConvTranspose", ["x", "w"], ["u"], auto_pad=auto_pad, strides=[2, 2])
    weights = {"w": weight(4, 6, 3, 3)}
    return network([up, node("Relu", ["u"], ["y"])], {"x": (1, 4, 5, 5)}, ["y"], weights)


def statistics_at_every_place() -> ModelProto:
    """BatchNormalization of opset 7 with a value for every element."""
    layer = node("BatchNormalization", ["x", "k", "k", "k", "k"], ["y"], spatial=0)
    return network([layer], {"x": (2, 4, 3)}, ["y"], {"k": np.abs(weight(4, 3))}, opset=7)


def through_half() -> ModelProto:
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    nodes = [node("Cast", ["x"], ["h"], to=half), node("Relu", ["h"], ["r"]), node("Cast", ["r"], ["y"], to=single)]
    return network(nodes, {"x": (1, 4, 3)}, ["y"])


ODD = [
    quantized(),
    shuffled(),
    *map(upsampled, ("SAME_UPPER", "SAME_LOWER")),
    statistics_at_every_place(),
    through_half(),
]


@pytest.mark.parametrize("model", ODD, ids=lambda model: model.graph.node[0].op_type)
@given(draw=st.randoms(use_true_random=False))
@examples(5)
def test_less_common_networks_are_exact(
    model: ModelProto, draw: random.Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    graph = graph_of(tmp_path_factory.mktemp("odd"), model)
    assert_cut_exactly(graph, random_mapping(draw, graph, DEVICES), DEVICES)


def test_what_is_added_has_names_that_no_layer_has(tmp_path: Path) -> None:
    """Names that a file may have: ONNX Runtime opens no segment in which two nodes have the same."""
    names = ["conv", "a/concat", "a/sum", "a[:,0:3]/slice", "conv[:,0:3]"]
    nodes = [
        node("Conv", ["x", "w"], ["a"], names[0]),
        *(node(op, ["a"], [f"r{k}"], names[k + 1]) for k, op in enumerate(["Relu", "Sigmoid", "Tanh", "Abs"])),
        node("Concat", [f"r{k}" for k in range(4)], ["y"], "y", axis=1),
    ]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 4, 5, 5)}, ["y"], {"w": weight(6, 4, 1, 1)}))
    feeds = frame(graph)
    for kind in (boxes.CHANNELS, boxes.PARTIAL):
        half = (6 if kind == boxes.CHANNELS else 4) // 2
        for rest in (0, 1):
            shards = [Shard(0, 0, half, 0, kind), Shard(0, half, 2 * half, 1, kind)]
            shards += [Shard(layer.index, 0, extent(graph, layer), rest) for layer in graph.layers[1:]]
            mapping = Mapping.of(shards)
            for model in cut(graph, mapping).values():
                used = [n.name for n in model.graph.node if n.name]
                assert len(set(used)) == len(used)
            assert_same(run_mapping(graph, mapping, DEVICES, feeds), run_whole(graph.path, feeds))
