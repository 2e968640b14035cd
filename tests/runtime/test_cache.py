"""Where the user's cache is."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.cache import cache


@pytest.mark.parametrize("elsewhere", [True, False])
def test_the_cache_is_where_the_user_says(elsewhere: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches") if elsewhere else "")
    root = tmp_path / ("caches" if elsewhere else "home/.cache") / "cleave"
    assert (cache(), cache("zoo", "1")) == (root, root / "zoo" / "1")
