"""Look after a run on one host, from its first file to its last process, and leave nothing behind.

It obeys lines from the workstation. When these stop (``end``, a line that broke, a workstation that says nothing for
``QUIET_S``, a time that is up) it kills every process of the run, and takes away the key and the folder of the run.
"""

import contextlib
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Dict, Optional

from runtime.deploy.far.common import FarError, answer, folder, inside
from runtime.deploy.far.remains import (
    MARKER,
    RELEASE,
    begin,
    clear,
    edit_keys,
    end_processes,
    name_of,
    places,
    shared_memory,
)

QUIET_S = 30.0
GRACE_S = 5.0
ASIDE_S = 3.0
"""For ranks to say what they are doing, when time is up."""
KEPT_BYTES = 200000
"""Of what mpirun and the ranks print."""
ADDRESS = re.compile(r"[0-9A-Fa-f.:]+(%[A-Za-z0-9_.-]+)?")


class GoneError(Exception):
    """The workstation hung up, or says nothing any more."""


def start(request: Dict[str, Any]) -> None:
    """Obey until the end, then clear away."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the line breaking is heard on standard input
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    runs, name = folder(request["work"], "runs"), request["run"]
    held = begin(runs, name)
    try:
        run = Run(request, os.path.join(runs, name))
        try:
            run.obey()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            run.stop()
    except GoneError:
        pass
    finally:
        clear(runs, name)
        os.close(held)
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
             "go": self._go, "seen": self._seen}[said["do"]](said)  # fmt: skip

    def environment(self) -> Dict[str, str]:
        """Of all processes of the run on this host."""
        bin_ = os.path.dirname(self._request["mpirun"])
        path = os.pathsep.join([bin_, os.environ.get("PATH", "/usr/bin:/bin")])
        own = {MARKER: self._request["run"], "CLEAVE_LAUNCH": os.path.join(self._root, "launch")}
        own.update(places(self._root, self._shared))
        return dict(os.environ, **self._request["environment"], PATH=path, **own)

    def _write_own(self) -> None:
        """What starts a rank here, and what the key may do here."""
        program = os.path.join(self._request["release"], "main.py")
        names = {"root": self._root, "python": self._request["python"], "program": program}
        lines = [f"{name}={shlex.quote(value)}\n" for name, value in names.items()]
        self._file("launch", "#!/bin/sh\n" + "".join(lines) + self._request["launch"], 0o700)
        self._file(RELEASE, self._request["release"])
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
        with contextlib.suppress(OSError):
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
        os.environ.pop("TZ", None)  # sshd has the zone of the host, whatever that of a login is
        time.tzset()
        until = time.strftime("%Y%m%d%H%M", time.localtime(time.time() + said["time_s"] + 60))
        command = "{} -I {}".format(shlex.quote(sys.executable), shlex.quote(os.path.join(self._root, "gate.py")))
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
            if word is not None and code is None:
                answer({"alive": True})  # as the workstation is, which has said so
        took = time.monotonic() - begin
        if code is None:
            self._process.send_signal(signal.SIGUSR1)  # mpirun passes it on, and ranks say what they are doing
            time.sleep(ASIDE_S)
        self.stop()
        answer({"code": code, "stdout": tail(out), "stderr": tail(err), "time_s": took})

    def stop(self) -> None:
        """mpirun first, which ends its ranks on all hosts; then whatever of the run is still here."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.terminate()
            deadline = time.monotonic() + GRACE_S
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
        end_processes(self._request["run"])
        if process is not None:
            process.wait()

    def _seen(self, said: Dict[str, Any]) -> None:
        """How ranks of this host ended since this was last asked, as their launchers wrote it down, and room on disk.

        By rank: exit code (128 and more: of a signal), and whether the kernel killed for want of memory meanwhile.
        """
        ended = {}
        for name in os.listdir(self._root):
            word, _, rank = name.partition(".")
            if word == "ended" and rank.isdigit():
                path = os.path.join(self._root, name)
                with open(path, encoding="ascii") as file:
                    code, _, memory = file.read().strip().partition(" ")
                os.remove(path)
                if code.isdigit():
                    ended[rank] = [int(code), memory == "memory"]
        place = os.statvfs(self._root)
        answer({"ranks": ended, "free disk": place.f_bavail * place.f_frsize})


def tail(path: str) -> str:
    """The end of a text file."""
    with open(path, "rb") as file:
        file.seek(max(os.path.getsize(path) - KEPT_BYTES, 0))
        return file.read().decode("utf-8", "replace")
