"""How far something is, a search or runs that are made one after the other: a bar, or lines in a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dse import ending, search, show
from dse.evaluation import OBJECTIVES
from dse.settings import Settings
from dse.units import shown
from model.compiled import on_compiling

Working = Callable[[str, int, int, str], None]
"""Is told what is done, how many of how many of it have been, and what comes next."""
QUIET_S = 60.0
"""Where there is no terminal, nothing is said for so long."""


@contextmanager
def searching(say: Console, settings: Settings) -> Iterator[tuple[search.Progress, Callable[[str], None]]]:
    """A bar while the block lasts.

    Gives what the search calls after each generation and round, and what prints a line once the search is done.
    """
    bar = _Bar(say, "searching", settings.generations)
    columns, generations = settings.columns, settings.generations

    def step(number: int, best: Any) -> None:
        text = "best " + "  ".join(shown(OBJECTIVES[k], best[k]) for k in columns)
        said = text if np.isfinite(best).all() else "nothing fits yet"
        if number <= generations:
            bar.show("searching", number, generations, said)
        else:
            bar.show("local search", number - generations, generations, said)

    def tell(text: str) -> None:
        bar.stop()
        show.line(say, text)
        ending.leave_if_asked()  # last: what was kept is told of on the way out, too

    try:
        yield step, tell
    finally:
        bar.stop()


@contextmanager
def working(say: Console, what: str) -> Iterator[Working]:
    """A bar while the block lasts, of ``what`` first."""
    bar = _Bar(say, what, 0)
    try:
        yield bar.show
    finally:
        bar.stop()


def tell_compiling() -> None:
    """Say aside when something has to be compiled first; by way of ``sys``, where a bar would put it above itself."""
    on_compiling(lambda: print("compiling: a minute or two, the first time on this machine", file=sys.stderr))


class _Bar:
    """A bar on a terminal. In a log, a line every ``QUIET_S`` seconds, and the bar as it is in the end."""

    def __init__(self, say: Console, what: str, count: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
        self._progress = Progress(*columns, TextColumn("{task.fields[best]}"), TimeRemainingColumn(), console=say)
        self._task = self._progress.add_task(what, total=count, best="")
        self._say, self._said_s = say, monotonic()
        self._progress.start()

    def show(self, what: str, done: int, count: int, text: str) -> None:
        """So many of so many are done; a part of which there is nothing is passed over."""
        ending.leave_if_asked()
        if not count:
            return
        if what != self._progress.tasks[0].description:
            self._progress.reset(self._task)  # a part that takes its own time
        self._progress.update(self._task, description=what, completed=done, total=count, best=text)
        if not self._say.is_terminal and monotonic() - self._said_s >= QUIET_S:
            show.line(self._say, f"{what} {done}/{count}  {text}")
            self._said_s = monotonic()

    def stop(self) -> None:
        """Once: each time it would print an empty line."""
        if self._progress.live.is_started:
            self._progress.stop()
