"""AutoDiCE's mapping.json and horizontal.json: what is read, what is refused, and that writing loses nothing."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen import zoo
from model.cluster.platform import Platform
from model.mappings import autodice
from model.mappings.mapping import Mapping, Shard, extent
from model.network import boxes
from model.network.graph import Graph
from model.network.load import load
from runtime.errors import CleaveError
from tests.autodice_files import GOOD, HAS, LOP, PLATFORM, A, B, C, as_text, dropping, problems, read
from tests.tiny_cnn import branches, examples, graph_of, network, node, six_layers, weight


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Layers l1 Conv (10 channels), l2, l3, l4, l5 Gemm (10), l6; outputs conv, relu, pool, flat, fc, y."""
    return graph_of(tmp_path_factory.mktemp("six"), six_layers())


def wrong_entry(graph: Graph, entry: Any) -> tuple[str, ...]:
    """What is said about the entry of l1, without its place."""
    place = "horizontal.json: layer 'l1': "
    found = problems(graph, GOOD, {"l1": entry})
    assert all(sentence.startswith(place) for sentence in found), found
    return tuple(sentence.removeprefix(place) for sentence in found)


# What is read


def test_reads_and_writes_by_hand(six: Graph) -> None:
    mapping = read(six, GOOD, LOP)
    assert mapping.shards == (
        Shard(0, 0, 4, 0),
        Shard(0, 4, 10, 1),
        *(Shard(i, 0, n, d) for i, n, d in ((1, 10, 0), (2, 10, 0), (3, 90, 1), (4, 10, 1), (5, 10, 1))),
    )
    assert autodice.write(mapping, six, PLATFORM) == (
        '{\n "edge00_cpu01": ["l1", "l2", "l3"],\n "edge00_gpu": ["l1", "l4", "l5", "l6"]\n}\n',
        '{\n "l1": ["lop", [4, 10], ["edge00_cpu01", "edge00_gpu"]]\n}\n',
    )


def test_vertical_mapping_needs_no_horizontal_file(six: Graph) -> None:
    mapping = read(six, {A: ["l1", "l2", "l3"], C: ["l4", "l5", "l6"]})
    assert mapping == Mapping.whole(six, [0, 0, 0, 2, 2, 2])
    assert autodice.write(mapping, six, PLATFORM)[1] == "{}\n"


def test_the_devices_of_an_entry_say_who_gets_which_channels(six: Graph) -> None:
    mapping = read(six, GOOD, {"l1": ["lop", [4, 10], [B, A]]})
    assert mapping.shards[:2] == (Shard(0, 0, 4, 1), Shard(0, 4, 10, 0))


def test_a_device_without_layers_takes_no_part(six: Graph) -> None:
    assert read(six, {**GOOD, C: []}, LOP) == read(six, GOOD, LOP)


def test_65535_is_all_that_is_left(six: Graph) -> None:
    assert read(six, GOOD, {"l1": ["lop", [4, 65535], [A, B]]}) == read(six, GOOD, LOP)


def test_one_device_may_have_an_entry(six: Graph) -> None:
    whole = {A: ["l1", "l2", "l3", "l4", "l5", "l6"]}
    assert read(six, whole, {"l5": ["lop", [10], [A]]}) == Mapping.whole(six, [0] * 6)


def test_alexnet_by_outputs_with_a_grouped_convolution_and_dropouts() -> None:
    graph = load(zoo.cached("alexnet"))
    platform = Platform.parse("lenovo, slots=0\nlenovo, slots=1\n", "lenovo.txt")
    first = [f"r{i}" for i in range(23)]
    mapping = {"lenovo_cpu0": first, "lenovo_cpu1": ["r4", "r16", "r24", "prob_1"]}
    split = {
        "r4": ["lop", [128, 65535], ["lenovo_cpu0", "lenovo_cpu1"]],
        "r16": ["lop", [2000, 4096], ["lenovo_cpu1", "lenovo_cpu0"]],
    }
    found = read(graph, mapping, split, platform)
    assert [s for s in found.shards if s.layer == 4] == [Shard(4, 0, 128, 0), Shard(4, 128, 256, 1)]
    assert [s for s in found.shards if s.layer == 16] == [Shard(16, 0, 2000, 1), Shard(16, 2000, 4096, 0)]
    assert [s.device for s in found.shards if s.layer > 16] == [0, 0, 0, 1, 1]
    texts = autodice.write(found, graph, platform)
    assert [name for name in json.loads(texts[0])["lenovo_cpu0"] if name in ("n18", "n21")] == ["n18"]
    assert json.loads(texts[0])["lenovo_cpu1"] == ["n4", "n16", "n21", "n22", "n23"]
    assert autodice.read(*texts, graph, platform) == found


