"""Who is let in, who is believed, and how long it takes to find out; on real SSH servers."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.deploy.connect import connect
from runtime.deploy.keys import Trust, trust
from runtime.deploy.target import HostError, Target
from runtime.errors import CleaveError
from tests.runtime.deploy import sshd
from tests.runtime.deploy.sshd import Server

NOBODY = Trust((), {})
ALONE = {"run": "alone", "environment": {}, "python": "", "mpirun": "", "release": "", "gate": "", "launch": ""}


def test_a_known_host_is_spoken_with(sshds: list[Server]) -> None:
    assert sshds[0].connect().call("facts", peers=[])["arch"]


def test_a_host_that_does_not_answer_in_time_is_told_with_what_to_do(sshds: list[Server]) -> None:
    with sshds[0].connect().start("mark", mark="x") as talk:
        talk.hear()
        with pytest.raises(HostError, match=r"^it gave no answer for 1 s: has it much else to do, .*, and try again$"):
            talk.hear(1)  # which it waits to be asked for


def test_of_two_answers_that_come_at_once_the_second_is_there_to_be_heard(sshds: list[Server]) -> None:
    """As when a run ends just after the guard has said that it is alive."""
    with sshds[0].connect().start("guard", **ALONE) as talk:
        talk.hear()
        size = 3 * 2**17
        talk.say({"do": "put", "name": "bytes", "size": size})
        talk.send(b"x" * size)
        assert talk.hear() == {}
        for _ in range(2):
            talk.say({"do": "seen"})
        while b"\n" not in talk._kept.partition(b"\n")[2]:
            talk._more()
        assert talk.ready()
        assert talk.hear() == talk.hear()
        assert not talk.ready()
        talk.say({"do": "fetch", "name": "bytes"})
        assert talk.hear() == {"size": size}
        assert talk.read(size) == b"x" * size
        talk.say({"do": "end"})
        assert talk.hear() == {"ended": True}


def test_an_unknown_host_key_is_refused_with_what_to_do(sshds: list[Server]) -> None:
    with pytest.raises(HostError) as caught:
        connect(sshds[0].target(), NOBODY)
    text = str(caught.value)
    assert text.startswith(f"its host key is not known (ssh-ed25519 {sshds[0].fingerprint})")
    assert text.endswith(f"pin it with --pin a={sshds[0].fingerprint}")


def test_a_pinned_host_key_is_believed_and_another_is_not(sshds: list[Server]) -> None:
    first, second = sshds[:2]
    assert connect(first.target(), Trust((), {"a": first.fingerprint})).alive
    with pytest.raises(HostError, match=r"not the pinned SHA256:.*: it is not this host, or the pin is old"):
        connect(first.target(), Trust((first.known_hosts,), {"a": second.fingerprint}))


def test_a_swapped_host_key_is_refused(sshds: list[Server], tmp_path: Path) -> None:
    """Another server at the address that a key is known of."""
    stranger = sshd.start("a", tmp_path / "stranger")
    known = [tmp_path / name for name in ("known hosts", "more")]
    for file in known:
        file.write_text(f"[127.0.0.1]:{stranger.port} {(sshds[0].folder / 'host_key.pub').read_text()}")
    trusted = Trust((*known, sshds[0].known_hosts, tmp_path / "none"), {})
    try:
        with pytest.raises(HostError, match=r"its host key has CHANGED to SHA256:.*: ssh-keygen -f '") as caught:
            connect(stranger.target(), trusted)
        command = str(caught.value).rpartition("with: ")[2]
        subprocess.run(["sh", "-c", command], capture_output=True, check=True)
        assert [file.read_text() for file in known] == ["", ""]
        with pytest.raises(HostError, match="its host key is not known"):
            connect(stranger.target(), trusted)
    finally:
        stranger.stop()


def test_lines_that_cannot_be_read_vouch_for_nobody_and_others_do(sshds: list[Server], tmp_path: Path) -> None:
    good = sshds[0].known_hosts.read_text()
    key = good.split(maxsplit=1)[1].strip()
    bad = [
        f"|1|AAAA|BBBB {key}",
        f"|1|AAA|BBBB {key}",
        "ssh-ed25519",
        "|1|",
        f"evil {key} a comment\f{good.split()[0]}",
    ]
    (tmp_path / "known").write_text("\n".join(bad))
    with pytest.raises(HostError, match="its host key is not known"):
        connect(sshds[0].target(), Trust((tmp_path / "known",), {}))
    (tmp_path / "known").write_text("\n".join([*bad, good]))
    assert connect(sshds[0].target(), Trust((tmp_path / "known",), {})).alive


def test_hashed_known_hosts_are_read(sshds: list[Server], tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_bytes(sshds[0].known_hosts.read_bytes())
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", known], check=True, capture_output=True)
    assert known.read_text().startswith("|1|")
    assert connect(sshds[0].target(), Trust((known,), {})).alive


@pytest.mark.parametrize("how", [["ed25519"], ["ecdsa"], ["rsa"], ["ecdsa", "-m", "PEM"], ["rsa", "-m", "PEM"]])
def test_a_wrong_key_is_refused_with_its_name(how: list[str], sshds: list[Server], tmp_path: Path) -> None:
    sshd.make_key(tmp_path / "other", *how)
    wrong = r"^does not let \w+ in \(Authentication failed\): the key .*/other is not taken; .*ssh-copy-id"
    with pytest.raises(HostError, match=wrong):
        sshds[0].connect(key=str(tmp_path / "other"))


def test_a_user_without_any_key_is_not_let_in(
    sshds: list[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    wrong = r"^does not let \w+ in \(.*\): no key of the agent or of ~/\.ssh is taken; put the public key there"
    with pytest.raises(HostError, match=wrong):
        connect(Target("a", "127.0.0.1", port=sshds[0].port), sshds[0].trust)


def test_a_file_that_is_no_key_that_can_be_read(sshds: list[Server], tmp_path: Path) -> None:
    (tmp_path / "k").write_text("PuTTY-User-Key-File-3: ssh-ed25519\n")
    with pytest.raises(
        HostError, match=r"^the key .*/k cannot be read \(not a valid .* file\): if it is encrypted, use"
    ):
        sshds[0].connect(key=str(tmp_path / "k"))


@pytest.mark.parametrize(("content", "why"), [(None, "No such file or directory"), (b"\x30\x82\xff", "it is no text")])
def test_a_key_that_cannot_be_read_is_told_before_the_host_is_asked(
    content: bytes | None, why: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "k").write_bytes(content)
    with pytest.raises(HostError, match=f"^the key {tmp_path}/k cannot be read: {why}$"):
        connect(Target("x", "127.0.0.1", port=1, key=str(tmp_path / "k")), NOBODY)


def test_keys_of_the_configuration_that_cannot_be_read_are_skipped(
    sshds: list[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = sshds[0]
    (tmp_path / "binary").write_bytes(b"\x30\x82\xff")
    files = [tmp_path / "absent", tmp_path / "binary", tmp_path, server.folder / "id"]
    way = ["HostName 127.0.0.1", f"Port {server.port}", f"User {server.target().user}"]
    configure(tmp_path, monkeypatch, *way, *(f"IdentityFile {file}" for file in files))
    assert connect(Target("a", "board"), server.trust).alive


def test_an_encrypted_key_without_its_password(sshds: list[Server], tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", tmp_path / "k"], check=True)
    with pytest.raises(HostError, match=r"is encrypted: add it to the agent \(ssh-add\), .*, or use --ask-password$"):
        sshds[0].connect(key=str(tmp_path / "k"))


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The socket of an agent that knows no key."""
    place = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", place], stdout=subprocess.DEVNULL) as process:
        while not place.exists():
            time.sleep(0.01)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(place))
        yield place
        process.terminate()


