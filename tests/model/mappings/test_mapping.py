"""What a mapping may say, and the sentences about what it may not."""

from __future__ import annotations

import json
import random
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen import zoo
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping, Shard, extent
from model.network.graph import Graph
from model.network.load import load
from runtime.errors import CleaveError
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

CLUSTER = platform(3)


@pytest.fixture(scope="module")
def cnn(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Figure 8a: l1 Conv and l5 FC of 10 channels, the rest around them."""
    return graph_of(tmp_path_factory.mktemp("six"), six_layers())


@pytest.fixture(scope="module")
def bushy(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(tmp_path_factory.mktemp("branches"), branches())


def with_first(cnn: Graph, *shards: Shard) -> list[str]:
    """What is wrong with a mapping whose first layer has these shards, the others being whole on device 0."""
    rest = [s for s in Mapping.whole(cnn, [0] * len(cnn.layers)).shards if s.layer > 0]
    return Mapping.of([*shards, *rest]).check(cnn, CLUSTER)


def test_a_whole_mapping_checks(cnn: Graph) -> None:
    mapping = Mapping.whole(cnn, [0, 1, 2, 2, 0, 0])
    assert mapping.check(cnn, CLUSTER) == []
    assert mapping.devices == (0, 1, 2)
    assert [(s.start, s.stop) for s in mapping.shards] == [(0, 10), (0, 10), (0, 10), (0, 90), (0, 10), (0, 10)]
    assert [len(row) for row in mapping.by_layer(6)] == [1] * 6


def test_shards_are_kept_in_order() -> None:
    shards = [Shard(1, 4, 8, 0), Shard(0, 0, 3, 2), Shard(1, 0, 4, 1)]
    assert Mapping.of(shards).shards == (shards[1], shards[2], shards[0])


@pytest.mark.parametrize(
    ("shards", "sentence"),
    [
        ([], "layer 'l1': is on no device"),
        ([(0, 4), (6, 10)], "layer 'l1': channels 4..6 are on no device"),
        ([(2, 10)], "layer 'l1': channels 0..2 are on no device"),
        ([(0, 8)], "layer 'l1': channels 8..10 are on no device"),
        ([(0, 6), (4, 10)], "layer 'l1': channels 4..6 are in two parts"),
        ([(0, 11)], "layer 'l1': box 0..11 is not inside 0..10"),
        ([(0, 5), (5, 5), (5, 10)], "layer 'l1': box 5..5 is not inside 0..10"),
        ([(-1, 10)], "layer 'l1': box -1..10 is not inside 0..10"),
        ([(7, 3), (0, 10)], "layer 'l1': box 7..3 is not inside 0..10"),
    ],
)
def test_channels_are_covered_once(cnn: Graph, shards: list[tuple[int, int]], sentence: str) -> None:
    assert with_first(cnn, *[Shard(0, a, b, i) for i, (a, b) in enumerate(shards)]) == [sentence]


def test_rows_may_be_on_several_devices(cnn: Graph) -> None:
    assert with_first(cnn, Shard(0, 0, 4, 0, 2), Shard(0, 2, 6, 1, 2)) == []


@pytest.mark.parametrize(
    ("shards", "sentences"),
    [
        ([(0, 4, 0), (0, 6, 1)], ["of rows 0..4 and 0..6 one holds the other"]),
        ([(0, 6, 0), (2, 6, 1)], ["of rows 0..6 and 2..6 one holds the other"]),
        ([(0, 4, 0), (2, 6, 0)], ["rows 2..4 are on one device twice"]),
        ([(0, 4, 0), (2, 5, 1), (3, 6, 0)], ["rows 3..4 are on one device twice"]),
        ([(0, 2, 0), (3, 6, 1)], ["rows 2..3 are on no device"]),
    ],
)
def test_rows_that_are_on_several_devices_follow_one_another(
    cnn: Graph, shards: list[tuple[int, int, int]], sentences: list[str]
) -> None:
    found = with_first(cnn, *[Shard(0, *shard, 2) for shard in shards])
    assert found == [f"layer 'l1': {sentence}" for sentence in sentences]


def test_what_is_not_there_is_named(cnn: Graph) -> None:
    assert with_first(cnn, Shard(0, 0, 10, 3)) == ["device 3 is not on the platform (it has h0_cpu0, h1_cpu0, h2_cpu0)"]
    assert with_first(cnn, Shard(0, 0, 10, -1)) == [
        "device -1 is not on the platform (it has h0_cpu0, h1_cpu0, h2_cpu0)"
    ]
    assert with_first(cnn, Shard(0, 0, 10, 0), Shard(6, 0, 10, 0), Shard(-1, 0, 10, 0)) == [
        "layer -1 does not exist ('tiny' has 6)",
        "layer 6 does not exist ('tiny' has 6)",
    ]


def test_everything_wrong_is_said_at_once(cnn: Graph) -> None:
    problems = Mapping.of([Shard(0, 0, 9, 0), Shard(4, 5, 10, 1), Shard(5, 0, 5, 0), Shard(5, 5, 10, 0)]).check(
        cnn, CLUSTER
    )
    assert problems == [
        "layer 'l1': channels 9..10 are on no device",
        "layer 'l2': is on no device",
        "layer 'l3': is on no device",
        "layer 'l4': is on no device",
        "layer 'l5': channels 0..5 are on no device",
        "layer 'l6': operator Softmax cannot be split by channels here; keep it whole",
    ]


@pytest.mark.parametrize("axis", [4, 7, -1])
def test_an_axis_that_does_not_exist_is_named_even_for_a_whole_layer(cnn: Graph, axis: int) -> None:
    sentence = f"layer 'l1': there is no axis {axis} to split (0 samples, 1 channels, 2 rows, 3 input channels)"
    assert with_first(cnn, Shard(0, 0, 1, 0, axis)) == [sentence]


@pytest.mark.parametrize(("axis", "stop"), [(0, 1), (1, 10), (2, 6), (3, 3)])
def test_a_whole_layer_may_be_said_along_any_axis(cnn: Graph, axis: int, stop: int) -> None:
    assert with_first(cnn, Shard(0, 0, stop, 0, axis)) == []


def test_a_layer_is_split_along_one_axis(cnn: Graph) -> None:
    assert with_first(cnn, Shard(0, 0, 5, 0, 1), Shard(0, 5, 10, 1, 2)) == [
        "layer 'l1': is split along several axes (1, 2); choose one"
    ]


def test_extents_are_those_of_the_largest_output(tmp_path: Path) -> None:
    nodes = [node("Split", ["x", "sizes"], ["a", "b", "c"], "split", axis=1), node("Relu", ["b"], ["y"], "relu")]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 9, 4)}, ["y", "a", "c"], {"sizes": np.array([2, 6, 1])}))
    assert [extent(graph, layer) for layer in graph.layers] == [6, 6]
    assert [extent(graph, graph.layers[1], axis) for axis in (0, 2, 3)] == [1, 4, 1]


@given(draw=st.randoms(use_true_random=False))
@examples(15)
def test_outputs_of_several_sizes_arrive_whole(draw: random.Random, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The pieces of a Split are not cut to the size of its first output."""
    sizes = draw.choice([[1, 3, 5], [5, 3, 1], [3, 3, 3]])
    nodes = [node("Abs", ["x"], ["h"]), node("Split", ["h", "sizes"], ["a", "b", "c"], axis=1)]
    nodes += [node("Relu", ["b"], ["r"]), node("Neg", ["c"], ["n"]), node("Concat", ["n", "a", "r"], ["y"], axis=1)]
    model = network(nodes, {"x": (1, 9, 4)}, ["y", "c"], {"sizes": np.array(sizes)})
    graph = graph_of(tmp_path_factory.mktemp("split"), model)
    assert_cut_exactly(graph, random_mapping(draw, graph, 4), 4)


# --- JSON ---


@given(draw=st.randoms(use_true_random=False))
@examples(30)
def test_text_and_back_is_the_same_mapping(bushy: Graph, draw: random.Random) -> None:
    mapping = random_mapping(draw, bushy, 3)
    text = mapping.to_json(bushy, CLUSTER)
    assert Mapping.from_json(text, bushy, CLUSTER) == mapping
    assert Mapping.from_json(text, bushy, CLUSTER).to_json(bushy, CLUSTER) == text


def test_text_names_layers_and_devices(cnn: Graph) -> None:
    halves = [Shard(0, 0, 4, 2), Shard(0, 4, 10, 0)]
    rest = [s for s in Mapping.whole(cnn, [0, 0, 1, 1, 1, 1]).shards if s.layer > 0]
    body = json.loads(Mapping.of([*halves, *rest]).to_json(cnn, CLUSTER))
    assert body == {
        "format": "cleave-mapping",
        "version": 1,
        "cnn": "tiny",
        "platform": "tiny",
        "layers": {
            "l1": [
                {"device": "h2_cpu0", "axis": 1, "start": 0, "stop": 4},
                {"device": "h0_cpu0", "axis": 1, "start": 4, "stop": 10},
            ],
            "l2": "h0_cpu0",
            **dict.fromkeys(("l3", "l4", "l5", "l6"), "h1_cpu0"),
        },
    }


def test_the_mapping_in_the_documentation_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "mapping.md").read_text(encoding="utf-8")
    text = textwrap.dedent(re.search(r"(?ms)^    \{\n.*?^    \}\n", page)[0])  # type: ignore[index]
    nodes = [
        node("Conv", ["x", "w"], ["c"], "conv1"),
        node("Relu", ["c"], ["r"], "relu1"),
        node("Gemm", ["x2", "v"], ["y"], "fc"),
    ]
    nodes.insert(2, node("Flatten", ["r"], ["x2"], "flat"))
    model = network(nodes, {"x": (1, 3, 2, 2)}, ["y"], {"w": weight(64, 3, 1, 1), "v": weight(256, 10)})
    cluster = Platform.parse("pi0, slots=0-3\npi1, slots=0-3\n", "pis.txt")
    graph = graph_of(tmp_path, model)
    found = Mapping.from_json(text, graph, cluster)
    assert [(s.layer, s.start, s.stop, s.device) for s in found.shards][:2] == [(0, 0, 48, 0), (0, 48, 64, 1)]
    assert found.reader == 0


