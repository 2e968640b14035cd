"""The search: operators stay in range, nothing good is forgotten, limits are kept, and it ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymoo.core.population import Population

from dse import evaluation
from dse import run as job
from dse.evaluation import OBJECTIVES, evaluate
from dse.inputs import Cnn
from dse.operators import ChangeGenes, ExchangeGenes, RandomGenes, SameGenes
from dse.place.cnn.seeds import seeds
from dse.search import Front, head_start, search
from dse.settings import Settings
from model.cluster.platform import Platform
from model.cost.priced import priced
from runtime.errors import CleaveError
from tests.tiny_cnn import branches, examples, graph_of, network, node, platform, six_layers, weight

QUICK = Settings(population=24, generations=15)
SEEDS = st.integers(0, 2**32 - 1)
UPPER = st.lists(st.integers(0, 9), min_size=1, max_size=12)


def problem(upper: list[int]) -> SimpleNamespace:
    """What operators ask of a problem."""
    return SimpleNamespace(xu=np.array(upper), n_var=len(upper))


def genes(rng: np.random.Generator, upper: list[int], *shape: int) -> np.ndarray:
    return rng.integers(0, np.array(upper) + 1, size=(*shape, len(upper)))


def assert_in_range(found: np.ndarray, upper: list[int]) -> None:
    """Floats from pymoo are as good, as long as they are whole."""
    assert (found == found.astype(int)).all()
    assert ((found >= 0) & (found <= np.array(upper))).all()


@examples(60)
@given(UPPER, SEEDS, st.booleans(), st.integers(0, 5))
def test_a_first_population_is_in_range_and_begins_with_what_is_given(
    upper: list[int], seed: int, sparse: bool, given_rows: int
) -> None:
    rng = np.random.default_rng(seed)
    first = genes(rng, upper, given_rows)
    found = RandomGenes(first, sparse)._do(problem(upper), 4, random_state=rng)
    assert found.shape == (4, len(upper))
    assert_in_range(found, upper)
    assert (found[:given_rows] == first[:4]).all()


@examples(60)
@given(UPPER, SEEDS)
def test_children_have_each_gene_from_one_parent_and_the_other_child_has_the_other(upper: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    parents = genes(rng, upper, 2, 6)
    children = ExchangeGenes()._do(problem(upper), parents, random_state=rng)
    assert children.shape == parents.shape
    assert (np.sort(children, axis=0) == np.sort(parents, axis=0)).all()


@examples(60)
@given(UPPER, SEEDS, st.booleans())
def test_a_changed_gene_stays_in_range(upper: list[int], seed: int, steps: bool) -> None:
    rng = np.random.default_rng(seed)
    before = genes(rng, upper, 30)
    after = ChangeGenes(steps)._do(problem(upper), before.copy(), random_state=rng)
    assert after.shape == before.shape
    assert_in_range(after, upper)


def test_most_children_change_in_about_one_gene() -> None:
    upper, rng = [1000] * 40, np.random.default_rng(0)
    before = genes(rng, upper, 2000)
    changed = (ChangeGenes(False)._do(problem(upper), before, random_state=rng) != before).sum(axis=1)
    assert 0.9 < changed.mean() < 1.1


def test_duplicates_are_removed_within_a_population_and_against_others() -> None:
    rows = np.array([[1, 2], [3, 4], [1, 2], [5, 6], [3, 4]])
    kept = SameGenes().do(Population.new(X=rows))
    assert kept.get("X").tolist() == [[1, 2], [3, 4], [5, 6]]
    kept = SameGenes().do(Population.new(X=rows), Population.new(X=np.array([[5, 6]])))
    assert kept.get("X").tolist() == [[1, 2], [3, 4]]


def prepared(folder: Path, cluster: Platform, kind: str = "hybrid") -> tuple:
    cnn = Cnn(graph_of(folder, branches()), False, {})
    return job.prepare(cnn, cluster, job.Coding(kind, 2))


def found(folder: Path, settings: Settings = QUICK, kind: str = "hybrid", cluster: Platform | None = None) -> Front:
    return search(*prepared(folder, cluster or platform(4), kind), settings)


@pytest.mark.parametrize("kind", ["naive", "vertical", "hybrid"])
def test_every_population_is_new_and_the_first_begins_with_the_head_start(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    populations: list[np.ndarray] = []

    def listen(chromosome: object, costs: object, x: np.ndarray, *how: object) -> tuple:
        populations.append(x)
        return evaluate(chromosome, costs, x, *how)  # type: ignore[arg-type]

    monkeypatch.setattr(evaluation, "evaluate", listen)
    encoding, costs = prepared(tmp_path, platform(4), kind)
    search(encoding, costs, replace(QUICK, evaluator="analytical"))
    first = populations[0]
    start = np.vstack([seeds(encoding, costs, QUICK.objectives), head_start(encoding, costs)])
    distinct = list(dict.fromkeys(map(tuple, start.tolist())))[: len(first)]
    assert [tuple(row) for row in first[: len(distinct)].tolist()] == distinct
    for population in populations:
        assert_in_range(population, encoding.upper.tolist())
        assert len(np.unique(population, axis=0)) == len(population)


def test_a_head_start_holds_every_device_alone(tmp_path: Path) -> None:
    encoding, costs = prepared(tmp_path, platform(3))
    alone = [encoding.decode(row).devices for row in head_start(encoding, costs)]
    assert {(0,), (1,), (2,)} <= set(alone)


def test_the_best_chains_are_in_the_smallest_first_population(tmp_path: Path) -> None:
    """There are more devices than mappings in it."""
    encoding, costs = prepared(tmp_path, platform(6))
    few = Settings(population=4, generations=1, objectives=("latency_s", "period_s"), evaluator="analytical")
    best = evaluate(encoding, costs, seeds(encoding, costs)[:4])[0]
    front = search(encoding, costs, few)
    assert (front.best[0, few.columns] <= best[:, few.columns].min(axis=0)).all()


@pytest.mark.parametrize("seed", range(4))
def test_the_best_so_far_never_gets_worse_and_the_volume_never_falls(tmp_path: Path, seed: int) -> None:
    evaluator = "analytical" if seed < 2 else "simulator"
    settings = Settings(8, 40, seed, head_start=seed % 2 == 0, evaluator=evaluator, local_search=False)
    front = found(tmp_path, settings)
    assert front.best.shape == (40, 4)
    assert (np.diff(front.best, axis=0) <= 0).all()
    assert (np.diff(front.volume) >= 0).all()
    assert front.volume[-1] > 0
    assert (front.scores[:, :3].min(axis=0) == front.best[-1, :3]).all()


def test_the_front_holds_all_that_was_ever_seen_and_not_dominated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[np.ndarray] = []

    def listen(*arguments: object) -> tuple:
        scores, excess = evaluate(*arguments)  # type: ignore[arg-type]
        seen.append(scores[:, :3])
        return scores, excess

    monkeypatch.setattr(evaluation, "evaluate", listen)
    front = found(tmp_path, replace(QUICK, population=4, generations=80, evaluator="analytical"), "naive")
    everything = np.unique(np.vstack(seen), axis=0)
    worse = [((everything <= row).all(axis=1) & (everything < row).any(axis=1)).any() for row in everything]
    assert np.array_equal(np.unique(front.scores[:, :3], axis=0), everything[~np.array(worse)])
    assert len(front.genes) > 4
    again = [seen[80], seen[-1]]  # what NSGA-II ends with, and the front
    assert front.evaluated == sum(map(len, seen)) - sum(map(len, again))


def test_the_front_is_sorted_and_no_point_is_there_twice(tmp_path: Path) -> None:
    front = found(tmp_path)
    rows = [tuple(row[:3]) for row in front.scores.tolist()]
    assert rows == sorted(set(rows))
    assert front.best_of("latency_s") == 0


def test_of_equal_points_the_one_that_was_measured_is_the_best(tmp_path: Path) -> None:
    """Its energy is not, where there is no meter."""
    front = found(tmp_path).at(np.array([0, 0, 0]))
    measured = np.full(front.scores.shape, np.nan)
    measured[1, 0] = front.scores[1, 0]
    front = replace(front, measured=measured)
    assert (front.best_of("latency_s"), front.best_of("energy_j")) == (1, 1)


def test_the_progress_is_told_once_a_generation_and_once_a_round(tmp_path: Path) -> None:
    told: list[tuple[int, np.ndarray]] = []
    front = search(*prepared(tmp_path, platform(4)), QUICK, lambda n, best: told.append((n, best)))
    assert [n for n, _ in told] == list(range(1, 31))
    best = np.array([best for _, best in told])
    assert np.array_equal(best[:15], front.best)
    assert (np.diff(best[15:, QUICK.columns], axis=0) <= 0).all()
    assert np.array_equal(best[-1, QUICK.columns], front.scores[:, QUICK.columns].min(axis=0))


def test_the_period_can_be_an_objective(tmp_path: Path) -> None:
    front = found(tmp_path, replace(QUICK, objectives=("latency_s", "period_s")))
    columns = front.scores[:, [0, OBJECTIVES.index("period_s")]]
    assert (np.diff(columns[:, 0]) > 0).all()
    assert (np.diff(columns[:, 1]) < 0).all()


@pytest.mark.parametrize("evaluator", ["both", "simulator"])
def test_a_front_has_the_scores_of_the_simulator(tmp_path: Path, evaluator: str) -> None:
    encoding, costs = prepared(tmp_path, platform(4, ", bandwidth=1Gbit/s, latency=1us, medium=air"), "naive")
    quick = replace(QUICK, objectives=("latency_s", "memory_bytes", "period_s"), local_search=False)
    front = search(encoding, costs, replace(quick, evaluator=evaluator))
    scores, _ = evaluate(encoding, costs, front.genes, "simulator")
    assert np.array_equal(front.scores, scores)
    analytical, _ = evaluate(encoding, costs, front.genes)
    assert not np.array_equal(front.scores, analytical)
    kept = {tuple(row) for row in front.genes.tolist()}
    searched = search(encoding, costs, replace(quick, evaluator="analytical")).genes.tolist()
    searched += seeds(encoding, costs).tolist()
    assert evaluator == "simulator" or kept <= {tuple(row) for row in searched}


def limited(folder: Path, memory: str) -> tuple[Cnn, Platform]:
    """A network with 14.4 MB of weights in one layer, and devices of which two can hold it but one cannot."""
    return Cnn(graph_of(folder, six_layers(classes=40_000)), False, {}), platform(3, f", memory={memory}")


def test_every_point_of_the_front_fits_the_memory_of_the_devices(tmp_path: Path) -> None:
    cnn, cluster = limited(tmp_path, "75MB")
    encoding, costs = job.prepare(cnn, cluster, job.Coding())
    front = search(encoding, costs, QUICK)
    assert len(front.genes)
    for row in front.genes:
        mapping = encoding.decode(row)
        assert priced(cnn.graph, cluster, mapping).fits
        assert len(mapping.by_layer(6)[4]) == 2


def test_a_network_that_fits_nowhere_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    cnn, cluster = limited(tmp_path, "66MB")
    with pytest.raises(CleaveError, match=r"the closest needs \d+\.\d MB more than a device has"):
        search(*job.prepare(cnn, cluster, job.Coding()), QUICK)


def test_a_search_ends_when_every_mapping_is_known(tmp_path: Path) -> None:
    model = network([node("Conv", ["x", "w"], ["y"])], {"x": (1, 3, 8, 8)}, ["y"], {"w": weight(4, 3, 3, 3)})
    cnn = Cnn(graph_of(tmp_path, model), False, {})
    encoding, costs = job.prepare(cnn, platform(2), job.Coding())
    front = search(encoding, costs, Settings(population=100, generations=50))
    assert front.evaluated == 2**encoding.n_genes
    assert len(front.best) == len(front.volume) < 50
    assert len({encoding.decode(row) for row in front.genes}) == len(front.genes)
