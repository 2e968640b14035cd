"""Seeds are the best of their kind; genes stand for the mappings that they were made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse import run as job
from dse.chromosomes import EQUAL, KINDS
from dse.evaluation import ANALYTICAL, OBJECTIVES, SIMULATOR, evaluate
from dse.inputs import Cnn
from dse.place.cnn.bounds import bounds
from dse.place.cnn.cuts import line
from dse.place.cnn.polish import neighbours
from dse.place.cnn.seeds import TIMES, seeds, tighter, within
from dse.search import search
from dse.settings import Settings
from model.mappings.mapping import Mapping
from model.network.graph import Graph
from tests.dse.place.cnn.drawn import drawn, genes
from tests.tiny_cnn import branches, examples, graph_of, platform, six_layers

SEEDS = st.integers(0, 2**32 - 1)
PERIOD = OBJECTIVES.index("period_s")


def whole(mapping: Mapping, layers: int) -> np.ndarray | None:
    """(layers,) device of each, where none is split."""
    rows = mapping.by_layer(layers)
    return np.array([row[0].device for row in rows]) if all(len(row) == 1 for row in rows) else None


@pytest.mark.parametrize("kind", KINDS)
@examples(60)
@given(seed=SEEDS)
def test_a_mapping_of_whole_layers_is_encoded_and_decoded_again(kind: str, seed: int) -> None:
    code, _ = drawn(seed, kind)
    for row in genes(np.random.default_rng(seed), code, 20):
        mapping = code.decode(row)
        device = whole(mapping, code.g.n_layers)
        if device is not None:
            found = code.encode(device)
            if found is None and code.coding.shares != EQUAL:
                continue  # a share so small that it was rounded to nothing
            assert found is not None
            assert ((found >= 0) & (found <= code.upper)).all()
            assert code.decode(found) == mapping


@examples(60)
@given(seed=SEEDS)
def test_what_genes_cannot_say_is_not_encoded(seed: int) -> None:
    code, _ = drawn(seed, "vertical")
    device = np.random.default_rng(seed).integers(0, code.coding.devices, code.g.n_layers)
    found = code.encode(device)
    runs = 1 + np.count_nonzero(np.diff(device))
    assert (found is None) == (runs > len(np.unique(device)))


@pytest.mark.parametrize("kind", KINDS)
@examples(30)
@given(seed=SEEDS)
def test_seeds_are_distinct_and_fit_and_layers_of_chains_are_whole_or_shared_by_two(kind: str, seed: int) -> None:
    code, costs = drawn(seed, kind, memory=True)
    found = seeds(code, costs)
    assert len(np.unique(found, axis=0)) == len(found)
    assert np.array_equal(found, seeds(code, costs))
    chains = within(tighter(line(code, costs)))
    fit, chains_fit = (
        evaluate(code, costs, rows)[1] <= 0 if len(rows) else np.ones(0, bool) for rows in (found, chains)
    )
    assert fit.all()
    chains = chains[chains_fit]
    assert np.array_equal(found[: len(chains)], chains)
    parts = [len(row) for genes_ in chains for row in code.decode(genes_).by_layer(code.g.n_layers)]
    assert max(parts, default=1) <= (2 if kind == "hybrid" else 1)


@pytest.mark.parametrize("kind", KINDS)
@examples(20)
@given(seed=SEEDS)
def test_of_each_time_that_is_an_objective_the_best_seed_is_better_than_its_neighbours(kind: str, seed: int) -> None:
    code, costs = drawn(seed, kind)
    for name in TIMES:
        found = seeds(code, costs, ["memory_bytes", name])
        scores = evaluate(code, costs, found)[0][:, OBJECTIVES.index(name)]
        near = neighbours(code, found[np.argmin(scores)].astype(np.int32), np.random.default_rng(0))
        assert (evaluate(code, costs, near)[0][:, OBJECTIVES.index(name)] >= scores.min() * (1 - 1e-6)).all()


@examples(40)
@given(seed=SEEDS)
def test_pairs_that_share_a_stretch_are_encoded_in_two_rows(seed: int) -> None:
    code, _ = drawn(seed, "hybrid")
    devices, layers = code.coding.devices, code.g.n_layers
    if code.coding.rows < 2:
        return
    one, two = np.random.default_rng(seed).permutation(devices)[:2]
    found = code.encode(np.full(layers, one), np.full(layers, two))
    assert found is not None
    divisible = code.most[code.g.n_inputs : code.g.n_inputs + layers] > 1  # a single vector of channels stays whole
    for row, split in zip(code.decode(found).by_layer(layers), divisible, strict=True):
        assert {shard.device for shard in row} <= ({one, two} if split else {one})
        assert len(row) == 2 or not split or code.coding.shares != EQUAL


@pytest.mark.parametrize("evaluator", [ANALYTICAL, SIMULATOR])
@examples(15)
@given(devices=st.integers(1, 4), seed=SEEDS)
def test_the_best_period_of_a_line_of_layers_is_found_and_proven(
    chain: Graph, devices: int, seed: int, evaluator: str
) -> None:
    cluster = platform(devices, ", bandwidth=100Mbit/s, latency=0.1ms")
    code, costs = job.prepare(Cnn(chain, False, {}), cluster, job.Coding("vertical"))
    work = np.random.default_rng(seed).uniform(0, 1e-3, len(code.g.size))
    work[: code.g.n_inputs] = work[code.g.n_inputs + code.g.n_layers :] = 0
    costs = costs._replace(work=np.repeat(work[:, None, None], devices, axis=1) * np.ones(costs.work.shape[-1]))
    best = evaluate(code, costs, seeds(code, costs), evaluator)[0][:, PERIOD].min()
    assert best == pytest.approx(bounds(code, costs)["period_s"], rel=1e-6)
    assert best <= evaluate(code, costs, genes(np.random.default_rng(seed), code, 200), evaluator)[0][:, PERIOD].min()


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Six layers, one after the other."""
    return graph_of(tmp_path_factory.mktemp("line"), six_layers())


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_begins_with_the_seeds_and_is_no_worse_for_them(tmp_path: Path, kind: str) -> None:
    cnn = Cnn(graph_of(tmp_path, branches()), False, {})
    encoding, costs = job.prepare(cnn, platform(4), job.Coding(kind, 2))
    one = Settings(population=200, generations=1, evaluator=ANALYTICAL)
    ours, theirs = (search(encoding, costs, replace(one, exact_seeds=exact)) for exact in (True, False))
    known = evaluate(encoding, costs, seeds(encoding, costs))[0]
    assert (ours.best[0] <= known.min(axis=0)).all()
    for objective in ("latency_s", "period_s"):
        column = OBJECTIVES.index(objective)
        assert ours.best[0, column] <= theirs.best[0, column]


def test_one_seed_of_the_generator_gives_one_front(tmp_path: Path) -> None:
    cnn = Cnn(graph_of(tmp_path, branches()), False, {})
    settings = Settings(population=30, generations=4)
    fronts = [search(*job.prepare(cnn, platform(3), job.Coding()), settings) for _ in range(2)]
    assert np.array_equal(fronts[0].genes, fronts[1].genes)
