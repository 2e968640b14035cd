"""What is said of a folder that is no bundle, or cannot be looked into."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from runtime.contents import described
from runtime.errors import CleaveError


def said(bundle: Path) -> str:
    with pytest.raises(CleaveError) as caught, described(bundle):
        pass
    return str(caught.value)


def test_what_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("none", "file", "."):
        place = tmp_path / name
        assert said(place) == f"{place}: is no bundle (no bundle.json in it); make one with dse generate"


def test_what_the_system_says_of_one_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "bundle.json"
    file.mkdir()
    assert said(tmp_path) == f"{file}: cannot be read (Is a directory); see to that, or name another bundle"
    file.rmdir()
    file.symlink_to(file)
    why = os.strerror(errno.ELOOP)
    assert said(tmp_path) == f"{file}: cannot be read ({why}); see to that, or name another bundle"
