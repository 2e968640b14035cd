"""BLAKE3 hashes of files. Workstation only: what a device checks itself, it checks by what Python brings along."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from blake3 import blake3

PART_BYTES, PIECE_BYTES = 1 << 25, 1 << 20
"""Of files: parts are hashed by several threads, pieces one after the other."""


def files_hash(paths: Sequence[Path]) -> str:
    """Hash of the hashes of all parts of some files, hexadecimal; by all cores."""
    parts = [(path, at) for path in paths for at in range(0, path.stat().st_size, PART_BYTES)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return blake3(b"".join(pool.map(lambda part: _digest(part[0], part[1], PART_BYTES), parts))).hexdigest()


def file_hash(path: Path) -> str:
    """Hash of one file, hexadecimal; as ``b3sum`` says it."""
    return _digest(path, 0, path.stat().st_size).hex()


def text_hash(text: str) -> str:
    """Hash of a file that holds a text, hexadecimal."""
    return blake3(text.encode("utf-8")).hexdigest()


def _digest(path: Path, start: int, size: int) -> bytes:
    """Hash of a part of a file. Read a piece at a time: mapped, it would count as memory of the process."""
    found, piece = blake3(), memoryview(bytearray(min(size, PIECE_BYTES)))
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        for _ in range(0, size, PIECE_BYTES):
            found.update(piece[: file.readinto(piece)])
    return found.digest()
