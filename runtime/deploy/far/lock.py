"""Alone in a folder of the host, among the scripts that ask."""

import contextlib
import fcntl
import os
import time
from typing import BinaryIO, Iterator

from runtime.deploy.far.common import FarError

PATIENCE_S = 15.0
"""For another to end: one whose line broke notices after ``SILENCE_S``, its workstation somewhat sooner."""


def alone(root: str, other: str) -> BinaryIO:
    """An end where another process writes here, until the file is closed. other: what that is, for a person"""
    lock = open(os.path.join(root, "lock"), "wb")  # noqa: SIM115
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except OSError:
            if time.monotonic() > deadline:
                raise FarError(f"{other} is under way: try again when that is done") from None
        time.sleep(0.1)


@contextlib.contextmanager
def locked(place: str) -> Iterator[None]:
    """Alone for a moment: waits for as long as it takes."""
    lock = os.open(place, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems of other machines know no locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
