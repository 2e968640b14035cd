"""Which layouts are kept between convolutions, and what that saves a segment: told, and by ONNX Runtime's own graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest

from model import coefficients, relayout
from model.graph import Graph
from model.load import load
from model.mapping import extent
from model.samples import PartOf
from model.segment_time import Clock, Network
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


def by_block(folder: Path, inputs: int, outputs: int, group: int) -> tuple[bool, bool]:
    """Whether a convolution is said to be computed by blocks of channels, and is so by ONNX Runtime."""
    conv = node("Conv", ["x", "w"], ["y"], "conv", group=group)
    weights = {"w": weight(outputs, inputs // group, 1, 1)}
    path, options = save(folder, network([conv], {"x": (1, inputs, 8, 8)}, ["y"], weights)), ort.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(folder / "optimized.onnx"), 4
    ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (found,) = [n for n in onnx.load(folder / "optimized.onnx").graph.node if n.op_type == "Conv"]
    return relayout.origins(load(path))[0] != relayout.NONE, found.domain == "com.microsoft.nchwc"


@pytest.mark.parametrize(
    ("inputs", "outputs", "group"),
    [(3, 16, 1), (16, 16, 1), (16, 12, 1), (12, 16, 1), (20, 16, 1), (32, 32, 2), (24, 48, 2), (16, 16, 16),
     (12, 12, 12), (24, 24, 24), (32, 24, 2), (48, 48, 3)],
)  # fmt: skip
def test_onnx_runtime_computes_by_blocks_what_is_said_to_be(
    tmp_path: Path, inputs: int, outputs: int, group: int
) -> None:
    if not by_block(tmp_path, 8, 8, 8)[1]:
        pytest.skip("here ONNX Runtime has no blocks of 8 channels")
    told, done = by_block(tmp_path, inputs, outputs, group)
    assert told == done
