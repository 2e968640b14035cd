from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.bench import Bench
from runtime.errors import CleaveError
from runtime.trace import COMPUTE, SEND, WAIT, Memory, Span, Trace, Usage
from tests.damage import damage


def trace(seconds: Sequence[float] = (1.0, 3.0, 2.0)) -> Trace:
    """Rank 1 waits for rank 0, in frames that take so long; powers of two keep the sums exact."""
    frames = tuple(
        (
            Span(0, COMPUTE, "a", 0.0, half),
            Span(0, SEND, "x", half - 0.25, half + 0.25, 1, 0, 8),
            Span(1, WAIT, "x", 0.0, half, 0, 0, 8),
            Span(1, COMPUTE, "b", half, 2 * half),
        )
        for half in (time_s / 2 for time_s in seconds)
    )
    memory = Memory(100, 20, 30, 0, 10)
    usages = (Usage(0, "a_cpu0", "CPU", 1, 100, 6.0), Usage(1, "b_cpu0", "CPU", 1, 200, 3.0, memory=memory))
    return Trace("measured", True, usages, frames)


def test_figures() -> None:
    bench = Bench.from_trace(trace())
    assert bench.latencies_s == (1.0, 3.0, 2.0)
    assert (bench.latency_s, bench.median_s, bench.min_s, bench.max_s) == (2.0, 2.0, 1.0, 3.0)
    first, second = bench.ranks
    assert (first.compute_s, first.wait_s, first.send_s, first.processor_s, first.peak_bytes) == (1, 0, 0.5, 2, 100)
    assert (second.compute_s, second.wait_s, second.send_s, second.processor_s, second.device) == (1, 1, 0, 1, "b_cpu0")
    assert (first.wire_s, second.wire_s) == (0, 0.25)
    assert (first.rest_bytes, second.rest_bytes) == (100, 40)


def test_the_fastest_and_the_slowest_frames_do_not_count() -> None:
    """Nor what ranks did in them, which adds up to the latency."""
    bench = Bench.from_trace(trace([2.0, 0.0, 64.0, *[2.0] * 9, *[4.0] * 8]))
    assert (bench.latency_s, bench.median_s, bench.max_s) == (2.875, 2.0, 64.0)  # of nine of 2 s and seven of 4
    assert [rank.compute_s for rank in bench.ranks] == [2.875 / 2, 2.875 / 2]
    assert bench.ranks[1].compute_s + bench.ranks[1].wait_s == bench.latency_s


def test_json() -> None:
    body = json.loads(Bench.from_trace(trace()).to_json())
    assert body["latencies_s"] == [1.0, 3.0, 2.0]
    assert body["ranks"][1]["memory"]["segments_bytes"] == 30
    assert (body["latency_s"], body["median_s"], body["ranks"][1]["rank"], body["period_s"]) == (2.0, 2.0, 1, None)


def test_the_period_is_that_of_the_stream() -> None:
    stream = replace(trace(), barrier=False)  # ends at 1, 3 and 2 s
    assert Bench.from_trace(trace(), stream).period_s == 0.5
    assert json.loads(Bench.from_trace(trace(), stream).to_json())["period_s"] == 0.5


JUNK = st.sampled_from([None, 1, "x", [], [1], [[]], {}])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_what_is_damaged_is_read_or_refused_but_never_fails(data: st.DataObject) -> None:
    body = json.loads(trace().to_json())
    damage(data, body, JUNK)
    assert refusal(json.dumps(body)).startswith(("here.jsonl:1: is no ", "none"))


def refusal(text: str) -> str:
    try:
        Bench.from_lines(text, "here.jsonl").to_json()
    except CleaveError as error:
        return str(error)
    return "none"
