"""Hashes of files, read piece by piece and in parts."""

from __future__ import annotations

from pathlib import Path

import pytest
from blake3 import blake3

from runtime import hashing
from runtime.hashing import file_hash, files_hash, text_hash


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 40])
def test_a_file_has_the_hash_of_its_bytes(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "PIECE_BYTES", 8)
    file = tmp_path / "file"
    file.write_bytes(bytes(range(size)))
    assert file_hash(file) == blake3(file.read_bytes()).hexdigest()


def test_a_text_has_the_hash_of_the_file_that_it_becomes(tmp_path: Path) -> None:
    text = "a ü\n☃"
    (tmp_path / "x").write_text(text, encoding="utf-8")
    assert text_hash(text) == file_hash(tmp_path / "x")


def test_files_together_have_another_hash_when_a_byte_changes_or_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashing, "PART_BYTES", 16)
    monkeypatch.setattr(hashing, "PIECE_BYTES", 8)
    one, other = tmp_path / "one", tmp_path / "other"
    found = set()
    for change in range(41):
        data = bytearray(range(40))
        if change < 40:
            data[change] ^= 1
        one.write_bytes(data)
        other.write_bytes(b"other")
        found |= {files_hash([one]), files_hash([one, other]), files_hash([other, one])}
    assert len(found) == 3 * 41
    assert files_hash([one]) == files_hash([one])
