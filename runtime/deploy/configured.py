"""What the user's own ``~/.ssh/config`` says of an address, read as OpenSSH reads it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from glob import glob
from pathlib import Path
from typing import Any

import paramiko

from runtime.deploy.keys import USUAL, Trust
from runtime.deploy.target import HostError

DEPTH = 16
"""Files that include one another, one within the other; OpenSSH has the same limit."""
LINE = re.compile(r"(\w+)(?:\s*=\s*|\s+)(.+)")
"""A word and what it is set to."""
MARK = "CleaveWasHere"
"""A word of no configuration."""


def configured(address: str) -> dict[str, Any]:
    """By words in small letters; ``HostError`` for what cannot be read or is not supported."""
    file = Path("~/.ssh/config").expanduser()
    if not file.is_file():
        return {}
    try:
        found: dict[str, Any] = _lookup(_text(file, address), address)
        found["userknownhostsfile"] = shlex.split(found.get("userknownhostsfile", ""))
    except (paramiko.SSHException, OSError, ValueError) as error:
        raise HostError(f"{file} cannot be read: {error}") from error
    except KeyError as error:
        raise HostError(f"{file} sets CanonicalizeHostname to yes without {error}: add it") from error
    except ImportError as error:
        raise HostError(f"{file} has a 'Match exec', which is read by the package {error.name}: install it") from error
    if any((found.get(key) or "none").lower() != "none" for key in ("proxyjump", "proxycommand")):
        raise HostError(f"{file} reaches it through another host (ProxyJump, ProxyCommand), which is not supported yet")
    if "port" in found:
        found["port"] = _port(file, found["port"])
    return found


def believed(trust: Trust, said: Mapping[str, Any]) -> Trust:
    """With the files of ``UserKnownHostsFile`` in place of those that a user has usually."""
    if not said.get("userknownhostsfile"):
        return trust
    usual = {file.expanduser() for file in USUAL if file.parts[0] == "~"}
    own = (Path(file).expanduser() for file in said["userknownhostsfile"])
    return replace(trust, files=(*(file for file in trust.files if file not in usual), *own))


def _lookup(text: str, address: str) -> dict[str, Any]:
    return dict(paramiko.SSHConfig.from_text(text).lookup(address))


def _text(file: Path, address: str, text: str = "", block: str = "Host *", depth: int = 0) -> str:
    """The text so far and that of a file, with all that it includes, for one address.

    block: the line that began the block in which the file is included, and goes on afterwards
    """
    if depth > DEPTH:
        raise ValueError(f"more than {DEPTH} files include one another ({file})")
    for line in file.read_text(encoding="utf-8", errors="surrogateescape").split("\n"):  # names may be any bytes
        found = LINE.match(line.strip())
        word, value = found.groups() if found else ("", "")
        if word.lower() == "include":
            if MARK.lower() in _lookup(f"{text}{MARK} yes\n", address):
                for each in _included(value):
                    text = _text(each, address, f"{text}{block}\n", block, depth + 1)
            line = block
        elif word.lower() in ("host", "match"):
            block = line
        text += f"{line}\n"
    return text


def _included(value: str) -> list[Path]:
    """Files that fit the patterns of a line, in the order of OpenSSH; others than absolute ones are in ``~/.ssh``."""
    own = Path("~/.ssh").expanduser()
    patterns = [str(own / Path(word).expanduser()) for word in shlex.split(value, comments=True)]
    return [Path(name) for pattern in patterns for name in sorted(glob(pattern))]


def _port(file: Path, text: str) -> int:
    if not re.fullmatch("[0-9]{1,5}", text) or not 1 <= int(text) <= 65535:
        raise HostError(f"{file} says Port {text} of it: write a whole number from 1 to 65535")
    return int(text)
