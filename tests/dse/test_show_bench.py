"""What ``dse bench`` shows: an estimate is called one, a meter that failed says why, a disturbed run says so."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from dse import show
from runtime.bench import Bench
from runtime.trace import COMPUTE, Span, Trace, Usage

MEASURED = Usage(0, "a_cpu0", "CPU", 1, 100, 1.0, energy_j=1.25, energy_time_s=0.5, energy_source="measured",
                 energy_samples=42)  # fmt: skip
ESTIMATE = replace(
    MEASURED, rank=1, device="b_cpu0", energy_source="estimate", energy_samples=0, energy_note="meter x: gone"
)
FAILED = Usage(2, "c_cpu0", "CPU", 1, 100, 1.0, energy_note="meter y: not there")
WITHOUT = Usage(3, "c_cpu1", "CPU", 1, 100, 1.0)


def bench(*usages: Usage, above_idle: bool = False) -> Bench:
    frames = tuple(tuple(Span(usage.rank, COMPUTE, "s", 0, end) for usage in usages) for end in (1, 2))
    alone = Trace("measured", True, usages, frames)
    stream = replace(alone, barrier=False, ranks=tuple(replace(u, energy_j=u.energy_j and 0.5) for u in usages))
    return replace(Bench.from_trace(alone, stream), above_idle=above_idle)


def shown(found: Bench) -> list[str]:
    text = io.StringIO()
    show.bench(Console(file=text, width=100), Path("b"), found)
    return text.getvalue().splitlines()


def test_every_host_with_an_energy_or_a_reason_has_a_line() -> None:
    lines = [" ".join(line.split()) for line in shown(bench(MEASURED, ESTIMATE, FAILED, WITHOUT))]
    first = lines.index("rank device energy J streamed J samples")
    assert lines[first + 1 : first + 7] == [
        "0 a_cpu0 1.25 0.5 42",
        "1 b_cpu0 1.25 (estimate) 0.5 (estimate) 0",
        "2 c_cpu0 - - 0",
        "energy of one frame, of the whole host, with its idle power",
        "no energy measured: meter x: gone",
        "no energy measured: meter y: not there",
    ]


@pytest.mark.parametrize(("frames", "which"), [(2, "mean of 2"), (20, "mean of the middle 16 of 20")])
def test_a_latency_says_which_frames_it_is_the_mean_of(frames: int, which: str) -> None:
    spans = tuple((Span(WITHOUT.rank, COMPUTE, "s", 0, 0.5),) for _ in range(frames))
    found = Bench.from_trace(Trace("measured", True, (WITHOUT,), spans))
    assert any(line.startswith(f"b: latency of one frame 500.00 ms ({which}; min") for line in shown(found))


def test_without_meters_and_watts_nothing_is_said_of_energy() -> None:
    assert not any("energy" in line for line in shown(bench(WITHOUT)))


def test_json_says_where_each_energy_comes_from() -> None:
    body = json.loads(bench(MEASURED, ESTIMATE, WITHOUT, above_idle=True).to_json())
    assert body["energy_above_idle"] is True
    assert [row["rank"] for row in body["energies"]] == [0, 1]
    assert body["energies"][1]["alone"] == {
        "energy_j": 1.25,
        "time_s": 0.5,
        "source": "estimate",
        "samples": 0,
        "note": "meter x: gone",
    }
    assert body["energies"][0]["stream"]["energy_j"] == 0.5
    assert "energy of one frame, of the whole host, above its idle power" in shown(bench(MEASURED, above_idle=True))


@pytest.mark.parametrize(("stolen", "said"), [(None, False), (0.01, False), (0.08, True)])
def test_what_other_machines_took_is_told(stolen: float | None, said: bool) -> None:
    found = bench(WITHOUT, replace(MEASURED, stolen=stolen))
    sentence = "disturbed: other virtual machines had 8% of a processor meanwhile; measure again"
    assert (sentence in shown(found)) == said
    assert json.loads(found.to_json())["stolen"] == (stolen or 0.0)
