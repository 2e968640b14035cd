"""Delta simulation against full simulation of the same tasks: any graph, any changes, long chains of them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.simulator.delta import propose
from model.simulator.events import PLAIN, Tasks, simulate, state
from model.simulator.history import (
    HERE,
    KEPT,
    NEVER,
    SHIFT,
    THERE,
    History,
    accept,
    forget,
    history,
    link,
    put,
    take_out,
    times,
)
from tests.tiny_cnn import examples

pytestmark = pytest.mark.interpreted

SLOTS = 4
"""Edges that a task can have."""


def no_tasks(n: int, lanes: list[int]) -> History:
    """Room for ``n`` tasks; there are none."""
    i, ticks = np.int32, np.int64
    return history(
        Tasks(
            np.zeros(n, ticks),
            np.full(n, -1, i),
            np.full(n, -1, ticks),
            np.zeros((1, n), i),
            np.arange(n + 1, dtype=i) * SLOTS,
            np.full(n * SLOTS, -1, i),
            np.zeros(n * SLOTS, i),
            np.array(lanes, i),
        ),
        present=0,
    )


def full(h: History) -> tuple[int, int, dict[int, tuple[int, int]]]:
    """All of it, by the core: makespan, how many ended, and when each began and ended."""
    here = np.flatnonzero(h.present)
    number = np.full(len(h.present) + 1, -1, np.int32)
    number[here] = np.arange(len(here))
    to = number[h.tasks.to.reshape(-1, SLOTS)[here]]
    tasks = Tasks(
        h.tasks.duration[here],
        h.tasks.resource[here],
        h.tasks.lag[here],
        np.bincount(to[to >= 0].ravel(), minlength=len(here)).astype(np.int32)[None],
        (np.arange(len(here) + 1) * SLOTS).astype(np.int32),
        to.ravel(),
        np.zeros(to.size, np.int32),
        h.tasks.lanes,
    )
    w = state(len(here), len(tasks.lanes), 1, np.int64(0))
    ended = simulate(tasks, len(here), 1, PLAIN, w)
    done = w.order[:ended]
    found = {int(here[i]): (int(w.start[i]), int(w.stop[i])) for i in done}
    return int(w.stop[done[-1]]) if ended else 0, ended, found


class Changing:
    """A graph that changes at random; edges go to tasks with a higher rank, or anywhere where circles are asked for."""

    def __init__(self, draw: random.Random, n: int, lanes: list[int], longest: int, circles: bool = False) -> None:
        self.draw, self.n, self.lanes, self.longest, self.circles = draw, n, lanes, longest, circles
        self.rank = draw.sample(range(n), n)
        self.h = no_tasks(n, lanes)

    def change(self, count: int) -> None:
        for _ in range(count):
            task, what = self.draw.randrange(self.n), self.draw.randrange(6)
            if what == 0:
                take_out(self.h, task)
            elif what <= 2 or not self.h.present[task]:
                lag = self.draw.choice([-1, -1, 0, self.draw.randrange(self.longest + 1)])
                resource = self.draw.randrange(-1, len(self.lanes))
                put(self.h, task, resource, self.draw.randrange(self.longest + 1), lag)
            else:
                link(self.h, task * SLOTS + self.draw.randrange(SLOTS), self.target(task))

    def target(self, task: int) -> int:
        others = [i for i in range(self.n) if self.h.present[i] and (self.circles or self.rank[i] > self.rank[task])]
        return self.draw.choice([*others, -1])

    def tasks(self) -> tuple[np.ndarray, ...]:
        t = self.h.tasks
        return self.h.present.copy(), t.resource.copy(), t.duration.copy(), t.lag.copy(), t.to.copy()

    def put_back(self, tasks: tuple[np.ndarray, ...]) -> None:
        present, resource, duration, lag, to = tasks
        for task in range(self.n):
            if present[task]:
                put(self.h, task, resource[task], duration[task], lag[task])
            else:
                take_out(self.h, task)
        for edge in range(len(to)):
            link(self.h, edge, to[edge])


def assert_as_full(h: History) -> None:
    makespan, ended, found = full(h)
    assert propose(h) == (makespan, ended)
    for task in range(len(h.present)):
        assert times(h, task) == found.get(task, (NEVER, NEVER)), task


def walk(case: Changing, steps: int, most: int, accepted: float) -> None:
    """Propose, compare, accept or reject."""
    for step in range(steps):
        before = case.tasks()
        case.change(case.draw.randrange(most) + (3 * case.n if step == 0 else 0))
        assert_as_full(case.h)
        if case.draw.random() < accepted:
            accept(case.h)
        else:
            case.put_back(before)
            forget(case.h)


@examples(300)
@given(st.integers(0, 2**32), st.integers(1, 12), st.sampled_from([1, 3, 10**9]), st.booleans())
def test_any_change_of_any_graph_gives_the_times_of_a_full_simulation(
    seed: int, n: int, longest: int, circles: bool
) -> None:
    draw = random.Random(seed)
    lanes = [draw.randrange(1, 3) for _ in range(draw.randrange(1, 4))]
    walk(Changing(draw, n, lanes, longest, circles), 30, 4, draw.choice([0.2, 0.5, 1.0]))


@examples(30)
@given(st.integers(0, 2**32), st.sampled_from([1, 4, 1000]))
def test_long_chains_of_small_changes_of_larger_graphs_give_the_times_of_a_full_simulation(
    seed: int, longest: int
) -> None:
    draw = random.Random(seed)
    walk(Changing(draw, 80, [1, 1, 2, 1, 3, 1], longest), 60, 3, 0.5)


def chain(durations: list[int]) -> History:
    """Each task follows the one before it; simulated."""
    h = no_tasks(len(durations), [1])
    for task, duration in enumerate(durations):
        put(h, task, -1, duration, -1)
    for task in range(1, len(durations)):
        link(h, (task - 1) * SLOTS, task)
    assert propose(h) == (sum(durations), len(durations))
    accept(h)
    return h


def test_in_a_chain_one_task_is_simulated_again_and_all_that_follows_is_later() -> None:
    h = chain([10] * 100)
    put(h, 40, -1, 17, -1)
    assert propose(h) == (1007, 100)
    assert (h.note[KEPT], h.note[HERE], h.note[THERE], h.note[SHIFT]) == (39, 41, 41, 7)
    assert [times(h, task) for task in (39, 40, 41, 99)] == [(390, 400), (400, 417), (417, 427), (997, 1007)]


def test_nothing_changed_is_nothing_simulated() -> None:
    h = chain([1, 2, 3])
    assert propose(h) == (6, 3)
    assert h.note[HERE] == h.note[KEPT] == 3


def test_what_is_put_back_is_not_simulated() -> None:
    h = chain([1, 2, 3])
    put(h, 0, -1, 5, -1)
    assert propose(h) == (10, 3)
    put(h, 0, -1, 1, -1)
    forget(h)
    assert propose(h) == (6, 3)
    assert h.note[HERE] == h.note[KEPT]


def test_a_proposal_can_be_changed_and_proposed_again_before_it_is_accepted() -> None:
    h = chain([1, 2, 3])
    put(h, 0, -1, 5, -1)
    assert propose(h) == (10, 3)
    put(h, 2, -1, 1, -1)
    assert propose(h) == (8, 3)
    accept(h)
    assert [times(h, task) for task in range(3)] == [(0, 5), (5, 7), (7, 8)]


def test_one_that_is_as_late_as_the_others_but_behind_another_in_its_queue_is_not_in_step() -> None:
    """Two tasks wait behind a third one on a resource; the change has them come the other way round."""
    h = no_tasks(6, [1])
    for task, (resource, duration) in enumerate([(0, 100), (-1, 10), (-1, 20), (0, 5), (0, 7), (-1, 1)]):
        put(h, task, resource, duration, -1)
    for source, target in [(1, 3), (2, 4), (3, 5)]:
        link(h, source * SLOTS, target)
    assert propose(h) == (112, 6)
    accept(h)
    put(h, 1, -1, 30, -1)
    assert propose(h) == (113, 6)
    assert_as_full(h)


def test_changes_of_a_large_graph_come_in_step_again_and_are_late() -> None:
    """So the other tests try what is shifted, with tasks under way and in queues."""
    case = Changing(random.Random(7), 300, [1, 1, 1, 2], 3)
    case.change(1500)
    propose(case.h)
    accept(case.h)
    late = waiting = 0
    for _ in range(200):
        before = case.tasks()
        case.change(1)
        assert_as_full(case.h)
        if case.h.note[THERE] < NEVER and case.h.note[SHIFT] != 0:
            late += 1
            waiting += bool((case.h.state.head >= 0).any())
        case.put_back(before)
        forget(case.h)
    assert late > 10
    assert waiting > 10
