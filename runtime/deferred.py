"""Signals that come at a bad moment, heard a little later. Workstation only."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def deferred() -> Iterator[None]:
    """Signals that come meanwhile are heard when the block is done, for what is made in it to have a name by then.

    Not blocked: what is started in the block would have them blocked for good, and other threads hear them anyway.
    Python's handlers run in its main thread alone.
    """
    heard: list[int] = []
    usual = {number: handler for number in SIGNALS if callable(handler := signal.getsignal(number))}
    if threading.current_thread() is not threading.main_thread():
        usual = {}
    try:
        for number in usual:
            signal.signal(number, lambda late, _: heard.append(late))
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
    for late in heard:
        signal.raise_signal(late)
