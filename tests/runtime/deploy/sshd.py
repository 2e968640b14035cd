"""Real SSH servers on this machine: hosts that one can log in to, each with a port, a key and a home of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from runtime.deploy.connect import Connection, connect
from runtime.deploy.keys import Trust
from runtime.deploy.target import Target

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@dataclass
class Server:
    """One of them. folder: host_key, known_hosts, id (the key that it lets in), home/"""

    name: str
    port: int
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def work(self) -> Path:
        return self.home / ".cleave"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def fingerprint(self) -> str:
        said = subprocess.run(
            ["ssh-keygen", "-lf", self.folder / "host_key"], capture_output=True, text=True, check=True
        )
        return said.stdout.split()[1]

    @property
    def trust(self) -> Trust:
        return Trust((self.known_hosts,), {})

    def target(self, **more: str) -> Target:
        how: dict = {"key": str(self.folder / "id"), "python": sys.executable, "user": getpass.getuser(), **more}
        return Target(self.name, "127.0.0.1", port=self.port, **how)

    def connect(self, **more: str) -> Connection:
        return connect(self.target(**more), self.trust)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


def make_key(path: Path, kind: str = "ed25519", *more: str) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", path, *more], check=True)


def start(name: str, folder: Path, port: int | None = None) -> Server:
    """Start a server; ``folder`` may hold the files of one that was stopped."""
    if port is None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
    (folder / "home").mkdir(parents=True, exist_ok=True)
    for key in ("host_key", "id"):
        if not (folder / key).exists():
            make_key(folder / key)
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}")
    (folder / "sshd_config").write_text(
        f"""\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/id.pub
PidFile {folder}/pid
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
SetEnv HOME={folder}/home
"""
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    assert SSHD is not None
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return Server(name, port, folder, process)
        assert time.monotonic() < deadline, f"sshd does not start: {folder}"
        time.sleep(0.02)


@contextmanager
def standing(folder: Path, names: list[str]) -> Iterator[list[Server]]:
    """Servers while the block lasts."""
    if SSHD is None:
        pytest.skip("there is no sshd here: apt-get install openssh-server")
    servers = [start(name, folder / name) for name in names]
    try:
        yield servers
    finally:
        for server in servers:
            server.stop()
