"""A platform file that is changed says what it is told to, and all else as before."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.cluster import coefficients
from model.cluster.platform import PLATFORMS, Platform
from model.cluster.platform_edit import edited
from model.cluster.platform_file import HOST_KEYS, KEYS, Sheet
from tests.tiny_cnn import examples

TEXT = (
    "# two hosts\na, arm, slots=0-1 , coefficients = generic  # the fast one\r\n\n"
    "b,memory=2GB,coefficients=x,slots=0\nc"
)


def test_a_field_is_replaced_where_it_stands_or_added_at_the_end() -> None:
    found = edited(
        TEXT, {2: {"coefficients": "a.json"}, 4: {"coefficients": "b.json", "latency": "1ms"}, 5: {"slots": "1"}}
    )
    assert found == (
        "# two hosts\na, arm, slots=0-1 , coefficients =a.json  # the fast one\r\n\n"
        "b,memory=2GB,coefficients=b.json,slots=0, latency=1ms\nc, slots=1"
    )


def test_a_key_that_ends_like_another_is_another() -> None:
    assert edited("a, copy_bandwidth=1GB/s", {1: {"bandwidth": "2GB/s"}}) == "a, copy_bandwidth=1GB/s, bandwidth=2GB/s"


def test_without_changes_nothing_changes() -> None:
    assert edited(TEXT, {}) == TEXT


@examples(50)
@given(st.sampled_from(PLATFORMS.names), st.data())
def test_a_changed_file_has_the_changed_fields_and_all_others(name: str, data: st.DataObject) -> None:
    text = PLATFORMS.text_of(PLATFORMS.find(Path(name)))
    before = Sheet(text)
    key = data.draw(st.sampled_from([k for k in KEYS if k not in HOST_KEYS]))
    line = data.draw(st.sampled_from(before.lines))
    after = Sheet(edited(text, {line.number: {key: "new"}}))
    for old, new in zip(before.lines, after.lines, strict=True):
        wanted = {k: v for k, (_, v) in old.fields.items()} | ({key: "new"} if old.number == line.number else {})
        assert {k: v for k, (_, v) in new.fields.items()} == wanted
    assert after.problems == before.problems


def test_coefficients_that_are_a_file_are_looked_for_beside_the_platform_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "mine.json").write_text(coefficients.load("generic").to_json())
    (tmp_path / "far" / "p.txt").write_text("a, coefficients=mine.json\nb, coefficients=generic\n")
    monkeypatch.chdir(tmp_path)
    one, other = Platform.from_file("far/p.txt").devices
    assert (one.coefficients, other.coefficients) == ("far/mine.json", "generic")
    assert coefficients.load(one.coefficients).name == "generic"
