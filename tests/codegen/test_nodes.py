"""Attributes and constant inputs that are other ones for a part of a layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from codegen import nodes
from model.mappings.mapping import Mapping, Shard
from model.network import boxes
from model.network.boxes import CHANNELS, ROWS, SAMPLES
from model.network.graph import Graph
from runtime.plan import Part
from tests.tiny_cnn import assert_cut_exactly, graph_of, network, node, weight

SHAPE = (2, 6, 8, 4)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def one(folder: Path, op: str, *constants: np.ndarray, opset: int = 17, **how: object) -> Graph:
    weights = {f"k{i}": value for i, value in enumerate(constants)}
    layer = node(op, ["x", *weights], ["y"], "layer", **how)
    return graph_of(folder, network([layer], {"x": SHAPE}, ["y"], weights, opset))


def adapted(graph: Graph, kind: int, start: int, stop: int) -> dict[str, object]:
    """Attributes of a part."""
    layer = graph.layers[0]
    rule = boxes.rule(graph, layer, kind)
    assert rule is not None
    found = onnx.NodeProto()
    found.CopyFrom(layer.node)
    nodes.adapt(found, graph, layer, rule, Part("layer", kind, start, stop))
    return {a.name: onnx.helper.get_attribute_value(a) for a in found.attribute}


def constants(graph: Graph, kind: int, start: int, stop: int, shape: tuple[int, ...] = ()) -> dict[int, list[int]]:
    found = nodes.constants(graph, graph.layers[0], Part("layer", kind, start, stop), shape)
    return {at: value.tolist() for at, value in found.items()}


def test_a_part_of_a_grouped_convolution_has_its_groups(tmp_path: Path) -> None:
    graph = one(tmp_path, "Conv", weight(9, 2, 3, 3), group=3, dilations=[1, 1])
    assert adapted(graph, CHANNELS, 3, 9) == {"group": 2, "dilations": [1, 1]}
    assert adapted(graph, SAMPLES, 0, 1)["group"] == 3


@pytest.mark.parametrize("how", [{"auto_pad": "SAME_UPPER"}, {"pads": [1, 1, 1, 1]}])
def test_a_part_of_rows_has_its_own_pads_and_nothing_automatic(how: dict, tmp_path: Path) -> None:
    graph = one(tmp_path, "Conv", weight(4, 6, 3, 3), **how)
    assert [adapted(graph, ROWS, *part) for part in ((0, 3), (3, 6), (6, 8))] == [
        {"pads": [1, 1, 0, 1]},
        {"pads": [0, 1, 0, 1]},
        {"pads": [0, 1, 1, 1]},
    ]
    assert adapted(graph, CHANNELS, 0, 2) == {k: v.encode() if isinstance(v, str) else v for k, v in how.items()}


def test_a_part_of_a_pooling_does_not_round_up_any_more(tmp_path: Path) -> None:
    graph = one(tmp_path, "MaxPool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    assert adapted(graph, ROWS, 2, 4) == {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]}


def test_a_part_of_a_reshape_has_its_own_shape(tmp_path: Path) -> None:
    graph = one(tmp_path, "Reshape", ints(0, -1, 4))
    assert constants(graph, CHANNELS, 8, 16, (2, 8, 4)) == {1: [2, 8, 4]}


def test_a_part_of_a_slice_takes_all_that_it_is_given(tmp_path: Path) -> None:
    graph = one(tmp_path, "Slice", ints(1, 2), ints(5, 8), ints(-3, 2))
    assert constants(graph, CHANNELS, 0, 2) == {1: [0, 2], 2: [nodes.EVERYTHING, 8]}
    assert constants(graph, SAMPLES, 0, 1) == {1: [1, 2], 2: [5, 8]}
    old = one(tmp_path, "Slice", starts=[1, 2], ends=[5, 8], axes=[1, 2], opset=9)
    assert adapted(old, ROWS, 0, 2) == {"starts": [1, 0], "ends": [5, nodes.EVERYTHING], "axes": [1, 2]}
    assert constants(old, ROWS, 0, 2) == {}


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("kind", [CHANNELS, ROWS])
def test_bounds_of_a_slice_are_all_of_one_type(kind: int, dtype: str, tmp_path: Path) -> None:
    graph = one(tmp_path, "Slice", *(np.array(v, dtype) for v in ([1, 2], [5, 8], [1, 2], [1, 2])))
    size = graph.tensors["y"].shape[kind]
    assert_cut_exactly(graph, Mapping.of([Shard(0, 0, 1, 0, kind), Shard(0, 1, size, 1, kind)]), 2)


@pytest.mark.parametrize(
    ("start", "stop", "pads"), [(0, 5, (2, 0)), (0, 1, (1, 0)), (2, 6, (0, 0)), (9, 11, (0, 1)), (0, 11, (2, 1))]
)
def test_a_part_of_a_pad_pads_where_the_input_ends(
    start: int, stop: int, pads: tuple[int, int], tmp_path: Path
) -> None:
    begin, end = pads
    graph = one(tmp_path, "Pad", ints(0, 0, 2, 1, 0, 0, 1, 0))
    assert constants(graph, ROWS, start, stop) == {1: [0, 0, begin, 1, 0, 0, end, 0]}
    named = one(tmp_path, "Pad", ints(2, 1, 1, 0), np.array(0, np.float32), ints(-2, 3), opset=18)
    assert constants(named, ROWS, start, stop) == {1: [begin, 1, end, 0]}


def test_a_part_of_a_resize_has_its_own_sizes(tmp_path: Path) -> None:
    none = np.array([], np.float32)
    graph = one(tmp_path, "Resize", none, none, ints(2, 6, 16, 4))
    assert constants(graph, CHANNELS, 1, 3, (2, 2, 16, 4)) == {3: [2, 2, 16, 4]}
