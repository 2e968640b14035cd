"""What is resident, and what made it so."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from runtime.memory import BUFFERS, Footprint, peak_bytes, resident_bytes

BIG = 64 * 2**20


GROWING = """
import numpy as np
from runtime.memory import FRAMES, Footprint, peak_bytes
footprint = Footprint()
with footprint.growing(FRAMES):
    held = np.ones(64 * 2**20, np.uint8)
grown = footprint.memory()
with footprint.growing(FRAMES):
    del held
print(grown.frames_bytes, footprint.memory().frames_bytes, peak_bytes() - grown.base_bytes)
"""


def test_what_becomes_resident_in_a_block_belongs_to_its_part() -> None:
    """In a process of its own: in this one, what other tests have left may be given back meanwhile."""
    words = [sys.executable, "-c", GROWING]
    said = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True).stdout
    grown, left, peak = map(int, said.split())
    assert 0.9 * BIG < grown < 1.5 * BIG
    assert left < 0.5 * BIG
    assert peak >= 0.9 * BIG


FRUGAL = """
import ctypes
from runtime.memory import SEGMENTS, Footprint, frugal
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]

def come_and_go():
    '''64 MB in blocks, of which every second one is freed.'''
    blocks = [libc.malloc(2**20) for _ in range(64)]
    for block in blocks:
        ctypes.memset(block, 1, 2**20)
    for block in blocks[::2]:
        libc.free(block)

libc.free(libc.malloc(30 * 2**20))  # from now on glibc keeps blocks of up to 30 MB by itself
footprints = [Footprint(), Footprint()]
with footprints[0].growing(SEGMENTS):
    come_and_go()
with footprints[1].growing(SEGMENTS), frugal():
    come_and_go()
for footprint in footprints:
    footprint.opened()
    print(footprint.memory().segments_bytes, footprint.memory().opening_bytes)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library has no mallopt")
def test_what_is_freed_while_segments_are_opened_goes_back_at_once() -> None:
    words = [sys.executable, "-c", FRUGAL]
    said = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True).stdout
    usual, _, frugal, opening = map(int, said.split())
    assert usual > 0.9 * BIG
    assert frugal < 0.6 * BIG
    assert opening > 0.9 * BIG


def test_memory_that_is_asked_for_and_never_touched_is_not_resident() -> None:
    before = resident_bytes()
    held = np.empty(BIG, np.uint8)
    assert resident_bytes() < before + BIG / 2
    assert held.nbytes == BIG


def test_sizes_that_are_known_are_added() -> None:
    footprint = Footprint()
    for size_bytes in (100, 23):
        footprint.add(BUFFERS, size_bytes)
    found = footprint.memory()
    assert found.buffers_bytes == 123
    assert (found.segments_bytes, found.input_bytes) == (0, 0)
    assert 2**20 < found.base_bytes <= peak_bytes()
