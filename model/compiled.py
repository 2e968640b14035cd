"""Compiled code (numba), cached between runs under a key made of all sources that can be in it.

numba's own cache looks at the file of the outermost function alone, so a change in a function that it calls would
go unnoticed. Here the cache folder carries a hash of every file that can be part of a kernel: all of ``model``, and
those of ``dse`` that hold kernels.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numba
from numba.core.event import Event, Listener, register, unregister


def _source_key() -> str:
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in (*sorted((root / "model").rglob("*.py")), *sorted((root / "dse").rglob("*.py"))):
        source = file.read_bytes()
        if file.is_relative_to(root / "model") or b"from model.compiled import" in source:
            digest.update(source)
    return digest.hexdigest()[:16]


_config: Any = numba.config
_njit: Any = numba.njit

if not os.environ.get("NUMBA_CACHE_DIR"):
    _home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    _config.CACHE_DIR = str(Path(_home) / "cleave" / "kernels" / _source_key())

kernel: Callable[..., Any] = partial(_njit, cache=True, _nrt=False)
"""Compile a function that allocates nothing. Without reference counts (``_nrt``): with them, taking an array out of
a tuple is an atomic operation, which cost three quarters of the time, and threads contend for it."""

inlined: Callable[..., Any] = _njit(cache=True, inline="always", _nrt=False)
"""Compile a small function into its callers; it allocates nothing."""

allocating: Callable[..., Any] = partial(_njit, cache=True)
"""Compile a function that makes arrays."""

released: Callable[..., Any] = partial(_njit, cache=True, nogil=True)
"""Compile a function that makes arrays and lets other threads run meanwhile, for ``on_all_cores``."""


class _Once(Listener):
    """Calls something when the first function is compiled."""

    def __init__(self, say: Callable[[], object]) -> None:
        self._say = say

    def on_start(self, event: Event) -> None:
        """Of compiling."""
        unregister("numba:compile", self)
        self._say()

    def on_end(self, event: Event) -> None:
        """Nothing to say."""


def on_compiling(say: Callable[[], object]) -> None:
    """Call ``say`` once, when a function is to be compiled that the cache does not have."""
    register("numba:compile", _Once(say))


def on_all_cores(work: Callable[[int, int], object], count: int, most: int) -> None:
    """Call ``work(first, last)`` for all of ``0..count``, at most so many at a time, on as many threads as numba would.

    Plain threads: numba's own loops compile all they call once more, which took a quarter of the time.
    """
    threads = numba.get_num_threads()
    chunk = max(1, min(most, -(-count // threads)))
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda first: work(first, min(first + chunk, count)), range(0, count, chunk)))
