"""Seconds of segments, compiled, against the formula in plain words: those that the planner makes of a mapping."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto

from model.cluster import coefficients
from model.cluster.coefficients import Kernel, UnitCost
from model.cluster.platform import Platform
from model.cost.case import Case
from model.cost.ledger import COMPUTE, MEMORY
from model.cost.priced import priced
from model.cost.samples import PartOf
from model.cost.segment_time import Clock, Network
from model.cost.settling import settle
from model.cost.spending import spend
from model.mappings.mapping import Mapping
from model.mappings.planning import plan
from model.network import boxes
from model.network.graph import Graph
from model.network.layer_kinds import PAIRS
from model.network.relayout import SINGLY
from model.network.signature import signatures
from model.simulator.simulated import simulated
from runtime.plan import RankPlan, Recv, Run, Send, Step
from tests.tiny_cnn import (
    branches,
    by_blocks,
    depthwise,
    examples,
    graph_of,
    network,
    node,
    platform,
    random_mapping,
    six_layers,
    weight,
)

DEVICES = 3
MODELS: dict[str, ModelProto] = {
    "branches": branches(),
    "six": six_layers(),
    "by blocks": by_blocks(),
    "depthwise": depthwise(),
}


@pytest.fixture(scope="module", params=MODELS)
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(tmp_path_factory.mktemp("segments"), MODELS[request.param])


def unit(graph: Graph, seed: int, most_gained: float) -> UnitCost:
    """Figures of all sorts: half of the layers measured, some kinds of splits of them, and half of the edges."""
    rng, draw = np.random.default_rng(seed), random.Random(seed)
    usual = coefficients.load("generic").unit("cpu")
    layers = {kind: replace(cost, s_per_byte=float(rng.uniform(0, 1e-9))) for kind, cost in usual.layers.items()}
    kernels = {
        name: Kernel("Any", float(rng.uniform(1e-4, 1e-3)), {axis: tuple(rng.uniform(1e-5, 1e-3, 2).tolist())
               for axis in range(SINGLY + 1) if draw.random() < 0.5})
        for name in dict.fromkeys(signatures(graph)) if draw.random() < 0.5
    }  # fmt: skip
    parts = {pair: float(rng.uniform(0, min(1.0, most_gained / 1e-4))) for pair in PAIRS}
    edges = dict.fromkeys(edge.name for of in Network(graph).edges for edge in of)
    gains = {name: float(rng.uniform(0, most_gained)) for name in edges if draw.random() < 0.5}
    joins = {axis: float(rng.uniform(0, 1e-8)) for axis in range(boxes.KINDS)}
    rested = {"rested_part": draw.choice([0.0, 0.4, 0.8]), "rested_s": float(rng.uniform(0, 1e-3))}
    kept: dict[str, Any] = {"relayout_s_per_byte": float(rng.uniform(0, most_gained / 1e5))}
    kept |= {"vector": draw.choice([1, 2, 4]), "singly": draw.choice([1.0, 3.0]), "step_s": draw.choice([0.0, 1e-5])}
    figures = {"kernels": kernels, "gains": gains, "gain_parts": parts, "joins": joins, **kept, **rested}
    return replace(usual, layers=layers, memory_segment_bytes=1e5, **figures)


def priced_by(figures: UnitCost, folder: Path) -> Platform:
    """Three devices that these figures hold for."""
    path = folder / "any.json"
    path.write_text(replace(coefficients.load("generic"), units={"cpu": figures}).to_json())
    cluster = platform(DEVICES)
    return replace(cluster, devices=tuple(replace(d, coefficients=str(path), threads=4) for d in cluster.devices))


def parts_of(graph: Graph, run: Run) -> list[PartOf]:
    return [PartOf(graph.by_name[part.layer].index, part.axis, part.start, part.stop) for part in run.parts]


def begins_rested(rank: RankPlan, run: Run, ends: bool) -> bool:
    """Whether a rank waits before a segment, or for its first one while another rank ends the frame before. ends: it
    does so itself
    """
    return waits(rank, run) or (not ends and run is next(r for r in rank.runs if r.parts))


def waits(rank: RankPlan, run: Run) -> bool:
    """Whether a rank receives something since its last segment, or what it sent after that."""
    return bool(received(rank.steps[: rank.steps.index(run)]))


def received(steps: Sequence[Step]) -> set[str]:
    """Tensors that are received in the end, after whatever is computed or sent."""
    since = max((k for k, s in enumerate(steps) if isinstance(s, Send) or (isinstance(s, Run) and s.parts)), default=-1)
    return {re.split(r"[\[{]", step.buffer)[0] for step in steps[since + 1 :] if isinstance(step, Recv)}


def first_shard(case: Case, part: PartOf, device: int) -> int:
    """The shard that computes a part."""
    task, s = case.g.n_inputs + part.layer, case.shards
    rows = range(s.ptr[task], s.ptr[task + 1])
    return next(k for k in rows if s.device[k] == device and (len(rows) == 1 or s.start[k] == part.start))


@examples(60)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([1e-5, 1e-2]))
def test_a_segment_takes_what_the_formula_says(
    graph: Graph, tmp_path_factory: pytest.TempPathFactory, seed: int, tiles: bool, most_gained: float
) -> None:
    figures = unit(graph, seed, most_gained)
    cluster = priced_by(figures, tmp_path_factory.mktemp("figures"))
    mapping = random_mapping(random.Random(seed), graph, DEVICES, tiles=tiles)
    case = Case.of(graph, cluster, mapping)
    spend(case.g, case.shards, case.messages, case.costs, case.ledger)
    clock, ranks = Clock(Network(graph), figures), plan(graph, cluster, mapping).plan.ranks
    divided = clock.network.divided(part for rank in ranks for run in rank.runs for part in parts_of(graph, run))
    for rank in ranks:
        mine = np.flatnonzero(case.shards.device == cluster.index(rank.device))
        ends = mine[-1] == len(case.shards.device) - 1
        nth = np.cumsum(case.ledger.begins[mine])
        sums = np.bincount(nth, weights=case.ledger.seconds[mine])
        for run in (run for run in rank.runs if run.parts):
            parts = parts_of(graph, run)
            found = sums[nth[mine == first_shard(case, parts[0], cluster.index(rank.device))][0]]
            assert found >= -1e-12
            usual = clock.seconds(parts, divided)
            less = min(figures.rested_part * usual, figures.rested_s) if begins_rested(rank, run, ends) else 0.0
            assert found == pytest.approx(usual - less, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(("op", "all_of_it"), [("Conv", True), ("AveragePool", False)])
def test_a_part_puts_together_what_it_needs_of_a_layer_in_parts(tmp_path: Path, op: str, all_of_it: bool) -> None:
    nodes = [node("Conv", ["x", "v"], ["a"]), node(op, ["a", "w"][: 1 + all_of_it], ["y"], kernel_shape=[3, 3])]
    made = network(nodes, {"x": (1, 8, 9, 9)}, ["y"], {"v": weight(8, 8, 3, 3), "w": weight(8, 8, 3, 3)})
    graph = graph_of(tmp_path, made)
    joins = {boxes.ROWS: 3e-9, boxes.PARTIAL: 7e-9}
    clock = Clock(Network(graph), replace(coefficients.load("generic").unit("cpu"), joins=joins))
    for axis, read in ((boxes.ROWS, 1), (boxes.PARTIAL, 2)):
        for stop in (2, 4, 8):
            part = [PartOf(1, boxes.CHANNELS, 0, stop)]
            longer = clock.seconds(part, {0: (axis, 2)}) - clock.seconds(part)
            needed = graph.tensors["a"].size_bytes * (1 if all_of_it else stop / 8)
            assert longer == pytest.approx(joins[axis] * read * needed, rel=1e-6)


def test_a_segment_that_waits_takes_longer_once_however_many_messages_it_waits_for(
    graph: Graph, tmp_path: Path
) -> None:
    for seed in range(5):
        mapping, found = random_mapping(random.Random(seed), graph, DEVICES), []
        for wake_s in (0.0, 1e-3):
            cluster = priced_by(replace(unit(graph, 0, 0.0), wake_s=wake_s), tmp_path)
            found.append(priced(graph, cluster, mapping).account[:, COMPUTE])
        wanted = np.zeros(DEVICES)
        for rank in plan(graph, cluster, mapping).plan.ranks:
            waiting = [waits(rank, run) for run in rank.runs if run.parts]
            wanted[cluster.index(rank.device)] = 1e-3 * (sum(waiting) + len(received(rank.steps)))
        assert wanted.sum() > 0
        assert (found[1] - found[0]).tolist() == pytest.approx(wanted.tolist())


def test_a_device_goes_on_from_every_step_of_its_program_to_the_next(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Relu", ["a"], ["b"]), node("Conv", ["b", "w"], ["y"])]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 8, 4, 4)}, ["y"], {"w": weight(8, 8, 1, 1)}))
    mapping = Mapping.whole(graph, [0, 1, 0])
    found = []
    for step_s in (0.0, 1e-3):
        cluster = priced_by(replace(unit(graph, 0, 0.0), step_s=step_s, rested_part=0.0), tmp_path)
        found.append(
            [of.latency_s for of in (priced(graph, cluster, mapping), simulated(graph, cluster, mapping).price)]
        )
    steps = sum(len(rank.steps) for rank in plan(graph, cluster, mapping).plan.ranks)
    assert steps == 7
    assert np.subtract(*found[::-1]).tolist() == pytest.approx([steps * 1e-3] * 2)


@examples(40)
@given(st.integers(0, 10**6), st.sampled_from([1e-5, 1e-2]))
def test_a_frame_takes_as_long_as_any_device_computes_and_on_one_device_just_as_long(
    graph: Graph, tmp_path_factory: pytest.TempPathFactory, seed: int, most_gained: float
) -> None:
    """By both models, whatever neighbours save, and what a wait costs."""
    figures = replace(unit(graph, seed, most_gained), wake_s=1e-3, wake_s_per_byte=1e-7, step_s=0.0)
    cluster = priced_by(figures, tmp_path_factory.mktemp("figures"))
    alone = Mapping.whole(graph, [1] * len(graph.layers))
    for mapping in (alone, random_mapping(random.Random(seed), graph, DEVICES)):
        for found in (priced(graph, cluster, mapping), simulated(graph, cluster, mapping).price):
            computing = float(found.account[:, COMPUTE].max())
            assert found.latency_s >= computing * (1 - 1e-9)
            assert mapping != alone or found.latency_s == pytest.approx(computing)


@pytest.mark.parametrize("seed", range(20))
def test_each_segment_that_is_run_has_bytes_of_its_own(graph: Graph, tmp_path: Path, seed: int) -> None:
    """None is of inputs alone, nor of outputs that are not put together from parts."""
    figures, mapping = unit(graph, 0, 0.0), random_mapping(random.Random(seed), graph, DEVICES)
    cluster = priced_by(figures, tmp_path)
    case = Case.of(graph, cluster, mapping)
    without = case.at(case.costs._replace(memory=case.costs.memory * [1, 1, 1, 0, 1, 1]))
    for each in (case, without):
        spend(each.g, each.shards, each.messages, each.costs, each.ledger)
        settle(each.costs, each.ledger, 0.0)
    more = case.ledger.account[:, MEMORY] - without.ledger.account[:, MEMORY]
    runs = {rank.device: len(rank.runs) for rank in plan(graph, cluster, mapping).plan.ranks}
    assert more.tolist() == pytest.approx([1e5 * runs.get(device.name, 0) for device in cluster.devices])


def test_each_layer_and_part_of_one_has_bytes_of_its_own(graph: Graph, tmp_path: Path) -> None:
    mapping, found = random_mapping(random.Random(3), graph, DEVICES), []
    for layer_bytes in (0.0, 1e5):
        platform = priced_by(replace(unit(graph, 0, 0.0), memory_layer_bytes=layer_bytes), tmp_path)
        found.append(priced(graph, platform, mapping).account[:, MEMORY])
    shards = np.bincount([shard.device for shard in mapping.shards], minlength=DEVICES)
    assert (found[1] - found[0]).tolist() == pytest.approx((shards * 1e5).tolist())
