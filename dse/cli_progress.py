"""Progress bars: of a search, and of runs that are made one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dse import ending, search, show
from dse.evaluation import OBJECTIVES
from dse.results import shown


@contextmanager
def searching(say: Console, settings: search.Settings) -> Iterator[tuple[search.Progress, Callable[[str], None]]]:
    """A bar while the block lasts.

    Gives what the search calls after each generation, and what prints a line once the search is done.
    """
    progress = _progress(say)
    bar = progress.add_task("searching", total=settings.generations, best="")
    columns = [OBJECTIVES.index(objective) for objective in settings.objectives]

    def step(generation: int, best: Any) -> None:
        ending.leave_if_asked()
        text = "best " + "  ".join(shown(OBJECTIVES[k], best[k]) for k in columns)
        progress.update(bar, completed=generation, best=text if np.isfinite(best).all() else "nothing fits yet")

    def tell(text: str) -> None:
        ending.leave_if_asked()
        _stop(progress)
        show.line(say, text)

    progress.start()
    try:
        yield step, tell
    finally:
        _stop(progress)


@contextmanager
def working(say: Console, what: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar while the block lasts. Gives what is told how many of how many are done, and what comes next."""
    progress = _progress(say)
    bar = progress.add_task(what, total=0, best="")

    def step(done: int, count: int, text: str) -> None:
        ending.leave_if_asked()
        progress.update(bar, completed=done, total=count, best=text)

    progress.start()
    try:
        yield step
    finally:
        _stop(progress)


def _progress(target: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
    return Progress(*columns, TextColumn("{task.fields[best]}"), TimeRemainingColumn(), console=target)


def _stop(progress: Progress) -> None:
    """Once: each time it would print an empty line."""
    if progress.live.is_started:
        progress.stop()
