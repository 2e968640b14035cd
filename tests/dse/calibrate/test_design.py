"""Designs: mappings that check, on one device, every weight once, and true to the network however they are cut."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from dataclasses import replace
from itertools import combinations_with_replacement, pairwise
from pathlib import Path

import pytest

from codegen.zoo import cached
from dse.calibrate.command import FEWEST, affordable
from dse.calibrate.design import CUTS, WHOLE, Design, designs, in_parts, probes, stretches
from model.cost.samples import Run
from model.mappings.planning import plan
from model.network import boxes
from model.network.graph import Graph
from model.network.load import load
from tests.tiny_cnn import assert_same, branches, frame, graph_of, platform, run_plan, run_whole, runs, six_layers

MODELS = {"branches": branches(), "six": six_layers()}


@pytest.fixture(scope="module", params=MODELS)
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(tmp_path_factory.mktemp("any"), MODELS[request.param])


def named(graph: Graph, what: str) -> Design:
    (found,) = [design for design in designs(graph, 0, 0) if design.what == what]
    return found


def test_every_design_computes_what_the_network_does(graph: Graph) -> None:
    feeds = frame(graph)
    wanted = run_whole(graph.path, feeds)
    for design in designs(graph, 1, 0):
        assert design.mapping.check(graph, platform(2)) == []
        assert design.mapping.devices == (1,)
        assert_same(run_plan(graph, plan(graph, platform(2), design.mapping, design.borders), feeds), wanted)


def test_the_network_is_run_as_one_segment_and_layer_by_layer(graph: Graph) -> None:
    first, second = designs(graph, 0, 0)[:2]
    assert first.what == WHOLE
    (one,) = runs(plan(graph, platform(1), first.mapping, first.borders))
    each = runs(plan(graph, platform(1), second.mapping, second.borders))
    assert [part.layer for part in one.parts] == [part.layer for run in each for part in run.parts]
    assert {len(run.parts) for run in each} == {1}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_stretches_follow_each_other_with_about_as_many_macs_each(graph: Graph, count: int) -> None:
    design = stretches(graph, range(count))
    on = [shard.device for shard in design.mapping.shards]
    assert design.stream
    assert on == sorted(on)
    macs = [layer.macs for layer in graph.layers]
    best = min(most(macs, [0, *ends, len(macs)]) for ends in combinations_with_replacement(range(len(macs)), count - 1))
    assert most(macs, [0, *(bisect(on, device) for device in range(count))]) <= 1.5 * best


def most(macs: list[int], ends: list[int]) -> int:
    """Of the MACs of stretches that end so."""
    return max(sum(macs[begin:end]) for begin, end in pairwise(ends))


@pytest.mark.parametrize("count", [2, 3])
def test_each_device_has_a_part_of_each_heavy_layer(graph: Graph, count: int) -> None:
    design, feeds = in_parts(graph, range(count)), frame(graph)
    on = defaultdict[int, list[int]](list)
    for shard in design.mapping.shards:
        on[shard.layer].append(shard.device)
    for layer in graph.layers:
        rule = boxes.rule(graph, layer, boxes.CHANNELS) if boxes.is_heavy(graph, layer) else None
        assert on[layer.index] == [*range(min(count, rule.size // rule.grain) if rule else 1)]
    assert_same(run_plan(graph, plan(graph, platform(count), design.mapping), feeds), run_whole(graph.path, feeds))


def test_every_part_of_a_split_layer_is_a_segment_of_its_own(graph: Graph) -> None:
    for design in designs(graph, 0, 0):
        count: dict[int, int] = defaultdict(int)
        for shard in design.mapping.shards:
            count[shard.layer] += 1
        for run in runs(plan(graph, platform(1), design.mapping, design.borders)):
            split = [part for part in run.parts if count[graph.by_name[part.layer].index] > 1]
            assert not split or len(run.parts) == 1


def test_heavy_layers_are_split_in_every_way_that_they_can_be(graph: Graph) -> None:
    ways = {(s.layer, s.axis) for d in designs(graph, 0, 0) for s in d.mapping.shards if (s.start, s.axis) != (0, 1)}
    kinds = {kind for kind, _ in CUTS}
    heavy = [layer for layer in graph.layers if boxes.is_heavy(graph, layer)]
    assert heavy
    for layer in heavy:
        for kind in kinds:
            assert ((layer.index, kind) in ways) == (boxes.rule(graph, layer, kind) is not None), (layer.name, kind)


def test_parts_are_as_large_as_the_grain_allows(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, branches())
    grouped = graph.by_name["grouped"].index  # 8 channels in 4 groups
    for what, edges in (("channels 0.25 + 0.75", [0, 2]), ("channels 0.333 + 0.333 + 0.333", [0, 2, 6])):
        assert [s.start for s in named(graph, what).mapping.shards if s.layer == grouped] == edges


def test_one_seed_gives_the_same_designs_and_no_two_are_alike(graph: Graph) -> None:
    found = designs(graph, 0, 7)
    assert found == designs(graph, 0, 7)
    assert found != designs(graph, 0, 8)
    assert len({(design.mapping, design.borders) for design in found}) == len(found)
    assert len({design.what for design in found}) == len(found)


@pytest.mark.parametrize(
    ("devices", "alone"), [([5], []), ([0, 1], [1, 1, 1]), ([0, 3, 4], [2, 1]), ([0, 1, 2, 3], [3])]
)
def test_a_convolution_an_activation_and_a_fully_connected_layer_are_each_alone_once(
    devices: list[int], alone: list[int]
) -> None:
    graph = load(cached("alexnet"))
    found = list(probes(graph, devices))
    rows = [[(graph.layers[s.layer].op, s.device) for s in d.mapping.shards if s.device != devices[0]] for d in found]
    assert [len(row) for row in rows] == alone
    assert all(len({device for _, device in row}) == len(row) for row in rows)
    assert sorted(op for row in rows for op, _ in row) == (["Conv", "Gemm", "Relu"] if alone else [])


@pytest.mark.parametrize(
    ("frame_s", "took_s", "runs"),
    [(0.1, 0.0, 160), (0.1, 1.0, 160), (0.1, 4.6, 20), (0.1, 25.6, 8), (4.0, 0.0, 8), (0.0, 5.0, 16)],
)
def test_where_runs_take_long_those_are_left_out_that_tell_least(frame_s: float, took_s: float, runs: int) -> None:
    """Ten frames of a first look and two before them; a run has five at least, and all that it takes to start."""
    look = Run("", "", "", "", "", "", "", "", "", {}, (frame_s,) * 10, (), (), took_s=took_s)
    assert affordable(look, 10.0) == runs
    assert affordable(replace(look, period_s=frame_s, took_s=took_s + 12 * frame_s), 10.0) == runs


def test_every_kind_of_split_is_among_the_designs_that_are_always_run(graph: Graph) -> None:
    """A kind that was not measured would be guessed from whole layers."""
    first = designs(graph, 0, 0)[:FEWEST]
    assert {shard.axis for design in first for shard in design.mapping.shards} == {kind for kind, _ in CUTS}
