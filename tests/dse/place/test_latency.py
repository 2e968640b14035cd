"""Latency: what a split takes, by a plain simulation; and splits and bounds beside brute force."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.place.clock import SLICE, slices
from dse.place.fastest import chain, greedy, max_load, series
from dse.place.floor import floor, longest
from dse.place.latency import devices, latency, slots, wrong
from dse.place.placed import Method, Options, Placed
from dse.place.series import OutOfReachError, Piece
from dse.place.workload import Workload
from runtime.errors import CleaveError
from tests.dse.place import small

SEEDS = st.integers(0, 2**32 - 1)
METHODS = [series, chain, greedy, max_load]


def simulated(on: Workload, slot: np.ndarray, q: int) -> float | None:
    """What a split takes, by letting each part start when it can; None: some never can."""
    count, ends = on.accelerators * q, dict[object, float]()
    units = {s: [v for v in range(len(on)) if slot[v] == s] for s in range(count)}
    ready: dict[object, tuple[list[int], float]] = {s: (members, 0.0) for s, members in units.items() if members}
    for s, (members, _) in list(ready.items()):
        into = {int(a) for a, b in on.edge if b in members and a not in members}
        out = {int(a) for a, b in on.edge if a in members and b not in members}
        ready[s] = (members, sum(on.acc[members]) + sum(on.cost[list(into)]) + sum(on.cost[list(out)]))
    ready |= {f"cpu{v}": ([v], float(on.cpu[v])) for v in range(len(on)) if slot[v] == count}
    of = {v: unit for unit, (members, _) in ready.items() for v in members}
    while True:
        started = False
        for unit, (members, takes) in ready.items():
            needs = {of[int(a)] for a, b in on.edge if b in members and of[int(a)] != unit}
            if isinstance(unit, int):
                needs |= {s for s in range(unit - unit % q, unit) if s in ready}
            if unit not in ends and all(need in ends for need in needs):
                ends[unit] = max((ends[need] for need in needs), default=0.0) + takes
                started = True
        if not started:
            return max(ends.values(), default=0.0) if len(ends) == len(ready) else None


def all_slots(on: Workload, q: int) -> list[np.ndarray]:
    """Every split: nodes of a colour on one accelerator, in any of its slots, or on CPUs."""
    places = range(slots(on, q) + (on.cpus > 0))
    colors, unit = np.unique(on.color, return_inverse=True)
    if q == 1:
        return [np.array(at, np.int32)[unit] for at in product(places, repeat=len(colors))]
    return [np.array(at, np.int32) for at in product(places, repeat=len(on))]


def best_of(on: Workload, q: int) -> float:
    """The least latency, inf: there is no split that may be. Only what would be better is asked whether it may."""
    best = np.inf
    for slot in all_slots(on, q):
        with suppress(CleaveError):  # subgraphs that wait for each other
            value = latency(on, slot, q)
            best = value if value < best and not wrong(on, slot, q) else best
    return best


def placed(method: Method, on: Workload, **options: object) -> Placed | None:
    """What a method finds; it is what it says."""
    try:
        found = method(on, Options(**options))  # type: ignore[arg-type]
    except CleaveError:
        return None
    q = int(options.get("subgraphs", 1))  # type: ignore[call-overload]
    slot = found.device if found.slot is None else found.slot
    assert wrong(on, slot, q) == []
    assert found.value == latency(on, slot, q)
    assert (devices(on, slot, q) == found.device).all()
    assert found.bound <= found.value
    return found


@settings(max_examples=300, deadline=None)
@given(SEEDS, st.integers(1, 2))
def test_a_split_takes_what_a_simulation_takes(seed: int, q: int) -> None:
    on = small.workload(seed, nodes=7)
    slot = np.random.default_rng(seed).integers(0, slots(on, q) + 1, len(on)).astype(np.int32)
    if np.isinf(on.acc[slot < slots(on, q)]).any():
        return
    expected = simulated(on, slot, q)
    if expected is None:
        with pytest.raises(CleaveError, match="wait for each other"):
            latency(on, slot, q)
    else:
        assert latency(on, slot, q) == pytest.approx(expected)


@settings(max_examples=150, deadline=None)
@given(SEEDS, st.booleans())
def test_no_method_is_better_than_brute_force_and_no_bound_above_it(seed: int, path: bool) -> None:
    on = small.workload(seed, nodes=5, path=path)
    best = best_of(on, 1)
    assert floor(on, 1, np.inf) <= best * (1 + 1e-9) + 1e-12
    for method in METHODS:
        found = placed(method, on)
        assert found is None or best <= found.value * (1 + 1e-9)
        assert found is None or found.bound <= best * (1 + 1e-9)
        if found is not None and method is series:
            assert found.value == pytest.approx(best, rel=0.5, abs=1e-9)


@settings(max_examples=250, deadline=None)
@given(SEEDS, st.integers(0, 2))
def test_no_bound_is_above_what_several_subgraphs_can(seed: int, shared: int) -> None:
    on = small.workload(seed, nodes=4)
    on = replace(on, accelerators=min(2, on.accelerators), color=np.maximum(np.arange(len(on)), shared))
    if on.devices == 0:
        return
    best = best_of(on, 2)
    assert floor(on, 2, np.inf) <= best * (1 + 1e-9) + 1e-12
    found = placed(series, on, subgraphs=2)
    assert found is None or found.bound <= best * (1 + 1e-9) <= found.value * (1 + 1e-8)


def test_nodes_of_a_colour_may_be_in_several_subgraphs_of_an_accelerator() -> None:
    node = {"supportedOnFpga": 1, "cpuLatency": 0, "size": 1}
    body = {
        "maxSizePerFPGA": 3,
        "maxFPGAs": 2,
        "maxCPUs": 0,
        "nodes": [
            node | {"id": 1, "fpgaLatency": 1, "colorClass": 1},
            node | {"id": 2, "fpgaLatency": 100, "colorClass": 1},
            node | {"id": 3, "fpgaLatency": 100},
        ],
        "edges": [{"sourceId": 1, "destId": 2, "cost": 0}, {"sourceId": 1, "destId": 3, "cost": 0}],
    }
    on = Workload.of(body, "early")
    found = placed(series, on, subgraphs=2)
    assert found is not None
    assert found.value == best_of(on, 2) == 101
    assert found.optimal


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_on_a_path_the_best_is_found_and_proven(seed: int) -> None:
    on = small.workload(seed, path=True)
    on = replace(on, color=np.arange(len(on)))
    best, found = best_of(on, 1), placed(series, on)
    if found is None:
        assert best == np.inf
    else:
        assert found.value == pytest.approx(best, abs=1e-9)
        assert found.optimal


def forks(branches: int, length: int) -> Workload:
    """A node, branches beside each other, and a node."""
    inner = [[1 + b * length + k for k in range(length)] for b in range(branches)]
    last = 1 + branches * length
    edges = [e for row in inner for e in [(0, row[0]), *pairwise(row), (row[-1], last)]]
    node = {"supportedOnFpga": 1, "cpuLatency": 40, "size": 1}
    body = {
        "maxSizePerFPGA": length + 1,
        "maxFPGAs": branches + 2,
        "maxCPUs": 8,
        "nodes": [node | {"id": k, "fpgaLatency": 2 + k % 3} for k in range(last + 1)],
        "edges": [{"sourceId": a, "destId": b, "cost": 1} for a, b in edges],
    }
    return Workload.of(body, "forks")


def test_branches_run_at_a_time_and_that_is_proven_best() -> None:
    on = forks(3, 4)
    found = placed(series, on)
    assert found is not None
    assert found.optimal
    assert found.value < float(on.acc.sum())
    assert longest(on) < found.bound


def test_the_same_seed_gives_the_same_split() -> None:
    on = small.workload(7, nodes=6)
    first, second = (placed(series, on, seed=3) for _ in range(2))
    assert first is not None
    assert second is not None
    assert (first.device == second.device).all()


def test_a_time_limit_is_kept_where_there_are_too_many_ideals() -> None:
    on = forks(12, 12)
    placed(series, forks(3, 4))  # compiles
    begin = time.monotonic()
    found = placed(series, on, limit_s=5.0)
    assert found is not None
    assert time.monotonic() - begin < 60


def test_a_search_looks_at_the_clock_between_slices() -> None:
    assert list(slices(2 * SLICE + 1, np.inf)) == [0, SLICE, 2 * SLICE]
    assert list(slices(2 * SLICE, np.inf)) == [0, SLICE]
    assert list(slices(2 * SLICE, 0.0)) == [0]
    assert list(slices(0, np.inf)) == []


@pytest.mark.parametrize("due", [np.inf, 0.0])
def test_ideals_that_are_too_many_are_not_made_first(due: float) -> None:
    """Of 600 nodes in no order there are 36 million with three."""
    node = np.arange(600 if due else 30, dtype=np.int32)
    with pytest.raises(OutOfReachError):
        _ = Piece(None, node, np.zeros((0, 2), np.int32), False, due).ideals  # type: ignore[arg-type]
