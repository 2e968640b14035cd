"""Layers that were not measured: what they do, what each of it takes, and how that is found again from others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

from model.cluster import coefficients
from model.cluster.coefficients import Kernel, LayerCost
from model.cost.costs import SPLIT, WHOLE
from model.cost.layer_costs import rows
from model.cost.layer_time import Work, rates, repeated, seconds, work
from model.fit.kinds import Measured, fit_kinds
from model.network.boxes import CHANNELS, PARTIAL, ROWS
from model.network.signature import signature, signatures
from tests.tiny_cnn import graph_of, network, node, weight

DECLARED = coefficients.load("generic").unit("cpu")
HZ = DECLARED.frequency_hz


@pytest.mark.parametrize(("channels", "idle"), [(16, 0), (24, 8), (3, 13), (33, 15)])
def test_the_last_vector_of_channels_may_be_idle(tmp_path: Path, channels: int, idle: int) -> None:
    nodes = [node("Conv", ["x", "w", "b"], ["c"]), node("Relu", ["c"], ["y"])]
    weights = {"w": weight(channels, 4, 1, 1), "b": weight(channels)}
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 4, 5, 5)}, ["y"], weights))
    conv, relu = (work(graph, layer, 16) for layer in graph.layers)
    assert conv == pytest.approx((25 * 4 * channels, 25 * 4 * idle, 4 * 25 * (4 + channels), 4 * 5 * channels, 1))
    assert (relu.idle_macs, relu.moved_bytes, relu.weight_bytes) == (0, 2 * 4 * 25 * channels, 0)


def test_fully_connected_layers_have_none(tmp_path: Path) -> None:
    nodes = [node("Gemm", ["x", "w"], ["y"], transB=1)]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 8)}, ["y"], {"w": weight(10, 8)}))
    assert work(graph, graph.layers[0], 16) == pytest.approx((80, 0, 4 * (8 + 10), 4 * 80, 1))


def test_what_is_fixed_does_not_go_with_the_amount() -> None:
    done, cost = Work(4e9, 1e9, 1e9, 1e9), LayerCost(4.0, 2e-5, 5.0, s_per_byte=2e-10)
    assert seconds(done, cost, 1e9) == pytest.approx((2e-5, 1.25 + 0.2 + 0.2))
    assert seconds(done, replace(cost, s_per_weight_byte=5e-10), 1e9) == pytest.approx((2e-5, 1.25 + 0.2 + 0.5))


def test_what_a_kind_takes_is_found_again() -> None:
    """Also of layers that are left out."""
    known = LayerCost(4.0, 2e-5, 5.0, s_per_byte=2e-10, s_per_weight_byte=5e-10)
    amounts = np.random.default_rng(0).uniform(0.1, 1, (40, 4)) * (1e8, 1e7, 1e7, 1e6)
    table = [measured("conv_im2col", "ab"[k % 2], Work(*map(float, row)), known) for k, row in enumerate(amounts)]
    found = fit_kinds(table, DECLARED).layers["conv_im2col"]
    assert rates(found, HZ) == pytest.approx(rates(known, HZ), rel=0.05)
    assert found.error == pytest.approx(0, abs=0.01)


def test_what_shards_do_anew_is_found_again() -> None:
    """However large they are; along an axis with too few layers nothing is told."""
    rng, cost = np.random.default_rng(1), LayerCost(4.0, 2e-5, 5.0)
    sizes = [float(size) for size in rng.uniform(1e5, 1e7, 9)]
    table = [
        replace(
            measured("fc", "a", Work(100 * size, 0, size, size), cost), splits={CHANNELS: (3e-5 + 2e-10 * size, size)}
        )
        for size in sizes
    ]
    table[:2] = [replace(layer, splits=layer.splits | {PARTIAL: (1e-5, 1e3)}) for layer in table[:2]]
    found = fit_kinds(table, DECLARED).layers["fc"].splits
    assert found.keys() == {CHANNELS}
    assert found[CHANNELS] == pytest.approx((3e-5, 2e-10), rel=0.03)


def test_shards_read_what_is_not_divided(tmp_path: Path) -> None:
    channels = 32
    graph = graph_of(tmp_path, conv(channels))
    assert repeated(graph, graph.layers[0], CHANNELS) == 4 * 4 * 25
    assert repeated(graph, graph.layers[0], ROWS) == 4 * channels * (4 * 9 + 1)
    assert repeated(graph, graph.layers[0], PARTIAL) == 4 * channels * (25 + 1)


def test_shards_of_a_layer_that_was_not_measured_take_longer_than_their_share(tmp_path: Path) -> None:
    """By what its kind's do; never longer than all of it. A layer that was measured split keeps to that."""
    graph = graph_of(tmp_path, conv(32))
    (layer,) = graph.layers
    cost = replace(
        DECLARED.layers["conv_winograd"], overhead_s=1e-5, splits={CHANNELS: (2e-6, 1e-10), ROWS: (9.0, 0.0)}
    )
    unit = replace(DECLARED, layers=DECLARED.layers | {"conv_winograd": cost})
    (row,) = rows(graph, signatures(graph), unit, 1.0)
    fixed_s = 2e-6 + 1e-10 * repeated(graph, layer, CHANNELS)
    assert split(row, CHANNELS) == pytest.approx((fixed_s, row[WHOLE] - fixed_s))
    (of_24,) = rows(graph, signatures(graph), replace(unit, vector=24), 1.0)
    assert split(of_24, CHANNELS) == pytest.approx((fixed_s, (of_24[WHOLE] - fixed_s) / 1.5)), "48 for 32"
    assert split(row, ROWS) == pytest.approx((row[WHOLE], 0))
    assert split(row, PARTIAL) == pytest.approx((1e-5, row[WHOLE] - 1e-5))
    kernel = Kernel("Conv", 2e-3, {CHANNELS: (1e-4, 1.9e-3)})
    (row,) = rows(graph, signatures(graph), replace(unit, kernels={signature(graph, layer): kernel}), 1.0)
    assert split(row, CHANNELS) == pytest.approx((1e-4, 1.9e-3))
    assert split(row, ROWS) == pytest.approx((2e-3, 0))


def split(row: list[float], axis: int) -> tuple[float, float]:
    """What is fixed of a shard, and what goes with its share."""
    return row[SPLIT + 2 * axis], row[SPLIT + 2 * axis + 1]


def conv(channels: int) -> ModelProto:
    weights = {"w": weight(channels, 4, 3, 3), "b": weight(channels)}
    return network([node("Conv", ["x", "w", "b"], ["y"], pads=[1] * 4)], {"x": (1, 4, 5, 5)}, ["y"], weights)


def test_kinds_that_were_not_measured_are_slower_in_everything() -> None:
    lrn = LayerCost(4.0, 2e-5, 5.0, s_per_byte=2e-10, s_per_weight_byte=5e-10)
    declared = replace(DECLARED, layers=DECLARED.layers | {"lrn": lrn})
    pool = measured("pool", "a", Work(1e8, 0.0, 0.0, 0.0), DECLARED.layers["pool"])
    found = fit_kinds([replace(pool, seconds=3 * pool.seconds)], declared).layers["lrn"]
    assert rates(found, HZ) == pytest.approx([3 * each_s for each_s in rates(lrn, HZ)])


def measured(kind: str, network_name: str, done: Work, cost: LayerCost) -> Measured:
    """A layer as a device measures it that takes what ``cost`` says."""
    return Measured(kind, {network_name: 0.0}, done, sum(seconds(done, cost, HZ)), {})
