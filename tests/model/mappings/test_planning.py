"""From messages to steps: segments as long as can be, buffers that are filled before they are read."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto

from model.mappings.mapping import Mapping, Shard
from model.mappings.planning import Planned, plan
from model.network.graph import Graph
from model.network.pieces import Piece, name
from runtime.plan import Buffer, Part, Plan, Recv, Run, Send
from tests.tiny_cnn import (
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
    run_plan,
    run_whole,
    runs,
    six_layers,
    weight,
)

DEVICES = 4


def two_outputs() -> ModelProto:
    """An output that is read on as well, one of a layer that can be split, and two inputs."""
    nodes = [
        node("Conv", ["x", "w"], ["mid"], "conv"),
        node("Relu", ["mid"], ["r"], "relu"),
        node("Concat", ["r", "z"], ["y"], "join", axis=1),
    ]
    return network(nodes, {"x": (1, 3, 2, 2), "z": (1, 2, 2, 2)}, ["mid", "y"], {"w": weight(6, 3, 1, 1)})


MODELS = {"branches": branches(), "six": six_layers(), "outputs": two_outputs()}


@pytest.fixture(scope="module", params=MODELS)
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(tmp_path_factory.mktemp("any"), MODELS[request.param])


def planned(graph: Graph, mapping: Mapping) -> Planned:
    assert mapping.check(graph, platform(DEVICES)) == []
    return plan(graph, platform(DEVICES), mapping)


def test_a_plan_by_hand(tmp_path: Path) -> None:
    """Conv split in two, ReLU kept split, the rest on the first device."""
    graph = graph_of(tmp_path, six_layers())
    split = [Shard(layer, *box) for layer in (0, 1) for box in ((0, 6, 0), (6, 10, 2))]
    rest = [Shard(layer, 0, stop, 0) for layer, stop in ((2, 10), (3, 90), (4, 10), (5, 10))]
    ranks = planned(graph, Mapping.of([*split, *rest])).plan.ranks
    x = ((0, 1), (0, 3), (0, 8), (0, 8))
    piece = ((0, 1), (0, 4), (0, 6), (0, 6))
    parts = tuple(Part(name, 1, 0, stop) for name, stop in (("l3", 10), ("l4", 90), ("l5", 10), ("l6", 10)))
    assert ranks[0].steps == (
        Send("x", 1, 0, x),
        Run("rank00/segment000.onnx", (Part("l1", 1, 0, 6), Part("l2", 1, 0, 6)), ("x",), ("relu[:,0:6]",)),
        Recv("relu[:,6:10]", 1, 0),
        Run("rank00/segment001.onnx", parts, ("relu",), ("y",)),
    )
    assert ranks[0].buffers == (
        Buffer("x", (1, 3, 8, 8), "float32"),
        Buffer("relu", (1, 10, 6, 6), "float32"),
        Buffer("y", (1, 10), "float32"),
        Buffer("relu[:,6:10]", (1, 4, 6, 6), "float32", "relu", ((0, 1), (6, 10), (0, 6), (0, 6))),
        Buffer("relu[:,0:6]", (1, 6, 6, 6), "float32", "relu", ((0, 1), (0, 6), (0, 6), (0, 6))),
    )
    assert ranks[1].steps == (
        Recv("x", 0, 0),
        Run("rank01/segment000.onnx", (Part("l1", 1, 6, 10), Part("l2", 1, 6, 10)), ("x",), ("relu[:,6:10]",)),
        Send("relu[:,6:10]", 0, 0, piece),
    )
    assert [r.device for r in ranks] == ["h0_cpu0", "h2_cpu0"]
    assert [(r.inputs, r.outputs) for r in ranks] == [(("x",), ("y",)), ((), ())]
    assert ranks[1].buffers == (
        Buffer("x", (1, 3, 8, 8), "float32"),
        Buffer("relu[:,6:10]", (1, 4, 6, 6), "float32"),
    )


def test_one_device_has_one_segment_and_only_the_ends_as_buffers(graph: Graph) -> None:
    p = planned(graph, Mapping.whole(graph, [3] * len(graph.layers))).plan
    (rank,) = p.ranks
    (run,) = rank.steps
    assert isinstance(run, Run)
    assert {b.name for b in rank.buffers} == {*graph.inputs, *graph.outputs}
    assert (rank.device, rank.rank) == ("h3_cpu0", 0)
    assert set(run.outputs) == set(graph.outputs)


def test_places_and_providers_come_from_the_platform(tmp_path: Path) -> None:
    from model.cluster.platform import Platform

    text = "a, slots=0-3, threads=2, address=10.0.0.1\nb, gpu=NVIDIA (CUDA)\n"
    graph = graph_of(tmp_path, six_layers())
    first, second = plan(graph, Platform.parse(text, "p.txt"), Mapping.whole(graph, [0, 0, 0, 1, 1, 1])).plan.ranks
    assert (first.host, first.address, first.cores, first.threads) == ("a", "10.0.0.1", (0, 1, 2, 3), 2)
    assert (second.device, second.cores, second.provider) == ("b_gpu", (), "CUDAExecutionProvider")


def test_an_output_in_pieces_is_joined_where_its_first_piece_is(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, two_outputs())
    mapping = Mapping.of([Shard(0, 0, 2, 1), Shard(0, 2, 6, 0), Shard(1, 0, 6, 2), Shard(2, 0, 8, 2)])
    p = planned(graph, mapping)
    assert [r.outputs for r in p.plan.ranks] == [(), ("mid",), ("y",)]
    assert {b.name for b in p.plan.ranks[1].buffers if b.within == "mid"} == {"mid[:,0:2]", "mid[:,2:6]"}
    assert all(run.parts for run in runs(p))
    assert_cut_exactly(graph, mapping, DEVICES)


def test_an_output_in_pieces_that_are_not_in_one_piece_of_memory_is_joined_by_a_segment(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, six_layers())
    whole = [Shard(layer, 0, stop, 0) for layer, stop in ((2, 10), (3, 90), (4, 10), (5, 10))]
    rows = [Shard(layer, *box, 2) for layer in (0, 1) for box in ((0, 2, 0), (2, 6, 1))]
    first = planned(graph, Mapping.of([*rows, *whole])).plan.ranks[0]
    assert first.runs[-1].inputs == ("relu[:,:,0:2]", "relu[:,:,2:6]")
    assert not any(b.within for b in first.buffers)


def test_names_of_pieces_differ_from_names_of_tensors(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["a[:,0:2]"]), node("Add", ["a", "a[:,0:2]"], ["y"])]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 4)}, ["y"]))
    assert name(graph, Piece("a", ((0, 1), (0, 2)))) == "a[:,0:2]'"
    assert name(graph, Piece("a", ((0, 1), (0, 4)))) == "a"
    assert name(graph, Piece("a", ((0, 1), (0, 4)), (0, 3))) == "a{+0:3}"
    for seed in range(8):
        assert_cut_exactly(graph, random_mapping(random.Random(seed), graph, DEVICES), DEVICES)


@given(draw=st.randoms(use_true_random=False))
@examples(12)
def test_random_mappings_of_whole_networks_are_exact(graph: Graph, draw: random.Random) -> None:
    assert_cut_exactly(graph, random_mapping(draw, graph, DEVICES, tiles=True), DEVICES)


@given(draw=st.randoms(use_true_random=False))
@examples(30)
def test_every_shard_runs_once_on_its_device(graph: Graph, draw: random.Random) -> None:
    mapping = random_mapping(draw, graph, DEVICES)
    p = planned(graph, mapping).plan
    assert tuple(rank.rank for rank in p.ranks) == tuple(range(len(mapping.devices)))
    for rank, device in zip(p.ranks, mapping.devices, strict=True):
        own = [Part(graph.layers[s.layer].name, s.axis, s.start, s.stop) for s in mapping.shards if s.device == device]
        assert [part for run in rank.runs for part in run.parts] == own
        assert [run.file for run in rank.runs] == [
            f"rank{rank.rank:02d}/segment{i:03d}.onnx" for i in range(len(rank.runs))
        ]


@given(draw=st.randoms(use_true_random=False))
@examples(30)
def test_segments_end_only_at_communication(graph: Graph, draw: random.Random) -> None:
    for rank in planned(graph, random_mapping(draw, graph, DEVICES)).plan.ranks:
        assert not any(isinstance(a, Run) and isinstance(b, Run) for a, b in pairwise(rank.steps))


@given(draw=st.randoms(use_true_random=False))
@examples(30)
def test_buffers_are_filled_once_before_they_are_read_and_none_is_idle(graph: Graph, draw: random.Random) -> None:
    p = planned(graph, random_mapping(draw, graph, DEVICES)).plan
    for rank in p.ranks:
        parts: dict[str, set[str]] = {}
        for buffer in rank.buffers:
            if buffer.within:
                parts.setdefault(buffer.within, set()).add(buffer.name)
        filled, read = list(rank.inputs), set[str]()
        for step in rank.steps:
            reads = step.inputs if isinstance(step, Run) else (step.buffer,) if isinstance(step, Send) else ()
            smallest = set().union(*(parts.get(name, {name}) for name in reads))
            assert smallest <= set(filled)
            read.update(smallest)
            filled += step.outputs if isinstance(step, Run) else (step.buffer,) if isinstance(step, Recv) else ()
        ends = set[str]().union(*(parts.get(name, {name}) for name in rank.outputs))
        assert len(set(filled)) == len(filled)
        assert ends <= set(filled)
        assert {b.name for b in rank.buffers} - set(parts) == set(filled) == read | ends
        assert len({b.name for b in rank.buffers}) == len(rank.buffers)
    assert sorted(n for r in p.ranks for n in r.inputs) == sorted(graph.inputs)
    assert sorted(n for r in p.ranks for n in r.outputs) == sorted(graph.outputs)


@given(draw=st.randoms(use_true_random=False))
@examples(30)
def test_what_is_made_is_sent_before_anything_else_is_computed(graph: Graph, draw: random.Random) -> None:
    """A tensor leaves as soon as it exists: its segment ends with the shard that makes it, and the sends follow."""
    found = planned(graph, random_mapping(draw, graph, DEVICES))
    for rank in found.plan.ranks:
        maker: dict[str, int] = {}
        for i, step in enumerate(rank.steps):
            if isinstance(step, Run):
                maker.update(dict.fromkeys(step.outputs, i))
            elif isinstance(step, Send) and step.buffer in maker:
                between = rank.steps[maker[step.buffer] + 1 : i]
                assert all(isinstance(other, Send) for other in between)
                run = rank.steps[maker[step.buffer]]
                assert isinstance(run, Run)
                last = graph.by_name[run.parts[-1].layer]
                assert found.pieces[step.buffer].tensor in last.outputs


@given(draw=st.randoms(use_true_random=False))
@examples(20)
def test_a_plan_as_text_and_back_is_the_same(graph: Graph, draw: random.Random) -> None:
    p = planned(graph, random_mapping(draw, graph, DEVICES)).plan
    assert Plan.from_json(p.to_json()) == p


def test_a_scalar_is_sent_whole(tmp_path: Path) -> None:
    nodes = [node("ReduceMax", ["x"], ["m"], keepdims=0), node("Add", ["x", "m"], ["y"])]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 6, 2)}, ["y"]))
    mapping = Mapping.of([Shard(0, 0, 1, 0), Shard(1, 0, 2, 1), Shard(1, 2, 6, 2)])
    p = planned(graph, mapping)
    assert Send("m", 1, 1, ()) in p.plan.ranks[0].steps
    assert p.plan.ranks[1].buffer("m") == Buffer("m", (), "float32")
    assert_cut_exactly(graph, mapping, DEVICES)


def test_other_types_keep_theirs(tmp_path: Path) -> None:
    nodes = [node("TopK", ["x", "k"], ["v", "i"], "top", axis=1), node("Cast", ["i"], ["c"], to=1)]
    nodes += [node("Mul", ["v", "c"], ["y"])]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 9)}, ["y"], {"k": np.array([4])}))
    p = planned(graph, Mapping.whole(graph, [0, 1, 1]))
    assert p.plan.ranks[1].buffer("i") == Buffer("i", (1, 4), "int64")
    assert_cut_exactly(graph, Mapping.whole(graph, [0, 1, 1]), DEVICES)


@examples(30)
@given(st.integers(0, 10**6), st.integers(1, 3))
def test_borders_that_are_asked_for_are_there_and_change_no_answer(graph: Graph, seed: int, devices: int) -> None:
    draw = random.Random(seed)
    mapping = random_mapping(draw, graph, devices)
    borders = frozenset(draw.sample(range(len(graph.layers)), draw.randint(0, len(graph.layers))))
    found = plan(graph, platform(DEVICES), mapping, borders)
    for run in runs(found):
        assert all(graph.by_name[part.layer].index not in borders for part in run.parts[1:])
    feeds = frame(graph)
    assert_same(run_plan(graph, found, feeds), run_whole(graph.path, feeds))


def test_with_a_border_before_each_layer_every_shard_is_alone(graph: Graph) -> None:
    whole = Mapping.whole(graph, [0] * len(graph.layers))
    found = runs(plan(graph, platform(1), whole, range(len(graph.layers))))
    assert [[part.layer for part in run.parts] for run in found] == [[layer.name] for layer in graph.layers]
    (one,) = runs(plan(graph, platform(1), whole))
    assert len(one.parts) == len(graph.layers)
