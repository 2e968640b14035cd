"""What a testbed needs of the machine is asked before anything is made, and said in sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from dse.testbed import host, lifecycle, needs, spec, state
from runtime.errors import CleaveError
from tests.command import dse
from tests.dse.testbed.boxes import BOX


def test_who_is_not_root_is_told_so_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    said = dse("testbed", "up", "--spec", "testbed-4", "--out", tmp_path / "box")
    assert (said.code, said.sentences) == (
        2,
        ["a testbed needs root, to make namespaces and control groups; use sudo"],
    )


def test_programs_that_are_not_there_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "which", lambda name: None if name in ("ip", "tc", "unshare") else f"/bin/{name}")
    monkeypatch.setattr(host, "sshd", lambda: "/nowhere/sshd")
    assert needs.programs() == [
        "unshare not found; install it with 'apt-get install util-linux'",
        "ip, tc not found; install it with 'apt-get install iproute2'",
        "sshd not found; install it with 'apt-get install openssh-server'",
    ]


def test_every_probe_of_the_kernel_that_fails_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Found:
        returncode, stdout, stderr = 0, "1\n3\n", ""

    monkeypatch.setattr("subprocess.run", lambda *_, **__: Found)
    assert needs.kernel() == [
        "this kernel has no veth network interfaces (CONFIG_VETH)",
        "this kernel has no token bucket filter to limit links with (CONFIG_NET_SCH_TBF)",
    ]


def test_a_kernel_that_gives_no_answer_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "unshare").write_text("#!/bin/sh\nexec sleep 100\n")
    (tmp_path / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(needs, "PROBES_S", 0.5)
    (sentence,) = needs.kernel()
    assert sentence == "what this kernel can do was not known after 0.5 s; try again when the machine is less busy"


@pytest.mark.cluster
def test_a_probe_that_fails_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    if needs.missing(BOX.hosts[:1]):
        pytest.skip("; ".join(needs.missing(BOX.hosts[:1])))
    monkeypatch.setattr(needs, "PROBES", {"tc qdisc add dev lo root nosuch": "has no such thing", "true": "is odd"})
    assert needs.kernel() == ["this kernel has no such thing"]


def test_cores_that_the_machine_does_not_have_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 2})
    assert needs.cores(BOX.hosts) == ["host 'fast' is to have core 1; this machine has 0, 2"]


def test_a_name_that_could_be_a_path_is_refused() -> None:
    for words in (["up", "--spec", "testbed-4", "--out", "x"], ["down"]):
        said = dse("testbed", *words, "--name", "../x")
        assert said.sentences == ["--name ../x: lower-case letters and digits, a letter first, at most 16"]


def test_taking_down_what_is_not_there_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(state, "ROOT", tmp_path / "none")
    monkeypatch.setattr("dse.testbed.machine.mounted", list)
    assert dse("testbed", "down").out == "nothing to take down: no testbed 'testbed' is up\n"
    assert dse("testbed", "down", "--all", "--json").out == '{\n "down": []\n}\n'
    assert dse("testbed", "status").out == "no testbed is up\n"


def test_one_testbed_and_every_one_are_not_asked_for_at_once() -> None:
    assert dse("testbed", "down", "--name", "mine", "--all").sentences == [
        "--name mine says nothing with --all: every testbed would be taken down; leave one out"
    ]


def test_a_number_that_an_interface_or_a_testbed_has_is_not_given_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(state, "ROOT", tmp_path)
    monkeypatch.setattr("dse.testbed.machine.mounted", list)
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "state.json").write_text(BOX.to_json())  # 7
    (tmp_path / "broken").mkdir()
    monkeypatch.setattr("dse.testbed.machine.taken_numbers", lambda: set(range(7)) | {8})
    monkeypatch.setattr(needs, "missing", lambda hosts: [])
    assert lifecycle.plan("new", BOX.hosts, tmp_path / "out").number == 9
    for name in ("box", "broken"):
        with pytest.raises(CleaveError, match=f"testbed '{name}' is up already"):
            lifecycle.plan(name, spec.read("testbed-4"), tmp_path / "out")
