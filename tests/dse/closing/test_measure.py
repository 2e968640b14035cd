"""``dse run --measure`` as a person calls it: real ranks, what is written, and hosts that are not there."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dse.evaluation import OBJECTIVES
from dse.results import devices_of
from dse.units import many
from model.cluster import coefficients
from runtime.errors import CleaveError
from tests.command import PROGRAM, done, dse, files
from tests.origin import ORIGIN
from tests.tiny_cnn import branches, save

if TYPE_CHECKING:
    from tests.cluster import Cluster

RUN = ("run", "--cnn", "tiny.onnx", "--platform", "p.txt", "--population", 30, "--generations", 5, "--no-verify")
HERE = "a, address=localhost, slots=0\nb, address=localhost, slots=1\n"
WORDS = ("latency", "energy", "memory", "period")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with a network and a platform."""
    monkeypatch.chdir(tmp_path)
    save(tmp_path, branches())
    (tmp_path / "p.txt").write_text(HERE)
    return tmp_path


def body(name: str) -> Any:
    return json.loads(Path("runs/tiny-p", name).read_text())


def kept() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("runs/tiny-p/measured.jsonl").read_text().splitlines()]


@pytest.mark.mpi
def test_points_say_whether_they_were_measured_and_the_best_ones_are() -> None:
    said = done(*RUN, "--chromosome", "naive", "--measure", 5)
    lines = kept()
    assert len(lines) == 5
    assert all(set(line["measured"]) == {"latency_s", "memory_bytes", "period_s"} for line in lines)
    assert all(len(line["latencies_s"]) == 20 for line in lines)
    assert lines[0]["ranks"][0]["conditions"]["onnxruntime"]
    points = body("front.json")["points"]
    by_mapping = {json.dumps(line["mapping"]): line["measured"] for line in lines}
    for point in points:
        measured = by_mapping.get(json.dumps(point["mapping"]), {})
        for objective, word in zip(OBJECTIVES, WORDS, strict=True):
            assert point[word] == ("measured" if objective in measured else "predicted")
            assert point[objective] == measured.get(objective, point[objective])
            assert point[f"predicted_{objective}"] > 0
        assert point["energy_j"] == point["predicted_energy_j"]
    assert any(point["latency"] == "measured" for point in points)
    with Path("runs/tiny-p/front.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["latency"] for row in rows] == [point["latency"] for point in points]
    summary = body("summary.json")
    best = min(line["measured"]["latency_s"] for line in lines)
    assert summary["best"]["best-latency"]["measured"]["latency_s"] == best
    assert summary["measured"]["mappings"] == 5
    what = {"shapes": {}, "folded": False, "target": "python"}
    assert summary["asked"] == {**what, "measure": 5, "measure_budget_s": None, "measured": None}
    assert summary["measured"]["failed"] == []
    assert "measured 5 of 5 mappings" in said


def broken(*_: object, **__: object) -> None:
    raise CleaveError("this machine has no memory left")


@pytest.mark.mpi
def test_measurements_are_not_lost_where_a_bundle_cannot_be_run_on_the_workstation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dse.run.verify", broken)
    said = dse(*RUN[:-1], "--measure", 2)
    assert said.code == 0, said
    assert "best-latency: this machine has no memory left; it is kept without having been run here" in said.out
    assert len(kept()) == 2
    assert body("summary.json")["best"]["best-latency"]["verified"] is None


@pytest.mark.mpi
def test_measurements_outlive_a_run_that_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dse.results.write_front", broken)
    said = dse(*RUN, "--measure", 2)
    assert (said.code, said.sentences) == (2, ["this machine has no memory left"])
    assert "what was measured is kept: runs/tiny-p.measured.jsonl" in said.out
    assert len(Path("runs/tiny-p.measured.jsonl").read_text().splitlines()) == 2
    assert not Path("runs/tiny-p").exists()
    dse(*RUN, "--measure", 1)
    said = dse(*RUN, "--measure", 1)
    assert "what was measured is kept: runs/tiny-p-3.measured.jsonl" in said.out
    counts = {path.name: len(path.read_text().splitlines()) for path in Path("runs").iterdir()}
    assert counts == {"tiny-p.measured.jsonl": 2, "tiny-p-2.measured.jsonl": 1, "tiny-p-3.measured.jsonl": 1}


@pytest.mark.mpi
def test_who_ends_a_run_after_measuring_is_told_where_the_measurements_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dse.results.write_front", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    said = dse(*RUN, "--measure", 1)
    assert said.code == 128 + signal.SIGTERM
    assert "what was measured is kept: runs/tiny-p.measured.jsonl" in said.out
    assert [path.name for path in Path("runs").iterdir()] == ["tiny-p.measured.jsonl"]


@pytest.mark.mpi
def test_ctrl_c_ends_measuring_and_the_command_goes_on_with_what_there_is() -> None:
    pipe = subprocess.PIPE
    process = subprocess.Popen([*PROGRAM, *map(str, RUN), "--measure", "40"], stdout=pipe, stderr=pipe, text=True)
    deadline = time.monotonic() + 120
    while not any(path.stat().st_size for path in Path().glob("runs/.tiny-p.*/measured.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert f"stopped: the front is of what is known by {len(kept())} measurements" in out
    assert 0 < len(kept()) == body("summary.json")["measured"]["mappings"] < 40
    assert [path.name for path in Path("runs").iterdir()] == ["tiny-p"]


@pytest.mark.mpi
def test_a_run_goes_on_from_what_another_has_measured(here: Path) -> None:
    words = (*RUN, "--chromosome", "naive")
    done(*words, "--measure", 3)
    before = kept()
    other = branches()
    other.graph.name = "other"
    save(here, other, "other.onnx")
    more = (*words, "--measure", 2, "--measured", "runs/tiny-p/measured.jsonl", "--out", "runs/more")
    said = done(*more)
    assert "measured 2 of 2 mappings that were tried, 3 were known before; " in said
    lines = [json.loads(line) for line in Path("runs/more/measured.jsonl").read_text().splitlines()]
    assert lines[:3] == before
    assert len({json.dumps(line["mapping"]) for line in lines}) == len(lines) == 5
    summary = json.loads(Path("runs/more/summary.json").read_text())
    assert summary["measured"]["mappings"] == 5
    assert summary["asked"]["measured"] == "runs/tiny-p/measured.jsonl"
    first, *others = Path("runs/tiny-p/measured.jsonl").read_text().splitlines(keepends=True)
    for name, value in (("negative", "-1.0"), ("nothing", "0"), ("text", '"1"'), ("huge", "1" + "0" * 400)):
        changed = re.sub(r'("measured": {"latency_s": )[0-9.e-]+', rf"\g<1>{value}", first)
        Path(f"{name}.jsonl").write_text(changed + "".join(others))
    Path("cut.jsonl").write_text(first + "".join(others)[:-5])
    (here / "other.txt").write_text(f"{HERE.strip()}, arena=off\n")
    there = files(here)
    for change, sentence in (
        (("--measured", "negative.jsonl"), "negative.jsonl:1: is not as this version writes it (latency_s is -1.0)"),
        (("--measured", "nothing.jsonl"), "nothing.jsonl:1: is not as this version writes it (latency_s is 0)"),
        (("--measured", "text.jsonl"), "text.jsonl:1: is not as this version writes it (latency_s is '1')"),
        (("--measured", "huge.jsonl"), "huge.jsonl:1: is not as this version writes it ("),
        (("--platform", "other.txt"), "runs/tiny-p/measured.jsonl:1: is of another network, platform, chromosome or"),
        (("--chromosome", "vertical"), "runs/tiny-p/measured.jsonl:1: is of another network, platform, chromosome or"),
        (("--reader", "a_cpu0"), "runs/tiny-p/measured.jsonl:1: is of another network, platform, chromosome or target"),
        (("--target", "cpp"), "runs/tiny-p/measured.jsonl:1: is of another network, platform, chromosome or target"),
        (("--cnn", "other.onnx"), "runs/tiny-p/measured.jsonl:1: is of another network, platform, chromosome or"),
        (("--measured", "p.txt"), "p.txt:1: is not as this version writes it ("),
        (("--measured", "none"), "none: there is no such file of measurements"),
    ):
        said = dse(*more, "--force", *change)
        assert (said.code, len(said.sentences), files(here)) == (2, 1, there)
        assert said.sentences[0].startswith(sentence)
    assert ", 2 were known before; " in done(*more, "--force", "--measured", "cut.jsonl")


@pytest.mark.mpi
def test_mappings_that_have_become_too_large_for_their_devices_are_left_out(here: Path) -> None:
    words = (*RUN, "--chromosome", "naive")
    done(*words, "--measure", 4)
    used = [devices_of(line["mapping"]) for line in kept()]
    gone = sum(1 in devices for devices in used)
    assert gone
    (here / "p.txt").write_text(f"{HERE.strip()}, memory=1MB\n")
    said = done(*words, "--measure", 1, "--measured", "runs/tiny-p/measured.jsonl", "--out", "runs/more")
    left_out = f"{many(gone, 'mapping')} of those measured earlier left out: more memory is needed than devices have"
    assert left_out in said
    points = json.loads(Path("runs/more/front.json").read_text())["points"]
    assert {device for point in points for device in devices_of(point["mapping"])} == {0}


@pytest.mark.mpi
def test_hosts_that_cannot_be_reached_are_told_and_the_others_measured(here: Path) -> None:
    (here / "p.txt").write_text(HERE + "far, address=127.0.0.9, port=1, slots=0\n")
    said = dse(*RUN, "--chromosome", "vertical", "--measure", 6, "--key", here / "p.txt", "--json")
    assert said.code == 0, said
    assert "cannot be measured on: far: cannot be reached at [127.0.0.9]:1" in said.err
    found = body("summary.json")["measured"]
    assert (found["mappings"], found["failed"]) == (len(kept()), [])
    assert 0 < len(kept()) <= 6
    front = body("front.json")
    used = {front["devices"][device] for point in front["points"] for device in devices_of(point["mapping"])}
    assert used <= {"a_cpu0", "b_cpu1"}


@pytest.mark.cluster
def test_hosts_of_a_cluster_measure_and_say_what_they_are(testbed: Cluster, here: Path) -> None:
    usual = coefficients.load("generic")
    devices = tuple(f"{host}_cpu{k % 2}" for k, host in enumerate(testbed.hosts))
    said = replace(ORIGIN, devices=devices, conditions={"kernel": "2.6"})
    (here / "old.json").write_text(replace(usual, calibrated=True, measured=said).to_json())
    (here / "p.txt").write_text(testbed.platform.read_text().replace("coefficients=generic", "coefficients=old.json"))
    with testbed.hurried():
        told = done(*RUN, *testbed.options[2:], "--measure", 2)
    assert [set(line["measured"]) for line in kept()] == [{"latency_s", "memory_bytes", "period_s"}] * 2
    assert f"old.json: kernel {os.uname().release} (was 2.6) at " in told


def test_nothing_speaks_of_measuring_where_nothing_is_measured() -> None:
    done(*RUN)
    assert "measured.jsonl" not in files(Path("runs/tiny-p"))
    assert "measured" not in body("summary.json")
    for point in body("front.json")["points"]:
        assert set(point) == {"point", *OBJECTIVES, "devices", "split_layers", "mapping"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--measure-budget", 5), "--measure-budget says how long is measured: add --measure N"),
        (("--measured", "p.txt"), "--measured is what measuring goes on from: add --measure N"),
        (("--head", "a"), "--head says how hosts are reached to measure there: add --measure N"),
        (("--measure", 2, "--trust", "all"), "--trust all: must be one of key, existing"),
        (("--measure", 2, "--key", "none"), "--key none: there is no such file"),
        (
            ("--measure", 2, "--head", "a"),
            "--head says how hosts are reached, and all of these are this machine; leave it out",
        ),
    ],
)
def test_options_that_cannot_be_are_refused_before_the_search(words: tuple[object, ...], sentence: str) -> None:
    before = files(Path())
    said = dse(*RUN, *words)
    assert (said.code, said.sentences) == (2, [sentence])
    assert files(Path()) == before


def test_where_no_host_can_be_reached_nothing_is_searched(here: Path) -> None:
    (here / "p.txt").write_text("far, address=127.0.0.9, port=1, slots=0\n")
    before = files(here)
    said = dse(*RUN, "--chromosome", "vertical", "--measure", 6)
    assert said.code == 2
    assert said.sentences[0].startswith("far: cannot be reached at [127.0.0.9]:1")
    assert "searching" not in said.out
    assert files(here) == before
