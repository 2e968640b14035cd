"""A testbed whose maker is killed in the middle: by SIGKILL, before a change of some number that it makes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dse.testbed import lifecycle, spec

CHANGES = ("subprocess.Popen", "os.mkdir", "os.rmdir", "os.remove", "os.rename", "os.chmod", "os.chown", "os.kill")
"""Audit events before each of which the maker may die, besides files that it opens to write; also commands it runs."""

_FRESH = multiprocessing.get_context("forkserver")  # its processes have no threads, and what takes long is imported
_FRESH.set_forkserver_preload(["dse.testbed.lifecycle"])


def up(file: Path, out: Path, name: str, before: int) -> int | None:
    """``dse testbed up``, killed before its change number ``before``; how many it makes, where none has that number."""
    return _killed(lifecycle.up, lifecycle.plan(name, spec.read(file), out), before)


def down(name: str, before: int) -> int | None:
    """The same with ``dse testbed down``."""
    return _killed(lifecycle.down, name, before)


def _killed(work: Callable[[Any], object], of: object, before: int) -> int | None:
    made, ours = _FRESH.Pipe(duplex=False)
    process = _FRESH.Process(target=_work, args=(work, of, before, ours))
    process.start()
    ours.close()
    process.join(120)
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return int(made.recv()) if process.exitcode == 0 else None


def _work(work: Callable[[Any], object], of: object, before: int, tell: Any) -> None:
    changes = itertools.count(1)

    def hook(event: str, details: tuple[Any, ...]) -> None:
        opened = event == "open" and isinstance(details[2], int) and details[2] & (os.O_WRONLY | os.O_RDWR)
        if (event in CHANGES or opened) and next(changes) == before:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    work(of)
    tell.send(next(changes) - 1)
