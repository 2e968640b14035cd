"""Gathered joins: where the Identity goes, what it costs, and that the answer stays right."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto

from codegen import bundle, zoo
from codegen.verify import verify
from dse.chromosomes import chromosome
from model.cluster.platform import Platform
from model.cost.priced import priced
from model.mappings.arrays import arrays
from model.mappings.gather import gathered
from model.mappings.mapping import Mapping, Shard, extent
from model.mappings.planning import plan
from model.network import boxes
from model.network.graph import Graph
from model.network.load import load
from runtime.plan import Send
from tests.tiny_cnn import (
    assert_cut_exactly,
    branches,
    examples,
    graph_of,
    network,
    node,
    platform,
    random_mapping,
    six_layers,
    weight,
)

D0, D1, D2, D3 = range(4)
Arrow = tuple[str, int]
"""A message: what, and the rank it goes to."""


def traffic(graph: Graph, mapping: Mapping, devices: int = 4) -> tuple[int, float]:
    """Messages and bytes of a frame, as they are priced."""
    found = priced(graph, platform(devices), mapping)
    m, g = found.messages, found.g
    count = int(m.out_ptr[found.shards.ptr[-1]])
    tensor = m.tensor[:count]
    part = ((m.stop - m.start)[:count] / g.tensor_size[tensor]).prod(axis=1)
    return count, float((g.tensor_bytes[tensor] * part).sum())


def sent(graph: Graph, mapping: Mapping, devices: int = 4) -> list[list[Arrow]]:
    """What each rank sends."""
    ranks = plan(graph, platform(devices), mapping).plan.ranks
    return [[(step.buffer, step.dest) for step in rank.steps if isinstance(step, Send)] for rank in ranks]


def place(graph: Graph, **where: int | list[tuple[int, int]]) -> Mapping:
    """A mapping by layer name: a device, or (stop, device) of each part."""
    shards = []
    for layer in graph.layers:
        row = where[layer.name]
        start = 0
        for stop, device in [(extent(graph, layer), row)] if isinstance(row, int) else row:
            shards.append(Shard(layer.index, start, stop, device))
            start = stop
    return Mapping.of(shards)


def fork(outputs: tuple[str, ...] = ("z",)) -> ModelProto:
    """``x -> split -> a -> relu -> b -> add -> z`` and ``a -> conv -> c -> add``: (1, 8, 4, 4) but x: (1, 2, 4, 4)."""
    nodes = [
        node("Conv", ["x", "w1"], ["a"], "split", pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"], "relu"),
        node("Conv", ["a", "w2"], ["c"], "conv"),
        node("Add", ["b", "c"], ["z"], "add"),
    ]
    weights = {"w1": weight(8, 2, 3, 3), "w2": weight(8, 8, 1, 1)}
    return network(nodes, {"x": (1, 2, 4, 4)}, outputs, weights)


# By hand


def test_two_consumers_on_two_devices(tmp_path: Path) -> None:
    """x has 128 bytes, everything else 512, half of it 256."""
    graph = graph_of(tmp_path, fork())
    mapping = place(graph, split=[(4, D0), (8, D1)], relu=D2, conv=D3, add=D2)
    assert sent(graph, mapping) == [
        [("x", D1), ("a[:,0:4]", D2), ("a[:,0:4]", D3)],
        [("a[:,4:8]", D2), ("a[:,4:8]", D3)],
        [],
        [("c", D2)],
    ]
    assert traffic(graph, mapping) == (6, 128 + 4 * 256 + 512)
    new = gathered(graph, mapping)
    assert sent(*new) == [
        [("x", D1), ("a[:,0:4]", D2)],
        [("a[:,4:8]", D2)],
        [("a/gathered", D3)],
        [("c", D2)],
    ]
    assert traffic(*new) == (5, 128 + 2 * 256 + 512 + 512)


def test_a_consumer_that_holds_a_part_gets_it_back(tmp_path: Path) -> None:
    """conv runs on D1, which made half of a: ours sends it the other half, AutoDiCE the whole."""
    graph = graph_of(tmp_path, fork())
    mapping = place(graph, split=[(4, D0), (8, D1)], relu=D0, conv=D1, add=D0)
    assert traffic(graph, mapping) == (4, 128 + 2 * 256 + 512)
    assert traffic(*gathered(graph, mapping)) == (4, 128 + 256 + 512 + 512)


def test_channels_that_stay_split_move_only_when_gathered(tmp_path: Path) -> None:
    """relu follows split on the same devices, half by half."""
    nodes = [node("Conv", ["x", "w"], ["a"], "split"), node("Relu", ["a"], ["z"], "relu")]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 2, 4, 4)}, ["z"], {"w": weight(8, 2, 1, 1)}))
    halves = [(4, D0), (8, D1)]
    mapping = place(graph, split=halves, relu=halves)
    assert sent(graph, mapping) == [[("x", D1)], [("z[:,4:8]", D0)]]
    assert traffic(graph, mapping) == (2, 128 + 256)
    new = gathered(graph, mapping)
    assert sent(*new) == [[("x", D1), ("a/gathered", D1)], [("a[:,4:8]", D0), ("z/parts[:,4:8]", D0)]]
    assert traffic(*new) == (4, 128 + 256 + 256 + 256)


# Where the Identity goes


def test_the_first_shard_of_the_first_consumer_gathers(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, fork())
    mapping = place(graph, split=[(4, D0), (8, D1)], relu=[(2, D3), (8, D0)], conv=D2, add=D2)
    new, moved = gathered(graph, mapping)
    assert [(i.index, i.name, i.op, i.inputs[0], i.outputs[0]) for i in new.layers] == [
        (0, "split", "Conv", "x", "a"),
        (1, "split/gather", "Identity", "a", "a/gathered"),
        (2, "relu", "Relu", "a/gathered", "b"),
        (3, "relu/gather", "Identity", "b", "b/gathered"),
        (4, "conv", "Conv", "a/gathered", "c"),
        (5, "add", "Add", "b/gathered", "z"),
    ]
    assert moved == Mapping.of(
        [
            *(Shard(0, 0, 4, D0), Shard(0, 4, 8, D1), Shard(1, 0, 8, D3)),
            *(Shard(2, 0, 2, D3), Shard(2, 2, 8, D0), Shard(3, 0, 8, D2), Shard(4, 0, 8, D2), Shard(5, 0, 8, D2)),
        ]
    )
    assert (new.layers[1].macs, new.layers[1].origins) == (0, ())
    assert new.tensors["a/gathered"].shape == (1, 8, 4, 4)
    assert_cut_exactly(new, moved, 4)


def test_the_graph_and_its_mapping_stay_as_they_were(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, fork())
    before = [(layer.node.SerializeToString(), layer.index) for layer in graph.layers], set(graph.tensors)
    mapping = place(graph, split=[(4, D0), (8, D1)], relu=[(2, D3), (8, D0)], conv=D2, add=[(4, D1), (8, D2)])
    gathered(graph, mapping)
    assert ([(layer.node.SerializeToString(), layer.index) for layer in graph.layers], set(graph.tensors)) == before


def test_nothing_split_is_nothing_changed(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, fork())
    mapping = Mapping.whole(graph, [D0, D1, D2, D3])
    new, moved = gathered(graph, mapping)
    assert moved == mapping
    assert new.tensors == graph.tensors
    assert [layer.node for layer in new.layers] == [layer.node for layer in graph.layers]


@pytest.mark.parametrize("conv", [D3, [(4, D2), (8, D3)]])
def test_an_output_nobody_reads_is_gathered_where_its_input_is_whole(
    tmp_path: Path, conv: int | list[tuple[int, int]]
) -> None:
    """The last layer reads what conv made: on D3, or gathered on the last layer's first device."""
    nodes = [node("Conv", ["x", "w"], ["a"], "conv"), node("Conv", ["a", "w2"], ["z"], "last")]
    model = network(nodes, {"x": (1, 2, 4, 4)}, ["z"], {"w": weight(8, 2, 1, 1), "w2": weight(6, 8, 1, 1)})
    graph = graph_of(tmp_path, model)
    new, moved = gathered(graph, place(graph, conv=conv, last=[(3, D1), (6, D2)]))
    last = new.layers[-1]
    assert (last.name, last.outputs, new.layers[-2].outputs) == ("last/gather", ("z",), ("z/parts",))
    assert moved.shards[-1] == Shard(last.index, 0, 6, D3 if conv == D3 else D1)
    assert new.outputs == ("z",)
    assert_cut_exactly(new, moved, 4)


