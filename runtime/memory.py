"""The memory of a rank: how much of it is resident, and what each part of its work adds to that."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
from contextlib import contextmanager
from typing import Iterator

from runtime.trace import Memory

BASE, BUFFERS, SEGMENTS, INPUT, FRAMES = "base", "buffers", "segments", "input", "frames"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Of mallopt(3)."""
FRUGAL_BYTES, USUAL_BYTES = 1 << 16, 32 << 20
"""Blocks from such a size on go back to the system when they are freed; 32 MB is what glibc comes to by itself."""


class Footprint:
    """What each part has added so far, in bytes; ``BASE`` is what there was before the first."""

    def __init__(self) -> None:
        self._parts = dict.fromkeys((BASE, BUFFERS, SEGMENTS, INPUT, FRAMES), 0)
        self._parts[BASE] = resident_bytes()
        self._opening_bytes = 0

    def add(self, part: str, size_bytes: int) -> None:
        """So many bytes more of a part, which are known without looking."""
        self._parts[part] += size_bytes

    @contextmanager
    def growing(self, part: str) -> Iterator[None]:
        """All that becomes resident in the block belongs to a part."""
        before = resident_bytes()
        yield
        self.add(part, resident_bytes() - before)

    def opened(self) -> None:
        """A segment is open: what there was at most until now, above the base, was there for the segments."""
        self._opening_bytes = max(0, peak_bytes() - self._parts[BASE])

    def memory(self) -> Memory:
        """The parts as they are now."""
        parts = {f"{part}_bytes": size_bytes for part, size_bytes in self._parts.items()}
        return Memory(**parts, opening_bytes=self._opening_bytes)


@contextmanager
def frugal() -> Iterator[None]:
    """What is freed in the block goes back to the system at once, where the C library can be told so (glibc).

    By itself it keeps what it thinks it will need again: after a session was opened, which reads the weights, fuses
    them and lays them out anew, that is as much again as the weights (`python -m tests.bench.memory`). And buffers come
    from what it has kept and are resident before they are used.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is None:
        yield
        return
    mallopt(M_MMAP_THRESHOLD, FRUGAL_BYTES)
    try:
        yield
    finally:
        mallopt(M_MMAP_THRESHOLD, USUAL_BYTES)
        mallopt(M_TRIM_THRESHOLD, 2 * USUAL_BYTES)


def resident_bytes() -> int:
    """The resident memory of this process; its peak where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return peak_bytes()


def peak_bytes() -> int:
    """The largest resident memory that this process has had."""
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
