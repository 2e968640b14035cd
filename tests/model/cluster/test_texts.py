"""Text files, and what is said of those that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.cluster.texts import read_text
from runtime.errors import CleaveError


def test_a_text_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff")
    reasons = {"nothing": "there is no such mapping", "bytes": "is not UTF-8 text", ".": "Is a directory"}
    for name, reason in reasons.items():
        with pytest.raises(CleaveError, match=reason):
            read_text(tmp_path / name, "mapping")


def test_what_does_not_end_is_not_read_for_ever() -> None:
    with pytest.raises(CleaveError, match=r"^/dev/zero: holds more than 256 MB; is this the right file\?$"):
        read_text(Path("/dev/zero"), "mapping")


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbftext\r\n")
    assert read_text(tmp_path / "marked", "file") == "text\r\n"
