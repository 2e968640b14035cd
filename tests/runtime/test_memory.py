"""What is resident, and what made it so."""

from __future__ import annotations

import numpy as np

from runtime.memory import BUFFERS, FRAMES, Footprint, peak_bytes, resident_bytes

BIG = 64 * 2**20


def test_what_becomes_resident_in_a_block_belongs_to_its_part() -> None:
    footprint = Footprint()
    with footprint.growing(FRAMES):
        held = np.ones(BIG, np.uint8)
    assert 0.9 * BIG < footprint.memory().frames_bytes < 1.5 * BIG
    with footprint.growing(FRAMES):
        del held
    assert footprint.memory().frames_bytes < 0.5 * BIG
    assert peak_bytes() >= footprint.memory().base_bytes + 0.9 * BIG


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
