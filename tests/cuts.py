"""One layer cut in every way that its rule allows, while the layers around it are cut along other axes."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto

from model.mappings.mapping import Mapping, Shard, extent
from model.network import boxes
from model.network.graph import Graph, Layer
from tests.tiny_cnn import NEWEST, assert_cut_exactly, frame, graph_of, network, node, run_mapping, run_whole, widened

Draw = random.Random
DEVICES = 4
EVERY_KIND = range(boxes.KINDS)
LETTERS = "nchp"
"""Short for the kinds of split: samples, channels, rows (height), partial sums."""

randoms = st.randoms(use_true_random=False)


def ways(graph: Graph, layer: Layer) -> str:
    """The kinds of split that the layer's rule allows, a letter each."""
    return "".join(LETTERS[kind] for kind in EVERY_KIND if boxes.rule(graph, layer, kind))


def assert_equal(graph: Graph, mapping: Mapping, positive: bool = True) -> None:
    """A mapping gives what the file gives, bit by bit. positive: of a frame without negative numbers"""
    feeds = frame(graph, positive=positive)
    got, wanted = run_mapping(graph, mapping, DEVICES, feeds), run_whole(graph.path, feeds)
    assert set(got) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_array_equal(got[name], value, name)


def whole(draw: Draw, graph: Graph, layer: Layer) -> list[Shard]:
    """All of a layer on one device."""
    return [Shard(layer.index, 0, extent(graph, layer), draw.randrange(DEVICES))]


def cut(draw: Draw, graph: Graph, layer: Layer, kind: int) -> list[Shard]:
    """A layer cut at one to three places, uneven as they fall, on devices that may come twice."""
    rule = boxes.rule(graph, layer, kind)
    assert rule is not None
    inner = range(rule.grain, rule.size, rule.grain)
    cuts = sorted(draw.sample(inner, min(draw.randint(1, 3), len(inner))))
    edges = zip([0, *cuts], [*cuts, rule.size], strict=True)
    return widened(draw, [Shard(layer.index, *edge, draw.randrange(DEVICES), kind) for edge in edges], rule.grain)


def around(draw: Draw, graph: Graph, layer: Layer, kind: int) -> list[Shard]:
    """Another layer: most often cut along another axis than ``kind``, else along the same, or whole."""
    possible = [k for k in EVERY_KIND if boxes.rule(graph, layer, k)]
    others = [k for k in possible if k != kind]
    chance = draw.random()
    if chance < 0.2 or not possible:
        return whole(draw, graph, layer)
    return cut(draw, graph, layer, draw.choice(possible if chance < 0.4 or not others else others))


def assert_every_cut_is_exact(model: ModelProto, draw: Draw, tensor: str = "m", positive: bool = False) -> str:
    """The layer that makes ``tensor`` is exact however it is cut; returns the ways in which it can be."""
    with tempfile.TemporaryDirectory() as folder:
        graph = graph_of(Path(folder), model)
        split = graph.layers[graph.producer[tensor]]
        found = ways(graph, split)
        for kind in map(LETTERS.index, found):
            rest = [s for layer in graph.layers if layer != split for s in around(draw, graph, layer, kind)]
            mapping = Mapping.of([*cut(draw, graph, split, kind), *rest])
            assert_cut_exactly(graph, mapping, DEVICES, positive)
    return found


def chain(
    middle: NodeProto,
    shape: tuple[int, ...],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = NEWEST,
    dtype: str = "float32",
) -> ModelProto:
    """A layer that reads ``h`` and makes ``m`` between two that can be split as well."""
    nodes = [node("Abs", ["x"], ["h"]), middle, node("Neg", ["m"], ["y"])]
    cast = {k: v.astype(dtype) if v.dtype.kind == "f" else v for k, v in (weights or {}).items()}
    return network(nodes, {"x": shape}, ["y"], cast, opset, dtype=dtype)
