"""A trace in the form that Perfetto and Chrome read (Trace Event Format): one track a rank, frame after frame."""

from __future__ import annotations

import json
from typing import Any

from runtime.trace import Trace

GAP_S = 1e-3
"""Between two frames that were measured each by itself, so that a person sees where one ends."""


def to_perfetto(*traces: Trace) -> str:
    """One JSON text of traces side by side, each a process of its own named after its source."""
    events: list[dict[str, Any]] = []
    for process, trace in enumerate(traces, 1):
        events.append(_name("process_name", process, 0, f"{trace.source}{'' if trace.barrier else ' stream'}"))
        events += [_name("thread_name", process, u.rank, f"rank {u.rank} {u.device}") for u in trace.ranks]
        events += _spans(process, trace)
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n"


def _name(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _spans(process: int, trace: Trace) -> list[dict[str, Any]]:
    """Complete events, in microseconds. Frames that begin together at 0 each are put one after the other."""
    events, offset_s = [], 0.0
    for number, (frame, latency_s) in enumerate(zip(trace.frames, trace.latencies_s, strict=True)):
        for span in frame:
            start_s = offset_s + span.start_s
            place = {"pid": process, "tid": span.rank, "ts": _micro(start_s), "dur": _micro(span.time_s)}
            events.append({"ph": "X", "name": span.name, "cat": span.kind, **place, "args": {"frame": number}})
        offset_s += latency_s + GAP_S if trace.barrier else 0.0
    return events


def _micro(seconds: float) -> float:
    return round(seconds * 1e6, 3)
