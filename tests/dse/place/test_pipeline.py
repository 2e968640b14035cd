"""Pipelines over classes of devices of different speed, links and memory: those of brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.place import pipeline
from dse.place.linear import along, branchings, linearised
from dse.place.pipeline import ALONE, Rules, best, floor
from dse.place.reduced import Reduced
from dse.place.split import MODES
from runtime.errors import CleaveError


def cluster(seed: int) -> Reduced:
    """A random graph on three classes of devices; a net's source may be any node of it."""
    rng = np.random.default_rng(seed)
    n, counts = int(rng.integers(1, 6)), rng.integers(0, 3, 3)
    counts[0] += counts.sum() == 0
    edge = [(a, b) for b in range(n) for a in range(b) if rng.random() < 0.4]
    nets = [rng.permutation(n)[: rng.integers(2, n + 1)] for _ in range(rng.integers(0, 6))] if n > 1 else []
    time = rng.integers(1, 9, (n, 1)) * rng.integers(1, 4, 3) * 1.0
    time[rng.random((n, 3)) < 0.1] = np.inf
    memory = np.where(rng.random(3) < 0.5, np.inf, rng.integers(4, 20, 3))
    return Reduced(
        np.array(edge, dtype=np.int32).reshape(-1, 2),
        time,
        rng.integers(0, 6, n) * 1.0,
        rng.integers(0, 5, (len(nets), 3)) * 1.0,
        np.array([net[0] for net in nets], dtype=np.int32),
        np.cumsum([0, *[len(net) for net in nets]], dtype=np.int32),
        np.array([pin for net in nets for pin in net], dtype=np.int32),
        counts.astype(np.int32),
        memory,
    )


def kinds(on: Reduced) -> list[int]:
    """Class of each device."""
    return np.repeat(np.arange(3), on.counts).tolist()


def load(on: Reduced, nodes: set[int], kind: int, mode: str) -> float:
    """Of a device that has these nodes."""
    here = sorted(nodes)
    if on.size[here].sum() > on.memory[kind]:
        return np.inf
    compute, into, out = on.time[here, kind].sum(), 0.0, 0.0
    for net in range(len(on.source)):
        pins = set(on.pin[on.pin_ptr[net] : on.pin_ptr[net + 1]].tolist())
        if pins & nodes and pins - nodes:
            if on.source[net] in nodes:
                out += on.cost[net, kind]
            else:
                into += on.cost[net, kind]
    return {"sum": compute + into + out, "overlap": max(compute, into + out), "duplex": max(compute, into, out)}[mode]


def brute(on: Reduced, mode: str) -> float:
    """Over all orders of all devices, and all ways to cut them from the front."""
    kind, least = kinds(on), np.inf
    for place in product(range(len(kind)), repeat=len(on)):
        if any(in_order(on, place, order) for order in permutations(sorted(set(place)))):
            parts = {d: {v for v in range(len(on)) if place[v] == d} for d in set(place)}
            least = min(least, max(load(on, nodes, kind[d], mode) for d, nodes in parts.items()))
    return float(least)


def in_order(on: Reduced, place: tuple[int, ...], order: tuple[int, ...]) -> bool:
    return all(order.index(place[a]) <= order.index(place[b]) for a, b in on.edge.tolist())


def small(seed: int) -> Reduced:
    """With few enough splits."""
    on = cluster(seed)
    while int(on.counts.sum()) ** len(on) > 300:
        on = replace(on, counts=np.maximum(on.counts - (np.arange(3) == np.argmax(on.counts)), 0).astype(np.int32))
    return on


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(MODES))
def test_the_best_pipeline_is_that_of_brute_force(seed: int, mode: str) -> None:
    on = small(seed)
    found, value = best(on, Rules(mode)), brute(on, mode)
    assert found.complete
    assert found.value == pytest.approx(value)
    assert floor(on) <= value * (1 + 1e-9)
    if np.isfinite(value):
        assert sorted(v for _, _, nodes in found.stages for v in nodes.tolist()) == list(range(len(on)))
        loads = [load(on, set(nodes.tolist()), kind, mode) for kind, _, nodes in found.stages]
        assert max(loads) == pytest.approx(value)
        assert (np.bincount([kind for kind, _, _ in found.stages], minlength=3) <= on.counts).all()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(MODES), st.floats(0.5, 2))
