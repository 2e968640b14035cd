"""A testbed that stands, or is being made: what is known of it, and where it keeps its files.

Everything is under one folder of the machine, so a testbed is found again without what ``up`` has returned.
Several testbeds may stand at once; each has a name, and a number that its network is made of.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from dse.testbed.spec import HostSpec
from runtime.draft import drafted
from runtime.errors import CleaveError

ROOT = Path("/var/lib/cleave-testbed")
"""One folder a testbed. Not under /run: that is small there, and often no program may be started from it."""
USER = "cleave"
"""Who logs in to a host."""
PORT = 22
MOST = 255
"""Testbeds that can stand at once."""
TAG = "cleave-testbed"
"""In the name of each cgroup and the alias of each network interface that a testbed makes."""
IDLE = f"{TAG}-idle"
"""The cgroup that holds what runs when nothing else on the machine would."""


@dataclass(frozen=True)
class Testbed:
    """One testbed.

    name:   lower-case letters and digits; unique on the machine
    number: 0..MOST-1, unique among those that stand: the third byte of its addresses
    hosts:  in the order of the spec
    out:    folder that the user gets, absolute
    python: interpreter that made it; hosts see it at the same path
    uid, gid: of the account that logs in to the hosts
    """

    name: str
    number: int
    hosts: tuple[HostSpec, ...]
    out: str
    python: str
    uid: int
    gid: int

    @property
    def folder(self) -> Path:
        return ROOT / self.name

    @property
    def tag(self) -> str:
        """What marks its network interface."""
        return f"{TAG} {self.name}"

    @property
    def link(self) -> str:
        """The interface of this machine that leads to the hosts."""
        return f"cleave{self.number}"

    def place(self, host: str) -> Path:
        """The folder of one host, as this machine sees it; the host itself sees it at ROOT."""
        return self.folder / host

    def address(self, host: str) -> str:
        """IPv4 address. 198.18.0.0/15 is set aside for testing networks (RFC 2544): no real network has it."""
        return f"198.19.{self.number}.{1 + [h.name for h in self.hosts].index(host)}"

    @property
    def own_address(self) -> str:
        """Of this machine, as hosts see it."""
        return f"198.19.{self.number}.254"

    def pid(self, host: str) -> int | None:
        """The process that holds the namespaces of a host (or of SWITCH); None: not started."""
        try:
            return int((self.place(host) / "pid").read_text())
        except (OSError, ValueError):
            return None

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> Testbed:
        body = json.loads(text)
        hosts = tuple(HostSpec(**{**host, "cores": tuple(host["cores"])}) for host in body.pop("hosts"))
        return Testbed(hosts=hosts, **body)


SWITCH = "Switch"
"""Stands where a host's name does; no host may be called so."""


def check_name(name: str) -> str:
    """``name`` if a testbed may have it."""
    if not re.fullmatch("[a-z][a-z0-9]{0,15}", name):
        raise CleaveError(f"--name {name}: lower-case letters and digits, a letter first, at most 16")
    return name


@contextmanager
def alone() -> Iterator[None]:
    """Wait until nobody else puts up or takes down a testbed: all share control groups, and no two a number.

    The lock is on a folder that is always there, so it leaves nothing, and is gone with whoever holds it.
    """
    folder = os.open(ROOT.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def names() -> list[str]:
    """Of all testbeds that have files, whole or not."""
    return sorted(entry.name for entry in ROOT.iterdir() if entry.is_dir()) if ROOT.is_dir() else []


def load(name: str) -> Testbed | None:
    """What is known of a testbed; None when it has no state file: it crashed at its very beginning."""
    try:
        return Testbed.from_json((ROOT / name / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def save(testbed: Testbed) -> None:
    """Claim the name of a testbed, and note all that is known of it before anything of it is made."""
    ROOT.mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        testbed.folder.mkdir(mode=0o755)
    except FileExistsError:
        raise CleaveError(already(testbed.name)) from None
    try:
        with drafted(testbed.folder / "state.json") as draft:
            Path(draft).write_text(testbed.to_json(), encoding="utf-8")
    except BaseException:
        testbed.folder.rmdir()
        raise


def already(name: str) -> str:
    found = load(name)
    where = f", its files in {found.out}" if found else ""
    return (
        f"testbed '{name}' is up already{where}; end it with 'dse testbed down --name {name}', or choose another --name"
    )


def account() -> tuple[int, int]:
    """uid and gid that log in to hosts: who asked, through sudo or as root, so that their Python can be read."""
    asked = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    return (int(asked[0]), int(asked[1])) if all(word.isdigit() for word in asked) else (os.getuid(), os.getgid())
