"""Which layouts are kept between convolutions, and what that saves a segment: told, and by ONNX Runtime's own graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codegen.zoo import cached
from model.cluster import coefficients
from model.cost.samples import PartOf
from model.cost.segment_time import Clock, Network
from model.mappings.mapping import extent
from model.network import relayout
from model.network.graph import Graph
from model.network.load import load
from tests.optimized import by_blocks as is_by_blocks
from tests.optimized import conv, need_blocks, optimized
from tests.tiny_cnn import by_blocks, graph_of, network, node, save, weight


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return graph_of(tmp_path, by_blocks())


def kept(graph: Graph) -> dict[str, str]:
    """Convolution → the one from which on all must be in its segment."""
    return {
        graph.layers[layer].name: graph.layers[edge.origin].name
        for layer, edges in enumerate(Network(graph).edges)
        for edge in edges
        if edge.origin != relayout.NONE
    }


def test_a_layout_is_kept_from_the_first_convolution_that_an_input_goes_back_to(graph: Graph) -> None:
    assert kept(graph) == {"inner": "stem", "narrow": "stem", "wide": "stem"}  # "odd" has groups of 6 channels


def test_to_cut_a_way_between_convolutions_costs_its_layout_wherever_and_however_often(graph: Graph) -> None:
    unit = coefficients.load("generic").unit("cpu")
    clocks = [Clock(Network(graph), replace(unit, relayout_s_per_byte=seconds)) for seconds in (0.0, 1e-9)]

    def saved(*borders: str) -> float:
        """Bytes."""
        begins = {graph.by_name[name].index for name in borders}
        parts: list[list[PartOf]] = [[]]
        for layer in graph.layers:
            if layer.index in begins:
                parts.append([])
            parts[-1].append(PartOf(layer.index, 1, 0, extent(graph, layer)))
        plain, with_layouts = (sum(clock.seconds(segment) for segment in parts) for clock in clocks)
        return (plain - with_layouts) / 1e-9

    one = 16 * 81 * 4
    assert saved() == pytest.approx(4 * one)  # the last of three reads as much as the others together
    assert saved("relu") == saved("inner") == saved("relu", "inner") == pytest.approx(0, abs=1)
    assert saved("add") == saved("again") == pytest.approx(one)
    assert saved("both") == saved("odd") == saved("both", "wide") == pytest.approx(2 * one)


def told_and_done(path: str, folder: Path) -> tuple[dict[str, bool], dict[str, bool]]:
    """Of what convolutions read of other layers, which has their layout: as is said, and by ONNX Runtime. But for
    layers of which the edge tells: convolutions, and pools, which may begin a layout."""
    graph, brought = load(path), {n.input[0] for n in optimized(path, folder) if n.op_type == "ReorderInput"}
    of, told, done = relayout.origins(graph), {}, {}
    for reader in (layer for layer in graph.layers if layer.op == "Conv"):
        (name,) = graph.activations(reader)
        maker = graph.producer.get(name)
        if maker is not None and graph.layers[maker].op not in ("Conv", "MaxPool", "AveragePool"):
            told[name] = relayout.origin(graph, of, maker, reader.index) != relayout.NONE
            done[name] = name not in brought
    return told, done


@pytest.mark.parametrize("name", ["densenet121", "inception_v2", "resnet50", "squeezenet"])
def test_layouts_are_kept_where_onnx_runtime_keeps_them(tmp_path: Path, name: str) -> None:
    need_blocks(tmp_path)
    told, done = told_and_done(str(cached(name)), tmp_path)
    assert told == done


@pytest.mark.parametrize(
    "between",
    [
        [("Relu", "c")],
        [("Mul", "c", "each")],
        [("Add", "c", "each")],
        [("Relu", "c"), ("Add", "", "each")],
        [("Relu", "c"), ("Mul", "", "each")],
        [("Relu", "c"), ("Sub", "", "each")],
        [("BatchNormalization", "c", "s", "s", "s", "p"), ("Mul", "", "each"), ("Add", "", "each"), ("Relu", "")],
        [("Relu", "c"), ("BatchNormalization", "", "s", "s", "s", "p"), ("Add", "", "each"), ("Relu", "")],
        [("Add", "c", "d")],
        [("Mul", "c", "d")],
        [("Sub", "c", "d")],
        [("Max", "c", "d")],
        [("Mul", "c", "e")],
        [("Concat", "c", "d"), ("Relu", "")],
        [("Concat", "c", "f"), ("Relu", "")],
        [("Add", "c", "place")],
        [("Mul", "c", "place")],
        [("Add", "c", "one")],
        [("Mul", "c", "one")],
        [("Add", "h", "each")],
        [("Mul", "h", "each")],
        [("Add", "h", "place")],
        [("Mul", "h", "place")],
        [("Add", "h", "one")],
        [("Mul", "h", "one")],
    ],
    ids=lambda between: "-".join(" ".join(layer) for layer in between),
)
def test_what_keeps_a_layout_between_convolutions(tmp_path: Path, between: list[tuple[str, ...]]) -> None:
    """c, d, h: of 16 channels, f: of 12, e: of one position, all by convolutions; nobody else reads h."""
    shapes = {"c": (16, 3, 3, 3), "h": (16, 3, 3, 3), "d": (16, 3, 3, 3), "f": (12, 3, 3, 3), "e": (16, 16, 1, 1)}
    weights = {f"w{name}": weight(*shape) for name, shape in shapes.items()}
    weights |= {
        "each": weight(16, 1, 1),
        "place": weight(9, 9),
        "one": weight(1),
        "s": weight(16),
        "p": np.abs(weight(16)) + 1,
    }
    nodes = [node("Conv", ["x", f"w{name}"], [name], pads=[1] * 4) for name in "cdfh"]
    nodes += [node("GlobalAveragePool", ["c"], ["g"]), node("Conv", ["g", "we"], ["e"])]
    at = ""
    for number, (op, *read) in enumerate(between):
        inputs, at = [name or at for name in read], f"t{number}"
        nodes.append(node(op, inputs, [at], **({"axis": 1} if op == "Concat" else {})))
    channels = {("c", "d"): 32, ("c", "f"): 28}.get(between[0][1:], 16) if between[0][0] == "Concat" else 16
    nodes.append(node("Conv", [at, "last"], ["y"]))
    nodes = [n for n in nodes if n.output[0] != "h" or between[0][1] == "h"]
    model = network(
        nodes, {"x": (1, 3, 9, 9)}, ["y", "c", "d", "e", "f"], weights | {"last": weight(16, channels, 1, 1)}
    )
    need_blocks(tmp_path)
    told, done = told_and_done(save(tmp_path, model), tmp_path)
    assert told[at] == done[at]


@pytest.mark.parametrize(
    ("inputs", "outputs", "group"),
    [(3, 16, 1), (16, 16, 1), (16, 12, 1), (12, 16, 1), (20, 16, 1), (18, 16, 1), (17, 16, 1), (30, 16, 1), (6, 16, 1),
     (32, 32, 2), (24, 48, 2), (16, 16, 16), (12, 12, 12), (24, 24, 24), (32, 24, 2), (48, 48, 3),
     (18, 18, 18), (21, 21, 21), (20, 20, 20), (7, 7, 7), (4, 4, 4), (1, 1, 1)],
)  # fmt: skip
def test_onnx_runtime_computes_by_blocks_what_is_said_to_be(
    tmp_path: Path, inputs: int, outputs: int, group: int
) -> None:
    need_blocks(tmp_path)
    path = conv(tmp_path, inputs, outputs, group)
    assert (relayout.origins(load(path))[0] != relayout.NONE) == is_by_blocks(path, tmp_path)


def test_layers_without_channels_have_no_layout(tmp_path: Path) -> None:
    """Vectors that are concatenated, and images on top of one another."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        node("Concat", ["c", "c"], ["tall"], axis=2),
        node("Conv", ["tall", "w2"], ["y"]),
        node("Reshape", ["c", "flat"], ["v"]),
        node("Concat", ["v", "v"], ["z"], axis=0),
    ]
    weights = {"w": weight(16, 3, 3, 3), "w2": weight(16, 16, 1, 1), "flat": np.array([-1], np.int64)}
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 3, 9, 9)}, ["y", "z"], weights))
    assert [of == relayout.NONE for of in relayout.origins(graph)] == [False, True, False, True, True]
