"""The files of a run: they parse, agree with each other, and depend on the seed alone."""

from __future__ import annotations

import csv
import json
import os
import random
from pathlib import Path

import matplotlib.image
import numba
import numpy as np
import pytest

from dse import results, units
from dse.evaluation import OBJECTIVES
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping
from model.network.load import load
from model.simulator.simulated import simulated
from tests.command import apart, done
from tests.tiny_cnn import branches, graph_of, random_mapping, save

TABLES = ("front.csv", "front.json", "convergence.csv")
SEARCHED = ("latency_s", "energy_j", "memory_bytes")
ASKED = ("--platform", "local4", "--population", "40", "--generations", "12", "--no-verify")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network and the results of a run, in ``run``."""
    folder = tmp_path_factory.mktemp("results")
    save(folder, branches())
    done(*words(folder, "run"))
    return folder


def words(folder: Path, out: str, seed: int = 3) -> tuple[object, ...]:
    return ("run", "--cnn", folder / "tiny.onnx", *ASKED, "--seed", seed, "--out", folder / out)


def table(file: Path) -> list[dict[str, float]]:
    with file.open(newline="") as lines:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(lines)]


def points(place: Path) -> list[dict]:
    found: list[dict] = json.loads((place / "run/front.json").read_text())["points"]
    return found


def same(place: Path, out: str) -> list[bool]:
    return [(place / "run" / name).read_bytes() == (place / out / name).read_bytes() for name in TABLES]


def test_both_forms_of_the_front_say_the_same(place: Path) -> None:
    rows = table(place / "run/front.csv")
    assert len(rows) > 3
    assert [{key: row[key] for key in rows[0]} for row in points(place)] == rows


def test_no_point_of_the_front_dominates_another(place: Path) -> None:
    scores = np.array([[row[o] for o in SEARCHED] for row in table(place / "run/front.csv")])
    below = (scores[:, None] <= scores).all(axis=2)
    assert (below == np.eye(len(scores), dtype=bool)).all()


def test_every_mapping_of_the_front_is_simulated_with_what_stands_beside_it(place: Path) -> None:
    graph, cluster = load(place / "tiny.onnx"), Platform.from_file("local4")
    for point in points(place):
        mapping = results.from_compact(graph, point["mapping"])
        assert mapping.check(graph, cluster) == []
        found = simulated(graph, cluster, mapping)
        wanted = [found.price.latency_s, found.price.energy_j, found.price.memory_bytes, found.price.period_s]
        assert [point[name] for name in OBJECTIVES] == pytest.approx(wanted, rel=1e-12)
        assert point["devices"] == len(mapping.devices)


def test_the_best_bundles_hold_the_lowest_points(place: Path) -> None:
    graph, cluster = load(place / "tiny.onnx"), Platform.from_file("local4")
    for name, objective in zip(("best-latency", "best-energy", "best-memory"), SEARCHED, strict=True):
        mapping = Mapping.from_json((place / "run" / name / "mapping.json").read_text(), graph, cluster)
        best = min(points(place), key=lambda point: point[objective])
        assert results.from_compact(graph, best["mapping"]) == mapping


def test_convergence_ends_where_the_front_begins(place: Path) -> None:
    rows, front = table(place / "run/convergence.csv"), table(place / "run/front.csv")
    assert [row["generation"] for row in rows] == list(range(1, 13))
    assert [rows[-1][o] for o in SEARCHED] == [min(point[o] for point in front) for o in SEARCHED]
    summary = json.loads((place / "run/summary.json").read_text())
    assert summary["nsga2"]["hypervolume"] == rows[-1]["hypervolume"]
    assert summary["front"]["points"] == len(front)


def test_one_seed_gives_the_same_bytes_on_any_number_of_threads(place: Path) -> None:
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        done(*words(place, "again"))
    finally:
        numba.set_num_threads(threads)
    assert same(place, "again") == [True] * 3
    said = apart(*words(place, "apart"), env={**os.environ, "NUMBA_NUM_THREADS": "1", "PYTHONHASHSEED": "7"})
    assert said.returncode == 0, said.stderr
    assert same(place, "apart") == [True] * 3


def test_another_seed_gives_another_search(place: Path) -> None:
    done(*words(place, "other", seed=4))
    assert same(place, "other") == [False] * 3


def test_without_a_local_search_what_comes_before_is_the_same(place: Path) -> None:
    said = done(*words(place, "without"), "--no-local-search")
    assert "local search" not in said
    ours, theirs = (json.loads((place / run / "summary.json").read_text()) for run in ("without", "run"))
    assert (ours["settings"]["local_search"], theirs["settings"]["local_search"]) == (False, True)
    assert ours["front"]["evaluated"] < theirs["front"]["evaluated"]
    assert same(place, "without")[-1]


@pytest.mark.parametrize("name", ["front.png", "convergence.png"])
def test_pictures_show_something(place: Path, name: str) -> None:
    image = matplotlib.image.imread(place / "run" / name)
    assert image.shape[0] > 300
    assert image.shape[1] > 1000
    assert len(np.unique(image.reshape(-1, image.shape[2]), axis=0)) > 50
    assert all(part.std() > 0.01 for part in np.array_split(image[..., :3], 3, axis=1))


def test_a_mapping_survives_the_short_form(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, branches())
    for seed in range(50):
        mapping = random_mapping(random.Random(seed), graph, 5)
        short = json.loads(json.dumps(results.compact(graph, mapping)))
        assert len(short) == len(graph.layers)
        assert results.from_compact(graph, short) == mapping


def test_values_are_shown_with_their_units() -> None:
    values = (0.02834, 1.5, 65e6, 0.004)
    shown = [units.shown(name, value) for name, value in zip(OBJECTIVES, values, strict=True)]
    assert shown == ["28.34 ms", "1.5 J", "65 MB", "4 ms"]
