"""Windows over rows: every way of padding, striding and dilating, cut by rows, equals the whole layer or is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from onnx import ModelProto

from model.mappings.mapping import Mapping, Shard
from model.mappings.planning import plan
from model.network import boxes, windows
from model.network.boxes import CHANNELS, PARTIAL, ROWS, Need
from model.network.graph import Graph, Layer
from runtime.plan import Send
from tests.cuts import DEVICES, Draw, assert_every_cut_is_exact, chain, randoms
from tests.tiny_cnn import NEWEST, assert_cut_exactly, examples, graph_of, network, node, platform, run_whole, weight

HOW = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def one(folder: Path, op: str, *constants: np.ndarray, shape: tuple[int, ...] = (1, 2, 8, 8), **how: object) -> Graph:
    """A graph of one layer."""
    weights = {f"k{i}": value for i, value in enumerate(constants)}
    return graph_of(folder, network([node(op, ["x", *weights], ["y"], **how)], {"x": shape}, ["y"], weights, NEWEST))


def rows_rule(graph: Graph) -> boxes.Rule | None:
    return boxes.rule(graph, graph.layers[0], ROWS)


def padded(draw: Draw, rank: int, kernel: list[int], dilations: list[int]) -> dict:
    """Attributes that say how the layer is padded: asymmetric, up to more than the kernel, or ``auto_pad``."""
    how = draw.choice(HOW)
    if how != "NOTSET":
        return {"auto_pad": how}
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    return {"pads": [draw.randint(0, w + 1) for w in 2 * reach], "dilations": dilations}


def runs_whole(model: ModelProto) -> bool:
    """Whether ONNX Runtime accepts the attributes at all."""
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    try:
        found = run_whole(model, {"x": np.ones(shape, np.float32)})
    except Exception:  # ONNX Runtime's errors have no common class
        return False
    return all(value.size and np.isfinite(value).all() for value in found.values())


@pytest.mark.parametrize("rank", [1, 2, 3])
@given(draw=randoms)
@examples(15)
def test_a_convolution_however_it_is_padded(rank: int, draw: Draw) -> None:
    """Windows that overlap, that touch, and that leave rows out between them (stride over kernel)."""
    groups = draw.choice([1, 1, 2, 3])
    kernel = [draw.randint(1, 3) for _ in range(rank)]
    attributes = padded(draw, rank, kernel, [draw.randint(1, 2) for _ in range(rank)])
    attributes |= {"group": groups, "strides": [draw.randint(1, 4) for _ in range(rank)]}
    if draw.random() < 0.5:
        attributes["kernel_shape"] = kernel
    shape = (draw.randint(1, 2), 2 * groups, *[draw.randint(4, 9) for _ in range(rank)])
    middle = node("Conv", ["h", "w"], ["m"], **attributes)
    model = chain(middle, shape, {"w": weight(groups * draw.randint(1, 2), 2, *kernel)}, draw.choice([7, 11, NEWEST]))
    assume(runs_whole(model))
    channels = model.graph.initializer[0].dims[0]
    assert ("c" in assert_every_cut_is_exact(model, draw)) == (channels > 1)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("rank", [1, 2, 3])
@given(draw=randoms)
@examples(8)
def test_a_pooling_however_it_is_padded(op: str, rank: int, draw: Draw) -> None:
    kernel = [draw.randint(1, 3) for _ in range(rank)]
    attributes = padded(draw, rank, kernel, [draw.randint(1, 2) for _ in range(rank)])
    attributes |= {"kernel_shape": kernel, "strides": [draw.randint(1, 3) for _ in range(rank)]}
    if "pads" in attributes:
        attributes["pads"] = [min(p, k - 1) for p, k in zip(attributes["pads"], 2 * kernel, strict=True)]
        attributes["ceil_mode"] = draw.randint(0, 1)
    if op == "AveragePool":
        attributes["count_include_pad"] = draw.randint(0, 1)
    shape = (draw.randint(1, 2), 3, *[draw.randint(4, 9) for _ in range(rank)])
    model = chain(node(op, ["h"], ["m"], **attributes), shape, opset=NEWEST)
    assume(runs_whole(model))
    assert "c" in assert_every_cut_is_exact(model, draw)


@pytest.mark.parametrize(("pads", "allowed"), [((2, 2), True), ((3, 0), False), ((0, 3), False), ((0, 4), False)])
def test_rows_are_refused_where_a_window_lies_in_the_padding_alone(
    pads: tuple[int, int], allowed: bool, tmp_path: Path
) -> None:
    graph = one(tmp_path, "Conv", weight(4, 2, 3, 3), pads=[pads[0], 1, pads[1], 1])
    assert (rows_rule(graph) is not None) == allowed
    assert boxes.rule(graph, graph.layers[0], CHANNELS) is not None


def test_a_stride_that_skips_the_last_padding_leaves_rows_to_cut(tmp_path: Path) -> None:
    """Padding of three below, but the last window ends before it: 8 rows, windows at 0, 4 and, of one row, 8."""
    graph = one(tmp_path, "Conv", weight(4, 2, 3, 3), pads=[0, 0, 2, 0], strides=[4, 1])
    assert rows_rule(graph) == boxes.Rule((Need(ROWS, mul=4, lo=0, hi=-1), boxes.WHOLE), 2)
    assert_cut_exactly(graph, Mapping.of([Shard(0, 0, 1, 0, ROWS), Shard(0, 1, 2, 1, ROWS)]), DEVICES)


@pytest.mark.parametrize("how", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("stride", "allowed"), [(2, True), (3, True), (4, False)])
def test_rows_are_refused_where_runtimes_disagree_on_padding(
    how: str, stride: int, allowed: bool, tmp_path: Path
) -> None:
    """A stride of 4 over 8 rows with a window of 1 ends 3 rows early, as if the input began at the second row."""
    graph = one(tmp_path, "Conv", weight(4, 2, 1, 1), auto_pad=how, strides=[stride, stride])
    assert (rows_rule(graph) is not None) == allowed


def test_averages_that_count_padding_and_round_up_keep_their_rows(tmp_path: Path) -> None:
    graph = one(tmp_path, "AveragePool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, count_include_pad=1)
    assert rows_rule(graph) is None
    assert boxes.rule(graph, graph.layers[0], CHANNELS) is not None


def test_a_dilated_pooling_that_rounds_up_keeps_its_rows_where_its_pads_would_reach_its_kernel(tmp_path: Path) -> None:
    how = {"kernel_shape": [2, 2], "strides": [4, 1], "dilations": [3, 1], "ceil_mode": 1}
    assert rows_rule(one(tmp_path, "MaxPool", shape=(1, 2, 6, 4), **how)) is None
    assert rows_rule(one(tmp_path, "MaxPool", shape=(1, 2, 7, 4), **how)) is not None


@pytest.mark.parametrize(
    ("size", "stride", "window", "how", "begin"),
    [(7, 2, 3, "SAME_UPPER", 1), (8, 2, 3, "SAME_UPPER", 0), (8, 2, 3, "SAME_LOWER", 1), (8, 3, 2, "VALID", 0)],
)
def test_padding_that_is_left_to_the_runtime_is_worked_out(
    size: int, stride: int, window: int, how: str, begin: int, tmp_path: Path
) -> None:
    graph = one(tmp_path, "Conv", weight(4, 2, window, 1), shape=(1, 2, size, 1), strides=[stride, 1], auto_pad=how)
    assert windows.of_rows(graph, graph.layers[0]) == windows.Window(stride, window, begin, size)


def test_a_part_is_padded_where_the_input_ends_and_nowhere_else(tmp_path: Path) -> None:
    graph = one(tmp_path, "Conv", weight(4, 2, 3, 3), pads=[1, 2, 1, 0])
    parts = [windows.padding(graph, graph.layers[0], start, stop) for start, stop in ((0, 3), (3, 6), (6, 8), (0, 8))]
    assert parts == [[1, 2, 0, 0], [0, 2, 0, 0], [0, 2, 1, 0], [1, 2, 1, 0]]


def test_rows_that_no_window_reads_are_not_asked_for(tmp_path: Path) -> None:
    rule = rows_rule(one(tmp_path, "Conv", weight(4, 2, 1, 1), strides=[3, 1]))
    assert rule is not None
    assert [rule.needs[0].interval(start, start + 1, 8) for start in range(3)] == [(0, 1), (3, 4), (6, 7)]


def test_a_shard_of_rows_that_no_window_reads_is_harmless(tmp_path: Path) -> None:
    nodes = [node("Abs", ["x"], ["h"]), node("Conv", ["h", "w"], ["y"], strides=[2, 1])]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 2, 4, 4)}, ["y"], {"w": weight(3, 2, 1, 1)}))
    shards = [Shard(0, 0, 3, 0, ROWS), Shard(0, 3, 4, 1, ROWS), Shard(1, 0, 1, 0, ROWS), Shard(1, 1, 2, 2, ROWS)]
    mapping = Mapping.of(shards)
    assert_cut_exactly(graph, mapping, DEVICES)


def messages(graph: Graph, mapping: Mapping) -> list[str]:
    """Names of the buffers that are sent."""
    assert mapping.check(graph, platform(DEVICES)) == []
    found = plan(graph, platform(DEVICES), mapping).plan
    return [step.buffer for rank in found.ranks for step in rank.steps if isinstance(step, Send)]


def halves(layer: Layer, size: int, kind: int) -> list[Shard]:
    """A layer cut in the middle."""
    return [Shard(layer.index, 0, size // 2, 0, kind), Shard(layer.index, size // 2, size, 1, kind)]


def inverted_residual() -> ModelProto:
    """As MobileNet V2 has it: widen, depthwise, narrow, add."""
    nodes = [
        node("Conv", ["x", "w1"], ["wide"]),
        node("Clip", ["wide", "low", "high"], ["a"]),
        node("Conv", ["a", "w2"], ["deep"], group=12, pads=[1, 1, 1, 1]),
        node("Clip", ["deep", "low", "high"], ["b"]),
        node("Conv", ["b", "w3"], ["narrow"]),
        node("Add", ["narrow", "x"], ["y"]),
    ]
    bounds = {"low": np.array(0, np.float32), "high": np.array(6, np.float32)}
    weights = {"w1": weight(12, 4, 1, 1), "w2": weight(12, 1, 3, 3), "w3": weight(4, 12, 1, 1)}
    return network(nodes, {"x": (1, 4, 8, 8)}, ["y"], {**weights, **bounds})


def test_an_inverted_residual_stays_split_by_channels_until_its_sum(tmp_path: Path) -> None:
    """Channels stay where they are through ReLU6 and the depthwise convolution; the last one sums what it has."""
    graph = graph_of(tmp_path, inverted_residual())
    shards = [s for layer in graph.layers[:4] for s in halves(layer, 12, CHANNELS)]
    mapping = Mapping.of([*shards, *halves(graph.layers[4], 12, PARTIAL), Shard(5, 0, 4, 0)])
    assert messages(graph, mapping) == ["x", "narrow{+6:12}"]
    assert_cut_exactly(graph, mapping, DEVICES)


def test_an_inverted_residual_by_rows_sends_one_row_each_way(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, inverted_residual())
    mapping = Mapping.of([s for layer in graph.layers for s in halves(layer, 8, ROWS)])
    assert messages(graph, mapping) == ["x", "a[:,:,0:4]", "a[:,:,4:8]", "y[:,:,4:8]"]
    assert_cut_exactly(graph, mapping, DEVICES)


@pytest.mark.parametrize("kind", [CHANNELS, ROWS])
def test_convolution_relu_pooling_and_depthwise_send_nothing_where_their_cuts_align(kind: int, tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "w1"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "w2"], ["y"], group=6, strides=[2, 2]),
    ]
    weights = {"w1": weight(6, 3, 1, 1), "w2": weight(6, 1, 2, 2)}
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 3, 8, 8)}, ["y"], weights))
    shapes = [graph.tensors[layer.outputs[0]].shape for layer in graph.layers]
    shards = [s for layer, shape in zip(graph.layers, shapes, strict=True) for s in halves(layer, shape[kind], kind)]
    part = "y[:,3:6]" if kind == CHANNELS else "y[:,:,1:2]"
    assert messages(graph, Mapping.of(shards)) == ["x", part]
    assert_cut_exactly(graph, Mapping.of(shards), DEVICES)


@given(draw=randoms)
@examples(8)
def test_partial_sums_of_convolutions_have_their_bias_once(draw: Draw) -> None:
    channels = draw.randint(2, 7)
    middle = node("Conv", ["h", "w", "b"], ["m"], auto_pad=draw.choice(HOW))
    model = chain(middle, (1, channels, 5, 5), {"w": weight(4, channels, 3, 3), "b": 10 * weight(4)})
    assert "p" in assert_every_cut_is_exact(model, draw)
