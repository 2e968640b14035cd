"""Which runs a calibration makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from dse.calibrate.command import TOGETHER, Lab
from dse.calibrate.design import IN_PARTS, STRETCHES
from dse.calibrate.links import link_bundles
from dse.calibrate.measure import LEAST, Job, link_key
from dse.calibrate.samples import opened
from dse.inputs import read_cnn
from model.platform import Platform
from model.samples import Run
from tests.tiny_cnn import platform, save, six_layers

NETWORKS = ("one", "two", "three")


def unused(*_: object) -> NoReturn:
    raise AssertionError


def jobs(
    folder: Path, names: Sequence[str], cluster: Platform, of: Callable[[Lab], list[Job]], text: str = ""
) -> list[Job]:
    cnns = tuple(read_cnn(str(save(folder, six_layers(), f"{name}.onnx")), [], True) for name in names)
    with opened(folder / "samples.jsonl") as store:
        return of(Lab(cnns, cluster, text, store, unused, unused, folder, 1.0, 1.0, 0))


def together(folder: Path, names: Sequence[str], cluster: Platform) -> list[Job]:
    found = jobs(folder, names, cluster, lambda lab: lab.together(0))
    return [job for job in found if not job.design.what.startswith("alone")]


@pytest.mark.parametrize("devices", [5, 3, 2])
def test_most_devices_run_a_network_together_and_then_few_of_them(tmp_path: Path, devices: int) -> None:
    jobs = together(tmp_path, NETWORKS, platform(devices))
    everyone, pairs = set(range(min(devices, TOGETHER[0]))), set()
    for name in NETWORKS:
        even, many, few = [job for job in jobs if job.subject.cnn.graph.name == name]
        assert even.design.what == STRETCHES
        assert set(even.design.mapping.devices) <= everyone
        assert set(many.design.mapping.devices) <= everyone
        assert few.subject.device == min(few.design.mapping.devices)
        assert len(few.design.mapping.devices) == TOGETHER[1]
        assert set(few.design.mapping.devices) <= everyone
        pairs.add(few.design.mapping.devices)
    assert len(jobs) == 3 * len(NETWORKS)
    assert len(pairs) > 1 or devices == 2


@pytest.mark.parametrize("devices", [4, 2])
def test_a_slow_network_is_handed_to_and_fro_least_often_by_many_and_by_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: int
) -> None:
    monkeypatch.setattr("dse.calibrate.command.guessed_s", lambda *_: 1e6)
    _, *others = together(tmp_path, NETWORKS[:1], platform(devices))
    assert {job.design.what for job in others} == {"together, 2 switches"}
    assert [job.frames for job in others] == [LEAST] * (2 if devices > 2 else 1)


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


@pytest.mark.parametrize(("said", "again", "messages"), [
    ("cpu_slowdown=2", 0, 0), ("meter=csv:/power.csv", 1, 0), ("interface=eth0", 1, 1), ("arena=off", 1, 1),
])  # fmt: skip
def test_a_host_that_is_measured_in_another_way_is_measured_again(
    said: str, again: int, messages: int, tmp_path: Path
) -> None:
    """The network on it, and messages to and from it."""
    keys, links = [], []
    for more in ("cpu_power=5W", f"cpu_power=5W, {said}"):
        text = f"a, address=10.0.0.1, slots=0, {more}\nb, address=10.0.0.2, slots=0\n"
        cluster = Platform.parse(text, "p.txt")
        keys.append({job.key for job in jobs(tmp_path, NETWORKS[:1], cluster, Lab.first_looks, text)})
        links.append({link_key(bundle, cluster) for bundle in link_bundles(cluster)})
    assert [len(of) for of in keys] == [2, 2]
    assert len(keys[1] - keys[0]) == again
    assert len(links[1] - links[0]) == messages * len(links[0])


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
    return Run(job.key, job.subject.name, name, "python", "", job.design.what, "", "", "", {}, (time_s,), (), ())
