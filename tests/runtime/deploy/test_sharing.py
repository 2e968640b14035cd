"""Hosts that have one work folder between them are told before one takes away what another needs; on real SSH."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from runtime.deploy.cluster import cluster, refused
from runtime.deploy.far.common import SILENCE_S
from runtime.deploy.keys import Trust
from runtime.deploy.parcel import pack
from runtime.deploy.sharing import MARK, MARK_S, sharing
from runtime.deploy.target import DeployError
from tests.runtime.deploy.sshd import Server

SENTENCE = (
    "c: shares its work folder with a: name one on a disk of its own with --work /var/tmp/cleave, or, if both are one "
    "machine, make them one host in the platform file"
)


def marks(folder: Path) -> list[Path]:
    return list(folder.rglob(f"{MARK}*"))


@pytest.mark.parametrize("made", [False, True], ids=["not yet", "there"])
def test_hosts_that_share_their_work_folder_are_refused_and_no_mark_stays(
    made: bool, bundle: Path, sshds: list[Server], tmp_path: Path
) -> None:
    work = tmp_path / "disk" / "work"
    (work if made else work.parent).mkdir(parents=True)
    targets = [server.target(**({} if server.name == "b" else {"work": str(work)})) for server in sshds]
    trust = Trust(tuple(server.known_hosts for server in sshds), {})
    with cluster(pack(bundle, targets), targets, None, trust) as hosts:
        verdicts = hosts.check()
        assert [verdict.word for verdict in verdicts] == ["ok", "ok", "FAILS"]
        with pytest.raises(DeployError) as caught:
            refused(verdicts)
    assert caught.value.sentences == (SENTENCE,)
    assert not any(marks(folder) for folder in (tmp_path, *(server.home for server in sshds)))
    assert work.exists() == made


def test_each_is_told_the_first_that_it_shares_with(sshds: list[Server], tmp_path: Path) -> None:
    lines = {server.name: server.connect(work=str(tmp_path)) for server in sshds}
    assert sharing(lines) == ({"b": "a", "c": "a"}, {})
    assert marks(tmp_path) == []


def test_a_host_that_is_lost_meanwhile_is_told_and_the_others_go_on(sshds: list[Server], tmp_path: Path) -> None:
    lines = {server.name: server.connect(work=str(tmp_path)) for server in sshds}
    lines["a"].close()
    shared, lost = sharing(lines)
    assert shared == {"c": "b"}
    assert list(lost) == ["a"]
    assert marks(tmp_path) == []


def test_a_mark_goes_when_the_line_breaks(sshds: list[Server]) -> None:
    connection = sshds[0].connect()
    connection.start("mark", mark=f"{MARK}x").hear()
    assert marks(sshds[0].home) == [sshds[0].home / f"{MARK}x"]
    connection.close()
    deadline = time.monotonic() + 15
    while marks(sshds[0].home):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_host_waits_longer_for_a_word_than_the_workstation_for_the_slowest() -> None:
    assert MARK_S < SILENCE_S


def test_hosts_that_are_apart_are_asked_once(sshds: list[Server], tmp_path: Path) -> None:
    lines = {server.name: server.connect(work=str(tmp_path / server.name)) for server in sshds}
    for server in sshds:
        (tmp_path / server.name).mkdir()
    assert sharing(lines) == ({}, {})
    for line in lines.values():
        line.close()
    assert sharing(lines) == ({}, {})
    del lines["b"]
    assert sharing(lines) == ({}, {})
