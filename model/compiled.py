"""Compiled code (numba), cached between runs under a key made of all sources that can be in it.

numba's own cache looks at the file of the outermost function alone, so a change in a function that it calls would
go unnoticed. Here the cache folder carries a hash of every file that can be part of a kernel: all of ``model``, and
those of ``dse`` that hold kernels.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba


def _source_key() -> str:
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in (*sorted((root / "model").glob("*.py")), *sorted((root / "dse").glob("*.py"))):
        source = file.read_bytes()
        if file.parent.name == "model" or b"from model.compiled import" in source:
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
