"""Host keys: which server is the one that it says it is. A key that nobody vouched for ends the connection."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from runtime.deploy.target import HostError
from runtime.errors import CleaveError

USUAL = (Path("~/.ssh/known_hosts"), Path("~/.ssh/known_hosts2"), Path("/etc/ssh/ssh_known_hosts"))
PIN = re.compile(r"SHA256:[A-Za-z0-9+/]{43}=?")


@dataclass(frozen=True)
class Trust:
    """Whom to believe.

    files: known_hosts files, those of OpenSSH and those that the user named
    pins:  host → fingerprint ``SHA256:…`` that its key must have, whatever the files say
    """

    files: tuple[Path, ...]
    pins: Mapping[str, str]

    def known(self, address: str, port: int) -> list[Any]:
        """All keys that the files have for an address."""
        return [key for file in self.files for key in _known(file, entry(address, port))]

    def revoked(self, key: Any) -> bool:
        """Whether a file says ``@revoked`` of a key; for whichever host, which is stricter than OpenSSH."""
        lines = [line.split() for file in self.files for line in _lines(file)]
        return any(words[:1] == ["@revoked"] and key.get_base64() in words for words in lines)

    def check(self, name: str, address: str, port: int, key: Any) -> None:
        """``HostError`` unless the key is the one that is known or pinned."""
        print_ = fingerprint(key)
        if self.revoked(key):
            raise HostError(f"its host key {print_} is revoked (@revoked in a known_hosts file): do not go on")
        pin = self.pins.get(name)
        if pin is not None:
            if pin.rstrip("=") != print_:
                raise HostError(
                    f"its host key is {print_}, not the pinned {pin}: it is not this host, or the pin is old"
                )
            return
        known = self.known(address, port)
        if any(other.get_name() == key.get_name() and other.asbytes() == key.asbytes() for other in known):
            return
        if known:
            raise HostError(
                f"its host key has CHANGED to {print_} ({key.get_name()}): either somebody stands between, or the host "
                f"was set up anew; if so, remove the old key with: {self._removal(entry(address, port))}"
            )
        raise HostError(
            f"its host key is not known ({key.get_name()} {print_}): compare it with what 'ssh-keygen -lf FILE' says "
            f"on the host of /etc/ssh/ssh_host_*_key.pub, then pin it with --pin {name}={print_}"
        )

    def _removal(self, host: str) -> str:
        """The command that takes a host out of all files that know a key of it."""
        knowing = [file for file in dict.fromkeys(self.files) if _known(file, host)]
        return " && ".join(shlex.join(["ssh-keygen", "-f", str(file), "-R", host]) for file in knowing)


def trust(files: Sequence[Path], pins: Sequence[str], hosts: Sequence[str]) -> Trust:
    """From the command line: files named there, which must exist, and pins ``HOST=SHA256:…`` of these hosts."""
    missing = [f"--known-hosts {file}: there is no such file" for file in files if not file.is_file()]
    pinned: dict[str, str] = {}
    for text in pins:
        host, _, print_ = text.partition("=")
        if host not in hosts or not PIN.fullmatch(print_):
            missing.append(f"--pin {text}: write it as HOST=SHA256:… with one of the hosts {', '.join(hosts)}")
        pinned[host] = print_
    if missing:
        raise CleaveError(*missing)
    return Trust((*files, *(file.expanduser() for file in USUAL)), pinned)


def _known(file: Path, host: str) -> list[Any]:
    """All keys that a file has for a host."""
    return [key for line in _lines(file) for key in _vouched(line, host)]


def _lines(file: Path) -> list[str]:
    """Of a file, as OpenSSH has them: a comment may hold what other programs take for the end of a line."""
    text = file.read_bytes().decode("utf-8", "replace") if file.is_file() else ""
    return [line.strip() for line in text.split("\n")]


def _vouched(line: str, host: str) -> list[Any]:
    """The keys that one line vouches for: none where it is a comment, has a marker (``@…``), or cannot be read."""
    keys = paramiko.HostKeys()
    with suppress(paramiko.SSHException, InvalidHostKey, ValueError, AssertionError, IndexError):
        known: Any = None if line[:1] in ("", "#", "@") else HostKeyEntry.from_line(line)
        for name in known.hostnames if known else []:
            keys.add(name, known.key.get_name(), known.key)
        return list((keys.lookup(host) or {}).values())
    return []


def entry(address: str, port: int) -> str:
    """How known_hosts writes a host: its port only where that is not 22."""
    return address if port == 22 else f"[{address}]:{port}"


def fingerprint(key: Any) -> str:
    """``SHA256:…`` as ``ssh-keygen -l`` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
