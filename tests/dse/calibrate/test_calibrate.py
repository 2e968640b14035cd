"""``dse calibrate`` as a person calls it: real ranks, real interruptions, what it keeps and what it refuses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from itertools import pairwise
from math import hypot
from pathlib import Path
from shutil import copytree
from statistics import fmean
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from dse.calibrate.check import Drift
from dse.calibrate.command import AMID, FIRST_LOOK, SAMPLES
from dse.calibrate.design import IN_PARTS, WHOLE
from dse.calibrate.samples import RUN, opened
from dse.calibrate.turns import TURNS, settled
from model.cluster import coefficients
from model.cluster.coefficients import FrameError
from model.cluster.platform import Platform
from model.cost import priced as prices
from model.cost.samples import Run, Sample
from model.mappings.mapping import Mapping
from model.network.load import load
from runtime.errors import CleaveError
from tests.command import PROGRAM, done, dse, files
from tests.tiny_cnn import network, node, save, six_layers

if TYPE_CHECKING:
    from tests.cluster import Cluster

PLATFORM = """# two machines that are one
a, address=localhost, slots=0  # the first
c, address=localhost, slots=0
"""
OTHER = "b, address=localhost, slots=0-1, threads=2\n"
CALIBRATE = ("calibrate", "--cnn", "six.onnx", "--platform", "p.txt", "--out", "out", "--budget", 0.1)


def furnished(folder: Path) -> None:
    """A folder with networks and a platform."""
    light = [node("Relu", ["x"], ["y"]), node("Sigmoid", ["y"], ["z"])]
    for name, model in {"six": six_layers(), "light": network(light, {"x": (1, 64)}, ["z"])}.items():
        save(folder, model, f"{name}.onnx")
    (folder / "p.txt").write_text(PLATFORM)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a calibration that came to its end."""
    folder = tmp_path_factory.mktemp("finished")
    furnished(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done(*CALIBRATE)
    return folder / "out"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in."""
    monkeypatch.chdir(tmp_path)
    furnished(tmp_path)
    return tmp_path


def kept(out: str = "out") -> list[Run]:
    with opened(Path(out) / SAMPLES) as store:
        return store.runs


def priced(platform: Path) -> str:
    """What is said of the network on the platform's first device."""
    graph = load("six.onnx")
    Path("m.json").write_text(Mapping.whole(graph, [0] * 6).to_json(graph, Platform.from_file(platform)))
    return done("price", "--cnn", "six.onnx", "--platform", platform, "--mapping", "m.json")


def begun(program: str) -> None:
    """Wait until a calibration has kept some runs."""
    deadline = time.monotonic() + 120
    while not Path("out", SAMPLES).exists() or Path("out", SAMPLES).read_bytes().count(b"\n") < 4:
        assert time.monotonic() < deadline, program
        time.sleep(0.05)


def refused(*words: object) -> list[str]:
    """The sentences of a command that must be refused and must not write."""
    before = files(Path())
    said = dse(*words)
    assert (said.code, said.out) == (2, ""), said
    assert files(Path()) == before
    return said.sentences


@pytest.mark.mpi
def test_a_run_has_the_times_of_all_segments_in_all_frames_and_what_they_depend_on(finished: Path) -> None:
    """Segments of different devices are computed one after the other, but for parts of a layer."""
    runs = kept(str(finished))
    assert {run.device for run in runs} == {"a_cpu0"}
    assert {run.what for run in runs} >= {FIRST_LOOK, WHOLE, "layer by layer", "channels 0.5 + 0.5"}
    for run in runs:
        assert len(run.latencies_s) >= 3
        beside = [[s for s in run.samples if s.device == rank.device] for rank in run.ranks]
        for samples in beside if run.what == IN_PARTS else [run.samples]:
            assert all(0 < sum(times) <= latency for *times, latency in _frames(run, samples)), run.what
        assert run.ranks[0].peak_bytes > 20e6
        assert run.conditions["numpy"]
        assert run.conditions["kernel"]


@pytest.mark.mpi
def test_streams_say_what_a_processor_is_at_besides_computing(finished: Path) -> None:
    told = [(run.period_s or 0.0, rank) for run in kept(str(finished)) for rank in run.ranks if rank.stream_s]
    assert told
    assert all(0 < (rank.between_s or 0.0) < period_s for period_s, rank in told)


@pytest.mark.mpi
def test_the_whole_network_is_run_again_and_again_and_counts_once(finished: Path, here: Path) -> None:
    alone = [run.what for run in kept(str(finished)) if len(run.ranks) == 1]
    at = [number for number, what in enumerate(alone) if what == WHOLE]
    assert alone[:2] == [FIRST_LOOK, WHOLE]
    assert {b - a for a, b in pairwise(at)} == {AMID + 1, len(alone) - 1 - at[-2]}
    assert at[-1] == len(alone) - 1
    copytree(finished, here / "out")
    (type_,) = json.loads(done(*CALIBRATE, "--json"))["types"]
    assert type_["runs"] == len(alone) - len(at)
    assert len(type_["networks"]) == 1


@pytest.mark.mpi
def test_the_platform_file_that_is_written_is_the_given_one_with_what_was_measured(finished: Path, here: Path) -> None:
    assert sorted(path.name for path in finished.iterdir()) == ["a.json", "p.txt", SAMPLES]
    head, *lines = (finished / "p.txt").read_text().splitlines()
    assert head == PLATFORM.splitlines()[0]
    for line, name in zip(lines, "ac", strict=True):
        assert re.fullmatch(
            f"{name}, address=localhost, slots=0, bandwidth=[0-9.]+MB/s, latency=[0-9.]+us, coefficients=a.json"
            + ("  # the first" if name == "a" else ""), line,
        )  # fmt: skip
    found = coefficients.load(str(finished / "a.json"))
    assert found.calibrated
    assert found.measured is not None
    assert found.measured.devices == ("a_cpu0", "c_cpu0")
    assert found.measured.declared == "generic"
    assert found.measured.conditions["onnxruntime"]
    assert {kernel.op for kernel in found.unit("cpu").kernels.values()} >= {"Conv", "Gemm", "MaxPool"}
    assert "not calibrated" not in priced(finished / "p.txt")


@pytest.mark.mpi
def test_what_is_there_is_not_measured_again_and_gives_the_same_files(finished: Path, here: Path) -> None:
    copytree(finished, here / "out")
    before = files(here / "out")
    body = json.loads(done(*CALIBRATE, "--json"))
    assert [(one["type"], one["devices"]) for one in body["types"]] == [("a", ["a_cpu0", "c_cpu0"])]
    assert files(here / "out") == before
    done(*CALIBRATE[:3], "--platform", "out/p.txt", *CALIBRATE[5:])  # as written: what it says of links is what it said
    assert files(here / "out") == before


def turns() -> list[list[Run]]:
    """What was run on several devices, by what it is."""
    found = defaultdict[tuple[str, ...], list[Run]](list)
    for run in kept():
        if len(run.ranks) > 1:
            found[run.what, *(rank.device for rank in run.ranks)].append(run)
    return list(found.values())


def twice() -> list[tuple[float, float]]:
    """Seconds of what was run twice, then and minutes later."""
    whole = [run for run in kept() if run.what in (FIRST_LOOK, WHOLE)]
    return [(before.time_s, now.time_s) for before, now in (*pairwise(whole), *(of[:TURNS] for of in turns()))]


@pytest.mark.mpi
def test_predictions_expect_to_be_off_by_what_one_device_was_held_out_and_several_devices_were(
    finished: Path, here: Path
) -> None:
    copytree(finished, here / "out")
    body = json.loads(done(*CALIBRATE, "--json"))
    (type_,) = body["types"]
    alone = type_["residuals"]["a_cpu0"]["networks"]["six"]["frame"]
    figures = [figure for test in body["together"] for figure in test["figures"]]
    whats = [field.name for field in fields(FrameError)]
    errors = {what: [abs(f["error"]) for f in figures if f["what"] == what] for what in whats}
    assert len(errors["latency"]) == len(errors["computing"]) > 1
    assert len(errors["period"]) == 1  # one of the runs had a stream
    expected = {what: hypot(fmean([alone, *each]), body["apart"]) for what, each in errors.items()}
    assert body["apart"] == pytest.approx(fmean(abs(now / before - 1) for before, now in twice()))
    assert [row["expected_error"] for row in type_["networks"]] == [pytest.approx(expected)]
    unit = coefficients.load("out/a.json").unit("cpu")
    assert asdict(unit.frame_errors["six"]) == pytest.approx(expected)
    assert unit.memory_error == type_["residuals"]["a_cpu0"]["memory"]
    times = "latency by {latency:.1%}, energy by {computing:.1%}, memory by {memory:.1%}, period by {period:.1%}."
    said = " ".join(priced(Path("out/p.txt")).split())
    assert f"Predictions are expected to be off: {times.format(memory=unit.memory_error, **expected)}" in said


@pytest.mark.mpi
def test_files_of_another_version_are_written_anew_also_by_the_platform_file_that_names_them(
    finished: Path, here: Path
) -> None:
    copytree(finished, here / "out")
    old = here / "out" / "a.json"
    text, platform = old.read_text(), (here / "out" / "p.txt").read_text()
    old.write_text(text.replace('"version": ', '"version": 1'))
    with pytest.raises(CleaveError, match="run dse calibrate again, into the same folder"):
        coefficients.load(str(old))
    done(*CALIBRATE, "--platform", "out/p.txt")
    assert old.read_text() == text
    assert (here / "out" / "p.txt").read_text() == platform


@pytest.mark.mpi
def test_of_two_runs_on_several_devices_both_count(finished: Path, here: Path) -> None:
    copytree(finished, here / "out")
    times = {of[turn].key: 1e3 * (1 + turn / 10) for of in turns() for turn in range(TURNS)}
    more = {run.key for of in turns() for run in of[TURNS:]}
    file = here / "out" / SAMPLES
    lines = [line for line in map(json.loads, file.read_text().splitlines()) if line.get("key") not in more]
    for line in lines:
        if line.get("key") in times:
            line |= {
                "latencies_s": [times[line["key"]]] * len(line["latencies_s"]),
                "period_s": line["period_s"] and 1.0,
            }
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = json.loads(done(*CALIBRATE, "--json"))["together"]
    assert len(told) == len(turns()) > 1
    measured_s = [figure["measured_s"] for each in told for figure in each["figures"] if figure["what"] == "latency"]
    assert measured_s == [pytest.approx(1050)] * len(told)


@pytest.mark.mpi
def test_devices_that_are_described_otherwise_are_measured_apart_into_files_of_their_own(here: Path) -> None:
    (here / "p.txt").write_text(PLATFORM + OTHER)
    body = json.loads(done("calibrate", "--cnn", "light.onnx", *CALIBRATE[3:], "--json"))
    assert [(one["type"], one["devices"]) for one in body["types"]] == [
        ("a", ["a_cpu0", "c_cpu0"]), ("b", ["b_cpu01"]),
    ]  # fmt: skip
    assert {run.device for run in kept()} == {"a_cpu0", "b_cpu01"}
    sets = [Path(device.coefficients).name for device in Platform.from_file("out/p.txt").devices]
    assert sets == ["a.json", "a.json", "b.json"]
    assert coefficients.load("out/b.json").unit("cpu").threads == 2


def _frames(run: Run, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
    """Of each frame, what some segments took and how long it was, with room for rounding."""
    rounded = (latency_s + 1e-9 * (len(samples) + 1) for latency_s in run.latencies_s)
    return list(zip(*(sample.times_s for sample in samples), rounded, strict=True))


@pytest.mark.mpi
def test_one_that_is_stopped_keeps_its_runs_leaves_no_process_and_goes_on(here: Path) -> None:
    words, pipe = [*PROGRAM, *map(str, CALIBRATE)], subprocess.PIPE
    process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True)
    begun("a calibration that will be stopped")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    stopped, runs = (here / "out" / SAMPLES).read_bytes(), kept()
    assert f"out/{SAMPLES} keeps the {len(runs)} runs that were made; the same command goes on from there" in err
    assert "Traceback" not in err
    assert [path.name for path in (here / "out").iterdir()] == [SAMPLES]
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(here / "out") in " ".join(p.info["cmdline"] or [])]
    done(*CALIBRATE)
    assert (here / "out" / SAMPLES).read_bytes().startswith(stopped)
    keys = [run.key for run in kept()]
    assert len(set(keys)) == len(keys) > len(runs)


