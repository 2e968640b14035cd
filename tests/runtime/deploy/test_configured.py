"""What ``~/.ssh/config`` says, held against what the ``ssh`` of this machine makes of it."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.deploy.configured import configured
from runtime.deploy.connect import connect
from runtime.deploy.keys import USUAL, Trust
from runtime.deploy.target import HostError, Target
from tests.runtime.deploy.sshd import Server, make_key

WORDS = ("hostname", "port", "user", "hostkeyalias", "userknownhostsfile")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with an empty ``.ssh``."""
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def write(home: Path, **texts: str) -> None:
    """Files of ``.ssh``: ``config``, and ``NAME.conf`` of others."""
    for name, text in texts.items():
        (home / ".ssh" / (name if name == "config" else f"{name}.conf")).write_text(text)


def as_ssh(home: Path, address: str) -> dict[str, str]:
    """What OpenSSH reads. It asks the system for the home folder, so that the file is named."""
    file = home / ".ssh" / "config"
    said = subprocess.run(["ssh", "-G", "-F", file, address], capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in said.splitlines() if line.split(" ", 1)[0] in WORDS)


def drawn(draw: random.Random, home: Path, name: str, deeper: list[str]) -> str:
    """A file of random blocks, some of which include files that come later in ``deeper``."""
    lines = []
    for number in range(draw.randint(1, 7)):
        kind = draw.randrange(7)
        if kind == 0:
            lines.append(f"Host {' '.join(draw.sample(['pi0', 'pi1', 'pi*', '!pi1', '*', 'other'], 2))}")
        elif kind == 1:
            lines.append(f"Match {draw.choice(['originalhost', 'host'])} {draw.choice(['pi0', 'pi1', '10.*', '*'])}")
        elif kind < 5 and deeper:
            many = " ".join(f"{home}/.ssh/{each}.conf" for each in draw.sample(deeper, draw.randint(1, len(deeper))))
            lines.append(draw.choice(["Include {}", "include={}", "  Include   {}  # more"]).format(many))
        else:
            word, value = draw.choice([("HostName", f"10.0.0.{number}"), ("Port", draw.randint(1, 65535)),
                                       ("User", f"{name}{number}"), ("HostKeyAlias", f"alias{number}"),
                                       ("UserKnownHostsFile", f"/tmp/{name} /tmp/{number}")])  # fmt: skip
            lines.append(f"{word} {value}")
    return "\n".join(lines) + "\n"


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh here")
@pytest.mark.parametrize("seed", range(40))
def test_files_that_include_others_are_read_as_ssh_reads_them(home: Path, seed: int) -> None:
    draw, names = random.Random(seed), ["config", "a", "b", "c"]
    for place, name in enumerate(names):
        write(home, **{name: drawn(draw, home, name, names[place + 1 :])})
    for address in ("pi0", "pi1", "elsewhere"):
        found, wanted = configured(address), as_ssh(home, address)
        known = " ".join(found["userknownhostsfile"])
        assert found["hostname"] == wanted["hostname"]
        assert found.get("hostkeyalias") == wanted.get("hostkeyalias")
        assert str(found.get("port", 22)) == wanted["port"]
        assert not known or known == wanted["userknownhostsfile"]
        assert known or "/tmp/" not in wanted["userknownhostsfile"]
        if "user" in found:
            assert found["user"] == wanted["user"]


def test_patterns_are_of_the_folder_and_in_order(home: Path) -> None:
    (home / ".ssh" / "config.d").mkdir()
    write(home, config='Include config.d/*.conf "~/.ssh/two words.conf"\nHost pi0\n  User last\n  Port 7\n')
    write(home, **{"config.d/20": "Port 20\n", "config.d/10": "Host pi0\n  Port 10\n", "two words": "User mine\n"})
    assert (configured("pi0")["port"], configured("pi0")["user"]) == (10, "mine")
    assert (configured("pi1")["port"], configured("pi1")["user"]) == (20, "mine")


def test_files_that_are_not_there_are_none(home: Path) -> None:
    write(home, config="Include absent none/*\nPort 7\n")
    assert configured("pi0")["port"] == 7


def test_a_file_that_includes_itself(home: Path) -> None:
    write(home, config="Include config\n")
    with pytest.raises(HostError, match=r"config cannot be read: more than 16 files include one another \(.*config\)"):
        configured("pi0")


def test_names_that_are_to_be_made_canonical_in_no_domain(home: Path) -> None:
    write(home, config="CanonicalizeHostname yes\n")
    with pytest.raises(HostError, match="sets CanonicalizeHostname to yes without 'canonicaldomains': add it"):
        configured("pi0")


def elsewhere(before: str, address: str) -> str:
    """What another Python says of an address, and of what is wrong; commands of a configuration read its input."""
    program = (
        f"{before}\n"
        "from runtime.deploy.configured import configured\n"
        "from runtime.deploy.target import HostError\n"
        f"try: print(configured({address!r}).get('port'))\nexcept HostError as error: print(error)"
    )
    words = [sys.executable, "-c", program]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout


def test_a_command_that_decides_is_run(home: Path) -> None:
    write(home, config='Match exec "test %h = pi0"\n  Port 7\nMatch exec "false"\n  Port 8\n')
    assert [elsewhere("", address) for address in ("pi0", "pi1")] == ["7\n", "None\n"]


def test_a_command_that_nothing_here_can_run(home: Path) -> None:
    """The same where paramiko came without the package that runs commands."""
    write(home, config='Match exec "true"\n  Port 7\n')
    said = elsewhere("import sys; sys.modules['invoke'] = None", "pi0")
    assert said == f"{home}/.ssh/config has a 'Match exec', which is read by the package invoke: install it\n"


def test_a_host_that_an_included_file_tells_of_is_spoken_with(sshds: list[Server], home: Path) -> None:
    server = sshds[0]
    write(home, config="Include *.conf\n", boards=f"Host board\n HostName 127.0.0.1\n Port {server.port}\n")
    target = Target("a", "board", user=server.target().user, key=server.target().key)
    assert connect(target, server.trust).alive


def test_a_host_key_is_looked_up_by_its_alias(sshds: list[Server], home: Path) -> None:
    server = sshds[0]
    write(home, config="HostKeyAlias the-board\n")
    with pytest.raises(HostError, match="its host key is not known"):
        server.connect()
    (home / "known").write_text(f"the-board {(server.folder / 'host_key.pub').read_text()}")
    assert connect(server.target(), Trust((home / "known",), {})).alive


def test_the_users_own_known_hosts_take_the_place_of_the_usual_ones(sshds: list[Server], home: Path) -> None:
    server, usual = sshds[0], Trust(tuple(file.expanduser() for file in USUAL), {})
    make_key(home / "old")
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {(home / 'old.pub').read_text()}")
    with pytest.raises(HostError, match="its host key has CHANGED"):
        connect(server.target(), usual)
    (home / ".ssh" / "boards").write_bytes(server.known_hosts.read_bytes())
    write(home, config="UserKnownHostsFile /dev/null ~/.ssh/boards\n")
    assert connect(server.target(), usual).alive
    write(home, config="UserKnownHostsFile /dev/null\n")
    with pytest.raises(HostError, match="its host key is not known"):
        connect(server.target(), usual)
    assert connect(server.target(), Trust((server.known_hosts, *usual.files), {})).alive