@pytest.mark.parametrize("way", ["--key", "IdentitiesOnly", "only its public half is there"])
def test_an_encrypted_key_of_a_file_is_that_of_the_agent(
    way: str, agent: Path, sshds: list[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though only keys of files are to be used: no other one of the agent is."""
    server, key = sshds[0], tmp_path / "k"
    shutil.copy(server.folder / "id", key)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    subprocess.run(["ssh-add", "-q", tmp_path / "other", key], check=True)
    (tmp_path / "k.pub").write_text(subprocess.check_output(["ssh-keygen", "-y", "-f", key], text=True))
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", key], check=True)
    if way == "--key":
        assert server.connect(key=str(key)).alive
        return
    if way != "IdentitiesOnly":
        key.unlink()
    words = ["HostName 127.0.0.1", f"Port {server.port}", f"User {server.target().user}", "IdentitiesOnly yes"]
    configure(tmp_path, monkeypatch, *words, f"IdentityFile {key}")
    assert connect(Target("a", "board"), server.trust).alive


def test_keys_of_usual_names_are_taken_where_only_those_of_files_are_to_be(
    agent: Path, sshds: list[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encrypted one by way of the agent."""
    server, key = sshds[0], tmp_path / ".ssh" / "id_ed25519"
    words = ["HostName 127.0.0.1", f"Port {server.port}", f"User {server.target().user}", "IdentitiesOnly yes"]
    configure(tmp_path, monkeypatch, *words)
    shutil.copy(server.folder / "id", key)
    assert connect(Target("a", "board"), server.trust).alive
    subprocess.run(["ssh-add", "-q", key], check=True)
    (key.parent / "id_ed25519.pub").write_text(subprocess.check_output(["ssh-keygen", "-y", "-f", key], text=True))
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", key], check=True)
    assert connect(Target("a", "board"), server.trust).alive


@pytest.mark.parametrize(("only", "how"), [("no", r"add it to the agent \(ssh-add\), or use --ask-password"),
                                           ("yes", r"add it .*, with its .pub beside it, or use .*")])  # fmt: skip
def test_an_encrypted_key_of_the_configuration_is_added_to_the_agent_where_that_is_asked(
    only: str, how: str, sshds: list[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", tmp_path / "k"], check=True)
    lines = [f"HostName 127.0.0.1\n Port {sshds[0].port}", f"IdentityFile {tmp_path}/k", f"IdentitiesOnly {only}"]
    configure(tmp_path, monkeypatch, *lines)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(HostError, match=f"^the key to log in with is encrypted: {how}$"):
        connect(Target("a", "board"), sshds[0].trust)


def test_a_host_that_is_down_is_told_at_once(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        begin = time.monotonic()
        with pytest.raises(HostError, match=r"cannot be reached at \[127.0.0.1\]:\d+ \(Connection refused\)"):
            connect(Target("x", "127.0.0.1", port=port), NOBODY)
        assert time.monotonic() - begin < 5


def test_a_host_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.deploy.connect.LOGIN_S", 1.0)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        begin = time.monotonic()
        with pytest.raises(HostError, match=r"there is no SSH at port \d+ that can be spoken with"):
            connect(Target("x", "127.0.0.1", port=deaf.getsockname()[1]), NOBODY)
        assert time.monotonic() - begin < 5


@pytest.mark.parametrize("address", ["no.such.host.invalid", "pi0..lan", "p" * 64 + ".lan"])
def test_an_address_that_nobody_knows(address: str) -> None:
    with pytest.raises(HostError, match=f"its address '{re.escape(address)}' is not known"):
        connect(Target("x", address), NOBODY)


def test_the_users_own_configuration_is_read(
    sshds: list[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alias with port, user and key; what the platform file says comes first."""
    server = sshds[0]
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(
        f"Host board\n HostName 127.0.0.1\n Port {server.port}\n User {server.target().user}\n"
        f" IdentityFile {server.folder}/id\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    found = connect(Target("a", "board"), server.trust)
    assert (found.address, found.port, found.user) == ("127.0.0.1", server.port, server.target().user)
    with pytest.raises(HostError, match=r"cannot be reached at \[127\.0\.0\.1\]:1 "):
        connect(Target("a", "board", port=1), server.trust)


def configure(home: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Have a user whose ``~/.ssh/config`` has these lines for the host ``board``."""
    (home / ".ssh").mkdir(exist_ok=True)
    (home / ".ssh" / "config").write_text("Host board\n" + "".join(f" {line}\n" for line in lines))
    monkeypatch.setenv("HOME", str(home))


@pytest.mark.parametrize("line", ["ProxyJump none", "ProxyJump None", "ProxyCommand none"])
def test_a_way_through_no_other_host_is_a_straight_one(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, monkeypatch, "HostName 127.0.0.1", line)
    with pytest.raises(HostError, match="cannot be reached at"):
        connect(Target("a", "board", port=1), NOBODY)


@pytest.mark.parametrize("line", ["ProxyJump gate", "ProxyCommand nc %h %p"])
def test_a_way_through_another_host_is_refused(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(tmp_path, monkeypatch, "HostName 127.0.0.1", line)
    with pytest.raises(HostError, match="reaches it through another host"):
        connect(Target("a", "board", port=1), NOBODY)


@pytest.mark.parametrize("port", ["abc", "0", "65536", "-1", "9" * 5000])
def test_a_port_of_the_configuration_that_is_none(port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(tmp_path, monkeypatch, f"Port {port}")
    with pytest.raises(HostError, match=rf"config says Port {port} of it: write a whole number from 1 to 65535"):
        connect(Target("a", "board"), NOBODY)


def test_a_configuration_may_have_bytes_that_are_no_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(tmp_path, monkeypatch, "HostName 127.0.0.1", "Port 1")
    with (tmp_path / ".ssh" / "config").open("ab") as file:
        file.write("# Büro\n".encode("latin-1"))
    with pytest.raises(HostError, match=r"cannot be reached at \[127\.0\.0\.1\]:1 "):
        connect(Target("a", "board"), NOBODY)


def test_a_configuration_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(tmp_path, monkeypatch, 'Match host "board')
    with pytest.raises(HostError, match="config cannot be read: "):
        connect(Target("a", "board"), NOBODY)


def test_python_that_is_not_there_and_hostile_names_of_it(sshds: list[Server]) -> None:
    for python in ("/no/python", "python3; touch pwned", "$(touch pwned)", "`touch pwned`", "'; touch pwned; '"):
        with pytest.raises(HostError, match="has no Python at"):
            sshds[0].connect(python=python).call("facts", peers=[])
    assert not list(sshds[0].home.rglob("*pwned*"))


def test_a_hostile_work_folder_is_a_name_and_no_command(sshds: list[Server]) -> None:
    facts = sshds[0].connect(work="x'; touch pwned; '").call("facts", peers=["$(touch pwned)", "-oProxyCommand=x"])
    assert facts["work"] == str(sshds[0].home / "x'; touch pwned; '")
    assert not list(sshds[0].home.rglob("pwned*"))


def test_pins_are_of_hosts_that_there_are(tmp_path: Path) -> None:
    good = "a=SHA256:" + "A" * 43
    assert trust([], [good], ["a"]).pins == {"a": good[2:]}
    with pytest.raises(CleaveError) as caught:
        trust([tmp_path / "none"], ["b" + good[1:], "a=MD5:00"], ["a"])
    assert len(caught.value.sentences) == 3
    assert caught.value.sentences[0] == f"--known-hosts {tmp_path}/none: there is no such file"
