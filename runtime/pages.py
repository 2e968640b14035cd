"""The memory of a rank's buffers: side by side, in huge pages where Linux has them.

A message between ranks of one host is copied page by page, so that it takes longer in pages of 4 kB than in those of
2 MB, and what a segment reads and writes does, too. Two ranks on two cores, layers on either at random, latency in
huge pages: ShuffleNet x 0.79, DenseNet-121 0.83, ResNet-50 0.91, AlexNet 0.98, for up to 3 MB more of a rank (``python
-m tests.bench.pages --pieces``; other runs: 0.77, 0.81, 0.94 and 0.96); in two stretches, with a message or two, as
long. Each buffer on its own would end with a huge page that is nearly empty.
"""

from __future__ import annotations

import contextlib
import mmap

import numpy as np

ALIGNMENT = 64
"""Bytes; a cache line, and what vector instructions like."""
BLOCK_BYTES = 256 << 20
"""Of address space that is taken at a time. Memory is only what is written to; up to a huge page of each is wasted."""
LARGEST_BYTES = 2 << 20
"""Of a huge page. Where pages are of 16 kB, a huge one is of 32 MB, of which a rank might need next to nothing."""
SIZE_FILE = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"


class Pages:
    """Memory that is given out piece by piece, and never taken back."""

    def __init__(self) -> None:
        self._left = np.zeros(0, np.uint8)

    def zeros(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """An array that begins where a cache line does. It has no memory before it is written to."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        room = room_of(size)
        if room > len(self._left):
            self._left = _block(max(room, BLOCK_BYTES))
        memory, self._left = self._left[:size], self._left[room:]
        return memory.view(dtype).reshape(shape)


def room_of(size_bytes: int) -> int:
    """Bytes that an array takes: no two begin at one address, however small they are."""
    return (size_bytes // ALIGNMENT + 1) * ALIGNMENT


def _block(size_bytes: int) -> np.ndarray:
    """So much address space and more, from where a huge page may begin."""
    huge_bytes = _huge_bytes()
    block = mmap.mmap(-1, size_bytes + huge_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if huge_bytes:
        with contextlib.suppress(OSError):  # of a kernel that has them switched off
            block.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(block, np.uint8)
    return memory[-memory.ctypes.data % huge_bytes :] if huge_bytes else memory


def _huge_bytes() -> int:
    """Of a huge page; 0 where there are none, or they are too large."""
    try:
        with open(SIZE_FILE, encoding="ascii") as file:
            size_bytes = int(file.read())
    except (OSError, ValueError):
        return 0
    return size_bytes if size_bytes <= LARGEST_BYTES and hasattr(mmap, "MADV_HUGEPAGE") else 0