def refused(cnn: Graph, **layers: Any) -> list[str]:
    """The sentences about a file with these layers, the others whole on the first device."""
    body = json.loads(Mapping.whole(cnn, [0] * 6).to_json(cnn, CLUSTER))
    body["layers"].update(layers)
    with pytest.raises(CleaveError) as error:
        Mapping.from_json(json.dumps(body), cnn, CLUSTER, "my.json")
    lines = str(error.value).splitlines()
    assert all(line.startswith("my.json: ") for line in lines)
    return [line.removeprefix("my.json: ") for line in lines]


def part(device: str = "h0_cpu0", axis: Any = 1, start: Any = 0, stop: Any = 10) -> dict[str, Any]:
    return {"device": device, "axis": axis, "start": start, "stop": stop}


SHAPELESS = "layer 'l1': a part needs device, axis, start and stop, and nothing else"


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("pi9", "layer 'l1': device 'pi9' is not on the platform (it has h0_cpu0, h1_cpu0, h2_cpu0)"),
        ([part("pi9")], "layer 'l1': device 'pi9' is not on the platform (it has h0_cpu0, h1_cpu0, h2_cpu0)"),
        ([], "layer 'l1': is on no device"),
        ([part(stop=9)], "layer 'l1': channels 9..10 are on no device"),
        ([part(stop="10")], "layer 'l1': axis, start and stop must be whole numbers"),
        ([part(stop=10.0)], "layer 'l1': axis, start and stop must be whole numbers"),
        ([part(axis=True)], "layer 'l1': axis, start and stop must be whole numbers"),
        ([{"device": "h0_cpu0"}], SHAPELESS),
        (["h0_cpu0"], SHAPELESS),
        ([part() | {"size": 10}], SHAPELESS),
        ([part(device=["h0"])], "layer 'l1': device ['h0'] is not on the platform (it has h0_cpu0, h1_cpu0, h2_cpu0)"),
        (7, SHAPELESS),
        (None, SHAPELESS),
        (part(), SHAPELESS),
    ],
)
def test_a_wrong_row_is_refused(cnn: Graph, row: Any, sentence: str) -> None:
    assert refused(cnn, l1=row) == [sentence]


