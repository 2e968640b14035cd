"""The main job: what it ships, what it remembers, and how it stops."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from codegen.verify import OutputCheck, Verification
from dse import run as job
from dse.before import check_place
from dse.evaluation import OBJECTIVES
from dse.inputs import read_cnn
from dse.results import from_compact
from dse.settings import Settings
from model.cluster.platform import Platform
from model.cost.confidence import of_mapping
from runtime.errors import CleaveError
from tests.command import PROGRAM, files
from tests.confident import calibrated
from tests.tiny_cnn import branches, network, node, platform, save, six_layers, weight

QUICK = Settings(population=30, generations=6)


def run(
    folder: Path,
    settings: Settings = QUICK,
    cluster: Platform | None = None,
    splits: int = 2,
    path: Path | None = None,
    **how: object,
) -> job.Outcome:
    """A search of a tiny network, its results in ``folder/out``; bundles are not run."""
    cnn = read_cnn(str(path or save(folder, branches())), [], False)
    how = {"check": False, **how}
    return job.run(cnn, cluster or platform(3), job.Coding(splits=splits), settings, folder / "out", **how)  # type: ignore[arg-type]


def summary(folder: Path) -> dict:
    body: dict = json.loads((folder / "out/summary.json").read_text())
    return body


def test_the_best_point_of_each_objective_is_shipped(tmp_path: Path) -> None:
    found = run(tmp_path)
    assert [s.name for s in found.shipped] == ["best-latency", "best-energy", "best-memory"]
    for shipped in found.shipped:
        column = OBJECTIVES.index(shipped.objective)
        assert found.front.scores[shipped.point, column] == found.front.scores[:, column].min()
        assert (tmp_path / "out" / shipped.name / "bundle.json").is_file()


def test_the_period_is_shipped_where_it_was_searched_for(tmp_path: Path) -> None:
    found = run(tmp_path, replace(QUICK, objectives=("latency_s", "period_s")))
    assert [s.name for s in found.shipped] == ["best-latency", "best-period"]


def test_the_summary_says_what_was_asked_and_found(tmp_path: Path) -> None:
    found = run(tmp_path)
    body = summary(tmp_path)
    assert body["cnn"] == {"name": "tiny", "path": str(tmp_path / "tiny.onnx"), "layers": 12}
    assert body["platform"] == {"name": "tiny", "devices": 3}
    assert body["chromosome"] == {"kind": "hybrid", "splits": 2, "shares": "equal", "reader": None, "writer": None}
    assert body["settings"]["population"] == 30
    assert body["asked"] == {"shapes": {}, "folded": False, "target": "python"}
    assert body["coefficients"] == {"generic": {"calibrated": False}}
    assert body["front"]["points"] == len(found.front.genes)
    assert body["nsga2"]["generations"] == len(found.front.best)
    assert set(body["versions"]) >= {"python", "numpy", "onnx", "onnxruntime", "pymoo", "mpi4py"}
    for shipped in found.shipped:
        said = body["best"][shipped.name]
        assert said["verified"] is None
        assert said["ranks"] == len(shipped.mapping.devices)
        assert list(said["predicted"].values()) == list(found.front.scores[shipped.point])


def test_every_point_says_by_how_much_its_figures_are_expected_to_be_off(tmp_path: Path) -> None:
    """Of devices without a calibration nobody knows."""
    graph = read_cnn(str(save(tmp_path, branches())), [], False).graph
    half, all_ = (calibrated(tmp_path, graph, platform(3), len(graph.layers) // part) for part in (2, 1))
    unknown = replace(platform(3).devices[2], slowdown=1e3)
    cluster = replace(half, devices=(half.devices[0], all_.devices[1], unknown))
    found = run(tmp_path, cluster=cluster)
    points = json.loads((tmp_path / "out/front.json").read_text())["points"]
    with (tmp_path / "out/front.csv").open() as lines:
        rows = [*csv.DictReader(lines)]
    expected = [of_mapping(graph, cluster, from_compact(graph, point["mapping"])) for point in points]
    assert len({error and error.latency for error in expected}) > 2
    assert None in expected
    for point, row, error in zip(points, rows, expected, strict=True):
        for figure in ("latency", "energy", "memory", "period"):
            said = point[f"expected_error_{figure}"]
            assert said == (error and getattr(error, figure))
            assert row[f"expected_error_{figure}"] == ("" if said is None else str(said))
    assert [found.front.expected(s.point) for s in found.shipped] == [expected[s.point] for s in found.shipped]
    best = {s.name: expected[s.point] for s in found.shipped}
    assert {name: one["expected_error"] for name, one in summary(tmp_path)["best"].items()} == {
        name: error and asdict(error) for name, error in best.items()
    }


def test_a_wrong_answer_is_kept_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Verification(1, 1e-4, (OutputCheck("y", 0.5, "", False),))
    monkeypatch.setattr(job, "verify", lambda *_, **__: wrong)
    assert not run(tmp_path, check=True).passed
    assert summary(tmp_path)["best"]["best-energy"]["verified"] == {"passed": False, "error": 0.5}


def test_a_point_that_is_the_best_in_everything_is_cut_and_checked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Path] = []

    def verified(bundle: Path, *_: object, **__: object) -> Verification:
        checked.append(bundle)
        return Verification(1, 1e-4, (OutputCheck("y", 0.0, "", True),))

    monkeypatch.setattr(job, "verify", verified)
    said: list[str] = []
    latency, *others = run(tmp_path, cluster=platform(1), splits=1, check=True, say=said.append).shipped
    assert [bundle.name for bundle in checked] == ["best-latency"]
    assert [replace(other, name=latency.name, objective=latency.objective) for other in others] == [latency] * 2
    assert said[-2:] == [f"{other.name}: the same mapping as best-latency" for other in others]
    first, *copies = (files(tmp_path / "out" / s.name) for s in (latency, *others))
    assert first
    assert copies == [first] * 2


def test_a_bundle_that_cannot_run_is_named_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Verification:
        raise CleaveError("rank 0 of 2 ran out of memory")

    monkeypatch.setattr(job, "verify", fail)
    said: list[str] = []
    found = run(tmp_path, check=True, say=said.append)
    assert "best-latency: rank 0 of 2 ran out of memory; it is kept without having been run here" in said
    assert not found.passed
    assert summary(tmp_path)["best"]["best-latency"]["verified"] is None
    assert (tmp_path / "out/best-latency/plan.json").is_file()


def test_no_search_is_begun_whose_programs_cannot_be_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_CXX", "no-such-compiler")
    with pytest.raises(CleaveError) as caught:
        run(tmp_path, check=True, target="cpp")
    assert caught.value.sentences[0].startswith("no g++ on the PATH")
    assert caught.value.sentences[1] == "with --no-verify the bundles are written without being run"
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.onnx"]


def test_no_search_is_begun_for_a_network_that_cannot_be_run_to_compare(tmp_path: Path) -> None:
    """ONNX Runtime has no convolution of doubles."""
    conv, weights = [node("Conv", ["x", "w"], ["y"])], {"w": weight(4, 3, 3, 3).astype(np.float64)}
    path = save(tmp_path, network(conv, {"x": (1, 3, 8, 8)}, ["y"], weights, dtype="float64"))
    begun: list[int] = []
    with pytest.raises(CleaveError) as caught:
        run(tmp_path, path=path, check=True, progress=lambda *_: begun.append(1))
    assert caught.value.sentences[0].startswith(f"{path}: ONNX Runtime cannot run it: ")
    assert caught.value.sentences[1] == "with --no-verify the bundles are written without being run"
    assert not begun


def test_a_place_is_checked_without_a_trace(tmp_path: Path) -> None:
    check_place(tmp_path / "a/b/c", False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CleaveError, match="cannot be written: /proc: "):
        check_place(Path("/proc/a/b"), False)


def test_parents_of_the_result_are_made_when_there_is_one(tmp_path: Path) -> None:
    cnn = read_cnn(str(save(tmp_path, six_layers())), [], False)
    small = platform(2, ", memory=1MB")
    with pytest.raises(CleaveError, match="no mapping was found that fits"):
        job.run(cnn, small, job.Coding(), QUICK, tmp_path / "runs/x", check=False)
    assert not (tmp_path / "runs").exists()
    job.run(cnn, platform(2), job.Coding(), QUICK, tmp_path / "runs/x", check=False)
    assert (tmp_path / "runs/x/summary.json").is_file()


def processes_of(folder: Path) -> list[int]:
    """Processes that name ``folder`` in their command or work for it."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder) in word for word in process.info["cmdline"] or []):
            found.append(process.pid)
    return found


def stopped(folder: Path, number: signal.Signals, at: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Start a run, wait for a line that begins with ``at``, then send a signal to the process."""
    save(folder, branches())
    (folder / "tmp").mkdir()
    command = [*PROGRAM, "run", "--cnn", "tiny.onnx", "--platform", "local4", "--out", str(folder / "runs/out"), *words]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    said = ""
    while not said.startswith(at):
        said = process.stdout.readline()
        assert said, process.communicate()
    time.sleep(0.4)
    process.send_signal(number)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()  # unless it has ended, as it should
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("NSGA-II", ("--generations", "1000000", "--population", "100")),
        pytest.param("best-latency: running", ("--generations", "2", "--population", "20"), marks=pytest.mark.mpi),
    ],
)
def test_a_run_that_is_stopped_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int, at: str, words: tuple[str, ...]
) -> None:
    said = stopped(tmp_path, number, at, *words)
    assert (said.returncode, said.stderr) == (code, "stopped; what was unfinished is gone\n")
    assert set(files(tmp_path)) <= {"tiny.onnx", "runs", "tmp", "tmp/.ses"}  # the last is ONNX Runtime's
    assert processes_of(tmp_path) == []
