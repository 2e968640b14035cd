"""Names in AutoDiCE's files: devices by their cores, layers by node or output, nodes that loading dropped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from model.cluster.platform import Platform
from model.mappings import autodice
from model.mappings.mapping import Mapping, Shard
from model.network.graph import Graph
from runtime.errors import CleaveError
from tests.autodice_files import GOOD, HAS, LOP, PLATFORM, A, B, dropping, problems, read
from tests.tiny_cnn import graph_of, network, node, six_layers


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Layers l1 Conv (10 channels), l2, l3, l4, l5 Gemm (10), l6; outputs conv, relu, pool, flat, fc, y."""
    return graph_of(tmp_path_factory.mktemp("six"), six_layers())


# Names of devices


@pytest.mark.parametrize("key", ["edge00_cpu01", "edge00_cpu10", "edge00_arm01", "edge00_arm10"])
def test_cores_in_any_order(six: Graph, key: str) -> None:
    mapping = {key: GOOD[A], B: GOOD[B]}
    assert read(six, mapping, {"l1": ["lop", [4, 10], [key, B]]}) == read(six, GOOD, LOP)


@pytest.mark.parametrize("key", [A, "edge00"])
def test_a_host_with_one_cpu_may_stand_for_it(six: Graph, key: str) -> None:
    assert read(six, {key: GOOD[A], B: GOOD[B]}, {"l1": ["lop", [4, 10], [key, B]]}) == read(six, GOOD, LOP)


def test_the_name_of_a_device_comes_before_a_host_that_is_called_so(six: Graph) -> None:
    cluster = Platform.parse("a_cpu1, slots=0\na, slots=1\n", "p.txt")
    layers = [layer.name for layer in six.layers]
    for device in (0, 1):
        mapping = Mapping.whole(six, [device] * len(layers))
        assert read(six, {cluster.devices[device].name: layers}, platform=cluster) == mapping


def test_a_host_with_two_cpus_stands_for_neither(six: Graph) -> None:
    two = Platform.parse("edge00, slots=0\nedge00, slots=1\n", "two.txt")
    assert problems(six, {"edge00": GOOD[A] + GOOD[B][1:]}, None, two)[0] == (
        "mapping.json: key 'edge00': device 'edge00' is not on the platform (it has edge00_cpu0, edge00_cpu1)"
    )


CORES = "; say in the platform file which cores it has: "


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("edge00_cpu011", ""),
        ("edge00_cpu20", f"{CORES}edge00, slots=0+2"),
        ("edge01_arm123", f"{CORES}edge01, slots=1+2+3"),
        ("edge00_cpu", ""),
        ("edge01_arm", ""),
        ("edge01_gpu", "; say in the platform file what drives it: edge01, gpu=NAME (CUDA)"),
        ("edge02", ""),
        ("", ""),
    ],
)
def test_other_cores_are_another_device(six: Graph, key: str, advice: str) -> None:
    found = problems(six, {key: GOOD[A], B: GOOD[B]}, {"l1": ["lop", [4, 10], [key, B]]})
    sentence = f"device {key!r} is not on the platform {HAS}{advice}"
    assert found == (f"mapping.json: key '{key}': {sentence}", f"horizontal.json: layer 'l1': {sentence}")


def test_one_device_under_two_keys(six: Graph) -> None:
    found = problems(six, {**GOOD, "edge00_cpu10": []}, LOP)
    assert found == (f"mapping.json: key 'edge00_cpu10': device '{A}' has a key already",)


@pytest.mark.parametrize("host", ["edge.0", "edge-0", "edge_0", "edge_cpu0", "a_gpu", "1_2.3-4", "edge_cpu0_arm1"])
def test_host_names_with_dots_dashes_and_underscores(six: Graph, host: str) -> None:
    platform = Platform.parse(f"{host}, slots=0-2\n{host}x, slots=0, gpu=NVIDIAVolta (CUDA)\n", "hosts.txt")
    keys = [f"{host}_cpu012", f"{host}x_cpu0", f"{host}x_gpu"]
    mapping = {keys[0]: ["l1", "l2", "l3"], keys[1]: ["l1", "l4"], keys[2]: ["l1", "l5", "l6"]}
    found = read(six, mapping, {"l1": ["lop", [1, 2, 10], keys]}, platform)
    assert [s.device for s in found.shards] == [0, 1, 2, 0, 0, 1, 2, 2]
    texts = autodice.write(found, six, platform)
    assert list(json.loads(texts[0])) == keys
    assert autodice.read(*texts, six, platform) == found


