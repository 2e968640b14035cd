"""What runs on a host: the gate that a run's key leads to, and the guard that clears away."""

from __future__ import annotations

import ast
import errno
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.deploy.connect import MODULES, Connection, Talk, source
from runtime.deploy.far import remains
from runtime.deploy.far.common import FarError
from runtime.deploy.network import Site
from runtime.deploy.post import CHUNK, END_S, Post, dismiss
from runtime.deploy.target import HostError
from tests.runtime.deploy.sshd import Server

SCRIPTS = sorted(str(file.name) for file in files("runtime.deploy.far").iterdir() if file.name.endswith(".py"))
MINE = 'ssh-ed25519 AAAAmine me@home\n# a comment\n\nfrom="10.*" ssh-rsa AAAB other key\n'


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_read_by_old_pythons_and_import_little(name: str) -> None:
    text = files("runtime.deploy.far").joinpath(name).read_text()
    tree = ast.parse(text, feature_version=(3, 6))
    modules = {str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    modules |= {alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    shared = {f"runtime.deploy.far.{module}" for module in MODULES}
    assert modules <= {*sys.stdlib_module_names, *shared}
    assert "__future__" not in modules  # 3.6 has no annotations there


# --- the gate


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gate to a daemon that says what it was started with."""
    folder = tmp_path_factory.mktemp("gate")
    (folder / "gate.py").write_text(source("gate"))
    (folder / "bin").mkdir()
    for name in ("prted", "orted"):
        file = folder / "bin" / name
        file.write_text(f"#!{sys.executable}\nimport json, os, sys\nprint(json.dumps([sys.argv, dict(os.environ)]))\n")
        file.chmod(0o700)
    (folder / "gate.json").write_text(json.dumps({"bin": str(folder / "bin"), "environment": {"CLEAVE_RUN": "x"}}))
    return folder


def through(gate: Path, command: str) -> subprocess.CompletedProcess[str]:
    """As sshd starts it when somebody comes with the key of a run and asks for ``command``."""
    environment = {"SSH_ORIGINAL_COMMAND": command, "PATH": os.environ["PATH"]}
    words = [sys.executable, "-I", str(gate / "gate.py")]
    return subprocess.run(words, env=environment, capture_output=True, text=True, cwd=gate, check=False)


def quoted(command: str) -> str:
    """As the agent sends it."""
    return f"python gate.py {shlex.quote(command)}"


@pytest.mark.parametrize(
    "command",
    [
        "",
        "bash -i",
        "rm -rf /",
        "scp -t /tmp",
        "prted",
        "/bin/prted",
        "xprted --x",
        "mpirun -n 1 sh",
        "python -c 1",
        "'",
    ],
)
def test_the_key_starts_nothing_else(command: str, gate: Path) -> None:
    for sent in (command, quoted(command)):
        found = through(gate, sent)
        assert found.returncode != 0
        assert found.stdout == ""


def test_the_daemon_is_that_of_the_host_with_the_words_that_came(gate: Path) -> None:
    before = "OPAL_PREFIX=/far/v ; export OPAL_PREFIX; PATH=/far/v/bin:$PATH ; export PATH ;"
    command = (
        f'{before}   /far/v/bin/orted --daemonize -mca plm_rsh_agent "/far/agent" -mca uri "1.0;tcp://10.0.0.1:5" -x'
    )
    words, environment = json.loads(through(gate, quoted(command)).stdout)
    assert words == [
        f"{gate}/bin/orted",
        "-mca",
        "plm_rsh_agent",
        "/bin/sh",
        "-mca",
        "uri",
        "1.0;tcp://10.0.0.1:5",
        "-x",
    ]
    assert environment["OPAL_PREFIX"] == str(gate)
    assert environment["CLEAVE_RUN"] == "x"
    assert "PRTE_PREFIX" not in environment
    assert "/far" not in json.dumps(environment)


@settings(max_examples=15, deadline=None)
@given(
    words=st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="-_"), max_size=12))
)
def test_whatever_comes_is_words_and_never_a_command(words: list[str], gate: Path) -> None:
    hostile = ["; touch pwned", "$(touch pwned)", "`touch pwned`", "&& touch pwned", *words]
    found = through(gate, quoted("/x/prted " + " ".join(map(shlex.quote, hostile))))
    started = json.loads(found.stdout)[0]
    assert started[1:] == hostile
    assert not (gate / "pwned").exists()


# --- the agent


def test_the_agent_starts_ssh_with_whatever_python_and_folder(tmp_path: Path) -> None:
    """Their paths may have blanks and quotes."""
    root = tmp_path / "home of o'x"
    (root / "bin").mkdir(parents=True)
    for name, text in (
        ("python 3", f'#!/bin/sh\nexec {sys.executable} "$@"\n'),
        ("ssh", '#!/bin/sh\nprintf "%s|" "$@"\n'),
    ):
        (root / "bin" / name).write_text(text)
        (root / "bin" / name).chmod(0o700)
    connection: Any = None
    site = Site(connection, str(root), str(root / "bin" / "python 3"), False, ())
    (root / "agent.json").write_text(json.dumps({"10.0.0.2": "python gate.py"}))
    (root / "agent.py").write_text(source("agent"))
    (root / "agent").write_text(site.agent)
    (root / "agent").chmod(0o700)
    words, path = [root / "agent", "10.0.0.2", "prted", "-x", "a b"], f"{root}/bin:{os.environ['PATH']}"
    done = subprocess.run(words, env={"PATH": path}, capture_output=True, text=True, check=True)
    assert done.stdout == f"-T|-F|{root}/ssh_config|10.0.0.2|python gate.py 'prted -x a b'|"


# --- keys of a run


def test_a_key_is_added_and_taken_away_and_all_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    keys = tmp_path / ".ssh" / "authorized_keys"
    keys.parent.mkdir()
    keys.write_text(MINE)
    keys.chmod(0o640)
    remains.edit_keys("restrict ssh-ed25519 BBBB cleave-run-1", "1")
    remains.edit_keys("restrict ssh-ed25519 CCCC cleave-run-2", "2")
    assert keys.read_text() == MINE + "restrict ssh-ed25519 BBBB cleave-run-1\nrestrict ssh-ed25519 CCCC cleave-run-2\n"
    (keys.parent / "authorized_keys.cleave-1-abc").write_text("of a guard that was killed")
    remains.edit_keys(None, "1")
    remains.edit_keys(None, "2")
    assert keys.read_text() == MINE
    assert keys.stat().st_mode & 0o777 == 0o640
    assert list(keys.parent.iterdir()) == [keys]


def test_what_sshd_takes_for_a_comment_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs end a line where it does not: a key of somebody else would be let in."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    ends = "\r \f \v \x1c \x85 \u2028"
    mine = f"restrict ssh-ed25519 AAAAmine {ends.replace(' ', 'ssh-ed25519 AAAAevil')}\n".encode()
    (tmp_path / ".ssh" / "authorized_keys").write_bytes(mine)
    remains.edit_keys("restrict ssh-ed25519 BBBB cleave-run-1", "1")
    added = b"restrict ssh-ed25519 BBBB cleave-run-1\n"
    assert (tmp_path / ".ssh" / "authorized_keys").read_bytes() == mine + added
    remains.edit_keys(None, "1")
    assert (tmp_path / ".ssh" / "authorized_keys").read_bytes() == mine


def test_a_first_key_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    remains.edit_keys("restrict ssh-ed25519 BBBB cleave-run-1", "1")
    assert (tmp_path / ".ssh" / "authorized_keys").stat().st_mode & 0o777 == 0o600


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home folder with keys that its user may not even read."""
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / ".ssh").mkdir()
        (Path(home) / ".ssh" / "authorized_keys").touch(0o600)
        Path(home).chmod(0o755)
        monkeypatch.setenv("HOME", home)
        os.seteuid(65534)
        try:
            yield Path(home)
        finally:
            os.seteuid(0)


def test_where_keys_may_not_be_written_the_way_without_is_named_and_goes(others: Path) -> None:
    file = others / ".ssh" / "authorized_keys"
    with pytest.raises(FarError) as caught:
        remains.edit_keys("restrict ssh-ed25519 BBBB cleave-run-1", "1")
    why = f"may not write {file} (Permission denied), for the key of a run"
    assert str(caught.value) == f"{why}: let it be written, or use --trust existing"
    remains.edit_keys(None, "1")  # with it there is nothing to take away


def test_a_key_that_may_not_be_taken_away_is_told_and_does_not_keep_the_next_run(others: Path) -> None:
    os.seteuid(0)
    (others / ".ssh" / "authorized_keys").write_text(MINE + "restrict ssh-ed25519 BBBB cleave-run-1\n")
    (others / ".ssh" / "authorized_keys").chmod(0o644)
    runs = others / "runs"
    (runs / "1").mkdir(parents=True)
    os.chown(runs, 65534, -1)
    os.seteuid(65534)
    with pytest.raises(FarError, match=r"^may not write .*/authorized_keys "):
        remains.clear(str(runs), "1")
    os.close(remains.begin(str(runs), "2"))
    assert sorted(path.name for path in runs.iterdir()) == ["1", "2"]  # the one after it may have more luck


def run_with_a_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of run 1, which fills the disk: there is no room for a new ``authorized_keys`` beside its frames."""
    monkeypatch.setenv("HOME", str(home))
    remains.edit_keys("restrict ssh-ed25519 BBBB cleave-run-1", "1")
    root, replace = home / "runs" / "1", os.replace
    (root / "cache").mkdir(parents=True)
    for name in ("frames.npz", "cache/x"):
        (root / name).write_text("x")

    def full(source: str, target: str) -> None:
        if (root / "frames.npz").exists() or (home / "other").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    return root


def test_what_a_run_has_left_is_cleared_away_where_it_has_filled_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = run_with_a_key(tmp_path, monkeypatch)
    remains.clear(str(root.parent), "1")
    assert not root.exists()
    assert (tmp_path / ".ssh" / "authorized_keys").read_text() == ""


def test_a_key_for_whose_removal_there_is_no_room_goes_with_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, keys = run_with_a_key(tmp_path, monkeypatch), tmp_path / ".ssh" / "authorized_keys"
    (tmp_path / "other").write_text("fills the disk, too")
    with pytest.raises(OSError, match="No space left"):
        remains.clear(str(root.parent), "1")
    assert list(root.iterdir()) == []
    assert keys.read_text() != ""
    (tmp_path / "other").unlink()
    os.close(remains.begin(str(root.parent), "2"))
    assert keys.read_text() == ""
    assert [path.name for path in root.parent.iterdir()] == ["2"]


# --- the guard, on a real SSH server


def begin(connection: Connection, run: str | None = None) -> tuple[Talk, Path]:
    """A guard, and the folder of its run, which has a name of its own: what a guard that is slow to end kills is of no
    other test.
    """
    run = run or secrets.token_hex(8)
    talk = connection.start("guard", run=run, environment={"MARK": "x"}, python="/p y", mpirun="/usr/bin/mpirun",
                            release="/r", gate="", launch=source("launch", "sh"))  # fmt: skip
    return talk, Path(talk.hear()["root"])


def python_in(folder: Path, **environment: str) -> str:
    """A Python of a login with such an environment."""
    file = folder / "python"
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    file.write_text(f'#!/bin/sh\n{words} exec {sys.executable} "$@"\n')
    file.chmod(0o700)
    return str(file)


def wait_until(true: Callable[[], Any], time_s: float = 15) -> None:
    deadline = time.monotonic() + time_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def running(marker: str) -> bool:
    return subprocess.run(["pgrep", "-f", marker], capture_output=True, check=False).returncode == 0


def tell(talk: Talk, do: str, **more: Any) -> Any:
    talk.say({"do": do, **more})
    return talk.hear()


DEAF = "import os, signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; os.setsid(); time.sleep(%s)"


@pytest.mark.parametrize("how", ["end", "hang up", "silence"])
def test_however_it_ends_nothing_is_left(how: str, sshds: list[Server], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a process that ignores signals and has left the session, no key, no file."""
    text = source("guard").replace("QUIET_S = 30.0", "QUIET_S = 2.0")
    assert "QUIET_S = 2.0" in text
    monkeypatch.setattr(
        "runtime.deploy.connect.source", lambda name, *how: text if name == "guard" else source(name, *how)
    )
    server, seconds = sshds[0], f"{40000 + ['end', 'hang up', 'silence'].index(how)}"
    keys = server.home / ".ssh" / "authorized_keys"
    keys.parent.mkdir()
    keys.write_text(MINE)
    connection = server.connect()
    run = secrets.token_hex(8)
    talk, root = begin(connection, run)
    assert len(tell(talk, "key")["key"].split()) == 2
    tell(talk, "trust", key="ssh-ed25519 AAAA", time_s=60, **{"from": "10.0.0.1"})
    line = keys.read_text().removeprefix(MINE)
    assert line.startswith('from="10.0.0.1",restrict,expiry-time="20')
    assert line.endswith(f'/gate.py" ssh-ed25519 AAAA cleave-run-{run}\n')
    orphan = f"'{sys.executable}' -c '{DEAF % seconds}' & sleep 0.5; echo done"
    done = tell(talk, "go", command=["sh", "-c", orphan], timeout_s=30)
    assert (done["code"], done["stdout"]) == (0, "done\n")
    assert not running(f"time.sleep.{seconds}")  # what a run leaves behind ends with it
    talk.say({"do": "go", "command": ["sh", "-c", orphan + "; sleep 99"], "timeout_s": 30})
    wait_until(lambda: running(f"time.sleep.{seconds}"))
    if how == "end":
        talk.say({"do": "end"})
    elif how == "hang up":
        connection.close()
    wait_until(lambda: not root.exists() and not running(f"time.sleep.{seconds}"))
    wait_until(lambda: keys.read_text() == MINE)
    assert list((server.work / "runs").iterdir()) == []


def test_a_key_ends_by_the_clock_of_sshd_whatever_the_time_zone_of_the_login(
    sshds: list[Server], tmp_path: Path
) -> None:
    talk, _ = begin(sshds[0].connect(python=python_in(tmp_path, TZ="Pacific/Kiritimati")))
    bare = {name: value for name, value in os.environ.items() if name != "TZ"}

    def clock(time_s: float) -> str:
        words = ["date", "-d", f"@{time_s:.0f}", "+%Y%m%d%H%M"]
        return subprocess.run(words, env=bare, capture_output=True, text=True, check=True).stdout.strip()

    before = clock(time.time() + 659)
    tell(talk, "trust", key="ssh-ed25519 AAAA", time_s=600, **{"from": "10.0.0.1"})
    (line,) = (sshds[0].home / ".ssh" / "authorized_keys").read_text().splitlines()
    assert before <= line.partition('expiry-time="')[2].partition('"')[0] <= clock(time.time() + 661)
    tell(talk, "end")


def test_a_home_folder_that_cannot_be_written_to_names_the_way_without_a_key(sshds: list[Server]) -> None:
    place = sshds[0].home / ".ssh"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", place], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        talk, root = begin(sshds[0].connect())
        with pytest.raises(HostError, match=r"^may not write .*_keys \(Read-only .*: .*, or use --trust existing$"):
            tell(talk, "trust", key="ssh-ed25519 AAAA", time_s=60, **{"from": "10.0.0.1"})
        wait_until(lambda: not root.exists())
        talk, _ = begin(sshds[0].connect())
        assert tell(talk, "end") == {"ended": True}
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_host_that_can_make_no_key_says_what_to_install(sshds: list[Server], tmp_path: Path) -> None:
    talk, _ = begin(sshds[0].connect(python=python_in(tmp_path, PATH="/nowhere")))
    with pytest.raises(HostError, match=r"^ssh-keygen does not work on it: install openssh-client$"):
        tell(talk, "key")


def test_what_a_killed_guard_has_left_goes_with_the_next_run_and_runs_beside_it_stay(sshds: list[Server]) -> None:
    server = sshds[0]
    keys = server.home / ".ssh" / "authorized_keys"
    dead, root = begin(server.connect(), "d" * 16)
    beside, other = begin(server.connect(), "b" * 16)
    for talk in (dead, beside):
        tell(talk, "trust", key="ssh-ed25519 AAAA", time_s=60, **{"from": "10.0.0.1"})
    dead.say({"do": "go", "command": ["sh", "-c", "echo $PPID > guard; sleep 41235"], "timeout_s": 30})
    wait_until(lambda: running("^sleep 41235") and (root / "guard").read_text())
    os.kill(int((root / "guard").read_text()), signal.SIGKILL)
    wait_until(lambda: dead.ready())
    assert root.exists()
    last, _ = begin(server.connect(), "1" * 16)
    assert not root.exists()
    assert not Path("/dev/shm/cleave-" + "d" * 16).exists()
    assert not running("^sleep 41235")
    assert other.exists()
    assert [line.split()[-1] for line in keys.read_text().splitlines()] == ["cleave-run-" + "b" * 16]
    for talk in (last, beside):
        assert tell(talk, "end") == {"ended": True}
    assert not other.exists()


@pytest.mark.parametrize(("program", "seen"), [("exit 3", [3, False]), ("kill -9 $$", [137, False])])
def test_how_a_rank_ends_is_written_down(program: str, seen: list[object], sshds: list[Server]) -> None:
    talk, root = begin(sshds[0].connect())
    (root / "python").write_text(f"#!/bin/sh\n{program}\n")
    (root / "python").chmod(0o700)
    text = (root / "launch").read_text().replace("'/p y'", f"'{root}/python'")
    (root / "launch").write_text(text)
    assert tell(talk, "go", command=["env", "OMPI_COMM_WORLD_RANK=7", str(root / "launch")], timeout_s=30)["code"] != 0
    assert tell(talk, "seen")["ranks"] == {"7": seen}
    assert tell(talk, "seen")["ranks"] == {}  # of the last run alone
    tell(talk, "end")


def test_a_run_that_takes_too_long_is_ended(sshds: list[Server]) -> None:
    talk, _ = begin(sshds[0].connect())
    begin_s = time.monotonic()
    done = tell(talk, "go", command=["sh", "-c", "echo started; sleep 41234"], timeout_s=1)
    assert (done["code"], done["stdout"]) == (None, "started\n")
    assert time.monotonic() - begin_s < 30
    assert not running("sleep 41234")
    assert tell(talk, "end") == {"ended": True}


def test_files_go_there_and_back_whole(sshds: list[Server]) -> None:
    talk, root = begin(sshds[0].connect())
    data = os.urandom(3_000_000)
    talk.say({"do": "put", "name": "frames.npz", "size": len(data)})
    talk.send(data)
    assert talk.hear() == {}
    assert (root / "frames.npz").read_bytes() == data
    assert (root / "frames.npz").stat().st_mode & 0o777 == 0o600
    size = tell(talk, "fetch", name="frames.npz")["size"]
    assert talk.read(size) == data
    assert tell(talk, "write", name="agent", text="x", program=True) == {}
    assert (root / "agent").stat().st_mode & 0o777 == 0o700
    with pytest.raises(HostError, match="is no path inside a folder"):
        tell(talk, "write", name="../../../pwned", text="x")
    wait_until(lambda: not root.exists())


def test_a_file_that_is_stopped_on_its_way_ends_the_run_at_once(
    sshds: list[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = sshds[0].connect()
    talk, root = begin(connection)
    post = Post(Site(connection, str(root), "python3", False, ()), talk)
    (tmp_path / "frames.npz").write_bytes(os.urandom(3_000_000))
    send, sent = Talk.send, []

    def stopped(talk: Talk, data: bytes) -> None:
        if CHUNK in sent:
            raise KeyboardInterrupt
        sent.append(len(data))
        send(talk, data)

    begin_s = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(Talk, "send", stopped)
        with pytest.raises(KeyboardInterrupt):
            post.put("frames.npz", tmp_path / "frames.npz")
    assert dismiss([post]) == [post]
    wait_until(lambda: not root.exists())
    assert time.monotonic() - begin_s < END_S / 2


def test_the_launcher_quotes_what_it_is_given(sshds: list[Server]) -> None:
    talk, root = begin(sshds[0].connect())
    assert f"root={root}\npython='/p y'\nprogram=/r/main.py\n" in (root / "launch").read_text()
    assert shutil.which(str(root / "launch"))
    tell(talk, "end")
