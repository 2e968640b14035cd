"""Look after a run on one host, from its first file to its last process, and leave nothing behind.

It obeys lines from the workstation. When these stop (``end``, a line that broke, a workstation that says nothing for
``QUIET_S``, a time that is up) it kills every process of the run, and takes away the key and the folder of the run.
"""

import contextlib
import fcntl
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Optional

from runtime.deploy.far.common import FarError, answer, folder, inside

QUIET_S = 30.0
GRACE_S = 5.0
KEPT_BYTES = 200000
"""Of what mpirun and the ranks print."""
ADDRESS = re.compile(r"[0-9A-Fa-f.:]+(%[A-Za-z0-9_.-]+)?")


class GoneError(Exception):
    """The workstation hung up, or says nothing any more."""


def start(request: Dict[str, Any]) -> None:
    """Obey until the end, then clear away."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the line breaking is heard on standard input
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder(request["work"])
    run = Run(request, folder(request["work"], "runs", request["run"]))
    try:
        run.obey()
    except GoneError:
        pass
    finally:
        run.clear()
    answer({"ended": True})


class Line:
    """Standard input, read as it comes."""

    def __init__(self) -> None:
        self._kept = b""
        self._heard = time.monotonic()

    def command(self, wait_s: float) -> Optional[Dict[str, Any]]:
        """The next line, or None when there is none yet."""
        while b"\n" not in self._kept:
            if not self._more(wait_s):
                return None
        text, _, self._kept = self._kept.partition(b"\n")
        found = json.loads(text.decode("utf-8"))  # type: Dict[str, Any]
        return found

    def copy(self, path: str, size: int) -> None:
        """Bytes into a file."""
        with open(path, "wb") as file:
            while size:
                data, self._kept = self._kept[:size], self._kept[size:]
                file.write(data)
                size -= len(data)
                if size:
                    self._more(1.0)

    def _more(self, wait_s: float) -> bool:
        if select.select([0], [], [], wait_s)[0]:
            data = os.read(0, 1 << 20)
            if not data:
                raise GoneError
            self._kept += data
            self._heard = time.monotonic()
            return True
        if time.monotonic() - self._heard > QUIET_S:
            raise GoneError
        return False


class Run:
    """A run on this host. root: its folder"""

    def __init__(self, request: Dict[str, Any], root: str) -> None:
        self._request, self._root, self._line = request, root, Line()
        self._marker = "CLEAVE_RUN=" + request["run"]
        self._shared = shared_memory(request["run"])
        self._process = None  # type: Optional[subprocess.Popen[bytes]]
        self._write_own()
        answer({"root": root, "python": sys.executable, "root user": os.geteuid() == 0})

    def obey(self) -> None:
        """One line after the other."""
        while True:
            said = self._line.command(1.0)
            if said is None or said["do"] == "alive":
                continue
            if said["do"] == "end":
                return
            {"write": self._write, "put": self._put, "fetch": self._fetch, "key": self._key, "trust": self._trust,
             "go": self._go}[said["do"]](said)  # fmt: skip

    def clear(self) -> None:
        """End what still runs; take away key, files and shared memory."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._stop()
        if self._request["trusted"]:
            edit_keys(None, self._request["run"])
        for place in (self._root, self._shared):
            shutil.rmtree(place, ignore_errors=True)

    def environment(self) -> Dict[str, str]:
        """Of all processes of the run on this host."""
        bin_ = os.path.dirname(self._request["mpirun"])
        path = os.pathsep.join([bin_, os.environ.get("PATH", "/usr/bin:/bin")])
        own = {"CLEAVE_RUN": self._request["run"], "CLEAVE_LAUNCH": os.path.join(self._root, "launch")}
        own.update(TMPDIR=self._root, XDG_CACHE_HOME=self._root)  # what MPI and ONNX Runtime leave goes with the run
        own.update({f"OMPI_MCA_btl_{name}_backing_directory": self._shared for name in ("sm", "vader")})
        return dict(os.environ, **self._request["environment"], PATH=path, **own)

    def _write_own(self) -> None:
        """What starts a rank here, and what the key may do here."""
        words = map(quoted, (self._request["python"], os.path.join(self._request["release"], "main.py")))
        self._file("launch", '#!/bin/sh\ncd {} && exec {} "$@"\n'.format(quoted(self._root), " ".join(words)), 0o700)
        self._file("gate.py", self._request["gate"])
        body = {"bin": os.path.dirname(self._request["mpirun"]), "environment": self.environment()}
        self._file("gate.json", json.dumps(body))

    def _file(self, name: str, text: str, mode: int = 0o600) -> None:
        path = inside(self._root, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)

    def _write(self, said: Dict[str, Any]) -> None:
        self._file(said["name"], said["text"], 0o700 if said.get("program") else 0o600)
        answer({})

    def _put(self, said: Dict[str, Any]) -> None:
        self._line.copy(inside(self._root, said["name"]), said["size"])
        answer({})

    def _fetch(self, said: Dict[str, Any]) -> None:
        path = inside(self._root, said["name"])
        answer({"size": os.path.getsize(path)})
        with open(path, "rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()

    def _key(self, said: Dict[str, Any]) -> None:
        """A key pair; its private half never leaves this host, and goes with the run."""
        path = os.path.join(self._root, "key")
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name_of(self._request["run"]), "-f", path],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if not os.path.exists(path + ".pub"):
            raise FarError("ssh-keygen does not work on it: install openssh-client")
        with open(path + ".pub", encoding="ascii") as file:
            answer({"key": " ".join(file.read().split()[:2])})

    def _trust(self, said: Dict[str, Any]) -> None:
        """Let that key in, from one address, for one program, until the run must be over.

        Both come from another host, which must not write options or lines of its own here.
        """
        if not re.fullmatch("ssh-ed25519 [A-Za-z0-9+/=]+", said["key"]) or not ADDRESS.fullmatch(said["from"]):
            raise FarError("was asked to let in what is no key of a run, or from no address: is the head host itself?")
        until = time.strftime("%Y%m%d%H%M", time.localtime(time.time() + said["time_s"] + 60))
        command = "{} -I {}".format(quoted(sys.executable), quoted(os.path.join(self._root, "gate.py")))
        options = 'from="{}",restrict,expiry-time="{}",command="{}"'.format(
            said["from"], until, command.replace("\\", "\\\\").replace('"', '\\"'),
        )  # fmt: skip
        edit_keys("{} {} {}".format(options, said["key"], name_of(self._request["run"])), self._request["run"])
        answer({})

    def _go(self, said: Dict[str, Any]) -> None:
        """Run mpirun, and tell how it ended."""
        out, err = (os.path.join(self._root, name) for name in ("stdout", "stderr"))
        begin, deadline = time.monotonic(), time.monotonic() + said["timeout_s"]
        with open(out, "wb") as first, open(err, "wb") as second:
            self._process = subprocess.Popen(
                said["command"], stdin=subprocess.DEVNULL, stdout=first, stderr=second, cwd=self._root,
                env=self.environment(), start_new_session=True,
            )  # fmt: skip
        code = None
        while time.monotonic() < deadline and code is None:
            word = self._line.command(0.05)
            code = self._process.poll()
            if word is not None and word["do"] == "end":
                raise GoneError
        took = time.monotonic() - begin
        self._stop()
        answer({"code": code, "stdout": tail(out), "stderr": tail(err), "time_s": took})

    def _stop(self) -> None:
        """mpirun first, which ends its ranks on all hosts; then whatever of the run is still here."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.terminate()
            deadline = time.monotonic() + GRACE_S
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
        for _ in range(50):
            pids = self._processes()
            if not pids:
                break
            for pid in pids:
                kill(pid)
            time.sleep(0.02)
        if process is not None:
            process.wait()

    def _processes(self) -> List[int]:
        """Processes of this run on this host."""
        found = []
        for pid in processes():
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if self._marker.encode() in file.read().split(b"\0"):
                        found.append(pid)
            except OSError:
                continue
        return [pid for pid in found if not zombie(pid)]


def shared_memory(run: str) -> str:
    """A folder for the memory that ranks of one host share: those that are killed leave it behind."""
    for place in ("/dev/shm", tempfile.gettempdir()):
        if os.access(place, os.W_OK):
            return folder(place, "cleave-" + run)
    raise FarError("has neither /dev/shm nor a folder for temporary files that can be written to")


def name_of(run: str) -> str:
    """The comment of the key of a run, by which it is found again."""
    return "cleave-run-" + run


def edit_keys(added: Optional[str], run: str) -> None:
    """Add a line to ``authorized_keys``, or take those of a run away again; all others stay as they are."""
    place = folder(os.path.expanduser("~"), ".ssh")
    lock = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run may begin or end at this moment
        _edit(os.path.realpath(os.path.join(place, "authorized_keys")), added, run)
    finally:
        os.close(lock)


def _edit(path: str, added: Optional[str], run: str) -> None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            before, mode = file.read(), os.stat(path).st_mode & 0o7777
    except FileNotFoundError:
        before, mode = "", 0o600
    lines = [text for text in before.splitlines() if not text.endswith(" " + name_of(run))]
    text = "".join(line + "\n" for line in [*lines, *([added] if added else [])])
    if text == before:
        return
    draft = f"{path}.cleave-{run}"
    with open(draft, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    os.chmod(draft, mode)
    os.replace(draft, path)


def processes() -> List[int]:
    """All there are, but this one."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def zombie(pid: int) -> bool:
    """Whether it has ended, and only its parent has not noticed."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return True


def kill(pid: int) -> None:
    """At once."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def tail(path: str) -> str:
    """The end of a text file."""
    with open(path, "rb") as file:
        file.seek(max(os.path.getsize(path) - KEPT_BYTES, 0))
        return file.read().decode("utf-8", "replace")


def quoted(text: str) -> str:
    """One word of a shell."""
    return "'" + text.replace("'", "'\"'\"'") + "'"
