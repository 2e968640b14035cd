"""Devices that share a memory: compiled, against the sum in plain words."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.cluster.platform import Platform
from model.cost.case import Case
from model.cost.crowding import crowded_bytes
from model.cost.held_weights import Weights
from model.cost.ledger import COMPUTE
from model.cost.samples import PartOf, Sample
from model.cost.spending import spend
from model.mappings.mapping import Mapping, Shard
from model.network.boxes import CHANNELS, KINDS
from model.network.graph import Graph
from tests.tiny_cnn import branches, examples, graph_of, platform, random_mapping, six_layers

DEVICES = 4
MODELS = {"branches": branches(), "six": six_layers()}


@pytest.fixture(scope="module", params=MODELS)
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(tmp_path_factory.mktemp("crowding"), MODELS[request.param])


def computing(graph: Graph, mapping: Mapping, memories: list[int], crowded: list[float]) -> np.ndarray:
    """(D,) seconds of each device, without what edges save: a segment of next to nothing could save all of it."""
    case = Case.of(graph, platform(DEVICES), mapping)
    memory_of, each = np.array(memories, dtype=np.int32), np.array(crowded)
    case = case.at(case.costs._replace(memory_of=memory_of, crowded=each, beside=np.zeros((0, DEVICES, 2 + KINDS))))
    spend(case.g, case.shards, case.messages, case.costs, case.ledger)
    return case.ledger.account[:, COMPUTE].copy()


def samples(mapping: Mapping) -> list[Sample]:
    """Each shard in a segment of its own."""
    return [
        Sample("segment", str(s.device), "any", (PartOf(s.layer, s.axis, s.start, s.stop),), (1.0,))
        for s in mapping.shards
    ]


@examples(60)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 2), min_size=DEVICES, max_size=DEVICES))
def test_parts_of_a_layer_take_longer_by_the_bytes_that_others_read_meanwhile(
    graph: Graph, seed: int, memories: list[int]
) -> None:
    draw = random.Random(seed)
    mapping = random_mapping(draw, graph, DEVICES, tiles=True)
    crowded = [draw.uniform(0, 1e-6) * draw.randrange(2) for _ in range(DEVICES)]
    wanted, seen = np.zeros(DEVICES), samples(mapping)
    for sample, size in zip(
        seen, crowded_bytes(Weights(graph), seen, {str(d): memory for d, memory in enumerate(memories)}), strict=True
    ):
        wanted[int(sample.device)] += crowded[int(sample.device)] * size
    more = computing(graph, mapping, memories, crowded) - computing(graph, mapping, memories, [0.0] * DEVICES)
    assert more == pytest.approx(wanted, rel=1e-6, abs=1e-15)


def test_the_smaller_of_two_parts_is_read_beside_as_much_of_the_other(tmp_path: Path) -> None:
    """A quarter and three: each takes longer by a quarter; with a third device of the memory each by what it has, too.
    What a device has in two parts it reads one after the other, and one of another memory disturbs nobody."""
    graph = graph_of(tmp_path, six_layers(classes=8))
    fc = graph.by_name["l5"]
    quarter = graph.weight_bytes(fc) / 4

    def more(*ends: tuple[int, int]) -> list[float]:
        edges = [0, *(end for end, _ in ends)]
        rows = [Shard(fc.index, a, b, d, CHANNELS) for a, (b, d) in zip(edges, ends, strict=False)]
        whole = [s for s in Mapping.whole(graph, [0] * len(graph.layers)).shards if s.layer != fc.index]
        mapping = Mapping.of([*whole, *rows])
        without = computing(graph, mapping, [0, 0, 0, 1], [0.0] * 4)
        found = computing(graph, mapping, [0, 0, 0, 1], [1.0] * 4) - without
        return [round(float(each), 6) for each in found / quarter]

    assert more((2, 0), (8, 1)) == [1, 1, 0, 0]
    assert more((2, 0), (4, 1), (8, 2)) == [2, 2, 2, 0]
    assert more((2, 0), (8, 3)) == [0, 0, 0, 0]
    assert more((2, 0), (4, 0), (8, 1)) == [2, 2, 0, 0]
    assert more((8, 0)) == [0, 0, 0, 0]


def test_hosts_of_one_address_are_one_machine_and_a_gpu_may_have_a_memory_of_its_own() -> None:
    gpu = "gpu=any (CUDA)"
    lines = [f"a, slots=0, {gpu}", f"b, slots=0, {gpu}, gpu_memory=1GB", "c, address=b, slots=1", "b, slots=1"]
    cluster = Platform.parse("\n".join(lines), "p.txt")
    wanted = {"a_cpu0": 0, "a_gpu": 0, "b_cpu0": 1, "b_gpu": 3, "c_cpu1": 1, "b_cpu1": 1}
    assert cluster.memories == wanted
    assert cluster.without(("a",)).memories == {k: v - 1 for k, v in wanted.items() if v}
