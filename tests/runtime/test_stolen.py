"""Time that other virtual machines take: read where the system tells it, and a reason to measure again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.bench import measured
from runtime.options import Options
from runtime.stolen import STAT, Stolen, stolen_s
from runtime.trace import Trace, Usage

TICKS = os.sysconf("SC_CLK_TCK")
USAGE = Usage(0, "a_cpu0", "CPU", 1, 100, 1.0)


def stat(path: Path, *stolen: int) -> str:
    """A /proc/stat with what was stolen from each core, in ticks."""
    cores = [f"cpu{k} 1 2 3 4 5 6 7 {ticks} 9 10" for k, ticks in enumerate(stolen)]
    path.write_text("\n".join(["cpu 1 1 1 1 1 1 1 77 1 1", *cores, "intr 1 2", ""]))
    return str(path)


def test_only_the_cores_of_a_process_count(tmp_path: Path) -> None:
    file = stat(tmp_path / "stat", TICKS, 3 * TICKS, 5 * TICKS)
    assert stolen_s({0}, file) == 1
    assert stolen_s({1, 2}, file) == 8


@pytest.mark.parametrize("text", ["", "cpu0 1 2 3", "cpu0 1 2 3 4 5 6 7 x", "nothing"])
def test_a_system_that_does_not_tell(tmp_path: Path, text: str) -> None:
    (tmp_path / "stat").write_text(text)
    assert stolen_s({0}, str(tmp_path / "stat")) is None
    assert stolen_s({0}, str(tmp_path / "none")) is None


def test_the_part_of_the_time_between_start_and_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter((100.0, 104.0))
    monkeypatch.setattr("runtime.stolen.time.monotonic", lambda: next(now))
    monkeypatch.setattr("runtime.stolen._cores", lambda: {0, 1})
    watch = Stolen()
    watch.start(stat(tmp_path / "stat", 0, TICKS))
    stat(tmp_path / "stat", TICKS, 2 * TICKS)
    assert watch.stop() == 2 / 8


@pytest.mark.skipif(not Path(STAT).exists(), reason="needs Linux, which tells it")
def test_linux_tells_it_of_the_cores_of_this_process() -> None:
    watch = Stolen()
    watch.start()
    time.sleep(0.01)
    assert watch.stop() is not None


@pytest.mark.parametrize(
    ("stolen", "tries", "runs", "kept"),
    [
        ([0.01], 4, 1, 0.01),
        ([None], 4, 1, None),
        ([0.5, 0.0], 4, 2, 0.0),
        ([0.5, 0.1, 0.3, 0.2], 4, 4, 0.1),
        ([0.5], 1, 1, 0.5),
    ],
)
def test_a_disturbed_run_is_made_again(stolen: list[float | None], tries: int, runs: int, kept: float | None) -> None:
    made: list[Trace] = []
    left: Iterator[float | None] = iter(stolen)

    def runner(options: Options, _: float) -> None:
        made.append(Trace("measured", True, (USAGE, replace(USAGE, rank=1, stolen=next(left))), ((),)))
        Path(str(options.report)).write_text(made[-1].to_json())

    (found,) = measured(runner, Options(), 1.0, tries)
    assert (len(made), found.ranks[1].stolen) == (runs, kept)
