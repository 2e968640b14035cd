"""Traces: what happened when, on which rank. The one form of a result, predicted or measured."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Callable

from runtime.errors import CleaveError
from runtime.reading import parsed, readable

FORMAT = "cleave-trace"
VERSION = 2

INPUT, COMPUTE, WAIT, SEND = "input", "compute", "wait", "send"
REST = "the rest"
"""What the wait at the end of a frame is for, until all that was sent has left."""
MEASURED, ESTIMATE = "measured", "estimate"
"""Where an energy comes from: a meter, or declared watts times measured time."""
NOISE_BYTES = 4_000_000
"""A peak so far above what is there at the end was before. Half of it is for the last huge page of buffers, and its end
is no part."""
PREDICTED = "predicted"
"""In place of measured: what a trace says that a simulator made."""
JSON: dict[str, Any] = {"int": int, "float": (int, float), "str": str, "bool": bool}
"""What a field of a type is in a file, by the type's name."""


@dataclass(frozen=True)
class Span:
    """One thing that a rank was busy with.

    kind:    ``input`` (filling the inputs of the CNN), ``compute`` (a segment), ``wait`` (for a message), ``send``
             (copying and handing over a message, and at the end of the frame waiting until all have left). A simulator
             may add kinds of its own.
    name:    the segment's file or the buffer
    start_s, stop_s: seconds since the frame's first input was there (it may start before); since that of the first
             frame, if frames follow one another. By the clock of rank 0
    peer:    of a message, the rank at its other end; None: this is about no one message
    tag:     of a message: tells it from others of the same frame between the same two
    size_bytes: of a message
    busy_s:  of computing: processor time of the thread that does it. It is shorter than the span where others had the
             processor, or where the device may use a part of it only. None: unknown, as of several threads
    """

    rank: int
    kind: str
    name: str
    start_s: float
    stop_s: float
    peer: int | None = None
    tag: int = 0
    size_bytes: int = 0
    busy_s: float | None = None

    @property
    def time_s(self) -> float:
        """How long it took."""
        return self.stop_s - self.start_s


@dataclass(frozen=True)
class Memory:
    """What a rank's resident memory is made of, in bytes. A part shrinks where memory is given back.

    base:     before the program makes anything, and what loading ONNX Runtime adds: interpreter and libraries
    buffers:  tensors and messages of the plan, as their sizes say; in a stream two sets
    segments: what opening the segments adds: sessions, and weights unless they are mapped and come when they are used
    input:    what opening the input adds, random frames that are made beforehand
    frames:   what running frames adds: the arena of ONNX Runtime, mapped weights, outputs that are kept
    opening:  what there was at most while segments were opened, above the base; 0: unknown. No further part
    """

    base_bytes: int
    buffers_bytes: int
    segments_bytes: int
    input_bytes: int
    frames_bytes: int
    opening_bytes: int = 0

    @property
    def lasting_bytes(self) -> int:
        """What there is at the end, but for the input."""
        return self.base_bytes + self.buffers_bytes + self.segments_bytes + self.frames_bytes

    def rest_bytes(self, peak_bytes: int) -> int:
        """What of a peak no part holds: it came and went before the end, or nobody looked when it came."""
        return peak_bytes - self.lasting_bytes - self.input_bytes

    def without_input(self, peak_bytes: int) -> int:
        """The peak of a rank whose frames come one by one. One that came and went before its input was made stays."""
        before = peak_bytes if self.rest_bytes(peak_bytes) > NOISE_BYTES else self.base_bytes + self.opening_bytes
        return max(before, peak_bytes - self.input_bytes)


@dataclass(frozen=True)
class Usage:
    """What one rank took over all its frames.

    peak_bytes:  largest resident memory of the process so far
    processor_s: processor time of all threads over all frames together, without making the input
    energy_j:    of one frame, mean, where it is known: of the whole host, at the first of its ranks
    conditions:  that a measurement depends on, as text: versions, cores, governor; ``{"onnxruntime": "1.18.0", …}``
    energy_time_s: seconds that ``energy_j`` covers: all of the time from the first frame to the last, by their number
    energy_source: ``measured`` or ``estimate``; None without an energy
    energy_samples: how many the meter took over all frames
    energy_note: why a meter gave no energy
    memory:      parts of ``peak_bytes``; what they leave of it came and went, or was told apart by none
    reads, writes: whether the rank holds an input, an output of the CNN
    clock_offset_s, clock_uncertainty_s: by how much the clock of its host was ahead of rank 0's, and how well that is
                 known; spans are without it. 0 on the host of rank 0
    stolen: part of the time of its cores that other virtual machines had (``runtime.stolen``); None: unknown
    """

    rank: int
    device: str
    provider: str
    threads: int
    peak_bytes: int
    processor_s: float
    energy_j: float | None = None
    conditions: dict[str, str] | None = None
    energy_time_s: float | None = None
    energy_source: str | None = None
    energy_samples: int = 0
    energy_note: str | None = None
    memory: Memory | None = None
    reads: bool = False
    writes: bool = False
    clock_offset_s: float = 0.0
    clock_uncertainty_s: float = 0.0
    stolen: float | None = None


