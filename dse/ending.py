"""How a command ends: errors as sentences, signals heard, a reader that is gone noticed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from runtime.errors import CleaveError

_asked: list[int] = []
"""Signals that came. The exception of one that comes while an object is destroyed is lost, so it is kept here too."""
_patient: list[bool] = []
"""Not empty while there is work that ends by itself once it has been asked to."""


def run(command: Callable[[], None]) -> None:
    """Run a command. What a person can mend is said in a sentence, with exit code 2."""
    try:
        with _signals():
            command()
    except CleaveError as error:
        _fail(*error.sentences)
    except OSError as error:
        _drop_output()
        _fail(": ".join(str(word) for word in (error.filename, error.strerror or error) if word))
    except SystemExit:
        if _asked:
            _say("stopped; what was unfinished is gone")
        raise
    finally:
        _flush()


@contextmanager
def _signals() -> Iterator[None]:
    """Ctrl-C, ``kill`` and a closed terminal end a command as an error does: folders and ranks are cleared away."""
    _asked.clear()
    usual = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    mine = [n for n, handler in usual.items() if handler is not signal.SIG_IGN]  # nohup's stays
    for number in mine:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, usual[number])


@contextmanager
def patient() -> Iterator[None]:
    """Inside, Ctrl-C only asks: work that looks at ``was_asked`` ends soon, with what it has. A second one ends it."""
    _patient.append(True)
    try:
        yield
    finally:
        _patient.pop()
        if _asked == [signal.SIGINT]:
            _asked.clear()


def was_asked() -> bool:
    """Whether somebody pressed Ctrl-C."""
    return signal.SIGINT in _asked


def _end(number: int, _: Any) -> None:
    _asked.append(number)
    sys.unraisablehook = lambda _: None  # else Python would tell of the lost exception
    leave_if_asked()


@contextmanager
def stoppable() -> Iterator[None]:
    """Ctrl-C ends what is inside, and the command goes on with what there is. Other signals end the command."""
    try:
        yield
    except KeyboardInterrupt:  # where no command was begun by ``run``
        pass
    except SystemExit as end:
        if end.code != 128 + signal.SIGINT:
            raise
        _asked.clear()


def leave_if_asked() -> None:
    """End the command if a signal came whose exception was lost. Long work calls it now and then."""
    if _asked and not (_patient and _asked == [signal.SIGINT]):
        others = [number for number in _asked if number != signal.SIGINT]  # which nothing goes on after
        sys.exit(128 + (others or _asked)[0])


def _fail(*sentences: str) -> NoReturn:
    for sentence in sentences:
        _say(f"error: {sentence}")
    sys.exit(2)


def _flush() -> None:
    """Notice a reader that is gone (``| head``) or a full disk here: Python's own end would print a traceback."""
    error = _drop_output()
    if error is not None and not isinstance(error, BrokenPipeError):
        _fail(f"standard output: {error.strerror}")


def _drop_output() -> OSError | None:
    """Write out what is still to be printed, or forget it where that fails, and say why."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
