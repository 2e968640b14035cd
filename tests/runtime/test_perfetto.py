"""Traces as Perfetto reads them."""

from __future__ import annotations

import json
from itertools import pairwise

from runtime.perfetto import Bar, Panel, to_perfetto
from runtime.trace import COMPUTE, SEND, WAIT, Span, Trace, Usage

RANKS = (Usage(0, "a_cpu0", "CPU", 1, 0, 0.0), Usage(1, "b_cpu0", "CPU", 1, 0, 0.0))
FRAMES = (
    (
        Span(0, COMPUTE, "s0", 0.0, 0.002),
        Span(0, SEND, "x", 0.002, 0.0021, 1, 0, 5000),
        Span(0, SEND, "y", 0.0025, 0.0026, 1, 1, 7000),
        Span(1, WAIT, "x", -0.001, 0.003, 0, 0, 5000),
        Span(1, WAIT, "y", 0.003, 0.0035, 0, 1, 7000),
    ),
    (Span(0, COMPUTE, "s0", 0.001, 0.002),),
)


def events(*traces: Trace, phase: str) -> list[dict]:
    return [event for event in json.loads(to_perfetto(*traces))["traceEvents"] if event["ph"] == phase]


def tracks(*traces: Trace) -> list[tuple]:
    found = (e for e in events(*traces, phase="M") if e["name"].endswith("_name"))
    return [(e["name"], e["pid"], e["tid"], e["args"]["name"]) for e in found]


def test_every_rank_is_a_track_with_a_name() -> None:
    assert tracks(Trace("measured", True, RANKS, ())) == [
        ("process_name", 1, 0, "measured"),
        ("thread_name", 1, 1, "rank 0 a_cpu0"),
        ("thread_name", 1, 2, "rank 1 b_cpu0"),
    ]


def test_frames_that_were_measured_alone_follow_one_another_from_zero() -> None:
    found = [e for e in events(Trace("measured", True, RANKS, FRAMES), phase="X") if e["pid"] == 1]
    assert [(e["tid"], e["cat"], e["name"], e["ts"], e["dur"], e["args"]["frame"]) for e in found] == [
        (1, "compute", "s0", 1000.0, 2000.0, 0),
        (1, "send", "send x", 3000.0, 100.0, 0),
        (1, "send", "send y", 3500.0, 100.0, 0),
        (2, "wait", "wait x", 0.0, 4000.0, 0),
        (2, "wait", "wait y", 4000.0, 500.0, 0),
        (1, "compute", "s0", 5500.0, 1000.0, 1),
    ]
    assert found[1]["args"] == {"frame": 0, "to": "rank 1", "bytes": 5000}
    assert found[3]["args"] == {
        "frame": 0, "from": "rank 0", "bytes": 5000, "for the wire, us": 1000.0, "for the sender, us": 3000.0
    }  # fmt: skip


def test_a_link_has_a_track_for_each_message_at_a_time() -> None:
    trace = Trace("measured", True, RANKS, FRAMES)
    assert tracks(trace)[3:] == [
        ("process_name", 2, 0, "measured: messages"),
        ("thread_name", 2, 1, "rank 0 to 1"),
        ("thread_name", 2, 2, "rank 0 to 1"),
    ]
    found = [e for e in events(trace, phase="X") if e["pid"] == 2]
    assert [(e["tid"], e["cat"], e["name"], e["ts"], e["dur"], e["args"]["bytes"]) for e in found] == [
        (1, "transfer", "x", 3000.0, 1000.0, 5000),
        (2, "transfer", "y", 3500.0, 1000.0, 7000),
    ]
    assert found[0]["args"]["MB/s"] == 5.0


def test_a_message_that_nobody_saw_coming_has_no_rate() -> None:
    frame = (Span(0, SEND, "x", 0.0, 0.001, 1, 0, 5000), Span(1, WAIT, "x", 0.2, 0.20001, 0, 0, 5000))
    (found,) = [e for e in events(Trace("measured", True, RANKS, (frame,)), phase="X") if e["pid"] == 2]
    assert found["name"] == "x (was there when the receiver looked)"
    assert found["args"] == {"frame": 0, "bytes": 5000}


def test_an_arrow_leads_from_a_send_into_the_wait_that_it_ends() -> None:
    trace = Trace("measured", True, RANKS, FRAMES)
    starts, ends = (events(trace, phase=phase) for phase in "sf")
    assert [(e["tid"], e["ts"]) for e in starts] == [(1, 3000.0), (1, 3500.0)]
    assert [(e["tid"], e["ts"]) for e in ends] == [(2, 3999.999), (2, 4499.999)]
    assert [e["id"] for e in starts] == [e["id"] for e in ends]
    assert len({e["id"] for e in starts}) == 2


def test_frames_of_a_stream_lie_where_they_were() -> None:
    found = [e for e in events(Trace("measured", False, RANKS, FRAMES), phase="X") if e["pid"] == 1]
    assert [e["ts"] for e in found if e["cat"] == "compute"] == [0.0, 1000.0]


def test_no_span_of_a_track_begins_before_the_one_before_it_is_over() -> None:
    """Viewers draw what overlaps on one track one over the other, or drop it."""
    messages = [Span(0, SEND, f"m{k}", k / 7e3, k / 7e3 + 1e-6, 1, k, 8) for k in range(20)]
    waits = [Span(1, WAIT, f"m{k}", (k + 3) / 7e3 - 1e-7 / (k + 1), (k + 3) / 7e3, 0, k, 8) for k in range(20)]
    found = events(Trace("measured", False, RANKS, ((*messages, *waits),) * 3), phase="X")
    for place in {(e["pid"], e["tid"]) for e in found}:
        track = sorted((e["ts"], e["dur"]) for e in found if (e["pid"], e["tid"]) == place and e["pid"] == 2)
        assert all(round(a + long, 3) <= b for (a, long), (b, _) in pairwise(track))


def test_traces_lie_side_by_side() -> None:
    both = (Trace("measured", True, RANKS, FRAMES), Trace("predicted", True, RANKS, FRAMES))
    assert {e["pid"] for e in events(*both, phase="X")} == {1, 2, 3, 4}
    assert len({e["id"] for e in events(*both, phase="s")}) == 4


def test_panels_are_processes_after_those_of_the_traces_with_bars_and_counters() -> None:
    panel = Panel("links", {"a out": [Bar("x", 0.001, 0.003, {"frame": 2})]}, {"memory": [(0.002, {"weights": 7})]})
    found = json.loads(to_perfetto(Trace("predicted", False, RANKS, ()), panels=[panel]))["traceEvents"]
    mine = [event for event in found if event["pid"] == 3]
    assert [(e["name"], e["args"]["name"]) for e in mine if e["name"] in ("process_name", "thread_name")] == [
        ("process_name", "links"),
        ("thread_name", "a out"),
    ]
    assert mine[-2:] == [
        {"ph": "X", "name": "x", "cat": "link", "pid": 3, "tid": 1, "ts": 1000.0, "dur": 2000.0, "args": {"frame": 2}},
        {"ph": "C", "name": "memory", "pid": 3, "tid": 0, "ts": 2000.0, "args": {"weights": 7}},
    ]
