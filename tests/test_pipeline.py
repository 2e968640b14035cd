"""The whole way once, under real MPI: search, generate, verify, bench, convert, and generate again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import done, files
from tests.tiny_cnn import branches, save

BEST = ("best-latency", "best-energy", "best-memory")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a run in a folder beside its network."""
    folder = tmp_path_factory.mktemp("pipeline")
    save(folder, branches())
    words = ("--platform", "local2", "--population", 20, "--generations", 8, "--out", folder / "run")
    out = done("run", "--cnn", folder / "tiny.onnx", *words)
    assert out.count("the same (") == 3
    return folder / "run"


def network(found: Path) -> tuple[object, ...]:
    return ("--cnn", found.parent / "tiny.onnx", "--platform", "local2")


def most_ranks(found: Path) -> Path:
    """The bundle of a run that has most to do with messages."""
    return max((found / name for name in BEST), key=lambda bundle: len(list(bundle.glob("rank_*.py"))))


@pytest.mark.mpi
def test_a_run_ships_three_bundles_that_give_the_answer_of_the_whole_model(found: Path) -> None:
    best = json.loads((found / "summary.json").read_text())["best"]
    assert tuple(best) == BEST
    assert all(point["verified"]["passed"] and point["verified"]["error"] < 1e-4 for point in best.values())
    assert any(point["ranks"] == 2 for point in best.values())


@pytest.mark.mpi
def test_a_bundle_can_be_timed_and_verified_again(found: Path) -> None:
    bundle = most_ranks(found)
    body = json.loads(done("bench", bundle, "--warmup", 1, "--frames", 5, "--json"))
    assert len(body["latencies_s"]) == 5
    assert 0 < body["min_s"] <= body["median_s"] <= body["max_s"]
    assert [rank["rank"] for rank in body["ranks"]] == [0, 1]
    assert json.loads(done("verify", bundle, "--frames", 2, "--seed", 5, "--json"))["passed"]


@pytest.mark.mpi
def test_a_bundle_is_made_again_from_its_mapping_byte_by_byte(found: Path) -> None:
    for name in BEST:
        again = found.parent / name
        done("generate", *network(found), "--mapping", found / name / "mapping.json", "--out", again)
        assert files(again) == files(found / name)


@pytest.mark.mpi
def test_a_mapping_survives_the_way_to_autodice_and_back(found: Path) -> None:
    places = [found.parent / "autodice", found.parent / "back"]
    mapping = most_ranks(found) / "mapping.json"
    done("convert", *network(found), "--mapping", mapping, "--to", "autodice", "--out", places[0])
    theirs = ("--mapping", places[0] / "mapping.json", "--horizontal", places[0] / "horizontal.json")
    done("convert", *network(found), *theirs, "--to", "cleave", "--out", places[1])
    assert (places[1] / "mapping.json").read_bytes() == mapping.read_bytes()
