"""A testbed for tests: hosts to log in to, whose links can be pulled."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from dse.testbed import access, lifecycle, limits, machine, needs, network, spec, state
from dse.testbed.state import SWITCH, USER
from runtime.deploy.prepare import pins
from runtime.errors import CleaveError
from tests.command import dse

OWN = f"t{os.getpid()}"
"""Testbeds of this run of the tests are called so, and a letter more: others may stand beside them."""


@dataclass(frozen=True)
class Cluster:
    """A testbed that stands. folder: with platform file, key and known_hosts; testbed: all that is known of it."""

    folder: Path
    testbed: state.Testbed

    @property
    def platform(self) -> Path:
        return self.folder / access.PLATFORM

    @property
    def key(self) -> Path:
        return self.folder / access.KEY

    @property
    def known_hosts(self) -> Path:
        return self.folder / access.KNOWN_HOSTS

    @property
    def hosts(self) -> list[str]:
        return [host.name for host in self.testbed.hosts]

    @property
    def options(self) -> list[object]:
        """What ``dse deploy`` and ``dse bench`` need to get to the hosts, with this machine's Python on them."""
        to = ["--platform", self.platform, "--key", self.key, "--known-hosts", self.known_hosts]
        return [*to, "--python", self.testbed.python]

    def start(self, host: str, *command: str) -> subprocess.Popen[str]:
        """A command on a host through OpenSSH, as a shell there reads it."""
        options = ["-F", "none", "-i", str(self.key), "-o", f"UserKnownHostsFile={self.known_hosts}"]
        options += ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=5"]
        words = ["ssh", *options, f"{USER}@{self.testbed.address(host)}", *command]
        pipe = subprocess.PIPE
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)

    def ssh(self, host: str, *command: str) -> subprocess.CompletedProcess[str]:
        """The same, to its end."""
        with self.start(host, *command) as process:
            out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def said(self, host: str, *command: str) -> str:
        """Standard output of a command that must end well."""
        found = self.ssh(host, *command)
        assert found.returncode == 0, found
        return found.stdout.strip()

    def pull(self, host: str) -> None:
        """Pull the network cable of a host."""
        machine.run(network.cable(self.testbed, host, self._pid(SWITCH), plugged=False))

    def plug(self, host: str) -> None:
        """Put it back."""
        machine.run(network.cable(self.testbed, host, self._pid(SWITCH), plugged=True))

    def pids(self, host: str) -> set[int]:
        """All processes of a host, as this machine numbers them."""
        return set(machine.processes(machine.mounted()[0].group(self.testbed, host)))

    @contextmanager
    def watched(self) -> Iterator[dict[int, tuple[int, str]]]:
        """MPI ranks seen while the block lasts: process → number, and the name of the host that it finds itself on."""
        seen, over = dict[int, tuple[int, str]](), threading.Event()

        def look() -> None:
            while not over.wait(0.2):
                for pid in {pid for host in self.hosts for pid in self.pids(host)} - seen.keys():
                    with suppress(OSError, CleaveError):  # it has ended meanwhile
                        seen.update(_rank(pid))

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            yield seen
        finally:
            over.set()
            watcher.join()

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """All hosts at the full speed of their cores while the block lasts: for what takes long and is not timed."""
        hierarchy = next(h for h in machine.mounted() if "cpu" in h.controllers)
        file, free = ("cpu.max", "max") if hierarchy.version == 2 else ("cpu.cfs_quota_us", "-1")
        for host in self.hosts:
            machine.write(hierarchy.group(self.testbed, host) / file, free)
        try:
            yield
        finally:
            for spec in self.testbed.hosts:
                group = hierarchy.group(self.testbed, spec.name)
                for limited, text in limits.limits(hierarchy, group, spec):
                    if limited.name == file:
                        machine.write(limited, text)

    def _pid(self, host: str) -> int:
        found = self.testbed.pid(host)
        assert found is not None, host
        return found


def _rank(pid: int) -> dict[int, tuple[int, str]]:
    """A process with its rank and what it takes for its host's name; none where it is no rank."""
    found = re.search(rb"\0OMPI_COMM_WORLD_RANK=([0-9]+)\0", Path(f"/proc/{pid}/environ").read_bytes())
    if found is None:
        return {}
    return {pid: (int(found[1]), machine.run(["nsenter", "--target", str(pid), "--uts", "--", "hostname"]).strip())}


def download(folder: Path, *packages: str) -> Path:
    """A folder of wheels, from where pip gets packages here. ``CleaveError`` with pip's reason.

    packages: those that ``--prepare`` installs, unless others are named
    """
    wanted = packages or pins([platform.python_version()])
    words = [sys.executable, "-m", "pip", "download", "-q", "--only-binary", ":all:", "-d", str(folder), *wanted]
    said = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    if said.returncode != 0:
        last = (said.stderr.strip() or said.stdout.strip() or "pip said nothing").splitlines()[-1]
        raise CleaveError(f"packages for hosts cannot be downloaded: {last}")
    return folder


def skip_unless_possible(hosts: tuple[spec.HostSpec, ...]) -> None:
    """Skip a test, with what is missing, where no testbed can be made."""
    problems = needs.missing(hosts)
    if problems:
        pytest.skip("; ".join(problems))


@contextmanager
def standing(spec_file: str | Path, folder: Path, letter: str) -> Iterator[Cluster]:
    """A testbed while the block lasts, its files in ``folder``."""
    skip_unless_possible(spec.read(spec_file))
    _sweep()
    name = OWN + letter
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "virtual", lambda: False)  # cores that are kept awake are shared with other tests
        said = dse("testbed", "up", "--spec", spec_file, "--out", folder, "--name", name)
    assert said.code == 0, said
    try:
        found = state.load(name)
        assert found is not None
        yield Cluster(folder, found)
    finally:
        lifecycle.down(name)


@contextmanager
def boxed(spec_text: str, letter: str) -> Iterator[tuple[Path, Cluster]]:
    """A testbed of such hosts while the block lasts, and a folder for the rest, which goes with it."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        file = folder / "hosts.spec"
        file.write_text(spec_text)
        with standing(file, folder / "box", letter) as box:
            yield folder, box


def _sweep() -> None:
    """Take down what runs of the tests that were killed have left."""
    for name in lifecycle.names():
        owner = re.fullmatch("t([0-9]+)[a-z]", name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            lifecycle.down(name)
