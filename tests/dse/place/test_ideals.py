"""Ideals are all sets that hold, with a node, what comes before it; steps lead from each to those with a node more."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.place.ideals import Lattice, ideals


def graph(seed: int, n: int) -> np.ndarray:
    """Random edges to higher numbers."""
    rng = np.random.default_rng(seed)
    pairs = [(a, b) for b in range(n) for a in range(b) if rng.random() < rng.uniform(0, 0.8)]
    return np.array(sorted(pairs), dtype=np.int32).reshape(-1, 2)


def sets(of: Lattice) -> list[frozenset[int]]:
    return [frozenset(of.between(0, k).tolist()) for k in range(len(of))]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 9))
def test_all_ideals_are_found_once_by_size(seed: int, n: int) -> None:
    edge = graph(seed, n)
    found = ideals(n, edge, 10**6)
    assert found is not None
    every = [frozenset(np.flatnonzero(bits).tolist()) for bits in product((0, 1), repeat=n)]
    closed = {s for s in every if all(a in s for a, b in edge.tolist() if b in s)}
    known = sets(found)
    assert len(known) == len(closed)
    assert set(known) == closed
    assert [len(s) for s in known] == sorted(len(s) for s in known)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_steps_lead_to_every_ideal_with_a_node_more(seed: int, n: int) -> None:
    found = ideals(n, graph(seed, n), 10**6)
    assert found is not None
    known = sets(found)
    for k, s in enumerate(known):
        steps = slice(found.first[k], found.first[k + 1])
        nodes = found.node[steps].tolist()
        assert nodes == sorted(v for v in range(n) if v not in s and s | {v} in set(known))
        assert [known[to] for to in found.to[steps]] == [s | {v} for v in nodes]


def test_sets_of_more_than_one_word_are_told_apart() -> None:
    n = 200
    lanes = np.array([(v, v + 2) for v in range(n - 2)], dtype=np.int32)
    found = ideals(n, lanes, 10**6)
    assert found is not None
    assert len(found) == (n // 2 + 1) ** 2
    assert found.between(0, len(found) - 1).tolist() == list(range(n))


def test_more_than_are_wanted_are_none() -> None:
    none = np.zeros((0, 2), dtype=np.int32)
    assert ideals(12, none, 4095) is None
    assert len(ideals(12, none, 4096) or ()) == 4096


def test_somebody_may_say_that_it_is_enough() -> None:
    seen: list[int] = []
    assert ideals(18, np.zeros((0, 2), dtype=np.int32), 10**6, lambda count: bool(seen.append(count))) is None
    assert len(seen) == 1
