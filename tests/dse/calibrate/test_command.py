"""Which runs a calibration makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from dse.calibrate.command import TOGETHER, Lab
from dse.calibrate.design import IN_PARTS, STRETCHES, stretches
from dse.calibrate.measure import LEAST, Job
from dse.calibrate.refused import check_adjustable, check_measured_by
from dse.calibrate.samples import opened
from dse.inputs import read_cnn
from model.cluster.platform import Platform
from model.cost.samples import Run
from model.mappings.mapping import Mapping
from runtime.errors import CleaveError
from tests.tiny_cnn import platform, save, six_layers

NETWORKS = ("one", "two", "three")


def unused(*_: object) -> NoReturn:
    raise AssertionError


def together(folder: Path, names: Sequence[str], cluster: Platform) -> list[Job]:
    cnns = tuple(read_cnn(str(save(folder, six_layers(), f"{name}.onnx")), [], True) for name in names)
    with opened(folder / "samples.jsonl") as store:
        lab = Lab(cnns, cluster, "", store, unused, unused, folder, 1.0, 1.0, 0)
        return [job for job in lab.together(0) if not job.design.what.startswith("alone")]


@pytest.mark.parametrize("devices", [5, 3, 2])
def test_most_devices_run_a_network_together_and_then_few_of_them(tmp_path: Path, devices: int) -> None:
    jobs = together(tmp_path, NETWORKS, platform(devices))
    everyone, pairs = set(range(min(devices, TOGETHER[0]))), set()
    for name in NETWORKS:
        own = [job for job in jobs if job.subject.cnn.graph.name == name]
        even, others = ([j for j in own if (j.design.what == STRETCHES) == so] for so in (True, False))
        many, few = others
        apart = [stretches(few.subject.cnn.graph, some) for some in (sorted(everyone), few.design.mapping.devices)]
        assert [job.design for job in even] == list(dict.fromkeys(apart))
        assert set(many.design.mapping.devices) <= everyone
        assert few.subject.device == min(few.design.mapping.devices)
        assert len(few.design.mapping.devices) == TOGETHER[1]
        assert set(few.design.mapping.devices) <= everyone
        pairs.add(few.design.mapping.devices)
    assert len(pairs) > 1 or devices == 2


@pytest.mark.parametrize("devices", [4, 2])
def test_a_slow_network_is_handed_to_and_fro_least_often_by_many_and_by_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: int
) -> None:
    monkeypatch.setattr("dse.calibrate.command.guess", lambda *_: lambda _: 1e6)
    others = [job for job in together(tmp_path, NETWORKS[:1], platform(devices)) if job.design.what != STRETCHES]
    assert {job.design.what for job in others} == {"together, 2 switches"}
    assert [job.frames for job in others] == [LEAST] * (2 if devices > 2 else 1)


def test_each_kind_of_device_is_among_those_that_run_a_network_together(tmp_path: Path) -> None:
    """However many hosts come first; on different hosts, where there are."""
    lines = [f"h{k}, slots=0, gpu=any (CUDA), gpu_memory=1GB" if k < 3 else f"h{k}, slots=0-{k // 6}" for k in range(9)]
    cluster = Platform.parse("\n".join(lines), "p.txt")
    chosen = {device for job in together(tmp_path, NETWORKS, cluster) for device in job.design.mapping.devices}
    names = [cluster.devices[device].name for device in sorted(chosen)]
    assert names == ["h0_cpu0", "h1_gpu", "h2_cpu0", "h6_cpu01"]


def test_runs_are_the_same_whatever_watts_are_declared_and_however_slow_devices_were_found(tmp_path: Path) -> None:
    plain, said = (
        [job.key for job in together(tmp_path, NETWORKS, Platform.parse(text, "p.txt"))]
        for text in ("a, slots=0\nb, slots=0\n", "a, slots=0, cpu_power=5W\nb, slots=0, cpu_slowdown=9\n")
    )
    assert plain == said
    assert plain


def test_runs_of_other_mappings_of_the_same_devices_are_others(tmp_path: Path) -> None:
    there, back = (
        replace(job, design=replace(job.design, mapping=Mapping.whole(job.subject.cnn.graph, row)))
        for job in together(tmp_path, NETWORKS[:1], platform(2))[:1]
        for row in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    )
    assert there.key != back.key


def test_devices_of_one_memory_compute_parts_of_layers_as_many_as_few(tmp_path: Path) -> None:
    """Of hosts that are said alike, those of the first; a GPU with a memory of its own has it for itself."""
    board = "slots=0\nb, slots=1\nb, slots=2\nb, slots=3\nb, slots=4, gpu=any (CUDA), gpu_memory=1GB"
    text = f"a, slots=0\nb, {board}\n{board.replace('b,', 'c,').replace('slots=0', 'c, slots=0', 1)}\n"
    cluster = Platform.parse(text, "p.txt")
    parts = [job.design for job in together(tmp_path, NETWORKS[:1], cluster) if job.design.what == IN_PARTS]
    assert [[cluster.devices[d].name for d in design.mapping.devices] for design in parts] == [
        [f"b_cpu{k}" for k in range(count)] for count in TOGETHER
    ]


def test_what_is_run_of_a_network_is_the_same_whatever_else_is_run(tmp_path: Path) -> None:
    whole, reverse, one = (
        {job.key for job in together(tmp_path, names, platform(4))}
        for names in (NETWORKS, NETWORKS[::-1], NETWORKS[1:2])
    )
    assert whole == reverse
    assert one < whole


@pytest.mark.parametrize(("was", "now", "said"), [
    ("", "meter=csv:/p.csv", ["a: was measured with no meter=, and the platform file has meter=csv:/p.csv;"]),
    ("interface=eth0", "interface=wlan0", ["a: was measured with interface=eth0, and the platform file has"]),
    ("interface=eth0", "", ["a: was measured with interface=eth0, and the platform file has no interface=; correct"]),
    ("cpu_power=5W", "cpu_power=6W", []), ("meter=csv:/p.csv", "meter=csv:/p.csv", []),
])  # fmt: skip
def test_a_calibration_goes_on_as_it_was_measured(was: str, now: str, said: list[str], tmp_path: Path) -> None:
    """Runs that are there are not measured again: with a meter none would tell energy."""
    before, after = (
        Platform.parse(f"a, slots=0{', ' * bool(of_a)}{of_a}\n{last}, slots=0, interface={last}0\n", "p.txt")
        for of_a, last in ((was, "b"), (now, "c"))
    )
    with opened(tmp_path / "samples.jsonl") as store:
        check_measured_by(before, store)
    found: tuple[str, ...] = ()
    with opened(tmp_path / "samples.jsonl") as store:
        try:
            check_measured_by(after, store)
        except CleaveError as error:
            found = error.sentences
        assert store.hosts.keys() == ({"a", "b"} if said else {"a", "b", "c"})
        check_measured_by(before, store)
    assert [sentence[: len(start)] for sentence, start in zip(found, said, strict=True)] == said


@pytest.mark.parametrize("line", ["a, slots=0, coefficients=gone.json", "a, slots=nothing"])
def test_what_cannot_be_adjusted_is_told_before_it_is_measured(line: str, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text(f"{line}\n")
    with pytest.raises(CleaveError, match="the same command without --check and --adjust writes it again"):
        check_adjustable(tmp_path / "p.txt", check=True)


def test_a_device_that_was_disturbed_in_its_first_look_is_looked_at_again_and_is_like_the_others(
    tmp_path: Path,
) -> None:
    """The second of three, while it ran the first of two networks."""
    files = [save(tmp_path, six_layers(10 + k), f"{name}.onnx") for k, name in enumerate(NETWORKS[:2])]
    cnns = tuple(read_cnn(str(file), [], True) for file in files)
    text = "".join(f"h{i}, address=10.0.0.{i}, slots=0\n" for i in range(3))
    cluster = Platform.parse(text, "p.txt")
    with opened(tmp_path / "samples.jsonl") as store:
        lab = Lab(cnns, cluster, text, store, unused, unused, tmp_path, 1.0, 1.0, 0)
        looks = lab.first_looks()
        for number, job in enumerate(looks):
            store.add_run(looked(job, 1.5 if number == 2 else 1.0))
        again = lab.second_looks(looks)
        assert {(job.subject.device, job.subject.cnn.graph.name, job.turn) for job in again} == {
            (device, NETWORKS[0], 1) for device in range(3)
        }
        assert [len(type_.boards) for type_ in lab.types(looks)] == [2, 1]
        for job in again:
            store.add_run(looked(job, 1.1))
        assert lab.second_looks(looks) == again
        assert [len(type_.boards) for type_ in lab.types(looks)] == [3]


def looked(job: Job, time_s: float) -> Run:
    name = job.subject.cnn.graph.name
    what, date = job.design.what, "2030-01-01T00:00:00+00:00"
    return Run(job.key, job.subject.name, name, "python", "", what, date, "", "", {}, (time_s,), (), ())
