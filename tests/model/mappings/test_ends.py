"""Where frames come in and results go out: next to their layers, or on devices that the mapping names."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from dse.chromosomes import chromosome
from model.cost.priced import priced
from model.mappings.arrays import arrays
from model.mappings.gather import gathered
from model.mappings.lowering import shards_of
from model.mappings.mapping import NEIGHBOUR, Mapping
from model.mappings.planning import plan
from model.network.graph import Graph
from runtime.errors import CleaveError
from runtime.plan import Send
from tests.tiny_cnn import assert_cut_exactly, graph_of, platform, random_mapping, six_layers

CLUSTER = platform(4)
NAMES = [device.name for device in CLUSTER.devices]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return graph_of(tmp_path, six_layers())


def on_first(graph: Graph, reader: int, writer: int) -> Mapping:
    """All layers on the first device."""
    return Mapping.of(Mapping.whole(graph, [0] * len(graph.layers)).shards, reader, writer)


def test_reader_and_writer_are_ranks_although_they_compute_nothing(graph: Graph) -> None:
    mapping = on_first(graph, 2, 3)
    assert mapping.check(graph, CLUSTER) == []
    ranks = plan(graph, CLUSTER, mapping).plan.ranks
    assert [(r.device, r.inputs, r.outputs, len(r.runs)) for r in ranks] == [
        (NAMES[0], (), (), 1),
        (NAMES[2], ("x",), (), 0),
        (NAMES[3], (), ("y",), 0),
    ]
    assert [[s.dest for s in r.steps if isinstance(s, Send)] for r in ranks] == [[2], [0], []]


def test_the_way_to_and_from_them_is_priced(graph: Graph) -> None:
    here, there = (priced(graph, CLUSTER, on_first(graph, *ends)) for ends in ((0, 0), (2, 3)))
    g = here.g
    moved = g.tensor_bytes[0] + g.tensor_bytes[-1]
    rate, delay = CLUSTER.bandwidth()[0, 2], CLUSTER.latency()[0, 2]
    assert there.latency_s == pytest.approx(here.latency_s + moved / rate + 2 * delay)
    assert [row["device"] for row in there.devices(CLUSTER)] == [NAMES[0], NAMES[2], NAMES[3]]


@pytest.mark.parametrize("seed", range(6))
def test_answers_are_the_same_wherever_the_ends_are(graph: Graph, seed: int) -> None:
    draw = random.Random(seed)
    shards = random_mapping(draw, graph, 4).shards
    mapping = Mapping.of(shards, draw.randrange(4), draw.choice([NEIGHBOUR, 0, 1]))
    assert_cut_exactly(graph, mapping, 4)
    assert_cut_exactly(*gathered(graph, mapping), 4)


def test_text_and_back(graph: Graph) -> None:
    mapping = on_first(graph, 2, NEIGHBOUR)
    text = mapping.to_json(graph, CLUSTER)
    assert json.loads(text)["reader"] == NAMES[2]
    assert "writer" not in json.loads(text)
    assert Mapping.from_json(text, graph, CLUSTER) == mapping


def test_a_reader_that_is_no_device_is_refused(graph: Graph) -> None:
    body = json.loads(on_first(graph, 2, 3).to_json(graph, CLUSTER)) | {"reader": "camera"}
    with pytest.raises(CleaveError, match="reader: device 'camera' is not on the platform"):
        Mapping.from_json(json.dumps(body), graph, CLUSTER)
    assert on_first(graph, 9, NEIGHBOUR).check(graph, CLUSTER) == [
        f"device 9 is not on the platform (it has {', '.join(NAMES)})"
    ]


@pytest.mark.parametrize("kind", ["naive", "vertical", "hybrid"])
def test_chromosomes_keep_the_ends_that_they_are_told(graph: Graph, kind: str) -> None:
    g = arrays(graph)
    code = chromosome(kind, graph, g, 4, reader=3, writer=1)
    mapping = code.decode(code.chain([0, 2], g.size[:, 1].astype(float)))
    assert (mapping.reader, mapping.writer) == (3, 1)
    assert shards_of(g, mapping).device[[0, -1]].tolist() == [3, 1]
