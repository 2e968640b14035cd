"""What AutoDiCE got wrong, silently or with a traceback, one test each: here it is exact, or refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from codegen.slicing import segment
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping, Shard
from model.mappings.planning import plan
from model.network import boxes
from model.network.boxes import CHANNELS, PARTIAL, ROWS
from model.network.graph import Graph
from model.network.load import load
from tests.autodice_files import A, B, C, dropping, problems, read
from tests.tiny_cnn import (
    assert_cut_exactly,
    branches,
    graph_of,
    network,
    node,
    platform,
    run_whole,
    runs,
    save,
    six_layers,
    weight,
)


def one(folder: Path, op: str, shape: tuple[int, ...], *constants: np.ndarray, **how: object) -> Graph:
    """A graph of one layer."""
    weights = {f"k{i}": value for i, value in enumerate(constants)}
    return graph_of(folder, network([node(op, ["x", *weights], ["y"], "layer", **how)], {"x": shape}, ["y"], weights))


def assert_halves_are_exact(graph: Graph, kind: int, at: int, size: int) -> None:
    """The first layer cut once."""
    rest = [s for s in Mapping.whole(graph, [0] * len(graph.layers)).shards if s.layer]
    assert_cut_exactly(graph, Mapping.of([Shard(0, 0, at, 0, kind), Shard(0, at, size, 1, kind), *rest]), 2)


def segments(graph: Graph, mapping: Mapping) -> list[ModelProto]:
    """All models that a mapping is cut into."""
    planned = plan(graph, platform(3), mapping)
    return [segment(graph, planned, run).model() for run in runs(planned)]


def test_outputs_of_a_grouped_convolution_are_split_exactly(tmp_path: Path) -> None:
    graph = one(tmp_path, "Conv", (1, 6, 5, 5), weight(9, 2, 3, 3), weight(9), group=3)
    assert_halves_are_exact(graph, CHANNELS, 3, 9)
    inside = Mapping.of([Shard(0, 0, 4, 0), Shard(0, 4, 9, 1)])
    assert "lies inside a group of 3 channels" in inside.check(graph, platform(2))[0]


def test_split_points_that_do_not_cover_all_channels_are_refused(tmp_path: Path) -> None:
    six = graph_of(tmp_path, six_layers())
    good = {A: ["l1", "l2", "l3"], B: ["l1", "l4", "l5", "l6"]}
    (said,) = problems(six, good, {"l1": ["lop", [4, 6], [A, B]]})
    assert said.endswith("split points end at 6, but the layer has 10 channels")


@pytest.mark.parametrize("how", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(("kind", "size"), [(CHANNELS, 5), (ROWS, 0), (PARTIAL, 4)])
def test_auto_pad_is_kept(how: str, kind: int, size: int, tmp_path: Path) -> None:
    graph = one(tmp_path, "Conv", (1, 4, 7, 7), weight(5, 4, 2, 3), auto_pad=how)
    assert_halves_are_exact(graph, kind, 2, size or graph.tensors["y"].shape[2])


@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize(("kind", "size"), [(CHANNELS, 5), (PARTIAL, 7)])
def test_a_fully_connected_layer_is_cut_along_the_right_axis_and_keeps_alpha_and_beta(
    trans_b: int, kind: int, size: int, tmp_path: Path
) -> None:
    w = weight(5, 7) if trans_b else weight(7, 5)
    graph = one(tmp_path, "Gemm", (1, 7), w, 10 * weight(5), transB=trans_b, alpha=0.25, beta=3.0)
    assert_halves_are_exact(graph, kind, 2, size)


@pytest.mark.parametrize("ir", [3, 8])
def test_initializers_may_be_graph_inputs_or_not(ir: int, tmp_path: Path) -> None:
    graph = graph_of(tmp_path, branches(9, ir))
    assert graph.inputs == ("x",)
    assert_halves_are_exact(graph, CHANNELS, 3, 8)


def test_a_name_that_is_part_of_another_is_left_alone(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["r2"]), node("Neg", ["r2"], ["r20"]), node("Add", ["r2", "r20"], ["r2_r20"])]
    nodes.append(node("Abs", ["r2_r20"], ["y"]))
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 6, 2, 2)}, ["y"]))
    cuts = [Shard(i, *part, device) for i in range(4) for device, part in enumerate([(0, i + 1), (i + 1, 6)])]
    assert_cut_exactly(graph, Mapping.of(cuts), 2)


@pytest.mark.parametrize("bias", [True, False])
def test_layer_input_partitioning_works(bias: bool, tmp_path: Path) -> None:
    graph = one(tmp_path, "Conv", (1, 6, 5, 5), weight(4, 6, 3, 3), *([weight(4)] if bias else []), pads=[1, 1, 1, 1])
    assert_halves_are_exact(graph, PARTIAL, 1, 6)


@pytest.mark.parametrize("op", ["Conv", "MaxPool"])
def test_splitting_the_height_works(op: str, tmp_path: Path) -> None:
    weights = [weight(4, 6, 3, 3)] if op == "Conv" else []
    graph = one(tmp_path, op, (1, 6, 9, 5), *weights, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    assert_halves_are_exact(graph, ROWS, 2, 5)


def test_unknown_and_duplicate_layers_are_refused(tmp_path: Path) -> None:
    six = graph_of(tmp_path, six_layers())
    found = problems(six, {A: ["l1", "l2", "l2", "l9"], B: ["l3", "l4", "l5", "l6"]})
    assert any("'l9' is not in" in s for s in found)
    assert any("'l2' is listed twice" in s for s in found)


def test_cores_over_nine_are_whole_numbers(tmp_path: Path) -> None:
    six = graph_of(tmp_path, six_layers())
    cluster = Platform.parse("edge00, slots=10-11\n", "p.txt")
    assert cluster.devices[0].cores == (10, 11)
    name = cluster.devices[0].name
    layers = [f"l{i}" for i in range(1, 7)]
    assert read(six, {name: layers}, platform=cluster).devices == (0,)
    assert problems(six, {"edge00_cpu1011": layers}, platform=Platform.parse("edge00, slots=0-1\n", "p.txt"))


@pytest.mark.parametrize("host", ["nx-01", "nx.lab.example.org", "a_b-c.d"])
def test_host_names_have_dots_and_dashes(host: str, tmp_path: Path) -> None:
    six = graph_of(tmp_path, six_layers())
    cluster = Platform.parse(f"{host}, slots=0-1\n", "p.txt")
    assert cluster.hosts[0].name == host
    assert read(six, {f"{host}_cpu01": [f"l{i}" for i in range(1, 7)]}, platform=cluster).devices == (0,)


@pytest.mark.parametrize(("opset", "ir"), [(9, 3), (13, 7)])
def test_submodels_declare_their_outputs_and_keep_opset_and_ir_version(opset: int, ir: int, tmp_path: Path) -> None:
    graph = graph_of(tmp_path, branches(opset, ir))
    whole = Mapping.whole(graph, [i % 3 for i in range(len(graph.layers))])
    for model in segments(graph, whole):
        assert model.graph.output
        assert (model.opset_import[0].version, model.ir_version) == (opset, ir)
        onnx.checker.check_model(model, full_check=True)
        fixed = {t.name for t in model.graph.initializer}
        feeds = {
            i.name: np.zeros([d.dim_value for d in i.type.tensor_type.shape.dim], np.float32)
            for i in model.graph.input
            if i.name not in fixed
        }
        assert set(run_whole(model, feeds)) == {o.name for o in model.graph.output}


@pytest.mark.parametrize("shape", [(2, 1, 28, 28), (1, 4, 31, 17), (1, 3, 40)])
def test_any_input_will_do(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Not 224 x 224 of three colours alone: other channels, sizes, samples and numbers of axes."""
    graph = one(tmp_path, "Conv", shape, weight(4, shape[1], *[3] * (len(shape) - 2)))
    assert_halves_are_exact(graph, CHANNELS, 1, 4)


def test_nodes_that_loading_drops_do_no_harm(tmp_path: Path) -> None:
    """Dropout and constants stand in its files as layers."""
    graph = load(save(tmp_path, dropping()))
    assert_halves_are_exact(graph, CHANNELS, 3, 8)
    assert boxes.rule(graph, graph.by_name["fc"], CHANNELS) is not None
    listed = {A: ["conv", "norm", "relu", "drop", "shape"], C: ["reshape", "fc"]}
    assert read(graph, listed).devices == (0, 2)