# Faults of AutoDiCE that concern these files


def test_split_points_that_do_not_cover_all_channels(six: Graph) -> None:
    """AutoDiCE computes something wrong, and says nothing."""
    assert wrong_entry(six, ["lop", [4, 8], [A, B]]) == ("split points end at 8, but the layer has 10 channels",)
    assert wrong_entry(six, ["lop", [4, 12], [A, B]]) == ("split points end at 12, but the layer has 10 channels",)


def test_unknown_layers(six: Graph) -> None:
    """AutoDiCE prints and carries on."""
    assert problems(six, {**GOOD, C: ["l7", "convolution"]}, {**LOP, "l8": LOP["l1"]}) == (
        f"mapping.json: key '{C}': layer 'l7' is not in 'tiny'",
        f"mapping.json: key '{C}': layer 'convolution' is not in 'tiny'",
        "horizontal.json: layer 'l8' is not in 'tiny'",
    )


def test_duplicate_layers(six: Graph) -> None:
    """Under one key, by one name or by two; and under two keys without a split."""
    assert problems(six, {A: [*GOOD[A], "l2", "pool"], B: [*GOOD[B], "l2"]}, LOP) == (
        f"mapping.json: key '{A}': layer 'l2' is listed twice",
        f"mapping.json: key '{A}': layer 'pool' is listed twice",
        f"mapping.json: layer 'l2' is on several devices ({A}, {B}), and no horizontal.json splits it",
    )


def test_missing_layers(six: Graph) -> None:
    """AutoDiCE prints and carries on."""
    assert problems(six, {A: ["l1", "l2", "l3"], B: ["l1", "l6"]}, LOP) == (
        "mapping.json: layer 'l4' is on no device",
        "mapping.json: layer 'l5' is on no device",
    )


@pytest.mark.parametrize("kind", ["lip", "height", "width", "LOP", ""])
def test_other_kinds_of_splits_are_refused_by_name(six: Graph, kind: str) -> None:
    """AutoDiCE crashes on lip and height."""
    found = wrong_entry(six, [kind, [1, 3], [A, B]])
    assert found == (f"a split by '{kind}' is not supported, only by 'lop' (output channels)",)


def test_a_grouped_convolution_is_cut_between_groups_only(tmp_path: Path) -> None:
    """AutoDiCE computes something wrong, and says nothing."""
    graph = graph_of(tmp_path, branches())
    mapping = {A: [layer.name for layer in graph.layers], B: ["grouped"]}
    assert problems(graph, mapping, {"grouped": ["lop", [3, 8], [A, B]]}) == (
        "horizontal.json: layer 'grouped': the cut at 3 lies inside a group of 2 channels; cut at a multiple of it",
    )
    found = read(graph, mapping, {"grouped": ["lop", [2, 8], [A, B]]})
    assert [s for s in found.shards if s.layer == 3] == [Shard(3, 0, 2, 0), Shard(3, 2, 8, 1)]


def test_a_name_that_is_part_of_another(tmp_path: Path) -> None:
    """AutoDiCE renames r20 when it splits r2."""
    nodes = [node("Conv", ["x", "w"], ["r2"]), node("Conv", ["r2", "w"], ["r20"]), node("Relu", ["r20"], ["r200"])]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 4, 3, 3)}, ["r200"], {"w": weight(4, 4, 1, 1)}))
    found = read(graph, {A: ["r2", "r20", "r200"], B: ["r2"]}, {"r2": ["lop", [1, 4], [B, A]]})
    assert found.shards == (Shard(0, 0, 1, 1), Shard(0, 1, 4, 0), Shard(1, 0, 4, 0), Shard(2, 0, 4, 0))


# Everything else that can be wrong


RISE = "do not rise from 0; each is where a part ends"


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([10, 4], [f"split points 10, 4 {RISE}", "split points end at 4, but the layer has 10 channels"]),
        ([10, 10], [f"split points 10, 10 {RISE}"]),
        ([0, 10], [f"split points 0, 10 {RISE}"]),
        ([-4, 10], [f"split points -4, 10 {RISE}"]),
        ([10, 65535], [f"split points 10, 10 {RISE}"]),
        ([4, 65534], ["split points end at 65534, but the layer has 10 channels"]),
        ([10], ["has 1 split points for 2 devices"]),
        ([1, 2, 10], ["has 3 split points for 2 devices"]),
        ([], ["has 0 split points for 2 devices"]),
    ],
)
def test_split_points(six: Graph, points: list[int], said: list[str]) -> None:
    assert wrong_entry(six, ["lop", points, [A, B]]) == tuple(said)


