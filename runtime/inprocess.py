"""Ranks as threads of one process, for tests and quick checks: the same interface, no MPI."""

from __future__ import annotations

import contextlib
import os
import runpy
import threading
import time
from collections import defaultdict, deque
from typing import Any, Callable

import numpy as np

from runtime.communicator import as_bytes, wait
from runtime.errors import CleaveError
from runtime.options import Options
from runtime.program import execute


class Aborted(BaseException):
    """Some rank has ended all of them. No ``Exception``: the other ranks have nothing to add."""


class World:
    """What the ranks of one run share."""

    def __init__(self, size: int, timeout_s: float = 60.0) -> None:
        self.size = size
        self.failure: str | None = None
        self.deadline = time.monotonic() + timeout_s
        self.mail: dict[tuple[int, int, int], deque[np.ndarray]] = defaultdict(deque)
        self.values: list[Any] = [None] * size
        self.arrived = [0] * size
        self.lock = threading.Lock()

    def box(self, source: int, target: int, tag: int) -> deque[np.ndarray]:
        """Messages on their way: one box for both ends, whichever asks first, and also where both ask at once."""
        with self.lock:
            return self.mail[source, target, tag]

    def check(self) -> None:
        """Raise if the run is over already."""
        if self.failure is None and time.monotonic() > self.deadline:
            self.failure = "the ranks did not finish in time: some wait for a message that nobody sends"
        if self.failure is not None:
            raise Aborted


class InProcessRequest:
    """A message that is done when ``attempt`` says so, and only once."""

    def __init__(self, world: World, attempt: Callable[[], bool], begin: Callable[[], None] = lambda: None) -> None:
        self._world, self._attempt, self._begin, self._done = world, attempt, begin, False

    def start(self) -> None:
        """Once more."""
        self._done = False
        self._begin()

    def test(self) -> bool:
        """Try again."""
        self._world.check()
        self._done = self._done or self._attempt()
        return self._done


class InProcessCommunicator:
    """The view of one rank. A message is copied when it is sent, so sends are done at once."""

    def __init__(self, world: World, rank: int) -> None:
        self._world = world
        self.rank = rank
        self.size = world.size
        self.hosts = [0] * world.size

    def receiver(self, array: np.ndarray, source: int, tag: int) -> InProcessRequest:
        """A message that fills ``array``."""
        box, data = self._world.box(source, self.rank, tag), as_bytes(array)

        def attempt() -> bool:
            if not box:
                return False
            message = box.popleft()
            if message.size != data.size:
                raise ValueError(f"expected a message of {data.size} bytes, got {message.size}")
            data[...] = message
            return True

        return InProcessRequest(self._world, attempt)

    def sender(self, array: np.ndarray, dest: int, tag: int) -> InProcessRequest:
        """A message with what is in ``array`` when it starts."""
        box, data = self._world.box(self.rank, dest, tag), as_bytes(array)
        return InProcessRequest(self._world, lambda: True, lambda: box.append(data.copy()))

    def arrive(self) -> InProcessRequest:
        """Done when everybody has come here as often as this rank."""
        self._world.arrived[self.rank] += 1
        turn = self._world.arrived[self.rank]
        return InProcessRequest(self._world, lambda: min(self._world.arrived) >= turn)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        wait(self.arrive().test)

    def gather(self, value: Any) -> list[Any] | None:
        """The values of all ranks on rank 0."""
        self._world.values[self.rank] = value
        self.barrier()
        values = list(self._world.values) if self.rank == 0 else None
        self.barrier()  # nobody puts in the next value before rank 0 has read this one
        return values

    def progress(self, active: bool) -> None:
        """Messages need no help here."""

    def abort(self, message: str) -> None:
        """End all ranks; the first message counts."""
        with self._world.lock:
            self._world.failure = self._world.failure or message
        raise Aborted


def run_in_process(bundle: str, options: Options, timeout_s: float = 60.0) -> None:
    """Run all ranks of the bundle in folder ``bundle``; ``CleaveError`` if one fails."""
    first = os.path.join(bundle, "rank_00.py")
    if not os.path.exists(first):
        raise CleaveError(f"{bundle}: is no bundle, it has no rank_00.py")
    size = runpy.run_path(first)["PLACE"].ranks
    programs = [runpy.run_path(os.path.join(bundle, f"rank_{rank:02d}.py")) for rank in range(size)]
    world = World(size, timeout_s)
    threads = [
        threading.Thread(target=_run_rank, args=(world, rank, program, options), daemon=True)
        for rank, program in enumerate(programs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if world.failure is not None:
        raise CleaveError(world.failure)


def _run_rank(world: World, rank: int, program: dict[str, Any], options: Options) -> None:
    communicator = InProcessCommunicator(world, rank)
    with contextlib.suppress(Aborted):
        execute(program["program"], program["PLACE"], communicator, options)
