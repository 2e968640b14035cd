"""Figures 8 to 11 of the thesis (sections 4.2.1 and 4.2.2), its equations, and what makes every chromosome valid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen import zoo
from dse.chromosomes import KINDS, SHARES, Chromosome, chromosome
from model.mappings.arrays import arrays
from model.mappings.mapping import Mapping
from model.network import boxes
from model.network.graph import Graph
from model.network.load import load
from runtime.errors import CleaveError
from tests.tiny_cnn import branches, examples, graph_of, network, node, platform, six_layers, weight

N = 5
"""Devices in the thesis' figures, which count from 1."""


@pytest.fixture(scope="module")
def cnn(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Figure 8a: l1 Conv, l2 ReLU, l3 MaxPool, l4 cannot be split, l5 FC, l6 Softmax; 10 channels in l1 and in l5."""
    return graph_of(tmp_path_factory.mktemp("figure8"), six_layers())


def coded(cnn: Graph, kind: str, rows: int = N, shares: str = "equal", devices: int = N, **more: object) -> Chromosome:
    return chromosome(kind, cnn, arrays(cnn), devices, rows, shares, **more)  # type: ignore[arg-type]


def decoded(cnn: Graph, code: Chromosome, genes: Sequence[int]) -> list[list[tuple[int, int, int]]]:
    """For each layer its shards: device (from 1, as in the thesis), start, stop."""
    assert len(genes) == code.n_genes
    mapping = code.decode(np.array(genes))
    assert mapping.check(cnn, platform(code.coding.devices)) == []
    rows = mapping.by_layer(len(cnn.layers))
    return [[(s.device + 1, s.start, s.stop) for s in row] for row in rows]


def whole(*devices: int) -> list[list[tuple[int, int, int]]]:
    """Layers of Figure 8a whole on devices, in full."""
    sizes = (10, 10, 10, 90, 10, 10)
    return [[(device, 0, size)] for device, size in zip(devices, sizes, strict=True)]


# --- the naive chromosome ---

FIGURE_8 = [[3, 1, 1, 2, 2], [2], [1], [1], [4, 2, 5, 2, 1], [1]]
"""Conv on 3 (its first part), 1 and 2, of which 1 and 2 are named twice; FC in four parts, the first on 4."""


def test_figure_8_naive(cnn: Graph) -> None:
    genes = [device - 1 for row in FIGURE_8 for device in row]
    expected = whole(1, 2, 1, 1, 1, 1)
    expected[0] = [(3, 0, 3), (1, 3, 6), (2, 6, 10)]
    expected[4] = [(4, 0, 2), (2, 2, 5), (5, 5, 7), (1, 7, 10)]
    assert decoded(cnn, coded(cnn, "naive"), genes) == expected


def test_figure_8_with_parts_as_often_as_devices_are_named(cnn: Graph) -> None:
    genes = [device - 1 for row in FIGURE_8 for device in row]
    found = decoded(cnn, coded(cnn, "naive", shares="multiplicity"), genes)
    assert found[0] == [(3, 0, 2), (1, 2, 6), (2, 6, 10)]
    assert found[4] == [(4, 0, 2), (2, 2, 6), (5, 6, 8), (1, 8, 10)]


def test_a_layer_that_names_one_device_only_is_whole(cnn: Graph) -> None:
    assert decoded(cnn, coded(cnn, "naive"), [3] * 14) == whole(4, 4, 4, 4, 4, 4)


# --- split points ---

FIGURE_11 = [
    [0, 0, 1, 2, 0],
    [1, 2, 0, 0, 0],
    [0, 1, 0, 0, 2],
    [2, 1, 0, 0, 0],
    [2, 0, 0, 0, 0],
]


def flat(*rows: Sequence[int]) -> list[int]:
    return [gene for row in rows for gene in row]


def test_figures_9_and_11_hybrid(cnn: Graph) -> None:
    """Row 1 places l1 to l4 on device 3, l5 and l6 on device 4; the parts of l1 are on 3, 1, 2, of l5 on 4, 2, 5, 1."""
    expected = whole(1, 3, 3, 3, 1, 4)
    expected[0] = [(3, 0, 3), (1, 3, 6), (2, 6, 10)]
    expected[4] = [(4, 0, 2), (2, 2, 5), (5, 5, 7), (1, 7, 10)]
    assert decoded(cnn, coded(cnn, "hybrid"), flat(*FIGURE_11)) == expected


def test_figure_11_with_parts_as_often_as_devices_are_named(cnn: Graph) -> None:
    found = decoded(cnn, coded(cnn, "hybrid", shares="multiplicity"), flat(*FIGURE_11))
    assert found[0] == [(3, 0, 2), (1, 2, 6), (2, 6, 10)]  # 3 once, 1 and 2 twice
    assert found[4] == [(4, 0, 2), (2, 2, 4), (5, 4, 6), (1, 6, 10)]  # 1 twice


def test_figure_10_split_points_alone(cnn: Graph) -> None:
    one_row = coded(cnn, "hybrid", rows=1)
    assert decoded(cnn, one_row, [0, 1, 0, 2, 0]) == whole(2, 2, 2, 2, 4, 4)
    assert decoded(cnn, one_row, [0, 0, 0, 2, 0]) == whole(4, 4, 4, 4, 4, 4)  # "if this example was modified"


def test_layers_before_the_first_that_can_be_split_go_with_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    nodes = [node("Relu", ["x"], ["r"]), node("Conv", ["r", "w"], ["c"]), node("Neg", ["c"], ["y"])]
    graph = graph_of(tmp_path_factory.mktemp("early"), network(nodes, {"x": (1, 3, 2)}, ["y"], {"w": weight(4, 3, 1)}))
    found = decoded(graph, coded(graph, "hybrid", rows=2), flat([0, 0, 1, 0, 0], [1, 0, 0, 0, 0]))
    assert found == [[(3, 0, 3)], [(3, 0, 2), (1, 2, 4)], [(3, 0, 4)]]


def test_the_order_of_points_decides_not_that_of_devices(cnn: Graph) -> None:
    assert decoded(cnn, coded(cnn, "vertical"), [6, 2, 0, 3, 0]) == whole(2, 2, 4, 1, 1, 1)


def test_vertical_places_every_layer(cnn: Graph) -> None:
    assert decoded(cnn, coded(cnn, "vertical"), [1, 3, 0, 4, 6]) == whole(1, 2, 2, 4, 5, 5)


@pytest.mark.parametrize(
    ("row", "devices"),
    [
        ([1, 0, 0, 0, 0], (1, 1, 1, 1, 1, 1)),  # the last device goes on to the end
        ([0, 0, 0, 0, 0], (1, 1, 1, 1, 1, 1)),  # nobody: the first device takes all
        ([0, 2, 2, 0, 0], (2, 2, 2, 2, 2, 2)),  # two at one point: the first in platform order
        ([1, 1, 2, 0, 0], (1, 1, 1, 1, 3, 3)),
        ([2, 1, 1, 0, 0], (2, 2, 2, 2, 1, 1)),
        ([0, 0, 0, 0, 1], (5, 5, 5, 5, 5, 5)),
    ],
)
def test_row_1_is_repaired_to_cover_the_network(cnn: Graph, row: list[int], devices: tuple[int, ...]) -> None:
    assert decoded(cnn, coded(cnn, "hybrid", rows=1), row) == whole(*devices)


def test_other_rows_may_leave_layers_unsplit(cnn: Graph) -> None:
    two = coded(cnn, "hybrid", rows=2)
    first = [0, 0, 2, 0, 0]
    found = decoded(cnn, two, flat(first, [1, 0, 0, 0, 0]))
    assert (found[0], found[4]) == ([(3, 0, 5), (1, 5, 10)], [(3, 0, 10)])
    assert decoded(cnn, two, flat(first, [0] * 5)) == whole(3, 3, 3, 3, 3, 3)
    assert decoded(cnn, two, flat(first, first)) == whole(3, 3, 3, 3, 3, 3)


# --- lengths ---


@pytest.fixture(scope="module")
def alexnet() -> Graph:
    return load(zoo.cached("alexnet"))


def test_equation_4_5_for_alexnet(alexnet: Graph) -> None:
    """The thesis counts 24 layers and gets 36 and 56. Two of them are Dropouts, which loading drops: 34 and 54."""
    assert len(alexnet.layers) == 24 - 2
    g = arrays(alexnet)
    everything = chromosome("naive", alexnet, g, N)
    assert everything.n_genes == 8 * N + 22 - 8 == 56 - 2
    assert everything.upper.tolist() == [N - 1] * 54
    gemms = np.array([0, *[int(layer.op == "Gemm") for layer in alexnet.layers], 0], np.int32)
    assert chromosome("naive", alexnet, g._replace(heavy=gemms), N).n_genes == 3 * N + 22 - 3 == 36 - 2


def test_equation_4_6_for_alexnet(alexnet: Graph) -> None:
    """25 genes of 9 values each: the thesis' search space of 9^25."""
    hybrid = coded(alexnet, "hybrid")
    assert hybrid.n_genes == 5 * N
    assert hybrid.upper.tolist() == [8] * 25
    assert coded(alexnet, "hybrid", rows=2).n_genes == 2 * N


def test_vertical_has_a_gene_for_each_device(alexnet: Graph) -> None:
    assert coded(alexnet, "vertical").upper.tolist() == [22] * N


def test_no_layer_gets_more_shards_than_rows_devices_or_channels(tmp_path_factory: pytest.TempPathFactory) -> None:
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Conv", ["c", "v"], ["y"], group=2)]
    weights = {"w": weight(6, 3, 1), "v": weight(8, 3, 1)}
    graph = graph_of(tmp_path_factory.mktemp("few"), network(nodes, {"x": (1, 3, 2)}, ["y"], weights))
    assert [coded(graph, "hybrid", rows).most.tolist() for rows in (1, 3, 5)] == [
        [1, 1, 1, 1],
        [1, 3, 2, 1],
        [1, 5, 2, 1],
    ]
    found = decoded(graph, coded(graph, "naive"), [0, 1, 2, 3, 4, 4, 3, 2, 1, 0])
    assert found[1] == [(5, 0, 4), (4, 4, 8)]  # two groups: the first two devices


# --- shares ---


def speeds(cnn: Graph, seconds: list[float]) -> np.ndarray:
    return np.tile(seconds, (len(cnn.layers) + 2, 1))


def test_shares_by_speed_are_proportional(cnn: Graph) -> None:
    code = coded(cnn, "naive", shares="speed", time_s=speeds(cnn, [4.0, 1.0, 1.0, 1.0, 1.0]))
    found = decoded(cnn, code, [0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    assert found[0] == [(1, 0, 2), (2, 2, 10)]


def test_shares_by_speed_are_those_of_the_layer(cnn: Graph) -> None:
    time = speeds(cnn, [1.0, 1.0, 1.0, 1.0, 1.0])
    time[1, 0] = 9.0  # the Conv is slow on the first device, the FC is not
    found = decoded(cnn, coded(cnn, "naive", shares="speed", time_s=time), [0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0])
    assert (found[0], found[4]) == ([(1, 0, 1), (2, 1, 10)], [(1, 0, 5), (2, 5, 10)])


def test_a_device_too_slow_for_one_channel_is_left_out(cnn: Graph) -> None:
    code = coded(cnn, "naive", shares="speed", time_s=speeds(cnn, [100.0, 1.0, 1.0, 1.0, 1.0]))
    found = decoded(cnn, code, [0, 1, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    assert {device for device, _, _ in found[0]} == {2, 3}


@given(genes=st.lists(st.integers(0, N - 1), min_size=14, max_size=14))
@examples(60)
def test_equal_shares_differ_by_one_channel_at_most(cnn: Graph, genes: list[int]) -> None:
    found = decoded(cnn, coded(cnn, "naive"), genes)
    for row, named in ((found[0], genes[:5]), (found[4], genes[8:13])):
        sizes = [stop - start for _, start, stop in row]
        assert max(sizes) - min(sizes) <= 1
        assert [device for device, _, _ in row] == list(dict.fromkeys(gene + 1 for gene in named))


# --- every chromosome is valid ---

GRAPHS = ["branches", "densenet121", "shufflenet", "squeezenet"]


@pytest.fixture(scope="module", params=GRAPHS)
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    if request.param == "branches":
        return graph_of(tmp_path_factory.mktemp("branches"), branches())
    return load(zoo.cached(request.param))


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_random_chromosome_is_a_mapping(graph: Graph, kind: str, shares: str) -> None:
    g = arrays(graph)
    draw = np.random.default_rng([ord(c) for c in kind + shares])
    for devices, rows in ((1, 1), (2, 2), (5, 3), (16, 16)):
        time = draw.uniform(1e-3, 1, (len(g.size), devices)) ** 4
        code = chromosome(kind, graph, g, devices, rows, shares, time)
        for _ in range(6):
            mapping = code.decode(draw.integers(0, code.upper + 1))
            assert mapping.check(graph, platform(devices)) == []
            counts = np.bincount([s.layer for s in mapping.shards], minlength=len(graph.layers))
            assert (counts <= code.most[g.n_inputs : g.n_inputs + g.n_layers]).all()
            split = [layer for layer in graph.layers if counts[layer.index] > 1]
            assert all(boxes.is_heavy(graph, layer) for layer in split)
            assert not split or kind != "vertical"


@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_and_smallest_genes_are_mappings(graph: Graph, kind: str) -> None:
    code = coded(graph, kind)
    for genes in (code.upper, np.zeros_like(code.upper)):
        assert code.decode(genes).check(graph, platform(N)) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", [0, 3, 4])
def test_a_chain_of_one_device_is_the_whole_network_on_it(graph: Graph, kind: str, device: int) -> None:
    code = coded(graph, kind)
    genes = code.chain([device], np.ones(len(code.g.size)))
    assert (genes <= code.upper).all()
    assert code.decode(genes) == Mapping.whole(graph, [device] * len(graph.layers))


@pytest.mark.parametrize("kind", KINDS)
def test_a_chain_of_several_devices_is_a_pipeline_of_even_parts(graph: Graph, kind: str) -> None:
    code = coded(graph, kind, rows=3, devices=4)
    work = np.array([0.0] * code.g.n_inputs + [1.0] * code.g.n_layers + [0.0] * len(graph.outputs))
    mapping = code.decode(code.chain([0, 2, 3], work))
    on = [shard.device for shard in mapping.shards]
    assert len(on) == len(graph.layers)
    assert on == sorted(on)
    assert set(on) == {0, 2, 3}
    if kind != "hybrid":
        assert max(map(on.count, (0, 2, 3))) - min(map(on.count, (0, 2, 3))) <= 2


# --- what is refused ---


@pytest.mark.parametrize(
    ("kind", "rows", "shares", "sentence"),
    [
        ("random", 2, "equal", "there is no chromosome 'random' with shares 'equal'"),
        ("naive", 2, "fair", "there is no chromosome 'naive' with shares 'fair'"),
        ("hybrid", 0, "equal", r"splits must be 1\.\.5, one device each; got 0"),
        ("hybrid", 6, "equal", r"splits must be 1\.\.5, one device each; got 6"),
    ],
)
def test_a_wrong_choice_is_refused(cnn: Graph, kind: str, rows: int, shares: str, sentence: str) -> None:
    with pytest.raises(CleaveError, match=sentence):
        coded(cnn, kind, rows, shares)


def test_hybrid_needs_a_layer_that_can_be_split(tmp_path_factory: pytest.TempPathFactory) -> None:
    graph = graph_of(tmp_path_factory.mktemp("light"), network([node("Relu", ["x"], ["y"])], {"x": (1, 4)}, ["y"]))
    with pytest.raises(CleaveError, match=r"^'tiny' has no layer that can be split; use --chromosome vertical$"):
        coded(graph, "hybrid")
    assert decoded(graph, coded(graph, "vertical"), [0, 1, 0, 0, 0]) == [[(2, 0, 4)]]