@pytest.mark.mpi
def test_check_finds_a_time_that_is_another_now_and_writes_nothing(finished: Path, here: Path) -> None:
    copytree(finished, here / "out")
    file = here / "out" / SAMPLES
    file.write_text("".join(_slower(line, 1e4) for line in file.read_text().splitlines()))
    before = files(here / "out")
    said = dse(*CALIBRATE, "--check", "--json")
    network, latency, period, *links = json.loads(said.out)
    assert (network["type"], network["drifted"], network["changed"]) == ("a", True, [])
    for row, time_s in ((latency, "time_s"), (period, "period_s")):
        (stretches,) = (settled(of) for of in turns() if of[0].what == "stretches")
        before_s = fmean(getattr(run, time_s) for run in stretches)
        assert (row["device"], row["before_s"]) == ("2 devices", pytest.approx(before_s))
        assert 0 < row["now_s"] != row["before_s"]
    assert [row["network"] for row in (latency, period)] == ["six, latency", "six, period"]
    assert {row["device"] for row in links} == {"a_cpu0 to c_cpu0", "c_cpu0 to a_cpu0"}
    assert {row["network"] for row in links} >= {"4 bytes", "1048576 bytes"}
    assert said.code == 1
    assert files(here / "out") == before
    said = dse(*CALIBRATE, "--check", "--cnn", "light.onnx")
    assert (said.code, said.sentences) == (2, [
        f"out/{SAMPLES}: not all devices of this platform and these networks were measured there; calibrate first, "
        "without --check"
    ])  # fmt: skip
    assert files(here / "out") == before


