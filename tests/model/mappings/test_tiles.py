"""Fused tiles: stacks of layers that devices compute without a word to one another."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.mappings.mapping import Mapping, Shard, extent
from model.mappings.planning import plan
from model.mappings.tiles import fused
from model.network.boxes import ROWS
from model.network.graph import Graph
from runtime.errors import CleaveError
from runtime.plan import Send
from tests.cuts import DEVICES
from tests.tiny_cnn import assert_cut_exactly, examples, graph_of, network, node, platform, weight


def rest(graph: Graph, first: int, device: int = 0) -> list[Shard]:
    """All layers from ``first`` on, on one device."""
    return [Shard(layer.index, 0, extent(graph, layer), device) for layer in graph.layers[first:]]


def stack(draw: random.Random, folder: Path) -> Graph:
    """Convolutions, activations and pooling of random kernels, strides and pads, one of them with a shortcut."""
    nodes, weights, name = [], {}, "x"
    for i in range(draw.randint(2, 5)):
        kernel, stride = draw.randint(1, 3), draw.choice([1, 1, 2])
        windows = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [draw.randint(0, kernel // 2)] * 4}
        if draw.random() < 0.5:
            weights[f"w{i}"] = weight(2, 2, kernel, kernel, seed=i)
            nodes.append(node("Conv", [name, f"w{i}"], [f"t{i}"], **windows))
        else:
            nodes.append(node("MaxPool", [name], [f"t{i}"], **windows))
        nodes.append(node("Relu", [f"t{i}"], [f"r{i}"]))
        name = f"r{i}"
        if draw.random() < 0.3:
            nodes.append(node("Add", [f"t{i}", name], [f"a{i}"]))
            name = f"a{i}"
    nodes.append(node("Neg", [name], ["y"]))
    return graph_of(folder, network(nodes, {"x": (1, 2, draw.randint(24, 33), 24)}, ["y"], weights))


@given(draw=st.randoms(use_true_random=False))
@examples(25)
def test_tiles_of_random_stacks_are_exact_and_send_nothing_between_their_layers(
    draw: random.Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    graph = stack(draw, tmp_path_factory.mktemp("tiles"))
    last = len(graph.layers) - 2
    rows = extent(graph, graph.layers[last], ROWS)
    count = min(draw.randint(2, DEVICES), rows)
    ends = [*sorted(draw.sample(range(1, rows), count - 1)), rows]
    shards = fused(graph, range(last + 1), ends, range(count))
    mapping = Mapping.of([*shards, *rest(graph, last + 1)])
    if any("one holds the other" in problem for problem in mapping.check(graph, platform(DEVICES))):
        return  # tiles of a row or two, each of which needs all rows of an early layer
    assert_cut_exactly(graph, mapping, DEVICES)
    sent = [
        s.buffer for r in plan(graph, platform(DEVICES), mapping).plan.ranks for s in r.steps if isinstance(s, Send)
    ]
    inside = tuple(name for layer in graph.layers[:last] for name in layer.outputs)
    assert not [buffer for buffer in sent if buffer.split("[")[0] in inside]


def vgg_like(folder: Path) -> Graph:
    """Two convolutions and a pooling over 8 rows."""
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", ["x", "w1"], ["a"], "first", **same),
        node("Conv", ["a", "w2"], ["b"], "second", **same),
        node("MaxPool", ["b"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["p"], ["y"], "mean"),
    ]
    return graph_of(
        folder, network(nodes, {"x": (1, 2, 8, 8)}, ["y"], {"w1": weight(2, 2, 3, 3), "w2": weight(2, 2, 3, 3)})
    )


def test_a_tile_holds_the_rows_under_the_kernels_that_follow(tmp_path: Path) -> None:
    shards = fused(vgg_like(tmp_path), [0, 1, 2], [2, 4], [0, 1])
    assert [(s.layer, s.start, s.stop, s.device) for s in shards] == [
        (0, 0, 5, 0),
        (0, 3, 8, 1),
        (1, 0, 4, 0),
        (1, 4, 8, 1),
        (2, 0, 2, 0),
        (2, 2, 4, 1),
    ]


def test_layers_that_have_no_tiles_are_refused(tmp_path: Path) -> None:
    graph = vgg_like(tmp_path)
    with pytest.raises(CleaveError, match="layer 'mean': operator GlobalAveragePool cannot be split by rows"):
        fused(graph, [0, 1, 2, 3], [1], [0])
    with pytest.raises(CleaveError, match="layer 'first' is read by no later layer of its stack"):
        fused(graph, [0, 2], [2, 4], [0, 1])
