"""The best contiguous split: that of brute force, in every mode, whatever the graph and the devices are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.place import local, period, pipeline, split
from dse.place.baselines import expert, greedy
from dse.place.local import local_search
from dse.place.period import dp, dpl, pipedream
from dse.place.placed import Method, Options, Placed
from dse.place.split import MODES
from dse.place.workload import Workload
from runtime.errors import CleaveError
from tests.dse.place import brute, small

SEEDS = st.integers(0, 2**32 - 1)


def placed(method: Method, on: Workload, mode: str = split.SUM, bandwidth: float | None = None) -> Placed | None:
    """What a method finds, and none where it says that there is nothing; it is what it says."""
    try:
        found = method(on, Options(mode, bandwidth=bandwidth))
    except CleaveError:
        return None
    assert split.faults(on, found.device) == []
    if found.copies is None:
        assert found.value == split.period(on, found.device, mode)
    else:
        check_shares(on, found)
    assert found.bound <= found.value
    return found


def check_shares(on: Workload, found: Placed) -> None:
    """Devices that share another's part have none of their own, and are of its kind."""
    assert found.copies is not None
    for first in np.flatnonzero(found.copies > 1):
        others = range(first + 1, first + found.copies[first])
        assert not np.isin(found.device, others).any()
        assert others[-1] < (on.accelerators if first < on.accelerators else on.devices)


def check_best(on: Workload, mode: str, bandwidth: float | None = None) -> None:
    """The program finds what brute force finds."""
    best, found = brute.best_pipeline(on, mode, bandwidth), placed(dp, on, mode, bandwidth)
    if found is None:
        assert best == np.inf
    else:
        assert found.value == pytest.approx(best, rel=1e-9, abs=1e-12)
        assert found.optimal
        assert split.contiguous(on, found.device)


@settings(max_examples=1000, deadline=None)
@given(SEEDS, st.sampled_from(MODES), st.booleans())
def test_inference_is_split_as_well_as_can_be(seed: int, mode: str, whole: bool) -> None:
    check_best(small.workload(seed, whole=whole), mode)


@settings(max_examples=1000, deadline=None)
@given(SEEDS, st.sampled_from(MODES), st.booleans())
def test_training_is_split_as_well_as_can_be(seed: int, mode: str, whole: bool) -> None:
    check_best(small.workload(seed, nodes=5, training=True, whole=whole), mode)


@settings(max_examples=500, deadline=None)
@given(SEEDS, st.sampled_from(MODES), st.booleans(), st.sampled_from((0.3, 2.0, 1e6)))
def test_parts_are_shared_as_well_as_can_be(seed: int, mode: str, training: bool, bandwidth: float) -> None:
    check_best(small.workload(seed, nodes=5, training=training), mode, bandwidth)


def test_the_small_workloads_are_of_all_kinds() -> None:
    made = [small.workload(seed, training=bool(seed % 2), nodes=5) for seed in range(300)]
    tight = [np.isinf(brute.values(on, brute.all_splits(on), split.SUM)).any() for on in made]
    assert 0.2 < np.mean(tight) < 0.9
    assert 0.05 < np.mean([placed(dp, on) is None for on in made]) < 0.5
    assert any((on.ids < 0).any() for on in made)
    assert any(len(set(on.color[on.backward]) - set(on.color[~on.backward])) for on in made)


@settings(max_examples=300, deadline=None)
@given(SEEDS, st.sampled_from(MODES), st.booleans())
def test_no_method_beats_what_is_proven(seed: int, mode: str, training: bool) -> None:
    on = small.workload(seed, nodes=5, training=training)
    best, device = placed(dp, on, mode), brute.all_splits(on)
    least, contiguous = brute.values(on, device, mode).min(), brute.best_pipeline(on, mode)
    for method in (dpl, greedy, expert, pipedream):
        found = placed(method, on, mode)
        if found is not None:
            assert best is not None
            assert found.value >= best.value * (1 - 1e-9)
            assert found.bound <= contiguous * (1 + 1e-9)
            assert not found.optimal or found.value == pytest.approx(contiguous)
            assert split.contiguous(on, found.device)
    found = placed(local_search, on, mode)
    if found is not None:
        assert found.value >= least * (1 - 1e-9)
        assert found.bound <= least * (1 + 1e-9)


@settings(max_examples=300, deadline=None)
@given(SEEDS, st.sampled_from(MODES))
def test_on_a_path_the_linearised_program_finds_the_best(seed: int, mode: str) -> None:
    on = small.workload(seed, path=True)
    best, found = placed(dp, on, mode), placed(dpl, on, mode)
    assert (best is None) == (found is None)
    if best is not None and found is not None:
        assert found.value == pytest.approx(best.value, rel=1e-12)


