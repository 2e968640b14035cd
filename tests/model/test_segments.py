"""Seconds of segments: those that the planner makes, and what is saved inside them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto

from model.case import Case
from model.costs import SPLIT, WHOLE, CostArrays
from model.graph import Graph
from model.mapping import extent
from model.planning import plan
from model.spending import spend
from runtime.plan import Run
from tests.tiny_cnn import branches, examples, graph_of, platform, random_mapping, six_layers

DEVICES = 3
MODELS: dict[str, ModelProto] = {"branches": branches(), "six": six_layers()}


@pytest.fixture(scope="module", params=MODELS)
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(tmp_path_factory.mktemp("segments"), MODELS[request.param])


def some(case: Case, seed: int) -> CostArrays:
    """Powers of two: their sums are exact. Gains are small beside work; inputs and outputs cost and save nothing."""
    g, rng = case.g, np.random.default_rng(seed)
    layers = np.arange(g.n_inputs, g.n_inputs + g.n_layers)
    work, gain = np.zeros_like(case.costs.work), np.zeros((len(g.edge_tensor), DEVICES))
    work[layers] = 2.0 ** rng.integers(2, 8, work[layers].shape)
    reader = np.repeat(np.arange(len(g.size)), np.diff(g.edge_ptr))
    inner = np.isin(g.tensor_task[g.edge_tensor], layers) & np.isin(reader, layers)
    gain[inner] = 2.0 ** rng.integers(-6, -3, gain[inner].shape)
    return case.costs._replace(work=work, gain=gain)


def expected(case: Case, graph: Graph, run: Run, device: int) -> float:
    """What a segment takes, from its parts alone: each by itself, less what edges inside it save."""
    seconds, made = 0.0, set()
    for part in run.parts:
        layer = graph.by_name[part.layer]
        task, size = case.g.n_inputs + layer.index, extent(graph, layer, part.axis)
        row, share = case.costs.work[task, device], (part.stop - part.start) / size
        split = SPLIT + 2 * part.axis
        seconds += row[WHOLE] if share == 1 and not divided(case, task) else row[split] + row[split + 1] * share
        for edge in range(case.g.edge_ptr[task], case.g.edge_ptr[task + 1]):
            if case.g.tensor_task[case.g.edge_tensor[edge]] in made:
                seconds -= share * case.costs.gain[edge, device]
        made.add(task)
    return seconds


def divided(case: Case, task: int) -> bool:
    return bool(case.shards.ptr[task + 1] - case.shards.ptr[task] > 1)


@examples(100)
@given(st.integers(0, 10**6), st.booleans())
def test_a_segment_takes_what_its_parts_take_less_what_edges_inside_it_save(
    graph: Graph, seed: int, tiles: bool
) -> None:
    cluster, mapping = platform(DEVICES), random_mapping(random.Random(seed), graph, DEVICES, tiles=tiles)
    case = Case.of(graph, cluster, mapping)
    case = case.at(some(case, seed))
    spend(case.g, case.shards, case.messages, case.costs, case.ledger)
    for rank in plan(graph, cluster, mapping).plan.ranks:
        device = cluster.index(rank.device)
        mine = np.flatnonzero(case.shards.device == device)
        first = np.cumsum(case.ledger.begins[mine])
        sums = np.bincount(first, weights=case.ledger.seconds[mine])
        runs = [expected(case, graph, run, device) for run in rank.runs if run.parts]
        tasks = np.repeat(np.arange(len(case.g.size)), np.diff(case.shards.ptr))[mine]
        is_layer = (tasks >= case.g.n_inputs) & (tasks < case.g.n_inputs + case.g.n_layers)
        with_layers = np.bincount(first, weights=is_layer) > 0
        assert list(sums[with_layers]) == pytest.approx(runs, rel=1e-12)
