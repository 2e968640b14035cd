"""The splits that are proven best are as good as the reference's (``placement.py`` prints them one by one)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reference.placement import reference_rows, result

NONE = "no workloads: DSE_REFERENCE names no folder that has dnn-partitioning/values.json"


def test_all_optima_are_found_and_proven() -> None:
    rows = reference_rows([])
    if not rows:
        pytest.skip(NONE)
    results = [result(row) for row in rows]
    assert len(results) >= 18
    assert [r.row["id"] for r in results if not r.good] == []


def test_no_other_method_is_better_but_those_that_mix_devices() -> None:
    rows = reference_rows(["bert24_training", "LayerGraphs/resnet50_training"])
    if not rows:
        pytest.skip(NONE)
    assert len(rows) >= 2
    for row in rows:
        for method in ("dpl", "greedy", "pipedream", "expert"):
            assert result(row, method).deviation > -1e-9


def test_the_script_says_which_files_it_wants(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DSE_REFERENCE", str(tmp_path))
    assert reference_rows([]) == []
