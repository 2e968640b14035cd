"""The local search: from one mapping it finds the front of all there are, keeps limits, and is the same each time."""

from __future__ import annotations

import itertools
from pathlib import Path

import moocore
import numpy as np
import pytest

from codegen.zoo import cached
from dse import run as job
from dse.chromosomes import Chromosome
from dse.evaluation import SIMULATOR, Judge
from dse.inputs import Cnn
from dse.local_search import OTHERS, _parents, bettered
from dse.settings import Settings
from model.cluster.platform import Platform
from model.cost.costs import CostArrays
from model.network.load import load
from tests.tiny_cnn import graph_of, platform, six_layers

SETTINGS = Settings(population=60)
ROUNDS = 60


def prepared(folder: Path, cluster: Platform, kind: str, classes: int = 10) -> tuple[Chromosome, CostArrays]:
    cnn = Cnn(graph_of(folder, six_layers(classes=classes)), False, {})
    return job.prepare(cnn, cluster, job.Coding(kind, 2))


def alone(encoding: Chromosome) -> np.ndarray:
    """The genes of all on the first device."""
    return np.array([encoding.chain([0], np.ones(len(encoding.g.size)))], dtype=np.int32)


def every(encoding: Chromosome) -> np.ndarray:
    """All genes there are."""
    return np.array(list(itertools.product(*(range(upper + 1) for upper in encoding.upper))), dtype=np.int32)


def front_of(judge: Judge, genes: np.ndarray) -> np.ndarray:
    """Objectives of what fits and no other dominates."""
    scores, excess = judge(genes)
    fit = scores[excess <= 0][:, SETTINGS.columns]
    return fit[moocore.is_nondominated(fit, keep_weakly=False)]


@pytest.mark.parametrize(
    ("kind", "memory", "classes"),
    [("naive", "1GB", 10), ("vertical", "1GB", 10), ("hybrid", "1GB", 10), ("hybrid", "75MB", 40_000)],
)
def test_from_one_mapping_it_finds_the_front_of_all(tmp_path: Path, kind: str, memory: str, classes: int) -> None:
    """Where the last layer has 40,000 classes no device can hold all of it."""
    cluster = platform(2, f", bandwidth=10Gbit/s, latency=1us, memory={memory}")
    encoding, costs = prepared(tmp_path, cluster, kind, classes)
    judge = Judge(encoding, costs, SIMULATOR, period=False)
    genes = every(encoding)
    excess = judge(genes)[1]
    assert (excess <= 0).all() == (memory == "1GB")
    first = genes[np.flatnonzero(excess <= 0)[-1:]]
    _, found, scored = bettered(judge, first, SETTINGS, ROUNDS)
    assert np.array_equal(np.unique(found[:, SETTINGS.columns], axis=0), np.unique(front_of(judge, genes), axis=0))
    assert scored < len(genes)  # no mapping twice


def test_by_chance_less_is_found_among_more() -> None:
    """Beyond what one device does, which is where it begins."""
    cnn = Cnn(load(cached("squeezenet")), False, {})
    encoding, costs = job.prepare(cnn, platform(4), job.Coding("hybrid", 2))
    judge, settings = Judge(encoding, costs, SIMULATOR, period=False), Settings(population=50)
    _, found, scored = bettered(judge, alone(encoding), settings, 20)
    drawn = np.random.default_rng(0).integers(0, encoding.upper + 1, (2 * scored, encoding.n_genes), dtype=np.int32)
    given = judge(alone(encoding))[0][0, SETTINGS.columns]
    ours, theirs = (
        moocore.hypervolume(each / given, ref=np.full(len(given), 1.1))
        for each in (found[:, SETTINGS.columns], front_of(judge, np.vstack([alone(encoding), drawn])))
    )
    assert ours > 1.5 * theirs > 0


def test_the_best_of_each_objective_has_children_and_others_have() -> None:
    """Also where a population has not room for all."""
    rng = np.random.default_rng(0)
    values = np.column_stack([np.arange(100), -np.arange(100), np.abs(np.arange(100) - 50)])
    chosen = _parents(values, rng)
    assert {0, 1, 99, 98, 50} < set(chosen.tolist())
    assert len(chosen) == 6 + OTHERS
    some = np.concatenate([_parents(values, rng)[:4] for _ in range(1000)])
    assert set(range(100)) == set(some.tolist())


def test_it_is_the_same_each_time_and_another_by_another_seed(tmp_path: Path) -> None:
    encoding, costs = prepared(tmp_path, platform(4), "hybrid")
    judge = Judge(encoding, costs, SIMULATOR)
    one, two, other = (
        bettered(judge, alone(encoding), Settings(population=10, seed=seed), 3)[0].tobytes() for seed in (0, 0, 1)
    )
    assert one == two != other


def test_without_a_round_it_is_what_no_other_dominates_of_what_is_given(tmp_path: Path) -> None:
    encoding, costs = prepared(tmp_path, platform(3), "vertical")
    judge = Judge(encoding, costs, SIMULATOR)
    given = np.vstack([alone(encoding), alone(encoding)])
    genes, scores, scored = bettered(judge, given, SETTINGS, 0)
    assert (genes.tolist(), scored) == (alone(encoding).tolist(), 0)
    assert np.array_equal(scores, judge(genes)[0])