@settings(max_examples=200, deadline=None)
@given(SEEDS, st.sampled_from(MODES))
def test_a_local_optimum_is_one(seed: int, mode: str) -> None:
    on = small.workload(seed)
    found = placed(local_search, on, mode)
    if found is not None:
        device, base = brute.all_splits(on), found.device
        unit = np.unique(on.color, return_index=True)[1]
        near = device[(device[:, unit] != base[unit]).sum(axis=1) == 1]
        assert brute.values(on, near, mode).min(initial=np.inf) >= found.value * (1 - 1e-6)


def test_what_rounding_makes_of_the_same_split_is_no_improvement(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        {"id": k, "supportedOnFpga": 1, "fpgaLatency": acc, "cpuLatency": cpu, "size": size}
        for k, (acc, cpu, size) in enumerate([(2.0, 1.3, 0.0), (0.6, 5.1, 0.7), (1.5, 1.5, 2.7)])
    ]
    edges = [{"sourceId": 0, "destId": 1, "cost": 0.1}, {"sourceId": 1, "destId": 2, "cost": 0.3}]
    head = {"maxSizePerFPGA": 0.7, "maxFPGAs": 1, "maxCPUs": 1}
    moves = iter(range(1000))
    improve = local._improve
    monkeypatch.setattr(local, "_improve", lambda *state: next(moves) >= 0 and improve(*state))
    found = placed(local_search, Workload.of({**head, "nodes": nodes, "edges": edges}, "decimals"))
    assert found is not None
    assert found.value == pytest.approx(2.8)


@settings(max_examples=50, deadline=None)
@given(SEEDS)
def test_what_is_found_is_found_again(seed: int) -> None:
    on = small.workload(seed, training=True)
    for method in (dp, dpl, local_search):
        one, two = placed(method, on), placed(method, on)
        assert (one is None) == (two is None)
        if one is not None and two is not None:
            assert one.value == two.value
            assert np.array_equal(one.device, two.device)


def wide(branches: int = 9) -> Workload:
    """Branches of two nodes between a first and a last: 3 ** branches + 2 ideals."""
    nodes = [{"id": k, "supportedOnFpga": 1, "fpgaLatency": 1 + k % 4, "cpuLatency": 50, "size": 1} for k in range(99)]
    count = 2 * branches + 2
    edges = [(0, k) for k in range(1, branches + 1)] + [(k, k + branches) for k in range(1, branches + 1)]
    edges += [(k + branches, count - 1) for k in range(1, branches + 1)]
    rows = [{"sourceId": a, "destId": b, "cost": 1 + a % 3} for a, b in edges]
    head = {"maxSizePerFPGA": 99, "maxFPGAs": 4, "maxCPUs": 1}
    return Workload.of({**head, "nodes": nodes[:count], "edges": rows}, "wide")


def test_after_the_time_limit_the_linearised_program_answers_and_says_so() -> None:
    on = wide()
    found, linear, best = dp(on, Options(limit_s=0.0)), dpl(on, Options()), dp(on, Options())
    assert best.optimal
    assert best.ideals == 3**9 + 2
    assert not found.optimal
    assert "time limit" in found.note
    assert best.value <= found.value <= linear.value
    assert found.bound <= best.value


def test_where_ideals_are_too_many_the_linearised_program_answers_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MOST_BYTES", 100_000)
    on = wide()
    found = dp(on, Options())
    assert found.note == period.MANY
    assert found.value == dpl(on, Options()).value
    assert not found.optimal


def test_a_long_search_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "PAIRS", 1)
    looks: list[tuple[int, int]] = []
    best = dp(wide(5), Options(watch=lambda done, of, _: looks.append((done, of))))
    assert best.optimal
    assert best.ideals
    done = [(at, of) for at, of in looks if of]
    assert len(done) > 10
    assert all(0 < at < of == best.ideals - 1 for at, of in done)


def test_a_node_that_nothing_runs_is_named() -> None:
    on = small.workload(1)
    nowhere = replace(on, acc=np.full(len(on), np.inf), cpus=0, accelerators=2)
    with pytest.raises(CleaveError, match=f"node {on.ids[0]} can run nowhere"):
        dp(nowhere, Options())


def test_what_fits_nowhere_is_told() -> None:
    on = replace(wide(), memory=2.0, cpus=0)
    with pytest.raises(CleaveError, match="too little memory"):
        dp(on, Options())


def test_methods_for_contiguous_splits_are_for_those_alone() -> None:
    with pytest.raises(CleaveError, match="non-contiguous"):
        dp(wide(), Options(contiguous=False))
    assert local_search(wide(), Options(contiguous=False)).value > 0