@pytest.mark.mpi
def test_what_is_adjusted_predicts_what_was_measured_and_a_new_calibration_takes_it_back(
    finished: Path, here: Path
) -> None:
    copytree(finished, here / "out")
    before = files(here / "out")
    network, *links = json.loads(dse(*CALIBRATE, "--check", "--adjust", "--json").out)
    after = files(here / "out")
    assert {name for name in after if after[name] != before[name]} == {"p.txt"}
    a, c = Platform.from_file("out/p.txt").devices
    assert a.slowdown == c.slowdown == network["slowdown"] != 1
    assert {row["slowdown"] for row in links} == {None}
    graph = load("six.onnx")
    found = prices.priced(graph, Platform.from_file("out/p.txt"), Mapping.whole(graph, [0] * 6))
    assert found.latency_s == pytest.approx(network["now_s"], rel=1e-2)
    afterwards = ("calibrate", "--cnn", "six.onnx", "--platform", "out/p.txt", *CALIBRATE[5:])
    for more, times in ((), a.slowdown), (("--adjust",), 1.0):
        again, *_ = json.loads(dse(*afterwards, "--check", *more, "--json").out)
        assert again["before_s"] == pytest.approx(network["before_s"] * times)
    assert "what --adjust had found is gone: a_cpu0" in done(*afterwards)
    assert [device.slowdown for device in Platform.from_file("out/p.txt").devices] == [1, 1]


