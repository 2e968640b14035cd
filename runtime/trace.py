"""Traces: what happened when, on which rank. The one form of a result, predicted or measured."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from runtime.errors import CleaveError

FORMAT = "cleave-trace"
VERSION = 1

COMPUTE, WAIT, SEND = "compute", "wait", "send"
MEASURED, ESTIMATE = "measured", "estimate"
"""Where an energy comes from: a meter, or declared watts times measured time."""


@dataclass(frozen=True)
class Span:
    """One thing that a rank was busy with.

    kind:    ``compute`` (a segment), ``wait`` (for a message), ``send`` (copying and handing over a message, and at
             the end of the frame waiting until all have left). A simulator may add kinds of its own, ``link``.
    name:    the segment's file or the buffer
    start_s, stop_s: seconds since the frame's barrier; since the barrier before the first frame, if frames have none
    """

    rank: int
    kind: str
    name: str
    start_s: float
    stop_s: float

    @property
    def time_s(self) -> float:
        """How long it took."""
        return self.stop_s - self.start_s


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
        """When the last rank was done, per frame. A frame's latency if there is a barrier before each frame."""
        return tuple(max((span.stop_s for span in spans), default=0.0) for spans in self.frames)

    @property
    def period_s(self) -> float | None:
        """Seconds a frame, first end to last end, where frames follow one another; ``None`` if it cannot be told."""
        ends = self.latencies_s
        return None if self.barrier or len(ends) < 2 else (ends[-1] - ends[0]) / (len(ends) - 1)

    def sums_s(self, frame: int, kind: str) -> tuple[float, ...]:
        """Seconds that each rank spent on one kind of span in one frame."""
        sums = {usage.rank: 0.0 for usage in self.ranks}
        for span in self.frames[frame]:
            if span.kind == kind:
                sums[span.rank] += span.time_s
        return tuple(sums.values())

    def to_json(self) -> str:
        """The trace as text; a span is a list ``[rank, kind, name, start_s, stop_s]``."""
        body = {
            "format": FORMAT,
            "version": VERSION,
            "source": self.source,
            "barrier": self.barrier,
            "period_s": self.period_s,
            "ranks": [asdict(usage) for usage in self.ranks],
            "frames": [[_span_to_list(span) for span in spans] for spans in self.frames],
        }
        return json.dumps(body) + "\n"

    @staticmethod
    def from_json(text: str, where: str = "trace.json") -> Trace:
        """Read a trace; ``CleaveError`` names ``where`` and what is wrong with it."""
        try:
            body: dict[str, Any] = json.loads(text)
            if body["format"] != FORMAT or body["version"] != VERSION:
                raise CleaveError(f"{where}: is no {FORMAT} of version {VERSION}")
            return Trace(
                source=body["source"],
                barrier=body["barrier"],
                ranks=tuple(Usage(**usage) for usage in body["ranks"]),
                frames=tuple(tuple(Span(*span) for span in spans) for spans in body["frames"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CleaveError(f"{where}: is no trace that this version can read ({error!r})") from error


def _span_to_list(span: Span) -> tuple[int, str, str, float, float]:
    return span.rank, span.kind, span.name, round(span.start_s, 9), round(span.stop_s, 9)
