"""Verdicts: what keeps a host from taking its part, each with what to do."""

from __future__ import annotations

import copy
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.deploy import check
from runtime.deploy.check import Verdict, judge
from runtime.deploy.cluster import refused
from runtime.deploy.parcel import Parcel, pack
from runtime.deploy.target import DeployError, Target
from tests.runtime.deploy.sshd import Server

FACTS: dict[str, Any] = {
    "arch": "aarch64",
    "base python": "3.8.10",
    "python": "/home/u/.cleave/venv/bin/python",
    "packages": {"python": "3.8.10", "numpy": "1.24.4", "mpi4py": "4.1.2", "onnxruntime": "1.19.2",
                 "providers": ["CPUExecutionProvider"]},
    "mpirun": "/home/u/.cleave/venv/bin/mpirun",
    "open mpi": "5.0.11",
    "ssh": "/usr/bin/ssh",
    "cores": 4,
    "work": "/home/u/.cleave",
    "free disk": 10**10,
    "writable": True,
    "free memory": 10**9,
    "interfaces": {"eth0": {"address": "10.0.0.1", "network": "10.0.0.0/24"}},
    "sources": {},
    "clock": 0.0,
}  # fmt: skip


@pytest.fixture
def parcels(bundle: Path) -> tuple[Parcel, ...]:
    return pack(bundle, [Target(name, name) for name in "abc"]).parcels


def judged(parcels: tuple[Parcel, ...], change: dict[str, Any], **how: bool) -> Verdict:
    """The verdict on host b, of which something is other than on a and c."""
    facts = {name: copy.deepcopy(FACTS) for name in "abc"}
    facts["b"]["packages"].update(change.pop("packages", {}))
    facts["b"].update(change)
    verdicts = judge(parcels, facts, {}, {}, **how)
    assert [v.word for v in verdicts if v.host != "b"] == ["ok", "ok"]
    return verdicts[1]


def test_hosts_that_are_alike_and_have_enough_are_fine(parcels: tuple[Parcel, ...]) -> None:
    assert judged(parcels, {}).word == "ok"