@pytest.mark.mpi
def test_what_was_measured_of_another_network_or_host_is_not_lost_or_mixed(finished: Path, here: Path) -> None:
    copytree(finished, here / "out")
    before = files(here / "out")
    said = dse("calibrate", "--cnn", "light.onnx", *CALIBRATE[3:])
    assert (said.code, said.sentences) == (2, [
        f"out/{SAMPLES}: 'six' was measured there, and is not given; name it with --cnn, too, or choose another folder "
        "with --out"
    ])  # fmt: skip
    assert files(here / "out") == before
    file = here / "out" / SAMPLES
    file.write_text(file.read_text().replace(f'"kernel":"{os.uname().release}"', '"kernel":"2.6.18"'))
    said = dse(*CALIBRATE, "--cnn", "light.onnx")
    assert said.sentences[0] == (
        f"a_cpu0 is not as it was: kernel {os.uname().release} (was 2.6.18). Measure it as it was, or begin another "
        "calibration with --out"
    )
    assert len(kept()) == file.read_text().count('"kind":"run"')


@pytest.mark.mpi
def test_runs_that_other_virtual_machines_disturbed_each_time_are_told(finished: Path, here: Path) -> None:
    copytree(finished, here / "out")
    file = here / "out" / SAMPLES
    stolen = {"whole": 0.3, "random 1": 0.08, "random 2": 0.01, FIRST_LOOK: 0.5}
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if line.get("kind") == RUN:
            line["stolen"] = stolen.get(line["what"], 0.04 if line["what"].startswith("together") else 0.0)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (type_,) = json.loads(done(*CALIBRATE, "--json"))["types"]
    assert (type_["disturbed"], type_["stolen"]) == (2, 0.3)
    said = done(*CALIBRATE)
    assert re.search(rf"(?m)^disturbed: in 2 of {type_['runs']} runs of a, .* had up to 30% of a processor; ", said)
    assert re.search(r"(?m)^disturbed: in \d+ of \d+ runs of several devices, .* had up to 4% of a processor; ", said)


