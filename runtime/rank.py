"""One rank of a bundle: what the lines of a generated program mean."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from time import thread_time
from typing import Any, Callable, Tuple

import numpy as np

from runtime.clock import now_s
from runtime.communicator import Communicator, Request, wait
from runtime.memory import BASE, BUFFERS, SEGMENTS, Footprint
from runtime.options import Options
from runtime.pages import Pages, room_of
from runtime.segment import CPU, Segment, load, open_session
from runtime.trace import COMPUTE, REST, SEND, WAIT

Program = Callable[["Rank"], Callable[[], None]]
"""A generated program: given its rank, it makes what it needs once and returns what to do for a frame."""

Record = Tuple[Any, ...]
"""A span as ``trace.Span`` has it, without its rank, in seconds of this rank's clock."""
ABOUT_NOTHING = (None, 0, 0)
"""Peer, tag and bytes of what is about no message."""


@dataclass(frozen=True)
class Place:
    """Where a program runs, as the plan says.

    file: of the program; paths in it are relative to its folder
    meter: of the host's energy, where this rank is the one that reads it
    """

    file: str
    rank: int
    ranks: int
    device: str
    threads: int
    provider: str
    arena: bool = True
    meter: str | None = None


@dataclass
class Shared:
    """What all sets of buffers of a rank have in common.

    activity: what the rank is doing, for a person
    sessions: opened segments by file
    footprint: what takes how much memory
    pages: what buffers are in
    """

    activity: str = "starting"
    sessions: dict[str, Any] = field(default_factory=dict)
    footprint: Footprint = field(default_factory=Footprint)
    pages: Pages = field(default_factory=Pages)


