"""A row or two of ``tests.campaign.predictions``, so that it does not rot: told, then measured by real ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.campaign import predictions
from tests.campaign.accuracy import MODELS, OF


def test_mappings_are_told_and_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, plot = tmp_path / "rows.csv", tmp_path / "plot.png"
    few = ["--platform", "local2", "--networks", "shufflenet", "--mappings", "1", "--frames", "2", "--least", "2"]
    monkeypatch.setattr(sys, "argv", ["predictions", *few, "--out", str(out), "--plot", str(plot)])
    predictions.main()
    said, rows = capsys.readouterr().out, predictions.read(out)
    assert [(row.way, row.ranks, row.turn) for row in rows] == [("alone", 1, 0), ("random", 2, 0)]
    assert all(getattr(row, f"{who}_{of}") > 0 for row in rows for who in (*MODELS, "measured") for of in OF)
    assert [said.count(f"\n{'shufflenet':16} {1:8}  {model}") for model in MODELS] == [1] * len(MODELS)
    assert plot.read_bytes().startswith(b"\x89PNG")
    before = out.read_bytes()
    predictions.main()
    again = capsys.readouterr().out
    assert said.endswith(again)
    assert again.startswith("network"), "nothing is measured again, so there is the table alone"
    assert out.read_bytes() == before