def test_an_only_layer_gathers_on_its_own_first_device(tmp_path: Path) -> None:
    model = network([node("Conv", ["x", "w"], ["z"], "only")], {"x": (1, 2, 4, 4)}, ["z"], {"w": weight(8, 2, 1, 1)})
    graph = graph_of(tmp_path, model)
    new, moved = gathered(graph, place(graph, only=[(4, D2), (8, D1)]))
    assert moved.shards[-1] == Shard(1, 0, 8, D2)
    assert_cut_exactly(new, moved, 3)


def test_an_output_that_is_read_too_keeps_its_name(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, fork(("a", "z")))
    new, moved = gathered(graph, place(graph, split=[(4, D0), (8, D1)], relu=D2, conv=D3, add=D2))
    assert new.outputs == ("a", "z")
    assert [layer.inputs[0] for layer in new.layers] == ["x", "a/parts", "a", "a", "b"]
    assert new.layers[1].outputs == ("a",)
    assert_cut_exactly(new, moved, 4)


def test_new_names_are_names_of_nothing_else(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"], "a/gathered"),
        node("Relu", ["a"], ["a/gathered'"], "a/gathered/gather"),
        node("Relu", ["a/gathered'"], ["z"], "z/parts"),
    ]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 2, 4, 4)}, ["z"], {"w": weight(8, 2, 1, 1)}))
    halves = [(4, D0), (8, D1)]
    where: dict[str, Any] = {"a/gathered": halves, "a/gathered/gather": D0, "z/parts": halves}
    new, moved = gathered(graph, place(graph, **where))
    names = [*[layer.name for layer in new.layers], *[name for layer in new.layers for name in layer.outputs]]
    assert names == [
        *("a/gathered", "a/gathered/gather'", "a/gathered/gather", "z/parts", "z/parts/gather"),
        *("a", "a/gathered''", "a/gathered'", "z/parts'", "z"),
    ]
    assert_cut_exactly(new, moved, 2)


