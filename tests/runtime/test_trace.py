from __future__ import annotations

import json
from dataclasses import replace

import pytest

from runtime.errors import CleaveError
from runtime.trace import COMPUTE, INPUT, SEND, WAIT, Memory, Span, Trace, Usage

MB = 10**6
USAGES = (
    Usage(0, "pi0_cpu0", "CPUExecutionProvider", 1, 1000, 0.5, conditions={"numpy": "1.24"}),
    Usage(1, "pi1_cpu0", "CPUExecutionProvider", 1, 2000, 0.25, energy_j=1.5, memory=Memory(1000, 200, 300, 0, -10)),
)
FRAMES = (
    (Span(0, COMPUTE, "a", 0.0, 0.25), Span(0, SEND, "x", 0.25, 0.5, 1, 7, 64), Span(1, WAIT, "x", 0.0, 0.5, 0, 7, 64)),
    (Span(0, COMPUTE, "a", 0.0, 0.5), Span(1, COMPUTE, "b", 0.5, 0.75), Span(1, COMPUTE, "c", 0.75, 1.5, busy_s=0.5)),
)
TRACE = Trace("measured", True, USAGES, FRAMES)


def test_json_there_and_back() -> None:
    assert Trace.from_json(TRACE.to_json()) == TRACE


def test_a_processor_is_busy_as_long_as_it_says_or_else_all_the_time() -> None:
    assert [TRACE.busy_s(frame) for frame in (0, 1)] == [(0.25, 0.0), (0.5, 0.75)]
    assert TRACE.sums_s(1, COMPUTE) == (0.5, 1.0)


def test_latency_ends_with_the_last_output_and_not_with_what_others_still_do() -> None:
    usages = (replace(USAGES[0], writes=True), USAGES[1])
    spans = (Span(0, COMPUTE, "a", 0, 2), Span(0, SEND, "the rest", 2, 3), Span(1, COMPUTE, "b", 0, 4))
    assert Trace("measured", True, usages, (spans,)).latencies_s == (2,)
    assert Trace("measured", True, usages, ((),)).latencies_s == (0,)


def test_what_a_rank_waited_before_a_frame_began_is_not_of_the_frame() -> None:
    frames = ((Span(0, INPUT, "in", -0.5, 0.0), Span(1, WAIT, "x", -0.25, 0.5), Span(1, WAIT, "y", -0.2, -0.1)),)
    assert Trace("measured", True, USAGES, frames).sums_s(0, WAIT) == (0.0, 0.5)
    assert Trace("measured", True, USAGES, frames).sums_s(0, INPUT) == (0.0, 0.0)
    assert Trace("measured", False, USAGES, frames).sums_s(0, WAIT) == (0.0, pytest.approx(0.85))


def test_latency_is_the_last_stop_and_sums_are_by_rank() -> None:
    assert TRACE.latencies_s == (0.5, 1.5)
    assert TRACE.sums_s(0, COMPUTE) == (0.25, 0.0)
    assert TRACE.sums_s(1, COMPUTE) == (0.5, 1.0)


def test_a_period_is_the_time_between_the_ends_of_frames() -> None:
    assert TRACE.period_s is None  # with barriers
    ends = tuple((Span(0, COMPUTE, "a", 0.0, end),) for end in (4.0, 4.5, 5.5, 6.0))
    assert Trace("measured", False, USAGES, ends).period_s == pytest.approx(2 / 3)
    assert Trace("measured", False, USAGES, ends[:1]).period_s is None


@pytest.mark.parametrize(
    ("peak", "without"),
    [(100 * MB, 93 * MB), (101 * MB, 94 * MB), (120 * MB, 120 * MB)],
    ids=["at the end", "about then", "while segments were opened"],
)
def test_frames_that_are_made_beforehand_do_not_count_unless_the_peak_was_before(peak: int, without: int) -> None:
    assert Memory(50 * MB, 10 * MB, 30 * MB, 7 * MB, 3 * MB).without_input(peak) == without


def test_what_segments_took_while_they_were_opened_stays_a_peak_without_the_frames_made_beforehand() -> None:
    memory = Memory(50 * MB, 10 * MB, 30 * MB, 7 * MB, 3 * MB, 45 * MB)
    assert memory.without_input(100 * MB) == 95 * MB
    assert replace(memory, opening_bytes=30 * MB).without_input(100 * MB) == 93 * MB


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "cleave-plan", "version": 1}', '{"format": 1'])
def test_what_is_no_trace_is_refused_by_name(text: str) -> None:
    with pytest.raises(CleaveError, match=r"^here\.json: is no "):
        Trace.from_json(text, "here.json")


@pytest.mark.parametrize(
    "damage",
    [
        {"ranks": [1]},
        {"ranks": None},
        {"ranks": []},
        {"ranks": [json.loads(TRACE.to_json())["ranks"][0]] * 2},
        {"frames": []},
        {"frames": [[1]]},
        {"frames": [[[0, "wait"]]]},
        {"frames": [[[7, "wait", "x", 0, 1]]]},
        {"frames": [[[0, "wait", "x", "0", 1]]]},
        {"frames": [[[0, "wait", "x", 0, None]]]},
        {"frames": [[[0, ["wait"], "x", 0, 1]]]},
        {"frames": [[[0, "wait", "x", 0, float("nan")]]]},
        {"frames": [[[0, "wait", "x", float("-inf"), 1]]]},
    ],
)
def test_what_stands_in_the_wrong_place_is_refused(damage: dict) -> None:
    with pytest.raises(CleaveError, match="is no trace that this version can read"):
        Trace.from_json(json.dumps({**json.loads(TRACE.to_json()), **damage}))
