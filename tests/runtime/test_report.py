"""What ranks hand in, side by side, by one clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime import report
from runtime.clock import Clock, Exchange
from runtime.report import Account, merge
from runtime.trace import COMPUTE, INPUT, SEND, WAIT, Usage

USAGES = [Usage(rank, f"d{rank}", "CPU", 1, 100, 0.0, writes=rank == 1) for rank in (0, 1)]
AHEAD = Clock(Exchange(-0.5, 1000.0, 0.5), Exchange(7.5, 1010.0, 8.5))
"""Ahead of rank 0 by 1000 s at 0 s, by 1002 s at 8 s: a very bad clock."""


def accounts(*frames: tuple[list, list]) -> list[Account]:
    return [Account(usage, [frame[rank] for frame in frames], {}) for rank, usage in enumerate(USAGES)]


def frame(begin_s: float) -> tuple[list, list]:
    """Rank 1 waits for rank 0 from before the input is there; its clock is AHEAD."""
    first = [(INPUT, "in", begin_s - 1, begin_s), (SEND, "x", begin_s, begin_s + 1, 1, 0, 8)]
    there = [1000.0 + t * 1.25 for t in (begin_s - 1, begin_s + 1, begin_s + 2)]
    return first, [(WAIT, "x", there[0], there[1], 0, 0, 8), (COMPUTE, "s", there[1], there[2])]


def test_every_span_is_by_the_clock_of_rank_0_since_the_first_input_was_there() -> None:
    trace = merge(accounts(frame(2.0), frame(6.0)), [Clock(), AHEAD], barrier=True)
    for spans in trace.frames:
        assert [(s.rank, s.kind, s.start_s, s.stop_s) for s in spans] == [
            (0, INPUT, -1, 0), (0, SEND, 0, 1), (1, WAIT, -1, 1), (1, COMPUTE, 1, 2)
        ]  # fmt: skip
    assert (spans[1].peer, spans[1].tag, spans[1].size_bytes, spans[3].peer) == (1, 0, 8, None)
    assert trace.latencies_s == (2, 2)
    assert [(u.clock_offset_s, u.clock_uncertainty_s) for u in trace.ranks] == [(0, 0), (1001, 0.5)]


def test_frames_that_follow_one_another_are_since_the_first_input_of_the_first() -> None:
    trace = merge(accounts(frame(2.0), frame(6.0)), [Clock(), AHEAD], barrier=False)
    assert [spans[0].stop_s for spans in trace.frames] == [0, 4]
    assert trace.period_s == 4


def test_a_network_without_an_input_begins_with_its_first_rank() -> None:
    trace = merge(accounts(([], [(COMPUTE, "s", 5.0, 7.0)])), [Clock(), Clock()], barrier=True)
    assert [(s.start_s, s.stop_s) for s in trace.frames[0]] == [(0, 2)]
    assert merge(accounts(([], [])), [Clock(), Clock()], barrier=True).frames == ((),)


def test_how_processors_are_clocked_is_left_out_where_it_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "governor").write_text("performance\n")
    found = {}
    for file in ("/proc/self/mem", tmp_path / "none", tmp_path / "governor"):  # the first fails when it is read
        monkeypatch.setattr(report, "GOVERNOR", str(file))
        found[file] = report.conditions().get("governor")
    assert list(found.values()) == [None, None, "performance"]