@pytest.mark.mpi
def test_a_run_on_several_devices_that_was_disturbed_is_run_once_more_and_does_not_count(
    finished: Path, here: Path
) -> None:
    copytree(finished, here / "out")
    file, what = here / "out" / SAMPLES, "alone: Conv"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    of = [line for line in lines if line.get("kind") == RUN and line["what"] == what][:TURNS]
    of[0]["latencies_s"] = [1e3 + time_s for time_s in of[0]["latencies_s"]]
    kept_lines = [line for line in lines if line in of or line.get("what") != what]
    file.write_text("".join(json.dumps(line) + "\n" for line in kept_lines))
    told = json.loads(done(*CALIBRATE, "--json"))["together"]
    made = [run for run in kept() if run.what == what]
    assert len(made) == TURNS + 1
    assert max(figure["measured_s"] for test in told for figure in test["figures"]) < 100
    done(*CALIBRATE)
    assert [run for run in kept() if run.what == what] == made


@pytest.mark.mpi
def test_check_says_what_is_another_now_of_the_host_and_which_links_are_slower(finished: Path, here: Path) -> None:
    copytree(finished, here / "out")
    file = here / "out" / SAMPLES
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        line.get("conditions", {}).update(kernel="2.6.18", numpy="0.1")
        for sample in line.get("samples", []) if line.get("kind") == "links" else []:
            sample["times_s"] = [time_s * 1e-6 for time_s in sample["times_s"]]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = dse(*CALIBRATE, "--check")
    kernel = f"kernel {os.uname().release} (was 2.6.18)"
    assert f"a_cpu0 is not as it was: {kernel}\n" in said.out
    assert re.search("(?m)^a_cpu0 to c_cpu0 +33554432 bytes .* drifted$", said.out), said.out


@pytest.mark.parametrize(("now_s", "drifted"), [(0.0109, False), (0.0112, True), (0.0091, False), (0.0088, True)])
def test_a_tenth_more_or_less_is_a_drift(now_s: float, drifted: bool) -> None:
    assert Drift("a", "a_cpu0", "six", 0.01, now_s).drifted == drifted
    assert not Drift("a", "a_cpu0", "six", 1e-5, 9e-5).drifted


def _slower(line: str, factor: float) -> str:
    body: dict[str, Any] = json.loads(line)
    if body.get("what") == "whole":
        body["latencies_s"] = [time_s * factor for time_s in body["latencies_s"]]
    return json.dumps(body) + "\n"


