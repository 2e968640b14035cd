"""Scores of a population are the prices of its mappings, to the last bit, whatever the threads and the order."""

from __future__ import annotations

from collections.abc import Iterator

import numba
import numpy as np
import pytest

from codegen import zoo
from dse.chromosomes import KINDS, SHARES, Chromosome, chromosome
from dse.evaluation import CHUNK, OBJECTIVES, evaluate
from model.cluster.platform import Platform
from model.cost import spending
from model.cost.costs import CostArrays, whole_s
from model.cost.costs import costs as cost_arrays
from model.cost.priced import priced
from model.mappings.arrays import arrays
from model.network.graph import Graph
from model.network.load import load
from tests.tiny_cnn import branches, graph_of

CLUSTER = Platform.parse(
    "a, slots=0-5, gpu=NVIDIA (CUDA), memory=340MB, coefficients=jetson-xavier-nx\n"
    "b, slots=0-3, memory=400MB, bandwidth=100Mbit/s, latency=1ms, coefficients=jetson-xavier-nx\n"
    "c, slots=0, coefficients=generic\n",
    "mixed.txt",
)
DEVICES = len(CLUSTER.devices)


@pytest.fixture(scope="module", params=["branches", "squeezenet", "shufflenet"])
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    if request.param == "branches":
        return graph_of(tmp_path_factory.mktemp("branches"), branches())
    return load(zoo.cached(request.param))


@pytest.fixture
def threads() -> Iterator[None]:
    """Have numba use as many threads as before when the test ends."""
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


def coded(graph: Graph, kind: str = "hybrid", shares: str = "equal") -> tuple[Chromosome, CostArrays]:
    g = arrays(graph)
    costs = cost_arrays(graph, g, CLUSTER)
    return chromosome(kind, graph, g, DEVICES, 3, shares, whole_s(costs)), costs


def population(code: Chromosome, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, code.upper + 1, (size, code.n_genes))


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_the_prices_of_the_mappings(graph: Graph, kind: str, shares: str) -> None:
    code, costs = coded(graph, kind, shares)
    genes = population(code, 12)
    scores, excess = evaluate(code, costs, genes)
    assert scores.shape == (12, len(OBJECTIVES))
    for row, over, individual in zip(scores, excess, genes, strict=True):
        price = priced(graph, CLUSTER, code.decode(individual))
        assert row.tolist() == [price.latency_s, price.energy_j, price.memory_bytes, price.period_s]
        assert over == spending.excess(costs, price.ledger)
        assert price.fits == (over <= 0)
    assert len(np.unique(scores[:, 0])) > 3


def test_some_mappings_overflow_and_some_fit(graph: Graph) -> None:
    """The limits shifted to the middle of what a population needs, half of it overflows by as much as before, less."""
    code, costs = coded(graph)
    _, excess = evaluate(code, costs, population(code, 64))
    middle = np.median(excess)
    _, shifted = evaluate(code, costs._replace(capacity=costs.capacity + middle), population(code, 64))
    assert shifted.min() < 0 < shifted.max()
    assert shifted == pytest.approx(excess - middle, abs=1)


def test_scores_do_not_depend_on_threads(graph: Graph, threads: None) -> None:
    code, costs = coded(graph)
    genes = population(code, 5 * CHUNK + 7)
    found = []
    for count in (1, min(2, numba.config.NUMBA_NUM_THREADS)):
        numba.set_num_threads(count)
        found.append(evaluate(code, costs, genes))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


def test_scores_do_not_depend_on_who_else_is_scored(graph: Graph) -> None:
    """Working memory that one individual leaves behind does not change the next."""
    code, costs = coded(graph)
    genes = population(code, 4 * CHUNK + 1)
    scores, excess = evaluate(code, costs, genes)
    order = np.random.default_rng(1).permutation(len(genes))
    again, over = evaluate(code, costs, genes[order])
    np.testing.assert_array_equal(again, scores[order])
    np.testing.assert_array_equal(over, excess[order])
    alone, _ = evaluate(code, costs, genes[:1])
    np.testing.assert_array_equal(alone, scores[:1])


def test_genes_of_any_layout_are_taken(graph: Graph) -> None:
    code, costs = coded(graph)
    genes = population(code, 10)
    expected, _ = evaluate(code, costs, genes)
    for other in (np.asfortranarray(genes), genes.astype(np.int8), np.repeat(genes, 2, axis=0)[::2]):
        np.testing.assert_array_equal(evaluate(code, costs, other)[0], expected)


def test_nobody_has_no_scores(graph: Graph) -> None:
    code, costs = coded(graph)
    scores, excess = evaluate(code, costs, population(code, 0))
    assert (scores.shape, excess.shape) == ((0, 4), (0,))


def test_without_limits_nothing_overflows(graph: Graph) -> None:
    free = Platform.parse("a, slots=0\nb, slots=0\n", "free.txt")
    g = arrays(graph)
    code = chromosome("hybrid", graph, g, 2)
    _, excess = evaluate(code, cost_arrays(graph, g, free), population(code, 5))
    assert excess.tolist() == [-np.inf] * 5
