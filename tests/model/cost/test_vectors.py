"""Vectors of channels: which layers have them, what a calibration finds, and that searches cut between them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto

from dse.inputs import Cnn
from dse.run import Coding, prepare
from model.cluster import coefficients
from model.cluster.coefficients import Coefficients, Kernel
from model.cluster.platform import Platform
from model.cost.costs import SPLIT, VECTOR, costs, in_vectors
from model.cost.ledger import COMPUTE
from model.cost.priced import priced
from model.cost.samples import PartOf, Run, Sample
from model.cost.segment_time import Clock, Network
from model.cost.vectors import filled, quarter_of, vector_of
from model.fit.vector import fit_vector
from model.mappings.arrays import arrays
from model.mappings.mapping import Mapping, Shard
from model.network.boxes import CHANNELS, ROWS
from model.network.graph import Graph
from model.network.signature import signatures
from tests.tiny_cnn import graph_of, network, node, weight

DECLARED = coefficients.load("generic").unit("cpu")


def convolutions(*channels: int, groups: int = 1) -> ModelProto:
    """One after the other, of so many channels each."""
    nodes, weights, read, size = [], {}, "x", channels[0]
    for k, made in enumerate(channels):
        weights[f"w{k}"] = weight(made, size // groups, 1, 1)
        nodes.append(node("Conv", [read, f"w{k}"], [f"y{k}"], group=groups))
        read, size = f"y{k}", made
    return network(nodes, {"x": (1, channels[0], 4, 4)}, [read], weights)


@pytest.mark.parametrize(("groups", "vector"), [(1, 16), (2, 1), (12, 1), (24, 16)])
def test_convolutions_without_groups_and_those_of_single_channels_have_vectors(
    tmp_path: Path, groups: int, vector: int
) -> None:
    graph = graph_of(tmp_path, convolutions(24, groups=groups))
    assert vector_of(graph, graph.layers[0], 16) == vector
    assert vector_of(graph, graph.layers[0], 1) == 1


def test_other_layers_have_none(tmp_path: Path) -> None:
    nodes = [node("ConvTranspose", ["x", "w"], ["a"]), node("Relu", ["a"], ["y"])]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 16, 4, 4)}, ["y"], {"w": weight(16, 16, 1, 1)}))
    assert [vector_of(graph, layer, 16) for layer in graph.layers] == [1, 1]


@pytest.mark.parametrize(
    ("channels", "groups", "vector", "quarter"), [(24, 24, 16, 4), (24, 24, 1, 1), (24, 12, 16, 1), (24, 1, 16, 1)]
)
def test_single_channels_come_in_quarters_where_there_are_blocks(
    tmp_path: Path, channels: int, groups: int, vector: int, quarter: int
) -> None:
    graph = graph_of(tmp_path, convolutions(channels, groups=groups))
    assert quarter_of(graph, graph.layers[0], vector) == quarter


@pytest.mark.parametrize("whole", [24, 26])
def test_channels_that_are_computed_singly_take_so_many_times_as_long(tmp_path: Path, whole: int) -> None:
    """Whichever of them a whole layer has, that was not measured."""
    graph = graph_of(tmp_path, convolutions(whole, groups=whole))
    clock = Clock(Network(graph), replace(DECLARED, vector=4, singly=3.0))

    def seconds(channels: int) -> float:
        return clock.seconds([PartOf(0, CHANNELS, 0, channels)])

    slope_s = (seconds(20) - seconds(16)) / 4
    assert slope_s > 0
    assert [seconds(k) - seconds(k - 1) for k in (10, 11, 15)] == pytest.approx([3 * slope_s] * 3)
    assert seconds(13) - seconds(12) == pytest.approx((3 * 13 - 12) * slope_s)
    assert seconds(whole) == pytest.approx(seconds(whole - 1) + (3 if whole % 4 else 24 - 3 * 23) * slope_s)


@given(st.integers(1, 2000), st.integers(1, 64))
def test_the_last_vector_is_computed_whole(channels: int, vector: int) -> None:
    computed = filled(channels, vector) * channels
    assert computed == pytest.approx(round(computed / vector) * vector)
    assert channels <= computed + 1e-9 < channels + vector


def made_up(graph: Graph, vector: int, cuts: list[int], noise: float = 0.01) -> Run:
    """What a unit measures that computes so many channels at a time: every layer in two parts, each a segment."""
    names, rng = signatures(graph), np.random.default_rng(5)
    kernels = {name: Kernel("Conv", 1e-3, {CHANNELS: (1e-4, 9e-4), ROWS: (1e-4, 9e-4)}) for name in names}
    clock = Clock(Network(graph), replace(DECLARED, kernels=kernels, vector=vector))
    parts = [
        part
        for layer in graph.layers
        for cut in cuts
        for part in (PartOf(layer.index, CHANNELS, 0, cut), PartOf(layer.index, CHANNELS, cut, 64))
    ]
    times = [clock.seconds([part]) * (1 + noise * rng.normal()) for part in parts]
    samples = tuple(
        Sample("segment", "d", graph.name, (part,), (each,)) for part, each in zip(parts, times, strict=True)
    )
    return Run("", "d", graph.name, "python", "", "made up", "", "h", "", {}, (1.0,), (), samples)


@pytest.mark.parametrize("vector", [1, 4, 8, 16, 32])
def test_what_a_device_computes_at_a_time_is_found(tmp_path: Path, vector: int) -> None:
    graph = graph_of(tmp_path, convolutions(64, 64, 64))
    runs = [made_up(graph, vector, [5, 8, 21, 32])]
    assert fit_vector({graph.name: Network(graph)}, runs) == vector


def test_too_few_sizes_tell_nothing(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, convolutions(64, 64, 64))
    assert fit_vector({graph.name: Network(graph)}, [made_up(graph, 16, [21])]) == 1
    assert fit_vector({graph.name: Network(graph)}, []) == 1


def cluster(folder: Path, *vectors: int) -> Platform:
    """A device for each."""
    lines = []
    for k, vector in enumerate(vectors):
        unit = replace(DECLARED, vector=vector)
        (folder / f"{k}.json").write_text(Coefficients(f"v{k}", True, "made up", {"cpu": unit}).to_json())
        lines.append(f"d{k}, slots=0, bandwidth=1Gbit/s, coefficients={k}.json")
    return Platform.parse("\n".join(lines), str(folder / "vectors.txt"))


@pytest.mark.parametrize(
    ("channels", "vectors", "grain"),
    [(64, (16, 16), 16), (64, (1, 16), 16), (64, (1, 1), 1), (24, (16, 16), 8), (25, (16, 16), 1), (16, (16, 8), 16)],
)
def test_cuts_are_between_vectors_as_far_as_those_fit(
    tmp_path: Path, channels: int, vectors: tuple[int, ...], grain: int
) -> None:
    graph = graph_of(tmp_path, convolutions(channels, channels))
    g = arrays(graph)
    found = in_vectors(g, costs(graph, g, cluster(tmp_path, *vectors)))
    assert found.grain[1:3, CHANNELS].tolist() == [grain, grain]
    assert found.grain[1:3, ROWS].tolist() == g.grain[1:3, ROWS].tolist()


def test_groups_are_never_cut(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, convolutions(48, 48, groups=4))
    g = arrays(graph)
    assert in_vectors(g, costs(graph, g, cluster(tmp_path, 16))).grain[1:3, CHANNELS].tolist() == [12, 12]


@pytest.mark.parametrize("kind", ["naive", "hybrid"])
def test_every_chromosome_cuts_between_vectors(tmp_path: Path, kind: str) -> None:
    graph = graph_of(tmp_path, convolutions(48, 64, 80))
    chromosome, c = prepare(Cnn(graph, False, {}), cluster(tmp_path, 16, 16, 16), Coding(kind, 3))
    assert c.work[1:4, 0, VECTOR].tolist() == [16, 16, 16]
    rng, seen = np.random.default_rng(0), set()
    for _ in range(200):
        shards = chromosome.decode(rng.integers(0, chromosome.upper + 1)).shards
        assert all(shard.start % 16 == 0 for shard in shards)
        seen |= {shard.start for shard in shards}
    assert len(seen) > 2


def test_a_part_of_one_channel_takes_as_long_as_one_of_a_vector(tmp_path: Path) -> None:
    graph, on = graph_of(tmp_path, convolutions(64)), cluster(tmp_path, 16, 16)
    slope_s = costs(graph, arrays(graph), on).work[1, 0, SPLIT + 2 * CHANNELS + 1]

    def busy_s(cut: int) -> float:
        mapping = Mapping.of([Shard(0, 0, cut, 0), Shard(0, cut, 64, 1)])
        return float(priced(graph, on, mapping).account[:, COMPUTE].sum())

    assert busy_s(16) == pytest.approx(busy_s(32))
    assert busy_s(15) == pytest.approx(busy_s(17)) == pytest.approx(busy_s(1))
    assert busy_s(15) - busy_s(16) == pytest.approx(slope_s * 16 / 64)
