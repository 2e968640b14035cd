"""Arrays that begin where a cache line does."""

from __future__ import annotations

import numpy as np

ALIGNMENT = 64
"""Bytes; a cache line, and what vector instructions like."""


def zeros(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An aligned array."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    skip = -memory.ctypes.data % ALIGNMENT
    return memory[skip : skip + size].view(dtype).reshape(shape)
