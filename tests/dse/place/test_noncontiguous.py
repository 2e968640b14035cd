"""Splits that need not be contiguous: the program beside brute force, in every mode."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dse.place import local, noncontiguous, split
from dse.place.anneal import anneal, board
from dse.place.groups import by_color, grouped
from dse.place.methods import METHODS, PERIOD
from dse.place.noncontiguous import Model, ip, least
from dse.place.placed import Options
from dse.place.program import cp_sat, highs
from dse.place.split import MODES
from dse.place.workload import Workload
from runtime.errors import CleaveError
from tests.dse.place import brute, small

SEEDS = st.integers(0, 2**32 - 1)


def best_of(on: Workload, mode: str) -> float:
    """The least period of any split, inf: none may be."""
    device = brute.all_splits(on)
    return float(brute.values(on, device, mode).min())


@settings(max_examples=120, deadline=None)
@given(SEEDS, st.sampled_from(MODES), st.booleans())
def test_the_program_finds_and_proves_what_brute_force_finds(seed: int, mode: str, training: bool) -> None:
    on = small.workload(seed, training=training)
    best = best_of(on, mode)
    try:
        found = ip(on, Options(mode, contiguous=False, limit_s=20))
    except CleaveError:
        assert best == np.inf
        return
    assert split.faults(on, found.device) == []
    assert found.value == split.period(on, found.device, mode)
    assert found.value == pytest.approx(best, rel=1e-4, abs=1e-9)
    assert best * (1 - 1e-4) <= found.bound <= best * (1 + 1e-12)


@settings(max_examples=200, deadline=None)
@given(SEEDS, st.sampled_from(MODES), st.booleans())
def test_what_is_known_before_any_program_is_solved_is_a_bound(seed: int, mode: str, training: bool) -> None:
    on = small.workload(seed, training=training)
    known, best = least(on, Options(mode, contiguous=False)), best_of(on, mode)
    assert known <= best * (1 + 1e-12)
    takes = [times for times, count in ((on.acc, on.accelerators), (on.cpu, on.cpus)) if count]
    assert known > 0 or not np.min(takes, axis=0).any()


@settings(max_examples=15, deadline=None)
@given(SEEDS)
@example(1162)
def test_both_solvers_agree_and_no_bound_is_above_the_best(seed: int) -> None:
    on = small.workload(seed, nodes=5, whole=False)
    best = best_of(on, split.SUM)
    if not 0 < best < np.inf:
        return
    groups = grouped(on, by_color(on))
    model = Model(on, split.SUM, groups, 1.5 * best)
    for answer in (cp_sat(model.program, 60), highs(model.program, 60)):
        assert answer.done
        assert answer.columns is not None
        assert split.period(on, model.split_of(answer.columns)[groups.of]) == pytest.approx(best, rel=1e-4)
        assert model.time(answer.bound) <= best * (1 + 1e-12)


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_annealing_keeps_to_what_may_be_and_is_never_worse(seed: int) -> None:
    on = small.workload(seed, nodes=8)
    groups = grouped(on, by_color(on))
    device = brute.all_splits(on)
    allowed = device[brute.values(on, device, split.SUM) < np.inf]
    if not len(allowed):
        return
    start = allowed[seed % len(allowed)]
    at = np.empty(len(groups), np.int32)
    at[groups.of] = start
    found = anneal(board(on, groups), at, seed % 1000, 2000, 0.001)[groups.of]
    assert split.faults(on, found) == []
    assert split.period(on, found) <= split.period(on, start) + 1e-9
    assert (found == anneal(board(on, groups), at, seed % 1000, 2000, 0.001)[groups.of]).all()


def test_the_solver_gives_the_same_under_a_limit_that_no_machine_changes() -> None:
    on = small.workload(3, nodes=8)
    groups = grouped(on, by_color(on))
    model = Model(on, split.SUM, groups, max(1.0, float(on.acc[np.isfinite(on.acc)].sum() + 100)))
    first, second = (cp_sat(model.program, 60, work=5.0) for _ in range(2))
    assert first.columns is not None
    assert second.columns is not None
    assert (first.columns == second.columns).all()


def chain(cost: float = 1, devices: int = 2, **node: Any) -> Workload:
    """Four nodes, the first net of which costs that."""
    times = {"supportedOnFpga": 1, "fpgaLatency": 4, "cpuLatency": 9, "size": 5}
    edges = [{"sourceId": k, "destId": k + 1, "cost": 1 if k else cost} for k in range(3)]
    head = {"maxSizePerFPGA": 30, "maxFPGAs": devices, "maxCPUs": devices}
    return Workload.of({**head, "nodes": [{"id": k, **times, **node} for k in range(4)], "edges": edges}, "chain")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "on",
    [
        chain(cost=1e15),
        chain(cost=1e190),
        chain(fpgaLatency=1e15),
        chain(fpgaLatency=1e-300, cpuLatency=1e190),
        chain(fpgaLatency=5e-324, cpuLatency=5e-324),
        chain(size=1e190),
        replace(chain(), memory=0.0),
        replace(chain(), memory=5e-324),
        replace(chain(size=1e190), memory=2.5e190),
    ],
)
def test_numbers_may_be_far_apart(on: Workload, mode: str) -> None:
    found, best = ip(on, Options(mode, contiguous=False, limit_s=20)), best_of(on, mode)
    assert found.value == split.period(on, found.device, mode) == best
    assert best * (1 - 1e-4) <= found.bound <= best


@pytest.mark.parametrize(("module", "method"), [(noncontiguous, "ip"), (local, "local-search")])
def test_devices_beyond_the_nodes_of_a_kind_are_not_looked_at(
    module: ModuleType, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[Workload]()
    monkeypatch.setattr(module, "check", lambda on, *_, **__: seen.append(on))
    on = chain(devices=50)
    on.acc[-1], on.cpu[-1] = np.inf, 1
    found = METHODS[PERIOD][method](on, Options(contiguous=False, limit_s=20))
    assert [(few.accelerators, few.cpus) for few in seen] == [(4, 4)]
    assert found.device[:3].max() < 4
    assert 50 <= found.device[3] < 54
    assert found.value == split.period(on, found.device) == 6