def test_coefficients_that_are_none_are_refused_before_anything_is_measured(here: Path) -> None:
    usual = coefficients.load("generic")
    (here / "cpu.json").write_text(replace(usual, name="mine", units={"cpu": usual.unit("cpu")}).to_json())
    for word, sentence in (
        ("coefficients=nowhere", "coefficients 'nowhere' are neither shipped"),
        ("coefficients=own.json", "coefficients 'own.json' are neither shipped"),
        ("gpu=any (CUDA), coefficients=cpu.json", "coefficients 'mine' have no figures for a gpu"),
    ):
        (here / "p.txt").write_text(f"a, address=localhost, slots=0, {word}\n")
        assert sentence in " ".join(refused(*CALIBRATE)), word


def test_what_cannot_be_is_refused_before_anything_is_written(here: Path) -> None:
    (here / "file").write_text("mine")
    (here / "run").mkdir()
    (here / "run" / "summary.json").write_text("{}")
    (here / "other").mkdir()
    (here / "other" / "six.onnx").write_bytes((here / "six.onnx").read_bytes())
    for more, sentence in (
        (("--out", "file"), "file: exists and is no folder; choose another place with --out"),
        (("--out", "run"), "run: holds a bundle or the results of a run; choose another place with --out"),
        (("--out", "."), "p.txt: is there already, and would be replaced; choose another --out"),
        (("--check",), "out: no calibration was begun there, so there is nothing to check"),
        (("--adjust",), "--adjust goes with --check, whose measurements it takes"),
        (("--cnn", "none.onnx"), "none.onnx: there is no such file"),
        (("--cnn", "zoo:nothing"), "the zoo has no network 'nothing'"),
        (("--platform", "nowhere.txt"), "nowhere.txt: there is no such file"),
        (("--key", "none"), "--key none: there is no such file"),
        (("--work", "../up"), "--work '../up': only letters, digits, '.', '-', '_' and '/', and no '..'"),
        (("--mixed",), "--mixed says how hosts are reached, and all of these are this machine; leave it out"),
        (("--trust", "nobody"), "--trust nobody: must be one of key, existing"),
        (("--cnn", "other/six.onnx"), "--cnn: two networks are called 'six'; give each once, by a name of its own"),
    ):
        assert sentence in " ".join(refused(*CALIBRATE, *more)), more


def test_a_dry_run_writes_nothing(here: Path) -> None:
    before = files(here)
    assert done(*CALIBRATE, "--dry-run") == "dry run: would measure six on p and write out\n"
    assert files(here) == before


@pytest.mark.mpi
def test_a_run_that_fails_says_why_and_what_is_kept(here: Path) -> None:
    (here / "p.txt").write_text("a, address=localhost, slots=0, gpu=V (CUDA)\n")
    said = dse(*CALIBRATE)
    assert said.code == 2
    assert "no CUDAExecutionProvider in this ONNX Runtime" in said.sentences[0]
    assert said.sentences[1] == f"out/{SAMPLES} keeps the 1 run that was made; the same command goes on from there"


@pytest.mark.cluster
def test_hosts_of_a_cluster_are_measured_over_ssh(testbed: Cluster, here: Path) -> None:
    words = ["calibrate", "--cnn", here / "light.onnx", "--out", here / "far", "--budget", 0.1, *testbed.options]
    bundles = "ls .cleave/bundles 2>/dev/null; true"
    before = set(testbed.said(testbed.hosts[0], bundles).split())
    with testbed.hurried():
        body = json.loads(done(*words, "--json"))
    assert [device for one in body["types"] for device in one["devices"]] != []
    runs = kept("far")
    looked = {run.host for run in runs if run.what == FIRST_LOOK}
    assert looked == set(testbed.hosts)
    assert all(run.conditions["open mpi"] and run.conditions["kernel"] for run in runs)
    assert set(testbed.said(testbed.hosts[0], bundles).split()) - before == {"calibration"}


def test_hosts_are_asked_before_anything_is_measured(here: Path) -> None:
    (here / "far.txt").write_text(
        "far, address=127.0.0.9, port=1, slots=0\nother, address=127.0.0.9, port=2, slots=0\n"
    )
    said = dse("calibrate", "--cnn", "six.onnx", "--platform", "far.txt", "--out", "far")
    assert said.code == 2
    assert [sentence.split(":")[0] for sentence in said.sentences] == ["far", "other"]
    assert not (here / "far").exists()
