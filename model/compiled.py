"""Compiled code (numba), cached between runs under a key made of all sources that can be in it.

numba's own cache looks at the file of the outermost function alone, so a change in a function that it calls, or of a
constant that it uses, would go unnoticed. Here the cache folder carries a hash of every file that can be part of a
kernel: all of ``model``, those of ``dse`` that hold kernels, and what these import.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numba
from filelock import FileLock, Timeout
from numba.core.compiler_lock import global_compiler_lock
from numba.core.event import Event, Listener, register, trigger_event

from runtime.cache import cache

COMPILING = "numba:compile"
"""What numba calls it when it begins to compile."""

SHORT_S = 0.5
"""As long another process may have a function without compiling it: it reads it from the cache."""

LONGEST_S = 600.0
"""No function takes so long to compile: who waited so long for another process to do it does it alone."""

IMPORTED = re.compile(rb"^from ((?:codegen|dse|runtime)[\w.]*) import", re.MULTILINE)


def sources(root: Path) -> dict[Path, bytes]:
    """The files that can be part of a kernel, read: with a name of theirs, a constant stands in it as it was."""
    found = {file: file.read_bytes() for file in (root / "model").rglob("*.py")}
    others = {file: file.read_bytes() for file in (root / "dse").rglob("*.py")}
    found |= {file: source for file, source in others.items() if b"from model.compiled import" in source}
    names = {name.decode() for source in found.values() for name in IMPORTED.findall(source)}
    used = {root / f"{name.replace('.', '/')}.py" for name in names} - found.keys()
    return found | {file: others.get(file) or file.read_bytes() for file in used if file.exists()}


def _source_key() -> str:
    digest = hashlib.sha256()
    for _, source in sorted(sources(Path(__file__).parents[1]).items()):
        digest.update(source)
    return digest.hexdigest()[:16]


_config: Any = numba.config
_njit: Any = numba.njit

if not os.environ.get("NUMBA_CACHE_DIR"):
    _config.CACHE_DIR = str(cache("kernels", _source_key()))


@contextmanager
def _held(lock: FileLock) -> Iterator[None]:
    """Hold a lock, or do without where none can be had."""
    try:
        lock.acquire(timeout=SHORT_S, poll_interval=0.01)
    except Timeout:
        with trigger_event(COMPILING), suppress(Timeout, OSError):  # another process compiles; this one waits as long
            lock.acquire(timeout=LONGEST_S)
    except (OSError, NotImplementedError):  # a folder where nothing can be written
        pass
    try:
        yield
    finally:
        lock.release()


def _one_at_a_time(function: Any) -> Any:
    """Have one process of a machine compile a function, while others that need it wait and then find it in the cache.

    numba's cache has no locks: what began at once compiled all kernels as often, and the index of a function that two
    wrote at once lost what one of them had made. A function waits for those that it calls, which never call it, so
    processes do not wait for each other.
    """
    if _config.DISABLE_JIT:
        return function
    alone = function.compile
    lock = FileLock(Path(_config.CACHE_DIR) / f"{function.__module__}.{function.__qualname__}.lock", thread_local=False)

    def compile_or_wait(signature: Any) -> Any:
        with global_compiler_lock, _held(lock):
            return alone(signature)

    function.compile = compile_or_wait
    return function


def _cached(**always: Any) -> Callable[..., Any]:
    """A decorator as numba's own, with some options set."""

    def decorator(function: Callable[..., Any] | None = None, **options: Any) -> Any:
        made = _njit(cache=True, **always, **options)
        return _one_at_a_time(made(function)) if function else lambda it: _one_at_a_time(made(it))

    return decorator


kernel = _cached(_nrt=False)
"""Compile a function that allocates nothing. Without reference counts (``_nrt``): with them, taking an array out of
a tuple is an atomic operation, which cost three quarters of the time, and threads contend for it."""

inlined: Callable[..., Any] = _njit(cache=True, inline="always", _nrt=False)
"""Compile a small function into its callers; it allocates nothing."""

allocating = _cached()
"""Compile a function that makes arrays."""

released = _cached(nogil=True)
"""Compile a function that makes arrays and lets other threads run meanwhile, for ``on_all_cores``."""


class _Once(Listener):
    """Calls something when the first function is compiled."""

    def __init__(self, say: Callable[[], object]) -> None:
        self._said = False
        self._say = say

    def on_start(self, event: Event) -> None:
        """Of compiling."""
        if not self._said:  # it stays registered: taken out now, it would hide this event from the next listener
            self._said = True
            self._say()

    def on_end(self, event: Event) -> None:
        """Nothing to say."""


def on_compiling(say: Callable[[], object]) -> None:
    """Call ``say`` once, when a function is to be compiled that the cache does not have, here or in another process."""
    register(COMPILING, _Once(say))


def on_all_cores(work: Callable[[int, int], object], count: int, most: int) -> None:
    """Call ``work(first, last)`` for all of ``0..count``, at most so many at a time, on as many threads as numba would.

    Plain threads: numba's own loops compile all they call once more, which took a quarter of the time.
    """
    threads = numba.get_num_threads()
    chunk = max(1, min(most, -(-count // threads)))
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda first: work(first, min(first + chunk, count)), range(0, count, chunk)))
