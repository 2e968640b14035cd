"""How far something is, in a terminal and in a log."""

from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from dse.cli import progress
from dse.settings import Settings


def seen(console: Console) -> list[str]:
    """Lines of a piece of work in three parts."""
    with progress.working(console, "measuring") as tell:
        for done in range(3):
            tell("measuring", done, 3, f"run {done}")
        tell("measuring", 3, 3, "")
    return lines(console)


def lines(console: Console) -> list[str]:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("quiet_s", "count"), [(0.0, 4), (3600.0, 0)])
def test_a_log_has_lines_now_and_then(monkeypatch: pytest.MonkeyPatch, quiet_s: float, count: int) -> None:
    monkeypatch.setattr(progress, "QUIET_S", quiet_s)
    *said, last = seen(Console(file=StringIO(), width=100))
    assert said == [*(f"measuring {k}/3  run {k}" for k in range(3)), "measuring 3/3  "][:count]
    assert "3/3" in last


def test_a_terminal_has_a_bar_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    assert "measuring 1/3" not in "".join(seen(Console(file=StringIO(), force_terminal=True)))


def test_what_has_been_done_does_not_say_how_long_the_next_part_takes() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=200)
    with progress.searching(console, Settings(generations=2)) as (step, _):
        for number in range(1, 4):
            step(number, np.ones(4))
    last = lines(console)[-2]  # then the cursor comes back
    assert "local search" in last
    assert "1/2" in last
    assert "0:00:00" not in last
