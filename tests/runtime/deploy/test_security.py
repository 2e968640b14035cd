"""What hosts, files and keys that mean harm come to; on real SSH servers. And what docs/security.md says of it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from runtime.deploy.connect import Talk, connect, source
from runtime.deploy.far.common import file_hash
from runtime.deploy.far.remains import edit_keys
from runtime.deploy.keys import Trust
from runtime.deploy.parcel import pack
from runtime.deploy.ship import ship
from runtime.deploy.target import HostError, Target
from tests.command import dse
from tests.runtime.deploy import sshd
from tests.runtime.deploy.sshd import Server

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "security.md"
RUN = "0123456789abcdef"


def test_every_claim_names_tests_that_there_are() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", DOCUMENT.read_text())
    assert len(named) > 30
    assert [f"{file}::{test}" for file, test in named if test not in functions(ROOT / file)] == []
    lines = [line for line in DOCUMENT.read_text().splitlines() if "::" in line]
    assert [line for line in lines if line.count("::") != len(re.findall(r"`tests/[\w/]+\.py::test_\w+`", line))] == []


def functions(file: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}


# --- the key of a run


def guard(server: Server) -> Talk:
    talk = server.connect().start("guard", run=RUN, environment={}, python="python3", mpirun="/usr/bin/mpirun",
                                  release="", gate="", launch="")  # fmt: skip
    talk.hear()
    return talk


def tell(talk: Talk, do: str, **more: Any) -> Any:
    talk.say({"do": do, **more})
    return talk.hear()


def let_in(server: Server, key: Path, come: str, time_s: float) -> tuple[Talk, str]:
    """The line of authorized_keys that a run adds for a key; what it leads to is there as long as the guard."""
    talk = guard(server)
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    tell(talk, "trust", key=public, time_s=time_s, **{"from": come})
    tell(talk, "write", name="gate.py", text=source("gate"))
    return talk, (server.home / ".ssh" / "authorized_keys").read_text()


@pytest.mark.parametrize(
    ("come", "time_s", "wish", "answer"),
    [
        ("127.0.0.1", 60, ["touch", "pwned"], "cleave: this key starts nothing but Open MPI's daemon"),
        ("127.0.0.1", 60, ["-tt"], "PTY allocation request failed"),
        ("127.0.0.1", 60, ["-W", "127.0.0.1:1"], "administratively prohibited|forwarding"),
        ("10.9.8.7", 60, ["true"], "Permission denied"),
        ("127.0.0.1", -3600, ["true"], "Permission denied"),
    ],
)
def test_sshd_itself_holds_the_key_of_a_run_to_one_program_one_address_and_its_time(
    come: str, time_s: float, wish: list[str], answer: str, sshds: list[Server], tmp_path: Path
) -> None:
    """The line that the guard writes, read by a server of its own that knows no other key."""
    sshd.make_key(tmp_path / "key")
    talk, line = let_in(sshds[0], tmp_path / "key", come, time_s)
    folder = tmp_path / "door"
    folder.mkdir()
    sshd.make_key(folder / "id")
    (folder / "id.pub").write_text(line)
    door = sshd.start("door", folder)
    options, words = [word for word in wish if word.startswith("-") or ":" in word], [w for w in wish if w.isalpha()]
    how = ["-F", "none", "-i", str(tmp_path / "key"), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"]
    how += ["-o", f"UserKnownHostsFile={door.known_hosts}", "-p", str(door.port), *options]
    try:
        found = subprocess.run(["ssh", *how, f"{door.target().user}@127.0.0.1", *words],
                               capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)  # fmt: skip
    finally:
        door.stop()
    assert tell(talk, "end") == {"ended": True}
    assert found.returncode != 0
    assert re.search(answer, found.stderr + found.stdout), found
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize(
    ("key", "come"),
    [
        ("ssh-ed25519 AAAA\nssh-ed25519 EVIL", "10.0.0.1"),
        ("ssh-ed25519 AAAA", '10.0.0.1",command="sh'),
        ("ssh-ed25519 AAAA", "*"),
        ("ssh-ed25519 AAAA", "10.0.0.1\n"),
        ('command="sh" ssh-ed25519 AAAA', "10.0.0.1"),
    ],
)
def test_a_hostile_head_host_adds_no_lines_or_options_to_the_keys_of_others(
    key: str, come: str, sshds: list[Server]
) -> None:
    talk = guard(sshds[0])
    with pytest.raises(HostError, match="no key of a run, or from no address"):
        tell(talk, "trust", key=key, time_s=60, **{"from": come})
    assert not (sshds[0].home / ".ssh" / "authorized_keys").exists()


def test_runs_that_begin_and_end_at_the_same_moment_lose_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    keys = tmp_path / ".ssh" / "authorized_keys"
    lines = [f"restrict ssh-ed25519 AAAA cleave-run-{number}" for number in range(60)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda line: edit_keys(line, line.rpartition("-")[2]), lines))
        assert sorted(keys.read_text().splitlines()) == sorted(lines)
        list(pool.map(lambda number: edit_keys(None, str(number)), range(1, 60)))
    assert keys.read_text().splitlines() == lines[:1]


def test_hosts_with_one_home_lose_no_key_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where locks are each host's own: lines of runs may be lost, drafts of others go, and nothing else does."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("runtime.deploy.far.remains.locked", nullcontext)
    keys = tmp_path / ".ssh" / "authorized_keys"
    keys.parent.mkdir()
    keys.write_text("ssh-ed25519 AAAA me\n")
    with ThreadPoolExecutor(8) as pool:
        for _ in range(30):
            list(pool.map(lambda _: edit_keys("restrict ssh-ed25519 BBBB cleave-run-1", "1"), range(8)))
            assert keys.read_text().splitlines()[0] == "ssh-ed25519 AAAA me"
            list(pool.map(lambda _: edit_keys(None, "1"), range(8)))
            assert keys.read_text() == "ssh-ed25519 AAAA me\n"
    assert [path.name for path in keys.parent.iterdir()] == [keys.name]


# --- host keys


@pytest.mark.parametrize("pinned", [False, True])
def test_a_revoked_host_key_is_refused(pinned: bool, sshds: list[Server], tmp_path: Path) -> None:
    line = sshds[0].known_hosts.read_text()
    (tmp_path / "known").write_text(line + "@revoked * " + line.partition(" ")[2])
    pins = {"a": sshds[0].fingerprint} if pinned else {}
    with pytest.raises(HostError, match="is revoked"):
        connect(sshds[0].target(), Trust((tmp_path / "known",), pins))


def test_lines_of_known_hosts_that_cannot_be_read_vouch_for_nobody(sshds: list[Server], tmp_path: Path) -> None:
    line = sshds[0].known_hosts.read_text()
    other = "@cert-authority * " + (sshds[1].folder / "host_key.pub").read_text()
    (tmp_path / "known").write_text(other + "x ssh-ed25519 AAA\nrubbish\n" + line)
    assert connect(sshds[0].target(), Trust((tmp_path / "known",), {})).alive
    with pytest.raises(HostError, match="is not known"):
        connect(sshds[1].target(), Trust((tmp_path / "known",), {}))


# --- the work folder of a host


def test_a_work_folder_that_others_can_write_to_is_refused(sshds: list[Server]) -> None:
    sshds[0].work.mkdir()
    sshds[0].work.chmod(0o777)
    with pytest.raises(HostError, match=r"other users can write to .*\.cleave: take that right away"):
        sshds[0].connect().call("facts", peers=[])
    sshds[0].work.chmod(0o755)
    assert sshds[0].connect().call("facts", peers=[])["writable"]


def test_programs_put_beside_ours_are_gone_before_the_next_run(bundle: Path, sshds: list[Server]) -> None:
    """A module in the folder of a program would be imported by it."""
    (parcel, *_) = pack(bundle, [server.target() for server in sshds]).parcels
    release = Path(ship(sshds[0].connect(), "bundles/b", parcel.files).release)
    (release / "numpy.py").write_text("raise SystemExit('pwned')")
    assert ship(sshds[0].connect(), "bundles/b", parcel.files).sent == {}
    assert (release / "main.py").is_file()
    assert not (release / "numpy.py").exists()


@pytest.mark.parametrize("suffix", ["", ".part"])
def test_links_in_place_of_what_comes_are_not_followed(suffix: str, bundle: Path, sshds: list[Server]) -> None:
    (parcel, *_) = pack(bundle, [server.target() for server in sshds]).parcels
    file = parcel.files["rank_00.py"]
    elsewhere, incoming = sshds[0].home / "elsewhere", sshds[0].work / "bundles/b/incoming"
    shutil.copy(file.path, elsewhere)
    with elsewhere.open("a") as stream:
        stream.write("" if not suffix else "# more\n")
    before = elsewhere.read_bytes()
    incoming.mkdir(parents=True)
    (incoming / (file.sha256 + suffix)).symlink_to(elsewhere)
    release = Path(ship(sshds[0].connect(), "bundles/b", parcel.files).release)
    assert elsewhere.read_bytes() == before
    assert not (release / "rank_00.py").is_symlink()
    assert file_hash(str(release / "rank_00.py")) == file.sha256


def test_a_folder_that_became_a_link_is_a_folder_again(bundle: Path, sshds: list[Server]) -> None:
    (parcel, *_) = pack(bundle, [server.target() for server in sshds]).parcels
    release = Path(ship(sshds[0].connect(), "bundles/b", parcel.files).release)
    (release / "rank00").rename(sshds[0].home / "elsewhere")
    (release / "rank00").symlink_to(sshds[0].home / "elsewhere")
    ship(sshds[0].connect(), "bundles/b", parcel.files)
    assert not (release / "rank00").is_symlink()
    segment = "rank00/segment000.onnx"
    assert file_hash(str(release / segment)) == parcel.files[segment].sha256


# --- the workstation


def test_a_file_that_a_bundle_does_not_list_stays_here(bundle: Path) -> None:
    (bundle / "rank00" / "secret").write_text("x")
    (bundle / "numpy.py").write_text("x")
    sent = {path for parcel in pack(bundle, [Target(name, name) for name in "abc"]).parcels for path in parcel.files}
    assert not {"rank00/secret", "numpy.py"} & sent


@pytest.mark.parametrize("work", ["a b", "x;y", "$(x)", "a/../b", "..", "it's", "x\ny", "~other/x", ""])
def test_a_hostile_work_folder_is_refused_before_any_host_is_asked(work: str, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("a, slots=0\nb, slots=0\nc, slots=0\n")
    said = dse("deploy", bundle, "--platform", tmp_path / "p.txt", "--work", work)
    assert said.code == 2
    assert said.err.startswith(f"error: --work {work!r}: only letters")
