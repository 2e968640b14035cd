"""What is known of testbeds, and who may change them."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from dse.testbed import state

_FRESH = multiprocessing.get_context("spawn")


def _hold(root: Path, ours: Any) -> None:
    state.ROOT = root
    ours.send("at the door")
    with state.alone():
        ours.send("in")
        ours.recv()


def test_one_process_at_a_time_changes_testbeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "ROOT", tmp_path / "testbeds")
    made, theirs = _FRESH.Pipe()
    process = _FRESH.Process(target=_hold, args=(state.ROOT, theirs), daemon=True)
    with state.alone():
        process.start()
        assert made.recv() == "at the door"
        assert not made.poll(0.5), "two at a time"
    assert made.poll(60), "nobody holds it any more"
    process.kill()
    process.join()
    with state.alone():
        pass
    assert not [*tmp_path.iterdir()]
