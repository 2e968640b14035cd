"""The memory of buffers, whatever the kernel says of huge pages."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import pages
from runtime.pages import ALIGNMENT, BLOCK_BYTES, LARGEST_BYTES, Pages, room_of
from tests.tiny_cnn import examples


@examples(30)
@given(
    st.lists(st.sampled_from([0, 1, 63, 64, 65, 4096, LARGEST_BYTES + 1, BLOCK_BYTES // 2, BLOCK_BYTES]), max_size=8)
)
def test_no_two_arrays_share_a_byte_or_begin_at_one_address(sizes: list[int]) -> None:
    memory = Pages()
    arrays = [memory.zeros((size,), "uint8") for size in sizes]
    ends = sorted((array.ctypes.data, array.ctypes.data + max(array.nbytes, 1)) for array in arrays)
    assert all(
        array.ctypes.data % ALIGNMENT == 0 and array.shape == (size,) for array, size in zip(arrays, sizes, strict=True)
    )
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ends))
    assert all(size < room_of(size) <= size + ALIGNMENT for size in sizes)


@pytest.mark.parametrize("said", [None, "", "many\n", f"{32 << 20}\n", f"{LARGEST_BYTES}\n"])
def test_buffers_are_there_also_where_there_are_no_huge_pages(
    said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "hpage_pmd_size"
    if said is not None:
        file.write_text(said)
    monkeypatch.setattr(pages, "SIZE_FILE", str(file))
    made = Pages().zeros((3, 1 << 20), "float32")
    assert not made.any()
    made[:] = np.arange(3)[:, None]
    assert made.sum() == 3 << 20
    assert pages._huge_bytes() == (LARGEST_BYTES if said == f"{LARGEST_BYTES}\n" else 0)