class Rank:
    """The buffers, segments and messages of one rank. A program makes them once; its frame only uses them."""

    def __init__(
        self, place: Place, communicator: Communicator, options: Options, shared: Shared | None = None
    ) -> None:
        self.place = place
        self.communicator = communicator
        self.provider = options.provider or place.provider
        self.threads = options.threads or place.threads
        self.inputs: dict[str, np.ndarray] = {}
        self.outputs: dict[str, np.ndarray] = {}
        self.pending: list[Request] = []
        self.records: list[Record] = []
        self.receives: list[Receive] = []
        self.sends: list[Send] = []
        self.shared = shared or Shared()
        self._options = options
        self._buffers: list[tuple[str, np.ndarray]] = []
        self._early: list[Receive] = []  # into memory that no message leaves from

    def twin(self) -> Rank:
        """Another set of buffers, with messages of its own, for the same segments."""
        return Rank(self.place, self.communicator, self._options, self.shared)

    def buffer(self, name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Allocate a tensor or a piece of one, zeroed. It has no memory of its own before ``fetch``."""
        self._buffers.append((name, self.memory(shape, dtype)))
        return self._buffers[-1][1]

    def memory(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Some of the memory of buffers."""
        array = self.shared.pages.zeros(shape, dtype)
        self.shared.footprint.add(BUFFERS, room_of(array.nbytes))
        return array

    def part(self, name: str, array: np.ndarray) -> np.ndarray:
        """A buffer that lies inside another one: ``array`` is that part of it."""
        self._buffers.append((name, array))
        return array

    def input(self, name: str, buffer: np.ndarray) -> None:
        """``buffer`` is an input of the CNN: filled before every frame."""
        self.inputs[name] = buffer

    def output(self, name: str, buffer: np.ndarray) -> None:
        """``buffer`` is an output of the CNN: kept after every frame."""
        self.outputs[name] = buffer

    def segment(self, file: str, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> Work:
        """Open a segment that reads and writes these buffers."""
        self.shared.activity = f"opening {file}"
        if file not in self.shared.sessions:
            self._open(file)
        return Work(self, file, Segment(self.shared.sessions[file], inputs, outputs))

    def _open(self, file: str) -> None:
        path = os.path.join(os.path.dirname(os.path.abspath(self.place.file)), file)
        with self.shared.footprint.growing(BASE):
            load()
        with self.shared.footprint.growing(SEGMENTS):
            self.shared.sessions[file] = open_session(path, self.provider, self.threads, self.place.arena)
        self.shared.footprint.opened()

    def fetch(self) -> None:
        """Fetch all memory now, when no segment is being opened any more, and not in the first frame; and find what may
        come early.
        """
        for array in (*(buffer for _, buffer in self._buffers), *(send.message for send in self.sends)):
            array.fill(0)
        leaving = [send.box for send in self.sends]
        self._early = [r for r in self.receives if not any(np.may_share_memory(r.buffer, box) for box in leaving)]

    def receive(self, buffer: np.ndarray, source: int, tag: int) -> Receive:
        """A message that fills ``buffer``, once a frame."""
        self.receives.append(Receive(self, self._name(buffer), buffer, source, tag))
        return self.receives[-1]

    def send(self, box: np.ndarray, dest: int, tag: int) -> Send:
        """A message with ``box``, a buffer or a part of one, once a frame."""
        self.sends.append(Send(self, self._name(box), box, dest, tag))
        return self.sends[-1]

    def post(self) -> None:
        """Post the receives of a coming frame, although the messages of an earlier one may not have left yet."""
        for receive in self._early:
            receive.post()

    def finish(self) -> None:
        """End a frame: wait until all that was sent has left, so that the buffers may change."""
        with self.doing(SEND, REST):
            self.wait()

    def wait(self) -> None:
        """Until all that is pending is done."""
        for request in self.pending:
            wait(request.test)
        self.pending.clear()

    def doing(self, kind: str, name: str, *message: int) -> Doing:
        """To be busy with something, once or every frame. message: peer, tag and bytes, of one"""
        return Doing(self, kind, name, message or ABOUT_NOTHING)

    def _name(self, box: np.ndarray) -> str:
        """The name of the buffer that a box is a part of: the smallest one, and those inside others come last."""
        address = box.ctypes.data
        for name, array in reversed(self._buffers):
            if array.ctypes.data <= address < array.ctypes.data + max(array.nbytes, 1):
                return name
        raise ValueError("a message is no part of any buffer of this rank")


class Doing:
    """What a rank is busy with, as a context: it records a span; if it fails, ``shared.activity`` says in what.

    Linux stops a thread that has used up its share of a processor when it counts what the thread took, and it does
    that when asked: before the span ends, for else that would be no part of it.

    Made once and used every frame: a generator, and text that is put together anew, took 1 us more, of a step that may
    take 10.
    """

    __slots__ = ("_about", "_activity", "_begun", "_kind", "_name", "_rank", "_start", "_timed")

    def __init__(self, rank: Rank, kind: str, name: str, about: tuple[Any, ...]) -> None:
        self._rank, self._kind, self._name, self._about = rank, kind, name, about
        self._activity = f"{kind} {name}"
        self._timed = kind == COMPUTE and rank.provider == CPU and rank.threads == 1

    def __enter__(self) -> None:
        self._rank.shared.activity = self._activity
        self._begun = thread_time() if self._timed else 0.0
        self._start = now_s()

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is None:
            busy_s = thread_time() - self._begun if self._timed else None
            self._rank.records.append((self._kind, self._name, self._start, now_s(), *self._about, busy_s))


class Work:
    """A segment, once a frame."""

    def __init__(self, rank: Rank, file: str, segment: Segment) -> None:
        self._rank, self._segment, self._doing = rank, segment, rank.doing(COMPUTE, file)

    def run(self) -> None:
        """Compute, while messages that have been started move on."""
        with self._doing:
            self._rank.communicator.progress(True)
            self._segment.run()
            self._rank.communicator.progress(False)


class Receive:
    """A message to this rank, once a frame."""

    def __init__(self, rank: Rank, name: str, buffer: np.ndarray, source: int, tag: int) -> None:
        self.buffer, self._posted, self._waited_s = buffer, False, 0.0
        self._doing = rank.doing(WAIT, name, source, tag, buffer.nbytes)
        self._request = rank.communicator.receiver(buffer, source, tag)

    def post(self) -> None:
        """Make the buffer ready, before the message comes: it then needs no copy. Once a frame, the rest is ignored."""
        if not self._posted:
            self._request.start()
            self._posted = True

    def wait(self) -> None:
        """Return when the buffer is filled."""
        self.post()
        with self._doing:
            self._waited_s = wait(self._request.test, self._waited_s)
        self._posted = False


class Send:
    """A message from this rank, once a frame. A box that is not in one piece is copied into one first."""

    def __init__(self, rank: Rank, name: str, box: np.ndarray, dest: int, tag: int) -> None:
        self._rank, self.box = rank, box
        self._doing = rank.doing(SEND, name, dest, tag, box.nbytes)
        self.message = box if box.flags.c_contiguous else rank.memory(box.shape, box.dtype.str)
        self._request = rank.communicator.sender(self.message, dest, tag)

    def start(self) -> None:
        """Hand the message over; it leaves while the program goes on."""
        with self._doing:
            if self.message is not self.box:
                np.copyto(self.message, self.box)
            self._request.start()
            self._rank.pending.append(self._request)