def test_devices_of_an_entry(six: Graph) -> None:
    assert wrong_entry(six, ["lop", [4, 10], [A, C]]) == (
        f"is split over {A}, {C}, but mapping.json has it on {A}, {B}",
    )
    assert wrong_entry(six, ["lop", [2, 4, 10], [A, B, "edge00_cpu10"]]) == (f"device '{A}' has two parts",)
    assert wrong_entry(six, ["lop", [], []]) == ("has 0 split points for 0 devices",)


@pytest.mark.parametrize(
    "entry",
    [
        None, "lop", {}, [], ["lop"], ["lop", [4, 10]], ["lop", [4, 10], [A, B], 1], [1, [4, 10], [A, B]],
        ["lop", 4, [A, B]], ["lop", [4, 10], A], ["lop", ["4", 10], [A, B]], ["lop", [4.0, 10], [A, B]],
        ["lop", [True, 10], [A, B]], ["lop", [4, 10], [A, 1]], ["lop", {}, [A, B]], ["lop", [4, None], [A, B]],
    ],
)  # fmt: skip
def test_types_of_an_entry(six: Graph, entry: Any) -> None:
    assert wrong_entry(six, entry) == ('needs ["lop", [split points], [devices]]',)


@pytest.mark.parametrize("listed", [None, "l1", 1, {}, {"l1": 1}, [1], ["l1", None], [["l1"]]])
def test_types_of_a_list_of_layers(six: Graph, listed: Any) -> None:
    assert problems(six, {**GOOD, C: listed}, LOP) == (f"mapping.json: key '{C}': needs a list of layer names",)


def test_files_that_hold_no_object(six: Graph) -> None:
    assert problems(six, "[]", "1") == (
        "mapping.json: must be an object, {…}",
        "horizontal.json: must be an object, {…}",
    )
    assert problems(six, "{", "") == (
        "mapping.json: is no JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        "horizontal.json: is no JSON: Expecting value: line 1 column 1 (char 0)",
    )
    assert problems(six, "[" * 100_000)[0].startswith("mapping.json: is no JSON: ")


def test_a_key_that_stands_twice(six: Graph) -> None:
    mapping = f'{{"{A}": ["l1", "l2", "l3"], "{B}": ["l1", "l4"], "{B}": ["l5", "l6"]}}'
    horizontal = f'{{"l1": ["lop", [4, 10], ["{A}", "{B}"]], "conv": ["lop", [6, 10], ["{A}", "{B}"]]}}'
    assert problems(six, mapping, horizontal) == (
        f"mapping.json: key '{B}': device '{B}' has a key already",
        "horizontal.json: layer 'conv': has two entries",
    )


def test_a_layer_that_cannot_be_split(six: Graph) -> None:
    mapping = {A: ["l1", "l2", "l3", "l4", "l5", "l6"], B: ["l6"]}
    assert problems(six, mapping, {"l6": ["lop", [5, 10], [A, B]]}) == (
        "horizontal.json: layer 'l6': operator Softmax cannot be split by channels here; keep it whole",
    )


def test_everything_at_once_with_its_place(six: Graph) -> None:
    mapping = {A: ["l1", "l1", "l2", "nose"], "pi9_gpu": ["l3"], C: ["l2", "l6"], B: ["l6"]}
    horizontal = {"l6": ["lop", [5, 10], [B, C]], "l1": ["lip", [3], [A]], "l2": ["lop", [4, 4], [A, C]]}
    with pytest.raises(CleaveError) as caught:
        autodice.read(as_text(mapping), as_text(horizontal), six, PLATFORM, "in/m.json", "in/h.json")
    assert caught.value.sentences == (
        f"in/m.json: key '{A}': layer 'l1' is listed twice",
        f"in/m.json: key '{A}': layer 'nose' is not in 'tiny'",
        f"in/m.json: key 'pi9_gpu': device 'pi9_gpu' is not on the platform {HAS}",
        "in/h.json: layer 'l1': a split by 'lip' is not supported, only by 'lop' (output channels)",
        "in/h.json: layer 'l2': split points 4, 4 do not rise from 0; each is where a part ends",
        "in/h.json: layer 'l2': split points end at 4, but the layer has 10 channels",
        "in/m.json: layer 'l4' is on no device",
        "in/m.json: layer 'l5' is on no device",
        "in/h.json: layer 'l6': operator Softmax cannot be split by channels here; keep it whole",
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["lop", "l1", "l5", "fc", A, B, C, "x"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["l1", "conv", A, B, C, "x"]), inner),
    max_leaves=12,
)