def test_cores_over_9_are_not_taken_for_digits(six: Graph) -> None:
    """For AutoDiCE, cpu1011 is the cores 1, 0, 1, 1."""
    platform = Platform.parse("pc, slots=10-11\npc, slots=0-1\n", "pc.txt")
    layers = ["l1", "l2", "l3", "l4", "l5", "l6"]
    for key in ("pc_cpu1011", "pc_cpu0011", "pc_cpu10-12"):
        assert problems(six, {key: layers}, None, platform) == (
            f"mapping.json: key '{key}': device '{key}' is not on the platform (it has pc_cpu10-11, pc_cpu01)",
        )
    mapping = read(six, {"pc_cpu10-11": layers}, None, platform)
    assert mapping == Mapping.whole(six, [0] * 6)
    with pytest.raises(CleaveError) as caught:
        autodice.write(mapping, six, platform)
    assert caught.value.sentences == (
        "AutoDiCE's form cannot say this mapping: device 'pc_cpu10-11': has a core over 9, "
        "and a key has one digit a core",
    )


# Names of layers


def test_layers_by_node_or_by_output(six: Graph) -> None:
    outputs = {A: ["conv", "relu", "l3"], B: ["l1", "flat", "fc", "y"]}
    assert read(six, outputs, {"conv": LOP["l1"]}) == read(six, GOOD, LOP)


def test_a_name_that_two_layers_go_by(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["b"], "a"), node("Relu", ["b"], ["c"], "b")]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 4)}, ["c"]))
    assert problems(graph, {A: ["a", "b"]}) == (
        f"mapping.json: key '{A}': layer 'b' is ambiguous, 2 layers go by it: write 'a', 'c'",
        "mapping.json: layer 'b' is on no device",
    )
    mapping = Mapping.whole(graph, [0, 1])
    texts = autodice.write(mapping, graph, PLATFORM)
    assert json.loads(texts[0]) == {A: ["a"], B: ["c"]}
    assert autodice.read(*texts, graph, PLATFORM) == mapping


def test_nodes_that_share_a_name_go_by_their_outputs(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["b"], "same"), node("Relu", ["b"], ["c"], "same")]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 4)}, ["c"]))
    assert read(graph, {A: ["b"], B: ["c"]}) == Mapping.whole(graph, [0, 1])
    assert problems(graph, {A: ["same"], B: ["b", "c"]}) == (
        f"mapping.json: key '{A}': layer 'same' is ambiguous, 2 layers go by it: write 'b', 'c'",
    )


def test_a_layer_without_a_name_of_its_own_cannot_be_written(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["b"], "c"), node("Relu", ["b"], ["c"], "b")]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 4)}, ["c"]))
    with pytest.raises(CleaveError) as caught:
        autodice.write(Mapping.whole(graph, [0, 0]), graph, PLATFORM)
    assert caught.value.sentences == tuple(
        f"AutoDiCE's form cannot say this mapping: layer '{name}': has no name that means it alone" for name in "cb"
    )


def test_nodes_that_loading_drops_may_be_listed(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, dropping())
    names = ["conv", "norm", "relu", "drop", "shape", "reshape", "fc"]
    assert [layer.name for layer in graph.layers] == ["conv", "norm", "relu", "reshape", "fc"]
    whole = Mapping.whole(graph, [0] * 5)
    assert read(graph, {A: names}) == whole
    assert read(graph, {A: [f"{name}_out" for name in names[:-1]] + ["y"]}) == whole
    assert read(graph, {A: names[:3] + names[5:], B: ["drop", "shape"]}) == whole
    assert json.loads(autodice.write(whole, graph, PLATFORM)[0]) == {
        A: ["conv", "norm", "relu", "drop", "reshape", "fc"]
    }
    elsewhere = replace(graph, path=tmp_path / "gone.onnx")
    assert read(elsewhere, {A: [name for name in names if name != "shape"]}) == whole


def test_a_folded_normalisation_may_be_listed_but_not_split(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, dropping(), folded=True)
    assert [layer.name for layer in graph.layers] == ["conv", "relu", "reshape", "fc"]
    names = {A: ["conv", "norm", "relu", "drop"], B: ["conv", "reshape", "fc"]}
    split = read(graph, names, {"conv": ["lop", [3, 8], [A, B]]})
    assert split.shards[:2] == (Shard(0, 0, 3, 0), Shard(0, 3, 8, 1))
    texts = autodice.write(split, graph, PLATFORM)
    assert json.loads(texts[0]) == {A: ["norm", "conv", "relu"], B: ["conv", "drop", "reshape", "fc"]}
    assert autodice.read(*texts, graph, PLATFORM) == split
    whole = {A: [*names[A], "reshape", "fc"]}
    gone = "was dropped or folded into another when loading"
    assert problems(graph, whole, {"norm": ["lop", [3, 8], [A, B]], "shape": [], "conv_out": []}) == (
        f"horizontal.json: layer 'norm' {gone}; split layer 'conv', which does its work",
        f"horizontal.json: layer 'shape' {gone}",
        f"horizontal.json: layer 'conv_out' {gone}",
    )
