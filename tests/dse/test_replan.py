"""Going on without hosts: choosing from the front that a run saved, searching anew, and the bundle of it."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from codegen.bundle import check_source
from codegen.verify import verify
from dse import replan
from dse import run as job
from dse.chromosomes import Chromosome
from dse.cli.bundle import Loss, Outgoing, Recipe, ready
from dse.evaluation import OBJECTIVES, evaluate
from dse.inputs import Cnn, read_cnn
from dse.replan import Role
from dse.saved import Saved
from dse.search import Front, search
from dse.settings import Settings
from model.cluster.platform import Platform
from model.cost.costs import CostArrays
from model.mappings.mapping import Mapping
from model.simulator.simulated import simulated
from runtime.deploy.parcel import area
from runtime.errors import CleaveError
from tests.command import dse, files
from tests.tiny_cnn import branches, examples, save, six_layers

QUICK = Settings(population=40, generations=8)
HOSTS = ("p0", "p1", "p2", "p3")
TEXT = """p0, slots=0, memory=1GB, bandwidth=10Gbit/s
p1, slots=0-1, gpu=NVIDIAVolta (CUDA), gpu_memory=1GB, bandwidth=10Gbit/s
p2, slots=0, bandwidth=10Gbit/s
p3, slots=0, memory=2GB, bandwidth=10Gbit/s
"""
FOUR = Platform.parse(TEXT, "four.txt")


def drawn(encoding: Chromosome, costs: CostArrays, *_: object) -> Front:
    """In place of a search: random mappings, about half of the devices in each."""
    draw, size = np.random.default_rng(0), (60, encoding.n_genes)
    genes = (draw.integers(0, encoding.upper + 1, size) * draw.integers(0, 2, size)).astype(np.int32)
    scores = evaluate(encoding, costs, genes)[0]
    return Front(genes, scores, scores.min(axis=0)[None], np.ones(1), len(genes), 1.0, 1.0, genes)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a tiny network on four hosts, and the files it is of."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "four.txt").write_text(TEXT)
    cnn = read_cnn(str(save(folder, branches())), [], False)
    with patch.object(job, "search", drawn):
        job.run(cnn, FOUR, job.Coding(), QUICK, folder / "run", check=False)
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, to be changed; the current folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def cnn(made: Path) -> Cnn:
    return read_cnn(str(made / "tiny.onnx"), [], False)


def role(*without: str, objective: str = "latency_s") -> Role:
    return Role("best-latency", objective, without, None, None)


def by_name(mapping: Mapping, platform: Platform) -> set[tuple[Any, ...]]:
    """Shards with the names of their devices."""
    return {(s.layer, s.start, s.stop, platform.devices[s.device].name) for s in mapping.shards}


# The front


@given(st.sets(st.sampled_from(HOSTS), max_size=3), st.sampled_from(["latency_s", "energy_j", "memory_bytes"]))
@examples(40)
def test_the_best_point_that_needs_no_lost_host_is_chosen(made: Path, cnn: Cnn, lost: set[str], by: str) -> None:
    body = json.loads((made / "run/front.json").read_text())
    hosts = [name.split("_")[0] for name in body["devices"]]
    whole = [{(layer, start, stop, body["devices"][device]) for layer, entry in enumerate(point["mapping"])
              for device, start, stop in ([(entry, None, None)] if isinstance(entry, int) else entry)}
             for point in body["points"]]  # fmt: skip
    usable = [i for i, shards in enumerate(whole) if not {name.split("_")[0] for *_, name in shards} & lost]
    left = FOUR.without(tuple(lost))
    found = replan.from_front(Saved.read(made / "run"), cnn, left, role(*lost, objective=by))
    assert set(hosts) == set(HOSTS)
    if not usable:
        assert found is None
        return
    assert found is not None
    best = min(usable, key=lambda i: body["points"][i][by])
    assert found.value == body["points"][found.point][by] == body["points"][best][by]
    parts = {(s[0], s[3]) for s in whole[found.point]}
    assert {(layer, name) for layer, *_, name in by_name(found.mapping, left)} == parts
    assert found.mapping.check(cnn.graph, left) == []


def test_of_points_that_were_measured_the_best_is_chosen_and_said_to_be(here: Path) -> None:
    """Not one that is better by predictions alone."""
    file = here / "run/front.json"
    body = json.loads(file.read_text())
    alive = [
        p
        for p in body["points"]
        if not {"p0_cpu0", "p3_cpu0"} & set(Saved.read(here / "run").points[p["point"]].devices)
    ]
    first, *_, last = sorted(alive, key=lambda point: point["energy_j"])
    for point in body["points"]:
        point["energy"] = "measured" if point is last else "predicted"
    file.write_text(json.dumps(body))
    assert first["energy_j"] < last["energy_j"]
    with going("run/best-energy", "p0", "p3", dry=True) as (found, said):
        assert found.body["replanned"]["point"] == last["point"]
        assert found.body["replanned"]["measured"] == last["energy_j"]
        assert "predicted" not in found.body["replanned"]
    assert "(measured) on" in said


def test_devices_keep_their_names_though_not_their_numbers(made: Path, cnn: Cnn) -> None:
    saved = Saved.read(made / "run")
    point = next(p for p in saved.points if not {"p0_cpu0"} & p.devices)
    left = FOUR.without(("p0",))
    assert by_name(saved.mapping(point, cnn.graph, left, -1, -1), left) == by_name(
        saved.mapping(point, cnn.graph, FOUR, -1, -1), FOUR
    )


def test_reader_and_writer_are_kept(made: Path, cnn: Cnn) -> None:
    ends = replace(role("p0"), reader="p3_cpu0", writer="p2_cpu0")
    left = FOUR.without(("p0",))
    found = replan.from_front(Saved.read(made / "run"), cnn, left, ends)
    assert found is not None
    assert (found.mapping.reader, found.mapping.writer) == (left.index("p3_cpu0"), left.index("p2_cpu0"))


@given(st.sets(st.sampled_from(HOSTS), max_size=3))
@examples(8)
def test_a_platform_without_hosts_is_the_same_but_for_them(lost: set[str]) -> None:
    lines = [line for line in TEXT.splitlines() if line.split(",")[0] not in lost]
    assert FOUR.without(tuple(lost)) == Platform.parse("\n".join(lines), "four.txt")


# The new search


def test_a_new_search_asks_for_what_the_run_asked_for_but_not_for_longer(made: Path, cnn: Cnn) -> None:
    saved = Saved.read(made / "run")
    assert (saved.coding, saved.settings) == (job.Coding(), QUICK)
    long = replace(
        saved, coding=job.Coding("hybrid", 4, "speed"), settings=Settings(1000, 100, 7, ("energy_j", "period_s"))
    )
    coding, settings = replan.asked_anew(long, cnn, FOUR.without(("p1",)), replace(role("p1"), reader="p2_cpu0"))
    assert coding == job.Coding("hybrid", 3, "speed", reader="p2_cpu0")
    assert settings == Settings(replan.POPULATION, replan.GENERATIONS, 7, ("energy_j", "period_s"))
    assert replan.asked_anew(saved, cnn, FOUR, role("p1"))[1] == QUICK
    gone = replan.asked_anew(None, cnn, FOUR, role("p1", objective="period_s"))[1]
    assert gone.objectives == (*Settings().objectives, "period_s")


def test_a_new_search_finds_a_mapping_for_what_is_left(made: Path, cnn: Cnn) -> None:
    left = FOUR.without(("p0", "p1"))
    first, second = (replan.anew(cnn, left, role("p0", "p1"), job.Coding(), QUICK) for _ in range(2))
    assert first == second
    assert first.point is None
    assert first.mapping.check(cnn.graph, left) == []
    front = search(*job.prepare(cnn, left, job.Coding()), QUICK)
    assert first.value == front.scores[:, OBJECTIVES.index("latency_s")].min()
    assert simulated(cnn.graph, left, first.mapping, 1, 0).price.latency_s == first.value


# The bundle


@contextmanager
def going(
    bundle: str, *lost: str, run: Path | None = None, dry: bool = False, **how: Any
) -> Iterator[tuple[Outgoing, str]]:
    """The bundle that goes without some hosts, and what is said of it."""
    said = io.StringIO()
    loss, say = Loss(list(lost), bool(lost), run), Console(file=said, width=500)
    with ready(Path(bundle), FOUR, Recipe(**how), loss, say, dry) as found:
        yield found, said.getvalue()


def empty_front(folder: Path) -> None:
    file = folder / "front.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"points": []}))


def test_the_bundle_of_the_best_that_is_left_stands_beside_the_other_and_is_right(here: Path) -> None:
    before = files(here)
    with going("run/best-energy", "p0", "p3") as (found, said):
        assert found.bundle == Path("run/best-energy-without-p0-p3")
    assert {name: text for name, text in files(here).items() if name in before} == before
    assert verify(found.bundle, check_source(found.bundle), frames=1).passed
    assert [host.name for host in found.left.hosts] == ["p1", "p2"]
    note = found.body["replanned"]
    assert (note["objective"], note["without"], note["from"]) == ("energy_j", ["p0", "p3"], "run/best-energy")
    assert note["predicted"] == Saved.read(here / "run").points[note["point"]].scores["energy_j"]
    assert "wrote run/best-energy-without-p0-p3" in said


def test_no_point_left_makes_a_new_search_and_says_so(here: Path) -> None:
    empty_front(here / "run")
    with going("run/best-memory", "p0", "p1") as (found, said):
        assert found.body["replanned"]["point"] is None
    assert "without p0, p1 no point of run/front.json can be used, so a short new search is made: hybrid, " in said
    assert "8 generations of 40, seed 0" in said
    assert "the best that was found: largest memory of a device" in said


def test_the_same_again_is_taken_as_it_is(here: Path) -> None:
    with going("run/best-energy", "p0", "p3"):
        pass
    before = files(here)
    with going("run/best-energy", "p3", "p0", "p3") as (found, said):
        assert "run/best-energy-without-p0-p3 is there already, made of the same" in said
    assert (files(here), found.bundle.name) == (before, "best-energy-without-p0-p3")


def test_another_bundle_in_its_place_is_left_alone(here: Path) -> None:
    shutil.copytree("run/best-energy", "run/best-energy-without-p0-p3")
    before = files(here)
    with pytest.raises(CleaveError) as caught, going("run/best-energy", "p0", "p3"):
        pass
    assert caught.value.sentences == (
        "run/best-energy-without-p0-p3: exists already; it is not made of the same; move it away",
    )
    assert files(here) == before


def test_a_second_loss_adds_to_the_first(here: Path) -> None:
    empty_front(here / "run")
    with going("run/best-memory", "p3") as (first, _):
        used = {rank["host"] for rank in json.loads((first.bundle / "plan.json").read_text())["ranks"]}
    lost = sorted(used)[0]
    with going(str(first.bundle), lost) as (found, _):
        names = "-".join(sorted({"p3", lost}))
        assert found.bundle == Path(f"run/best-memory-without-{names}")
        assert found.body["replanned"]["objective"] == "memory_bytes"


def test_a_dry_run_writes_nothing(here: Path) -> None:
    before = files(here)
    with going("run/best-energy", "p0", "p3", dry=True) as (found, said):
        assert (found.bundle / "plan.json").is_file()
        assert "dry run: would write run/best-energy-without-p0-p3" in said
        assert found.area == area(here / "run/best-energy-without-p0-p3")  # where hosts may have some of it
    assert not found.bundle.exists()
    assert files(here) == before


def test_a_bundle_that_does_without_goes_as_it_is(here: Path) -> None:
    empty_front(here / "run")
    with going("run/best-memory", "p3") as (first, _):
        pass
    before = files(here)
    with going(str(first.bundle), "p3") as (found, said):
        assert (found.bundle, said, found.body) == (first.bundle, "", {"bundle": str(first.bundle)})
        assert [host.name for host in found.left.hosts] == ["p0", "p1", "p2"]
    assert files(here) == before


def test_a_bundle_of_no_run_is_searched_for_anew_and_a_run_can_be_named(here: Path) -> None:
    shutil.copytree("run/best-energy", "mine")
    with going("mine", "p0", "p3", run=Path("run"), dry=True) as (found, said):
        assert found.body["replanned"]["objective"] == "latency_s"
        assert "points of run/front.json can be used; the best is point" in said
    with going("mine", "p0", "p3", dry=True) as (_, said):
        assert "there is no front to choose from, so a short new search is made: hybrid, 50 generations of 200" in said


def test_a_network_that_has_moved_can_be_named(here: Path) -> None:
    (here / "tiny.onnx").rename(here / "moved.onnx")
    (here / "run/best-energy/bundle.json").write_text(
        (here / "run/best-energy/bundle.json").read_text().replace('tiny.onnx"', 'gone.onnx"')
    )
    with pytest.raises(CleaveError, match="say where it is with --cnn FILE"), going("run/best-energy", "p0", "p3"):
        pass
    with going("run/best-energy", "p0", "p3", cnn="moved.onnx") as (found, _):
        assert found.bundle.is_dir()


# What is refused

FAR = ["--platform", "four.txt"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["run/best-memory", *FAR, "--exclude", "p9", "--exclude", "p1"],
            "--exclude p9: the platform has no such host (it has p0, p1, p2, p3)",
        ),
        (["run/best-memory", *FAR, "--replan"], "--replan: say with --exclude HOST which host is lost"),
        (["run/best-memory", *FAR, "--exclude", "p0", "--run", "run"], "--run: goes with --exclude HOST --replan"),
        (
            ["run/best-memory", *FAR, *[w for host in HOSTS for w in ("--exclude", host)], "--replan"],
            "--exclude p0, p1, p2, p3: no device is left",
        ),
        (
            ["run/best-memory", *FAR, "--shape", "x=1"],
            "--shape: goes with --mapping, which says what BUNDLE is made of",
        ),
        (["new", *FAR, "--mapping", "m.json"], "--mapping: say with --cnn which network it maps"),
    ],
)
def test_options_that_cannot_be(here: Path, words: list[str], sentence: str) -> None:
    before = files(here)
    for command in ("deploy", "bench"):
        said = dse(command, *words)
        assert (said.code, said.sentences, said.out) == (2, [sentence], "")
    assert files(here) == before


@pytest.mark.parametrize(
    "option", [["--exclude", "p0"], ["--replan"], ["--run", "run"], ["--mapping", "m.json"], ["--head", "p0"]]
)
def test_hosts_of_no_platform_cannot_be_excluded(here: Path, option: list[str]) -> None:
    assert dse("bench", "run/best-memory", *option).sentences == [f"{option[0]}: goes with --platform"]


def test_a_lost_host_that_is_needed_takes_a_word_to_go_on_without(here: Path) -> None:
    used = {rank["host"] for rank in json.loads(Path("run/best-energy/plan.json").read_text())["ranks"]}
    said = dse("bench", "run/best-energy", *FAR, *[word for host in sorted(used) for word in ("--exclude", host)])
    assert said.sentences == [
        f"run/best-energy: has ranks on {', '.join(sorted(used))}, which you exclude; "
        "add --replan to go on with a mapping that does without"
    ]


def test_the_device_that_frames_come_in_at_cannot_be_done_without(here: Path) -> None:
    file = here / "run/best-energy/mapping.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"reader": "p0_cpu0", "writer": "p3_cpu0"}))
    with pytest.raises(CleaveError) as caught, going("run/best-energy", "p0", "p3"):
        pass
    assert caught.value.sentences == (
        "--exclude p0: frames come in at p0_cpu0, and no other device can stand in for it; "
        "search again with another --reader",
        "--exclude p3: results go out at p3_cpu0, and no other device can stand in for it; "
        "search again with another --writer",
    )


def test_the_run_of_another_network_is_refused(here: Path) -> None:
    cnn = read_cnn(str(save(here, six_layers(), "six.onnx")), [], False)
    job.run(cnn, FOUR, job.Coding(), Settings(20, 2), here / "other", check=False)
    with (
        pytest.raises(CleaveError, match=r"^other/front.json: has other layers than 'tiny'; say with --run"),
        going("run/best-energy", "p0", "p3", run=Path("other")),
    ):
        pass


@pytest.mark.parametrize("name", ["summary.json", "front.json"])
@pytest.mark.parametrize("broken", ["", "[]", "{}", '{"format": 3, "version": 1}', "\x00"])
def test_results_that_are_broken_are_named(here: Path, name: str, broken: str) -> None:
    (here / "run" / name).write_text(broken)
    before = files(here)
    with pytest.raises(CleaveError, match=f"^run/{name}: is "), going("run/best-energy", "p0", "p3"):
        pass
    assert files(here) == before


@pytest.mark.parametrize("entry", [-1, 99, "p0", None, [[2]], [[2, 0, "8"]], [[2, 0, 4]]])
def test_points_that_are_broken_are_named(here: Path, entry: Any) -> None:
    file = here / "run/front.json"
    body = json.loads(file.read_text())
    body["points"] = [body["points"][0] | {"mapping": [entry] + [2] * (len(body["layers"]) - 1)}]
    file.write_text(json.dumps(body))
    with pytest.raises(CleaveError, match=r"^run/front.json: "), going("run/best-energy", "p0", "p3"):
        pass


def test_a_folder_that_is_no_runs_is_refused(here: Path) -> None:
    sentence = "nowhere/summary.json: there is no such file; a run leaves it in its folder"
    with pytest.raises(CleaveError) as caught, going("run/best-energy", "p0", run=Path("nowhere")):
        pass
    assert caught.value.sentences == (sentence,)