@examples(200)
@given(mapping=JSON, horizontal=JSON)
def test_any_json_is_read_or_refused(six: Graph, mapping: Any, horizontal: Any) -> None:
    with pytest.raises(CleaveError):  # not even six layers fit into twelve leaves with their split
        read(six, mapping, horizontal)


# What is written


def splits(draw: random.Random, graph: Graph, devices: int) -> Mapping:
    """A random mapping that AutoDiCE's form can say: Conv and Gemm, each part on a device of its own."""
    shards = []
    for layer in graph.layers:
        size, rule = extent(graph, layer), boxes.rule(graph, layer)
        inner = range(rule.grain, size, rule.grain) if rule and layer.op in autodice.SPLIT else range(0)
        cuts = sorted(draw.sample(inner, min(draw.randrange(devices), len(inner))))
        chosen = draw.sample(range(devices), len(cuts) + 1)
        ends = zip([0, *cuts], [*cuts, size], chosen, strict=True)
        shards += [Shard(layer.index, start, stop, device) for start, stop, device in ends]
    return Mapping.of(shards)


@examples(60)
@given(
    draw=st.randoms(use_true_random=False),
    folded=st.booleans(),
    model=st.sampled_from([six_layers, branches, dropping]),
)
def test_round_trip(draw: random.Random, folded: bool, model: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        graph = graph_of(Path(folder), model(), folded=folded)
        mapping = splits(draw, graph, len(PLATFORM.devices))
        texts = autodice.write(mapping, graph, PLATFORM)
        assert autodice.read(*texts, graph, PLATFORM) == mapping
        assert autodice.read_mapping(*texts, graph, PLATFORM) == mapping


def test_what_cannot_be_said(six: Graph) -> None:
    whole = list(Mapping.whole(six, [0] * 6).shards)
    shards = [Shard(0, 0, 3, 1), Shard(0, 3, 6, 0), Shard(0, 6, 10, 1), Shard(1, 0, 5, 0), Shard(1, 5, 10, 1)]
    with pytest.raises(CleaveError) as caught:
        autodice.write(Mapping.of(shards + whole[2:]), six, PLATFORM)
    assert caught.value.sentences == (
        f"AutoDiCE's form cannot say this mapping: layer 'l1': has several parts on device '{B}'",
        "AutoDiCE's form cannot say this mapping: layer 'l2': is a Relu and split; AutoDiCE splits only Conv and Gemm",
    )


def test_another_axis_cannot_be_said(six: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autodice, "checked", lambda *_: None)
    rows = [Shard(0, 0, 3, 0, axis=2), Shard(0, 3, 6, 1, axis=2)]
    with pytest.raises(CleaveError) as caught:
        autodice.write(Mapping.of(rows + list(Mapping.whole(six, [0] * 6).shards[1:])), six, PLATFORM)
    assert caught.value.sentences == (
        "AutoDiCE's form cannot say this mapping: layer 'l1': is split along axis 2; 'lop' splits output channels",
    )


def test_a_wrong_mapping_is_not_written(six: Graph) -> None:
    with pytest.raises(CleaveError, match="mapping: layer 'l6': is on no device"):
        autodice.write(Mapping(Mapping.whole(six, [0] * 6).shards[:-1]), six, PLATFORM)


# Either form


def test_either_form_is_read(six: Graph) -> None:
    mapping = read(six, GOOD, LOP)
    ours = mapping.to_json(six, PLATFORM)
    assert autodice.read_mapping(ours, None, six, PLATFORM) == mapping
    assert autodice.read_mapping(as_text(GOOD), as_text(LOP), six, PLATFORM) == mapping
    with pytest.raises(CleaveError) as caught:
        autodice.read_mapping(ours, as_text(LOP), six, PLATFORM, "m.json", "h.json")
    assert caught.value.sentences == ("h.json: goes with a mapping in AutoDiCE's form; m.json says its splits itself",)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_neither_form_is_refused(six: Graph, text: str) -> None:
    with pytest.raises(CleaveError, match=r"^m\.json: "):
        autodice.read_mapping(text, None, six, PLATFORM, "m.json")
    for other in ('{"format": "other"}', '{"version": 1, "layers": {"l0": "a", "l1": "b"}}'):
        with pytest.raises(CleaveError, match=r"^m\.json: is no cleave-mapping of version 1$"):
            autodice.read_mapping(other, None, six, PLATFORM, "m.json")