def test_a_bound_hides_what_is_not_better_and_nothing_else(seed: int, mode: str, factor: float) -> None:
    on = small(seed)
    free = best(on, Rules(mode))
    bounded = best(on, Rules(mode), under=free.value * factor)
    assert bounded.complete
    assert bounded.value == (free.value if factor > 1 and np.isfinite(free.value) else np.inf)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 20))
def test_a_search_that_is_stopped_has_a_bound_that_holds(seed: int, looks: int) -> None:
    on = small(seed)
    left = iter([True] * looks)
    with patch.object(pipeline, "PAIRS", 1):
        found = best(on, watch=lambda _done, _of: next(left, False))
    value = best(on).value
    assert found.bound <= value * (1 + 1e-9)
    assert found.value >= value
    assert not found.complete or found.value == value


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(MODES))
def test_an_order_is_a_pipeline_of_the_graph(seed: int, mode: str) -> None:
    on = small(seed)
    value = best(on, Rules(mode)).value
    for found in (linearised(on, Rules(mode)), along(on, np.arange(len(on), dtype=np.int32), Rules(mode))):
        assert found.value >= value * (1 - 1e-9)
        if np.isfinite(found.value):
            loads = [load(on, set(nodes.tolist()), kind, mode) for kind, _, nodes in found.stages]
            assert max(loads) == pytest.approx(found.value)


def equal(n: int, time: list[float], counts: list[int]) -> Reduced:
    """Nodes one after the other, all alike, on classes of devices."""
    none, ints = np.zeros((0, len(counts))), np.zeros(0, dtype=np.int32)
    edge = np.array([(v, v + 1) for v in range(n - 1)], dtype=np.int32).reshape(-1, 2)
    devices = np.array(counts, dtype=np.int32), np.full(len(counts), np.inf)
    return Reduced(edge, np.tile(time, (n, 1)), np.ones(n), none, ints, np.zeros(1, dtype=np.int32), ints, *devices)


def test_the_floor_is_work_shared_by_speed_or_what_one_class_alone_can_do_or_a_node() -> None:
    assert floor(equal(60, [1.0, 5.0], [3, 5])) == pytest.approx(60 / (3 + 5 / 5))
    assert floor(equal(60, [np.inf, 5.0], [3, 5])) == 60
    assert floor(equal(60, [1.0, 5.0], [0, 5])) == 60
    assert floor(equal(3, [7.0, 9.0], [3, 1])) == 7
    assert floor(equal(3, [7.0, 9.0], [3, 1]), Rules(bandwidth=1.0)) == pytest.approx(21 / (3 + 7 / 9))


def test_more_devices_than_nodes_do_not_matter() -> None:
    assert best(equal(3, [2.0, 3.0], [5000, 5000])).value == 2


@pytest.mark.parametrize(
    ("rules", "way"), [(Rules(bandwidth=1.0), "leave --replicate out"), (ALONE, "take --method local-search")]
)
def test_devices_whose_states_there_is_no_memory_for_are_told(
    rules: Rules, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = equal(3, [2.0, 3.0], [2, 2])
    assert best(on, rules).complete
    monkeypatch.setattr(pipeline, "MOST_BYTES", 500)
    with pytest.raises(CleaveError, match=f"4 devices are too many: .* {way}"):
        best(on, rules)


def test_branches_are_one_and_what_all_pass_is_by_itself() -> None:
    edge = np.array([(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5), (4, 6)], dtype=np.int32)
    assert branchings(replace(equal(7, [1.0], [1]), edge=edge)).tolist() == [0, 1, 2, 2, 3, 4, 4]
