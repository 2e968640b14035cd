"""Traces as Perfetto reads them."""

from __future__ import annotations

import json

from runtime.perfetto import to_perfetto
from runtime.trace import COMPUTE, WAIT, Span, Trace, Usage

RANKS = (Usage(0, "a_cpu0", "CPU", 1, 0, 0.0), Usage(1, "b_cpu0", "CPU", 1, 0, 0.0))
FRAMES = ((Span(0, COMPUTE, "s0", 0.0, 0.002), Span(1, WAIT, "x", 0.0, 0.003)), (Span(0, COMPUTE, "s0", 0.001, 0.002),))


def events(*traces: Trace, phase: str) -> list[dict]:
    return [event for event in json.loads(to_perfetto(*traces))["traceEvents"] if event["ph"] == phase]


def test_every_rank_is_a_track_with_a_name() -> None:
    found = events(Trace("measured", True, RANKS, ()), phase="M")
    assert [(e["name"], e["pid"], e["tid"], e["args"]["name"]) for e in found] == [
        ("process_name", 1, 0, "measured"),
        ("thread_name", 1, 0, "rank 0 a_cpu0"),
        ("thread_name", 1, 1, "rank 1 b_cpu0"),
    ]


def test_frames_that_were_measured_alone_follow_one_another() -> None:
    found = events(Trace("measured", True, RANKS, FRAMES), phase="X")
    assert [(e["tid"], e["cat"], e["name"], e["ts"], e["dur"], e["args"]["frame"]) for e in found] == [
        (0, "compute", "s0", 0.0, 2000.0, 0),
        (1, "wait", "x", 0.0, 3000.0, 0),
        (0, "compute", "s0", 5000.0, 1000.0, 1),
    ]


def test_frames_of_a_stream_lie_where_they_were() -> None:
    found = events(Trace("measured", False, RANKS, FRAMES), phase="X")
    assert [e["ts"] for e in found] == [0.0, 0.0, 1000.0]


def test_traces_lie_side_by_side() -> None:
    both = (Trace("measured", True, RANKS, FRAMES), Trace("predicted", True, RANKS, FRAMES))
    assert {e["pid"] for e in events(*both, phase="X")} == {1, 2}