def test_another_python_is_worth_a_word(parcels: tuple[Parcel, ...]) -> None:
    found = judged(parcels, {"packages": {"python": "3.11.2"}})
    assert found.word == "ok, but"
    assert found.warnings == ("has Python 3.11, but a, c have 3.8: that works, but times differ",)
    assert judged(parcels, {"packages": {"python": "3.8.19"}}).word == "ok"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"free disk": 10**6}, "has 1 MB of disk free at /home/u/.cleave, needs 71 MB: make room, or choose another"),
        ({"free memory": 5 * 10**7}, "has 50 MB of memory free, its ranks need 94 MB: end other programs there"),
        ({"writable": False}, "may not write to /home/u/.cleave: choose another place with --work"),
        (
            {"cores": 0},
            "has no core 0 (it has 0, counted from 0): correct slots= in the platform file, and generate",
        ),
        ({"mpirun": None, "open mpi": None}, "has no mpirun: run dse prepare, or install Open MPI 4.1"),
        ({"open mpi": "HYDRA build details"}, "is not Open MPI 4.1 or later, it says: HYDRA build details"),
        ({"open mpi": "4.1.8"}, "has Open MPI 4.1.8, but a, c have 5.0.11: they must agree; run dse prepare on all"),
        ({"packages": {"numpy": "2.4.6"}}, "has numpy 2.4.6, but a, c have 1.24.4: they must agree"),
        ({"packages": {"numpy": None, "why numpy": "ModuleNotFoundError: No"}}, "numpy cannot be loaded (ModuleNotF"),
        ({"packages": {"python": "3.7.3"}}, "its Python for ranks is 3.7.3, needed is 3.8"),
        ({"base python": "3.6.9"}, "its Python is 3.6.9: install 3.8 or later, and say where it is with --python"),
        ({"packages": {"providers": []}}, "its ONNX Runtime has no CPUExecutionProvider"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(
    change: dict[str, Any], sentence: str, parcels: tuple[Parcel, ...]
) -> None:
    verdict = judged(parcels, dict(change))
    assert verdict.word == "FAILS"
    assert any(sentence in failure for failure in verdict.failures), verdict.failures


def test_whether_a_host_may_take_a_smaller_part(parcels: tuple[Parcel, ...]) -> None:
    """Where room is all that it lacks."""
    small = {"free memory": 5 * 10**7}
    full, tight = ({"free disk": size} for size in (1, 70 * 10**6))
    for change, overloaded in (({}, False), (small, True), (tight, True), (full, False), (small | {"cores": 0}, False)):
        verdict = judged(parcels, dict(change))
        assert verdict.overloaded == overloaded
    with pytest.raises(DeployError) as caught:
        refused([judged(parcels, dict(small)), replace(judged(parcels, {"cores": 0}), host="c")])
    assert (set(caught.value.failures), caught.value.overloaded) == ({"b", "c"}, {"b"})


def test_a_disk_needs_room_for_what_it_lacks_alone(parcels: tuple[Parcel, ...]) -> None:
    facts = {name: copy.deepcopy(FACTS) | {"free disk": 70 * 10**6} for name in "abc"}
    found = judge(parcels, facts, {}, {}, {"a": 0, "c": 2 * 10**6})
    assert [verdict.word for verdict in found] == ["ok", "FAILS", "ok"]


def test_a_gpu_wants_an_open_mpi_that_binds_no_rank_without_cores(parcels: tuple[Parcel, ...]) -> None:
    cuda = "CUDAExecutionProvider"
    there = {name: copy.deepcopy(FACTS) | {"open mpi": "4.1.8"} for name in "abc"}
    there["b"]["packages"]["providers"] = [cuda]
    found = judge(
        [p if p.target.name != "b" else replace(p, providers=frozenset({cuda})) for p in parcels], there, {}, {}
    )
    assert [verdict.word for verdict in found] == ["ok", "FAILS", "ok"]
    assert "is Open MPI 4.1.8, which binds every rank to cores, and one on a GPU has none: run" in found[1].failures[0]


def test_a_clock_that_is_far_off_keeps_packages_from_being_fetched_but_not_from_being_used(
    parcels: tuple[Parcel, ...],
) -> None:
    said = ("its clock is 4000 s behind: set it (timedatectl set-ntp true)",)
    found = judged(parcels, {"clock": -4000.0})
    assert (found.word, found.warnings) == ("ok, but", said)
    found = judged(parcels, {"clock": -4000.0}, prepare=True)
    assert (found.word, found.failures) == ("FAILS", said)


def test_a_clock_that_is_a_little_off_is_worth_a_word(parcels: tuple[Parcel, ...]) -> None:
    verdict = judged(parcels, {"clock": 30.0})
    assert verdict.word == "ok, but"
    assert verdict.warnings == ("its clock is 30 s ahead: set it (timedatectl set-ntp true)",)


def test_versions_may_differ_when_asked_to_but_not_those_of_open_mpi(parcels: tuple[Parcel, ...]) -> None:
    assert judged(parcels, {"packages": {"numpy": "1.23.0"}}, mixed=True).word == "ok, but"
    assert judged(parcels, {"open mpi": "4.1.8"}, mixed=True).word == "FAILS"


def test_what_prepare_will_mend_is_no_failure(parcels: tuple[Parcel, ...]) -> None:
    bare = {"mpirun": None, "open mpi": None, "packages": {"numpy": None, "why numpy": "gone", "providers": []}}
    assert judged(parcels, copy.deepcopy(bare)).word == "FAILS"
    assert judged(parcels, bare, prepare=True).word == "ok"


@pytest.mark.parametrize(
    ("asked", "found", "same"),
    [("", "riscv64", True), ("aarch64", "arm64", True), ("arm", "aarch64", True), ("arm", "armv7l", True),
     ("AMD64", "x86_64", True), ("x86_64", "aarch64", False), ("aarch64", "armv7l", False)],
)  # fmt: skip
def test_names_of_architectures(asked: str, found: str, same: bool) -> None:
    assert check.same_arch(asked, found) is same


def test_an_architecture_or_an_interface_that_is_not_there(parcels: tuple[Parcel, ...]) -> None:
    target = replace(parcels[1].target, arch="x86_64", interface="wlan0")
    changed = (parcels[0], replace(parcels[1], target=target), parcels[2])
    assert judged(changed, {}).failures == (
        "is aarch64, the platform file says x86_64: correct one of them",
        "has no interface 'wlan0' with an IPv4 address (it has eth0): correct interface= in the platform file",
    )


def test_a_host_without_facts_keeps_its_reason(parcels: tuple[Parcel, ...]) -> None:
    facts = dict.fromkeys("ac", FACTS)
    verdicts = judge(parcels, facts, {"b": ["does not answer"]}, {})
    assert [v.failures for v in verdicts] == [(), ("does not answer",), ()]


def test_a_real_host_tells_the_truth(sshds: list[Server]) -> None:
    import mpi4py
    import numpy
    import onnxruntime

    facts = check.look(sshds[0].connect(), ["127.0.0.1", "no.such.host.invalid"])
    assert facts["arch"] == subprocess.run(["uname", "-m"], capture_output=True, text=True).stdout.strip()
    packages = facts["packages"]
    assert packages["numpy"] == numpy.__version__
    assert packages["onnxruntime"] == onnxruntime.__version__
    assert packages["mpi4py"] == mpi4py.__version__
    assert packages["library"].startswith("Open MPI v" + facts["open mpi"])
    assert facts["sources"] == {"127.0.0.1": "127.0.0.1", "no.such.host.invalid": None}
    assert facts["interfaces"]["lo"] == {"address": "127.0.0.1", "network": "127.0.0.0/8"}
    assert facts["clock"] == 0.0
    assert not sshds[0].work.exists()


def test_the_clock_of_a_host_is_held_against_ours(sshds: list[Server], monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    monkeypatch.setattr(check.time, "time", lambda: real() + 100)
    assert -101 < check.look(sshds[0].connect(), [])["clock"] < -95
