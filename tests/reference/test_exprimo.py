"""Every simulated time and peak memory that exprimo gave is given here (``exprimo.py`` prints them one by one)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from model.simulator.placed import admitting, evaluate
from tests.reference.exprimo import WORST, Network, deviations, reference_files


@pytest.fixture(scope="module")
def networks() -> list[Network]:
    """All files of the reference."""
    files = reference_files()
    if not files:
        pytest.skip("no reference of exprimo: DSE_REFERENCE names no folder that has exprimo/*.json")
    return [Network(file) for file in files]


def test_all_runs_are_reproduced(networks: list[Network]) -> None:
    found = {(n.name, r["graph"], r["placement_name"], r["comp"]): deviations(n, r) for n in networks for r in n.runs}
    assert len(found) >= 100
    assert {name: row for name, row in found.items() if max(row) > WORST} == {}


def test_its_tie_rule_matters_in_pipelines_and_nowhere_else(networks: list[Network]) -> None:
    single = [rel for n in networks for r in n.runs for rel in difference(n, r, 1, 0)]
    stream = [rel for n in networks for r in n.runs for rel in difference(n, r, 10, 4)]
    assert max(single) < WORST
    assert 1e-3 < max(stream) < 0.1


def difference(network: Network, run: dict, frames: int, in_flight: int) -> np.ndarray:
    """Relative change of a training time where ties are broken by number."""
    on = network.work(run["graph"], run["comp"], run["comm"], 2)
    simulate = partial(evaluate, on, np.array([run["placement"]]), frames=frames)
    times, _ = simulate(admitting(on, in_flight, heap_ties=True, wakeups=True))
    plain, _ = simulate(admitting(on, in_flight))
    return np.abs(plain / times - 1)


def test_the_script_says_which_files_it_wants(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DSE_REFERENCE", str(tmp_path))
    assert reference_files() == []
