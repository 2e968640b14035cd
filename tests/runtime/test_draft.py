"""What is written is there whole or not at all, whoever writes it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from runtime.draft import drafted
from runtime.frames import save_text
from tests.npz import save_npz


class Unwritable:
    """An array of which the disk has no room for all."""

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise OSError(errno.ENOSPC, "No space left on device")


def cut_off(path: str) -> None:
    with drafted(path) as draft:
        Path(draft).write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")


WRITERS = {
    "arrays": lambda path: save_npz(path, {"first": np.zeros(9), "second": Unwritable()}),  # type: ignore[dict-item]
    "text": lambda path: save_text(path, "first \ud800"),
    "anything": cut_off,
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_what_fails_leaves_what_was_there_and_no_draft(write: Callable[[str], None], tmp_path: Path) -> None:
    there = tmp_path / "file"
    there.write_text("before")
    with pytest.raises((OSError, UnicodeEncodeError)):
        write(str(there))
    assert [(path, path.read_text()) for path in tmp_path.iterdir()] == [(there, "before")]


def test_a_disk_that_is_full_is_told_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left on device") as found:
        cut_off(str(tmp_path / "file"))
    assert found.value.filename == str(tmp_path / "file")


def test_a_file_that_cannot_take_its_place_leaves_no_draft(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        save_text(str(tmp_path / "file"), "text")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_is_not_there_is_what_is_told(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "file", Path(__file__) / "file"):
        with pytest.raises(OSError, match=r"No such file|Not a directory") as found, drafted(path) as draft:
            Path(draft).write_text("text")
        assert found.value.filename == str(path)


def test_what_a_link_leads_to_is_written_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "file")
    for text in ("first", "second"):
        save_text(str(tmp_path / "link"), text)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "far" / "file").read_text() == text
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["file"]
