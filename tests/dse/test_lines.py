"""A line is there whole or not at all, on a disk that is full, too."""

from __future__ import annotations

import errno
import os
import resource
import signal
from pathlib import Path

import pytest

from dse.lines import add_line


def test_lines_follow_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("before\n")
    with (tmp_path / "lines").open("ab", buffering=0) as file:
        add_line(file, "ä")
        add_line(file, "b")
    assert (tmp_path / "lines").read_text(encoding="utf-8") == "before\nä\nb\n"


@pytest.mark.parametrize(("most", "why"), [(7, errno.EFBIG), (9, errno.ENOSPC)])
def test_of_a_line_that_does_not_fit_nothing_is_left(most: int, why: int, tmp_path: Path) -> None:
    """The file may not become longer than so many bytes: of the line, none or two are written."""
    (tmp_path / "lines").write_text("before\n")
    kept, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with (tmp_path / "lines").open("ab", buffering=0) as file:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, kept[1]))
            with pytest.raises(OSError, match=os.strerror(why)) as found:
                add_line(file, "more")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
        signal.signal(signal.SIGXFSZ, handler)
    assert (found.value.errno, found.value.filename) == (why, str(tmp_path / "lines"))
    assert (tmp_path / "lines").read_text() == "before\n"