def test_every_output_of_a_layer_that_somebody_needs_is_gathered(tmp_path: Path) -> None:
    nodes = [
        node("Split", ["x", "sizes"], ["a", "b", "c", "d"], "split", axis=1),
        node("Relu", ["a"], ["y"], "relu"),
        node("Neg", ["c"], ["z"], "neg"),
    ]
    model = network(nodes, {"x": (1, 9, 4, 4)}, ["y", "z", "b"], {"sizes": np.array([2, 1, 3, 3])})
    graph = graph_of(tmp_path, model)
    halves = [Shard(0, 0, 1, D0, boxes.ROWS), Shard(0, 1, 4, D1, boxes.ROWS)]
    new, moved = gathered(graph, Mapping.of([*halves, Shard(1, 0, 2, D2), Shard(2, 0, 3, D3)]))
    assert [(layer.name, layer.outputs) for layer in new.layers] == [
        ("split", ("a", "b/parts", "c", "d")),
        ("split/gather", ("a/gathered",)),
        ("split/gather'", ("b",)),
        ("split/gather''", ("c/gathered",)),
        ("relu", ("y",)),
        ("neg", ("z",)),
    ]
    assert [shard.device for shard in moved.shards[2:5]] == [D2, D0, D3]
    assert_cut_exactly(new, moved, 4)


def test_a_tensor_without_channels_is_gathered(tmp_path: Path) -> None:
    model = network([node("Relu", ["x"], ["r"], "relu"), node("Neg", ["r"], ["y"], "neg")], {"x": (8,)}, ["y"])
    graph = graph_of(tmp_path, model)
    thirds = [Shard(1, 0, 2, D1, boxes.SAMPLES), Shard(1, 2, 3, D0, boxes.SAMPLES), Shard(1, 3, 8, D2, boxes.SAMPLES)]
    new, moved = gathered(graph, Mapping.of([Shard(0, 0, 1, D3), *thirds]))
    assert moved.shards[-1] == Shard(2, 0, 1, D3)
    assert_cut_exactly(new, moved, 4)


# Over random mappings


@examples(30)
@given(draw=st.randoms(use_true_random=False), model=st.sampled_from([six_layers, branches]))
def test_random_mappings_stay_exact(draw: random.Random, model: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        graph = graph_of(Path(folder), model())  # type: ignore[operator]
        new, moved = gathered(graph, random_mapping(draw, graph, 4))
        assert all(len(row) == 1 for i, row in zip(new.layers, moved.by_layer(99), strict=False) if i.op == "Identity")
        assert_cut_exactly(new, moved, 4)


@pytest.mark.parametrize("name", ["squeezenet", "alexnet"])
def test_hybrid_mappings_of_real_networks_stay_exact(name: str, tmp_path: Path) -> None:
    graph, cluster = load(zoo.cached(name)), Platform.from_file("local4")
    code = chromosome("hybrid", graph, arrays(graph), 4, rows=2)
    mapping = code.decode(np.random.default_rng(0).integers(0, code.upper + 1))
    new, moved = gathered(graph, mapping)
    splits = len(mapping.shards) - len({shard.layer for shard in mapping.shards})
    assert splits
    assert len(new.layers) == len(graph.layers) + splits  # of two parts each
    bundle.write_bundle(new, cluster, moved, bundle.source(graph, False, {}), tmp_path / "bundle", False)
    result = verify(tmp_path / "bundle", graph.path, frames=2, communicator="inprocess")
    assert result.passed, result


def test_gathering_never_moves_less_where_a_layer_reads_the_result() -> None:
    graph = load(zoo.cached("squeezenet"))
    code = chromosome("naive", graph, arrays(graph), 4)
    draw = np.random.default_rng(0)
    for _ in range(20):
        mapping = code.decode(draw.integers(0, code.upper + 1))
        assert traffic(*gathered(graph, mapping))[1] >= traffic(graph, mapping)[1]
