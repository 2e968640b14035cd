"""Clocks that are apart and drift come back together, within what is said of them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.clock import Clock, Exchange, compare, now_s
from runtime.inprocess import InProcessCommunicator, World

seconds = st.floats(1e-6, 0.1)
offsets = st.floats(-1e5, 1e5)
drifts = st.floats(-2e-4, 2e-4)


@given(offsets, seconds, seconds)
def test_an_exchange_is_wrong_by_its_uncertainty_at_most(offset: float, there: float, back: float) -> None:
    found = Exchange(10.0, 10.0 + there + offset, 10.0 + there + back)
    assert abs(found.offset_s - offset) <= found.uncertainty_s + 1e-9
    assert found.uncertainty_s == pytest.approx((there + back) / 2)


@given(offsets, drifts, st.lists(seconds, min_size=4, max_size=4), st.floats(0, 1))
def test_a_moment_is_aligned_within_the_uncertainty(offset: float, drift: float, ways: list, share: float) -> None:
    """Between two exchanges 60 s apart, whatever the ways of their messages take."""

    def shown(time_s: float) -> float:
        return offset + time_s * (1 + drift)

    exchanges = [
        Exchange(begin, shown(begin + there), begin + there + back)
        for begin, there, back in ((0.0, *ways[:2]), (60.0, *ways[2:]))
    ]
    clock = Clock(*exchanges)
    moment = exchanges[0].back_s + share * (exchanges[1].sent_s - exchanges[0].back_s)
    assert abs(clock.aligned(shown(moment)) - moment) <= clock.uncertainty_s * (1 + 1e-3) + 1e-9


def test_the_clock_of_the_same_host_is_left_as_it_is() -> None:
    assert Clock().aligned(12345.678) == 12345.678
    assert (Clock().offset_s, Clock().uncertainty_s) == (0, 0)


def on_hosts(hosts: list[int], clocks: list[Callable[[], float]], count: int = 30) -> list[dict[int, Exchange]]:
    """What each rank gets when ranks on these hosts compare these clocks."""
    world, found = World(len(hosts)), [{} for _ in hosts]

    def work(rank: int) -> None:
        communicator = InProcessCommunicator(world, rank)
        communicator.hosts = hosts
        time.sleep(random.Random(rank).random() / 50)  # they come when they come
        found[rank] = compare(communicator, count, clocks[rank])

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(hosts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_clocks_of_other_hosts_are_told_by_their_first_ranks() -> None:
    ahead_s = [0.0, 1000.0, -5.0, 77.0, 3.0]
    clocks: list[Callable[[], float]] = [lambda more=more: now_s() + more for more in ahead_s]  # type: ignore[misc]
    first, *others = on_hosts([0, 1, 0, 3, 1], clocks)
    assert others == [{}] * 4
    assert sorted(first) == [1, 3]
    for rank, exchange in first.items():
        assert exchange.offset_s == pytest.approx(ahead_s[rank], abs=exchange.uncertainty_s + 1e-9)
        assert 0 < exchange.uncertainty_s < 0.1


def test_ranks_of_one_host_exchange_nothing() -> None:
    def broken() -> float:
        raise AssertionError("nobody looks at a clock")

    assert on_hosts([0, 0, 0], [broken] * 3) == [{}] * 3


def test_the_shortest_round_trip_counts() -> None:
    """Rank 0's clock is read twice an exchange: here the first is slow, the second quick, the third slow again."""
    shown = iter([0.0, 1.0, 10.0, 10.25, 20.0, 24.0])
    first, _ = on_hosts([0, 1], [lambda: next(shown), lambda: 50.0], count=3)
    assert first == {1: Exchange(10.0, 50.0, 10.25)}