@dataclass(frozen=True)
class Trace:
    """Spans of some frames.

    source:  ``measured`` or ``predicted``
    barrier: whether the ranks started every frame together; if not, frames overlap as in a pipeline
    frames:  the spans of each frame, by rank, then by time
    """

    source: str
    barrier: bool
    ranks: tuple[Usage, ...]
    frames: tuple[tuple[Span, ...], ...]

    @property
    def latencies_s(self) -> tuple[float, ...]:
        """When the last output was there, per frame. A frame's latency if there is a barrier before each frame.

        That is when the ranks with an output had computed or received all they do. What is still being sent then, and
        what other ranks still do, is not waited for by anybody who asked.
        """
        writers = {usage.rank for usage in self.ranks if usage.writes} or {usage.rank for usage in self.ranks}
        return tuple(
            max((s.stop_s for s in spans if s.rank in writers and s.kind in (COMPUTE, WAIT)), default=0.0)
            for spans in self.frames
        )

    @property
    def stolen(self) -> float:
        """The largest part of the time of a rank's cores that other virtual machines had, as far as that is known."""
        return max((usage.stolen or 0.0 for usage in self.ranks), default=0.0)

    @property
    def period_s(self) -> float | None:
        """Seconds a frame, from the first answer to the last, where frames follow one another; None: cannot be told."""
        ends = self.latencies_s
        return None if self.barrier or len(ends) < 2 else (ends[-1] - ends[0]) / (len(ends) - 1)

    def time_s(self, span: Span) -> float:
        """How long a span took; of a frame alone, since it began: ranks wait for its input before."""
        return max(span.stop_s, 0.0) - max(span.start_s, 0.0) if self.barrier else span.time_s

    def sums_s(self, frame: int, kind: str) -> tuple[float, ...]:
        """Seconds that each rank spent on one kind of span in one frame; of a frame alone, since it began."""
        return self._sums_s(frame, kind, self.time_s)

    def busy_s(self, frame: int) -> tuple[float, ...]:
        """Seconds that each rank's processor computes in one frame: of spans that do not tell, all of them."""
        return self._sums_s(frame, COMPUTE, lambda span: self.time_s(span) if span.busy_s is None else span.busy_s)

    def _sums_s(self, frame: int, kind: str, seconds: Callable[[Span], float]) -> tuple[float, ...]:
        sums = {usage.rank: 0.0 for usage in self.ranks}
        for span in self.frames[frame]:
            if span.kind == kind:
                sums[span.rank] += seconds(span)
        return tuple(sums.values())

    def to_json(self) -> str:
        """The trace as text; a span is a list of its fields in order, without those at the end that say nothing."""
        body = {
            "format": FORMAT,
            "version": VERSION,
            "source": self.source,
            "barrier": self.barrier,
            "ranks": [asdict(usage) for usage in self.ranks],
            "frames": [[_span_to_list(span) for span in spans] for spans in self.frames],
        }
        return json.dumps(body) + "\n"

    @staticmethod
    def from_json(text: str, where: str = "trace.json") -> Trace:
        """Read a trace; ``CleaveError`` names ``where`` and what is wrong with it."""
        with readable(f"{where}: is no trace that this version can read"):
            body: dict[str, Any] = parsed(text, parse_constant=_no_number)
            if body["format"] != FORMAT or body["version"] != VERSION:
                raise CleaveError(f"{where}: is no {FORMAT} of version {VERSION}")
            trace = Trace(
                source=body["source"],
                barrier=body["barrier"],
                ranks=tuple(_usage(usage) for usage in body["ranks"]),
                frames=tuple(tuple(_typed(Span(*span)) for span in spans) for spans in body["frames"]),
            )
            _check(_typed(trace))
            return trace


def _no_number(name: str) -> float:
    """Python writes NaN and Infinity, which are no JSON, and no times."""
    raise ValueError(f"{name} is no number")


def _usage(body: dict[str, Any]) -> Usage:
    memory = body["memory"]
    usage: Usage = _typed(Usage(**{**body, "memory": memory and _typed(Memory(**memory))}))
    return usage


def _typed(made: Any) -> Any:
    """A dataclass that was made of what stood in a file; ``TypeError`` where a field has not the type it says."""
    for field in fields(made):
        kind, _, none = str(field.type).partition(" | ")
        value = getattr(made, field.name)
        if kind in JSON and not isinstance(value, JSON[kind]) and not (none and value is None):
            raise TypeError(f"{field.name} is {value!r}")
    return made


def _check(trace: Trace) -> None:
    """``ValueError`` where it holds nothing, or what is of no rank or of either of two."""
    known = {usage.rank for usage in trace.ranks}
    if not trace.frames:
        raise ValueError("it has no frames")
    if len(known) < len(trace.ranks):
        raise ValueError("two of its ranks are one")
    lost = {span.rank for spans in trace.frames for span in spans} - known
    if lost:
        raise ValueError(f"it has spans of ranks that it has not: {sorted(lost)}")


def _span_to_list(span: Span) -> list[Any]:
    found = [span.rank, span.kind, span.name, round(span.start_s, 9), round(span.stop_s, 9)]
    if span.peer is not None or span.busy_s is not None:
        found += [span.peer, span.tag, span.size_bytes]
    return found if span.busy_s is None else [*found, round(span.busy_s, 9)]