def test_a_key_that_nobody_reads_is_refused(cnn: Graph) -> None:
    body = json.loads(Mapping.whole(cnn, [0] * 6).to_json(cnn, CLUSTER)) | {"writter": "h1_cpu0"}
    with pytest.raises(CleaveError) as error:
        Mapping.from_json(json.dumps(body), cnn, CLUSTER, "my.json")
    known = "format, version, cnn, platform, reader, writer, layers"
    assert str(error.value) == f"my.json: 'writter' is not known here ({known})"


def test_all_wrong_rows_are_named_together(cnn: Graph) -> None:
    assert refused(cnn, conv9="h0_cpu0", l2="pi9") == [
        "layer 'l2': device 'pi9' is not on the platform (it has h0_cpu0, h1_cpu0, h2_cpu0)",
        "layer 'conv9' is not in 'tiny'",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is no JSON"),
        ("[]", "is no cleave-mapping of version 1"),
        ("{}", "is no cleave-mapping of version 1"),
        ('{"format": "cleave-mapping", "version": 2, "layers": {}}', "is no cleave-mapping of version 1"),
        ('{"format": "cleave-mapping", "version": 1}', "'layers' must be an object of layer names"),
        ('{"format": "cleave-mapping", "version": 1, "layers": []}', "'layers' must be an object of layer names"),
        ('{"format": "cleave-mapping", "version": 1, "layers": {}}', "layer 'l1': is on no device"),
    ],
)
def test_a_file_of_something_else_is_no_mapping(cnn: Graph, text: str, sentence: str) -> None:
    with pytest.raises(CleaveError) as error:
        Mapping.from_json(text, cnn, CLUSTER, "my.json")
    assert str(error.value).startswith(f"my.json: {sentence}")


def test_a_mapping_of_a_network_with_other_layers_is_said_to_be_one() -> None:
    whole, folded = (load(zoo.cached("densenet121"), folded=fold) for fold in (False, True))
    for of, other, sentence in (
        (folded, whole, r"are not in it: it is of another network, or of this one with --fold"),
        (whole, folded, r"are not in '.*': it is of another network, or of this one without --fold"),
    ):
        text = Mapping.whole(of, [0] * len(of.layers)).to_json(of, CLUSTER)
        with pytest.raises(CleaveError, match=sentence) as raised:
            Mapping.from_json(text, other, CLUSTER, "m.json")
        assert len(raised.value.sentences) == 1
