"""A host during a session: its guard, and what is said to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime.deploy.connect import Talk
from runtime.deploy.network import Site
from runtime.deploy.target import DeployError, HostError
from runtime.draft import drafted

ALIVE_S, END_S = 5.0, 20.0
"""Seconds between signs of life, and until a guard must have cleared away."""
CHUNK = 1 << 18


@dataclass(frozen=True)
class Post:
    """A guard. lock: what it is told is not mixed with signs of life. ``DeployError`` names the host."""

    site: Site
    talk: Talk
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        """Of the host."""
        return self.site.connection.target.name

    def begin(self, do: str, **more: Any) -> None:
        """Have the guard do something."""
        with self._named(), self.lock:
            self.talk.say({"do": do, **more})

    def answer(self, timeout_s: float | None = None) -> Any:
        """What came of it."""
        with self._named():
            return self.talk.hear(timeout_s)

    def tell(self, do: str, timeout_s: float | None = None, **more: Any) -> Any:
        """Have the guard do something, and wait until it is done."""
        self.begin(do, **more)
        return self.answer(timeout_s)

    def put(self, name: str, file: Path) -> None:
        """Bring a file into the folder of the run."""
        with self._named(), self.lock, file.open("rb") as stream:
            self.talk.say({"do": "put", "name": name, "size": file.stat().st_size})
            try:
                while data := stream.read(CHUNK):
                    self.talk.send(data)
            except BaseException:
                self.talk.close()  # whatever else was said to the guard, it would take for bytes of the file
                raise
        self.answer()

    def fetch(self, name: str, to: Path) -> None:
        """Bring a file here; it has its name when it is whole."""
        size = self.tell("fetch", name=name)["size"]
        with drafted(to) as draft, self._named(), open(draft, "wb") as stream:
            while size:
                size -= stream.write(self.talk.read(min(size, CHUNK)))

    def _named(self) -> Any:
        return _Named(self.name)


class _Named:
    """What goes wrong in the block is told with the name of the host."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, HostError):
            raise DeployError({self._name: error.sentences}) from error


def keep_alive(posts: Iterable[Post], over: threading.Event) -> None:
    """Tell every guard that the workstation is there, until it is over. A guard that hears nothing ends its run."""
    while not over.wait(ALIVE_S):
        for post in posts:
            if post.lock.acquire(blocking=False):  # else it is being told something anyway
                try:
                    with suppress(HostError):
                        post.talk.say({"do": "alive"})
                finally:
                    post.lock.release()


def dismiss(posts: Iterable[Post]) -> list[Post]:
    """Have every guard clear away, and wait for it, ``END_S`` for all together; those that did not say they have."""
    deadline, silent = time.monotonic() + END_S, []
    for post in posts:
        with suppress(HostError):
            post.talk.say({"do": "end"})
    for post in posts:
        try:
            while "ended" not in post.talk.hear(max(deadline - time.monotonic(), 0.1)):
                pass
        except HostError:
            silent.append(post)
        post.talk.close()
    return silent
