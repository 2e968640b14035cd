"""Ranks as MPI processes."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from mpi4py import MPI

from runtime.communicator import PREFIX, as_bytes, wait

LAST_WORDS_S = 0.1
"""Between that line and the end of all ranks, so that mpirun has read it."""

UNAIDED_BYTES = 2**19
"""A message up to this size fits into the buffers of sockets and moves by itself while a segment runs: Linux gives them
up to 4 MB. The first one of 1 MB came when the segment was done, 2 MB always did (1 Gbit/s, ``python -m
tests.bench.unaided``). Looks cost a stream of ShuffleNet in four stretches, 0.2 MB between them, 17 % of its period."""
POKE_S, POKE_SHARE = 500e-6, 1 / 4
"""Pause between two looks after messages while a segment runs, and the share of the time that it has run if that is
longer. The transport moves what fits into a socket buffer each time, some 200 kB or more, so 0.5 ms keeps links of up
to 3 Gbit/s busy; but a look costs some 30 us, also where a message is awaited that nobody sends yet. Looks every 0.5 ms
take up to 8 % more processor time; none at all, and a stream of ResNet-50 with 6.4 MB between its stretches takes 1.33
times as long (1 Gbit/s, ``python -m tests.bench.moving``)."""

PR_SET_TIMERSLACK = 29
"""Of Linux' prctl; in nanoseconds."""


class MpiRequest:
    """An MPI request.

    size_bytes: that a message must have when it comes; None: it is sent
    moving:     where it is kept while it is under way, if it needs help
    """

    def __init__(self, request: Any, size_bytes: int | None = None, moving: set[MpiRequest] | None = None) -> None:
        self._request = request
        self._size_bytes = size_bytes
        self._moving = moving
        self._status = MPI.Status()

    def start(self) -> None:
        """Of a persistent one."""
        self._request.Start()
        if self._moving is not None:
            self._moving.add(self)

    def test(self) -> bool:
        """True when the message is through; a received message of another length is an error.

        Open MPI's test over TCP takes a message off the wire and says so only the next time, which would be after
        another sleep.
        """
        if not (self._request.Test(self._status) or self._request.Test(self._status)):
            return False
        if self._moving is not None:
            self._moving.discard(self)
        came = self._status.Get_count(MPI.BYTE) if self._size_bytes is not None else None
        if self._size_bytes != came:
            raise ValueError(f"expected a message of {self._size_bytes} bytes, got {came}")
        return True

    def has_left(self) -> bool:
        """True of a message that has been sent; when one has come only ``test`` can say."""
        return self._size_bytes is None and self.test()


class MpiCommunicator:
    """``MPI.COMM_WORLD`` with patient waits."""

    def __init__(self) -> None:
        self._world = MPI.COMM_WORLD
        self.rank: int = self._world.Get_rank()
        self.size: int = self._world.Get_size()
        self.hosts = self._first_of_each_host()
        _sleep_sharply()
        self._moving: set[MpiRequest] = set()
        self._computing = False
        self._begun: SimpleQueue[float] = SimpleQueue()
        self._assisted = MPI.Query_thread() == MPI.THREAD_MULTIPLE and any(self.hosts)
        if self._assisted:
            threading.Thread(target=self._look_after_messages, daemon=True).start()

    def receiver(self, array: np.ndarray, source: int, tag: int) -> MpiRequest:
        """A message that fills ``array``."""
        data = as_bytes(array)
        request = self._world.Recv_init([data, MPI.BYTE], source, tag)
        return MpiRequest(request, data.size, self._helped(source, data.size))

    def sender(self, array: np.ndarray, dest: int, tag: int) -> MpiRequest:
        """A message with what is in ``array`` when it starts. It is through when the receiver has asked for it (a
        synchronous send): a rank with little to do would else fill another's memory with frames to come.
        """
        data = as_bytes(array)
        request = self._world.Ssend_init([data, MPI.BYTE], dest, tag)
        return MpiRequest(request, moving=self._helped(dest, data.size))

    def arrive(self) -> MpiRequest:
        """Say that this rank is here; started already, and done when every rank has said so."""
        return MpiRequest(self._world.Ibarrier())

    def barrier(self) -> None:
        """Wait until every rank is here."""
        wait(self.arrive().test)

    def gather(self, value: Any) -> list[Any] | None:
        """The values of all ranks on rank 0."""
        self.barrier()
        values: list[Any] | None = self._world.gather(value, root=0)
        return values

    def progress(self, active: bool) -> None:
        """Have the second thread look after large messages, if any are under way, or stop it: MPI moves them only while
        it is called.
        """
        self._computing = bool(active and self._moving) and any(not r.has_left() for r in tuple(self._moving))
        if self._computing:
            self._begun.put(time.perf_counter())

    def _helped(self, other: int, size_bytes: int) -> set[MpiRequest] | None:
        """Where a message is kept. None: it needs no help; within a host who waits for one copies it."""
        helped = self._assisted and size_bytes > UNAIDED_BYTES and self.hosts[other] != self.hosts[self.rank]
        return self._moving if helped else None

    def _first_of_each_host(self) -> list[int]:
        here = self._world.Split_type(MPI.COMM_TYPE_SHARED)
        first = here.allreduce(self.rank, op=MPI.MIN)
        here.Free()
        hosts: list[int] = self._world.allgather(first)
        return hosts

    def _look_after_messages(self) -> None:
        """While a segment runs and large messages are under way. For one from this rank, which never comes: a look that
        finds a message, one of a frame that nobody is ready for, say, moves nothing.
        """
        start = 0.0
        while True:
            pause = max(POKE_S, (time.perf_counter() - start) * POKE_SHARE) if self._computing else None
            try:
                start = self._begun.get(timeout=pause)
            except Empty:
                if self._computing:  # else MPI may have ended meanwhile
                    self._world.Iprobe(self.rank, 0)

    def abort(self, message: str) -> None:
        """Say why on standard error and end all ranks."""
        sys.stderr.write(f"{PREFIX}{message}\n")  # in one write, lest another rank's line come between
        sys.stderr.flush()
        time.sleep(LAST_WORDS_S)
        self._world.Abort(1)


def _sleep_sharply() -> None:
    """Have Linux end the short sleeps of this thread on time: by default they last 50 us longer."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
