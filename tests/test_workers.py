"""Tests side by side: which of them stay together."""

from __future__ import annotations

import re

from tests.workers import CLUSTER, ROOT, group, of


def test_whatever_stands_on_a_cluster_in_a_box_is_in_one_group() -> None:
    """So a test that forgets the marker is found here, not by what it disturbs."""
    files = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    there = {
        name for name, text in files.items() if re.search(r"from tests\.cluster import .*(Cluster|standing)", text)
    }
    assert len(there) > 5
    assert {group(name) for name in there} == {CLUSTER}


def test_all_other_tests_stay_with_those_of_their_file() -> None:
    assert of("tests/test_arrows.py::test_x[a::b]") == of("tests/test_arrows.py::test_y") == "tests/test_arrows.py"
