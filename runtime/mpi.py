"""Ranks as MPI processes."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np
from mpi4py import MPI

from runtime.communicator import as_bytes, wait

PREFIX = "cleave: "
"""Marks the one line that matters on standard error, among what mpirun says."""

LAST_WORDS_S = 0.1
"""Between that line and the end of all ranks, so that mpirun has read it."""

POKE_S = 500e-6
"""Pause between two looks after messages while a segment runs. The transport moves what fits into a socket buffer
each time, some 200 kB, so 0.5 ms keeps links of up to 3 Gbit/s busy and costs a few per cent of a core."""


PR_SET_TIMERSLACK = 29
"""Of Linux' prctl; in nanoseconds."""


class MpiRequest:
    """An MPI request. ``size_bytes``: that a message must have when it comes."""

    def __init__(self, request: Any, size_bytes: int | None = None) -> None:
        self._request = request
        self._size_bytes = size_bytes
        self._status = MPI.Status()

    def start(self) -> None:
        """Of a persistent one."""
        self._request.Start()

    def test(self) -> bool:
        """True when the message is through; a received message of another length is an error.

        Open MPI's test over TCP takes a message off the wire and says so only the next time, which would be after
        another sleep.
        """
        if not (self._request.Test(self._status) or self._request.Test(self._status)):
            return False
        came = self._status.Get_count(MPI.BYTE) if self._size_bytes is not None else None
        if self._size_bytes != came:
            raise ValueError(f"expected a message of {self._size_bytes} bytes, got {came}")
        return True


class MpiCommunicator:
    """``MPI.COMM_WORLD`` with patient waits."""

    def __init__(self) -> None:
        self._world = MPI.COMM_WORLD
        self.rank: int = self._world.Get_rank()
        self.size: int = self._world.Get_size()
        self.hosts = self._first_of_each_host()
        _sleep_sharply()
        self._computing = threading.Event()
        if MPI.Query_thread() == MPI.THREAD_MULTIPLE and any(self.hosts):
            threading.Thread(target=self._look_after_messages, daemon=True).start()

    def receiver(self, array: np.ndarray, source: int, tag: int) -> MpiRequest:
        """A message that fills ``array``."""
        data = as_bytes(array)
        return MpiRequest(self._world.Recv_init([data, MPI.BYTE], source, tag), data.size)

    def sender(self, array: np.ndarray, dest: int, tag: int) -> MpiRequest:
        """A message with what is in ``array`` when it starts. It is through when the receiver has asked for it (a
        synchronous send): a rank with little to do would else fill another's memory with frames to come.
        """
        return MpiRequest(self._world.Ssend_init([as_bytes(array), MPI.BYTE], dest, tag))

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
        """Have the second thread look after messages, or stop it: MPI moves them only while it is called."""
        if active:
            self._computing.set()
        else:
            self._computing.clear()

    def _first_of_each_host(self) -> list[int]:
        here = self._world.Split_type(MPI.COMM_TYPE_SHARED)
        first = here.allreduce(self.rank, op=MPI.MIN)
        here.Free()
        hosts: list[int] = self._world.allgather(first)
        return hosts

    def _look_after_messages(self) -> None:
        """Not where all ranks share a host: a rank then copies what it waits for, and no message needs help before.
        It would take 4 to 5 per cent of a core.
        """
        while self._computing.wait():
            self._world.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)
            time.sleep(POKE_S)

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
