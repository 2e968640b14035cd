"""The core of the event simulator against a slow one that is read in a minute, and against what must hold for any."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.simulator.events import PLAIN, Rules, State, Tasks, simulate, state

NEVER = 10**9


@dataclass(frozen=True)
class Case:
    """Tasks as lists: edges are (from, to, distance)."""

    duration: list[int]
    resource: list[int]
    lag: list[int]
    edges: list[tuple[int, int, int]]
    lanes: list[int]
    frames: int = 1

    def tasks(self, dtype: type) -> Tasks:
        n = len(self.duration)
        ordered = sorted(self.edges, key=lambda edge: edge[0])
        return Tasks(
            np.array(self.duration, dtype=dtype),
            np.array(self.resource, dtype=np.int32),
            np.array(self.lag, dtype=dtype),
            np.array([[self.needs(task, frame) for task in range(n)] for frame in range(3)], dtype=np.int32),
            np.searchsorted([edge[0] for edge in ordered], np.arange(n + 1)).astype(np.int32),
            np.array([edge[1] for edge in ordered], dtype=np.int32),
            np.array([edge[2] for edge in ordered], dtype=np.int32),
            np.array(self.lanes, dtype=np.int32),
        )

    def needs(self, task: int, frame: int) -> int:
        """Edges that come from a frame that there is."""
        return sum(to == task and distance <= frame for _, to, distance in self.edges)


@st.composite
def cases(draw: st.DrawFn, distances: bool = True, lags: bool = True) -> Case:
    """Up to ten tasks; short durations, so that much happens at the same time."""
    n, resources = draw(st.integers(1, 10)), draw(st.integers(1, 3))
    pick = st.integers(0, n - 1)
    before = draw(st.lists(st.tuples(pick, pick).filter(lambda e: e[0] < e[1]), max_size=3 * n)) if n > 1 else []
    later = draw(st.lists(st.tuples(pick, pick, st.integers(1, 2)), max_size=n)) if distances else []
    skipped = [(i, -1, 0) for i in draw(st.lists(pick, max_size=2))]
    return Case(
        draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)),
        draw(st.lists(st.integers(-1, resources - 1), min_size=n, max_size=n)),
        draw(st.lists(st.sampled_from([-1, -1, 0, 1, 3] if lags else [-1]), min_size=n, max_size=n)),
        [(i, j, 0) for i, j in before] + later + skipped,
        draw(st.lists(st.integers(1, 3), min_size=resources, max_size=resources)),
        draw(st.integers(1, 4)),
    )


@st.composite
def rules_for(draw: st.DrawFn, case: Case) -> Rules:
    """Any rules; frames are let in at the resources of some tasks."""
    entry = [i for i, resource in enumerate(case.resource) if resource >= 0]
    chosen = draw(st.lists(st.sampled_from(entry), max_size=2)) if entry else []
    return Rules(draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, 3)), np.array(chosen, dtype=np.int32))


def fast(case: Case, rules: Rules = PLAIN, dtype: type = np.int64) -> tuple[int, State]:
    """The compiled simulation: how many ended, and all results."""
    n = len(case.duration)
    w = state(n * case.frames, len(case.lanes), case.frames, dtype(0))
    return simulate(case.tasks(dtype), n, case.frames, rules, w), w


class ByTime:
    """An event that knows no more than its time."""

    def __init__(self, time: Any, what: int) -> None:
        self.time, self.what = time, what

    def __lt__(self, other: ByTime) -> bool:
        return bool(self.time < other.time)


class Slow:
    """The same rules in plain Python: no flat array, no heap of our own, nothing that is clever."""

    def __init__(self, case: Case, rules: Rules) -> None:
        self.case, self.rules, self.n = case, rules, len(case.duration)
        self.rows = self.n * case.frames
        self.missing = [case.needs(row % self.n, row // self.n) for row in range(self.rows)]
        self.queue: list[list[int]] = [[] for _ in case.lanes]
        self.idle = list(case.lanes)
        self.events: list[Any] = []
        self.start, self.stop = [NEVER] * self.rows, [NEVER] * self.rows
        self.order: list[int] = []
        self.entered = 0

    def run(self) -> Slow:
        for _ in range(1 if self.rules.in_flight else self.case.frames):
            self.enter(0)
        while self.events:
            now, event = self.next_event()
            if event >= 2 * self.rows:
                self.go_on(event - 2 * self.rows, now)
            elif event >= self.rows:
                self.release_successors(event - self.rows, now)
            else:
                self.end(event, now)
            if self.entered < self.case.frames and self.under_way() < self.rules.in_flight and self.can_enter():
                self.enter(now)
        return self

    def push(self, time: Any, event: int) -> None:
        if self.rules.heap_ties:
            heapq.heappush(self.events, ByTime(time, event))
        else:
            self.events.append((time, event))

    def next_event(self) -> tuple[Any, int]:
        if self.rules.heap_ties:
            first = heapq.heappop(self.events)
            return first.time, first.what
        self.events.sort()
        return self.events.pop(0)

    def enter(self, now: Any) -> None:
        frame, self.entered = self.entered, self.entered + 1
        for task in range(self.n):
            if self.case.needs(task, frame) == 0:
                self.ready(frame * self.n + task, now)

    def under_way(self) -> int:
        return sum(not {*range(f * self.n, (f + 1) * self.n)} <= {*self.order} for f in range(self.entered))

    def can_enter(self) -> bool:
        return all(self.idle[self.case.resource[task]] > 0 for task in self.rules.entry)

    def ready(self, row: int, now: Any) -> None:
        resource = self.case.resource[row % self.n]
        if resource < 0:
            self.begin(row, now)
            return
        self.queue[resource].append(row)
        if self.idle[resource] > 0:
            self.idle[resource] -= 1
            if self.rules.wakeups:
                self.push(now, 2 * self.rows + resource)
            else:
                self.begin(self.queue[resource].pop(0), now)

    def begin(self, row: int, now: Any) -> None:
        task = row % self.n
        self.start[row], self.stop[row] = now, now + self.case.duration[task]
        if self.case.lag[task] >= 0:
            self.push(now + self.case.lag[task], self.rows + row)
        self.push(self.stop[row], row)

    def release_successors(self, row: int, now: Any) -> None:
        task, frame = row % self.n, row // self.n
        for source, to, distance in self.case.edges:
            later = frame + distance
            if source == task and to >= 0 and later < self.case.frames:
                self.missing[later * self.n + to] -= 1
                if self.missing[later * self.n + to] == 0:
                    self.ready(later * self.n + to, now)

    def end(self, row: int, now: Any) -> None:
        if self.case.lag[row % self.n] < 0:
            self.release_successors(row, now)
        self.order.append(row)
        resource = self.case.resource[row % self.n]
        if resource >= 0:
            self.go_on(resource, now)

    def go_on(self, resource: int, now: Any) -> None:
        """A lane has nothing to do."""
        if self.queue[resource]:
            self.begin(self.queue[resource].pop(0), now)
        else:
            self.idle[resource] += 1


def assert_same(case: Case, rules: Rules, dtype: type) -> None:
    slow, (ended, w) = Slow(case, rules).run(), fast(case, rules, dtype)
    assert list(w.order[:ended]) == slow.order
    assert [w.start[row] for row in slow.order] == [slow.start[row] for row in slow.order]
    assert [w.stop[row] for row in slow.order] == [slow.stop[row] for row in slow.order]


@settings(max_examples=500, deadline=None)
@given(st.data(), st.sampled_from([np.int64, np.float64]))
def test_any_graph_under_any_rules_is_what_the_slow_simulation_says(data: st.DataObject, dtype: type) -> None:
    case = data.draw(cases())
    assert_same(case, data.draw(rules_for(case)), dtype)


@pytest.mark.parametrize("heap_ties", [False, True])
def test_a_frame_that_ended_before_it_was_let_in_lets_no_other_one_in(heap_ties: bool) -> None:
    case = Case([1, 1], [-1, -1], [0, -1], [(0, 0, 1), (0, 1, 2)], [1], 3)
    assert_same(case, Rules(heap_ties, False, 1, np.zeros(0, dtype=np.int32)), np.int64)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_times_that_no_binary_fraction_is_are_added_in_the_same_order(data: st.DataObject) -> None:
    case = data.draw(cases())
    tenth = Case([x / 10 for x in case.duration], case.resource, case.lag, case.edges, case.lanes, case.frames)
    assert_same(tenth, data.draw(rules_for(case)), np.float64)


@settings(max_examples=200, deadline=None)
@given(cases(distances=False), st.booleans(), st.booleans())
def test_nothing_is_done_before_the_critical_path_or_the_busiest_resource(case: Case, ties: bool, wake: bool) -> None:
    ended, w = fast(case, Rules(ties, wake, 0, PLAIN.entry))
    assert ended == len(case.duration) * case.frames
    makespan = w.stop[w.order[ended - 1]]
    assert makespan >= critical_path(case)
    for resource, lanes in enumerate(case.lanes):
        busy = sum(d for d, r in zip(case.duration, case.resource, strict=True) if r == resource)
        assert makespan * lanes >= busy * case.frames


def critical_path(case: Case) -> int:
    """Of one frame; edges go from a task to a later one."""
    start = [0] * len(case.duration)
    for task in range(len(start)):
        for source, to, _ in case.edges:
            if to == task:
                lag = case.lag[source]
                start[task] = max(start[task], start[source] + (case.duration[source] if lag < 0 else lag))
    return max(s + d for s, d in zip(start, case.duration, strict=True))


@settings(max_examples=200, deadline=None)
@given(cases(), st.booleans())
def test_no_resource_serves_more_tasks_at_once_than_it_has_lanes(case: Case, ties: bool) -> None:
    ended, w = fast(case, Rules(ties, False, 0, PLAIN.entry))
    rows, n = w.order[:ended], len(case.duration)
    for resource, lanes in enumerate(case.lanes):
        mine = [row for row in rows if case.resource[row % n] == resource and w.stop[row] > w.start[row]]
        for row in mine:
            assert sum(w.start[i] <= w.start[row] < w.stop[i] for i in mine) <= lanes


@settings(max_examples=100, deadline=None)
@given(cases())
def test_events_come_in_the_order_of_time(case: Case) -> None:
    ended, w = fast(case)
    assert (np.diff(w.stop[w.order[:ended]]) >= 0).all()


def test_a_circle_leaves_its_tasks_and_what_follows_undone() -> None:
    case = Case([1, 1, 1, 1], [0, 0, 0, 0], [-1] * 4, [(0, 1, 0), (1, 2, 0), (2, 1, 0), (2, 3, 0)], [1])
    ended, w = fast(case)
    assert list(w.order[:ended]) == [0]


def test_a_circle_across_frames_is_none() -> None:
    case = Case([1, 2], [0, 0], [-1, -1], [(0, 1, 0), (1, 0, 1)], [1], frames=3)
    ended, w = fast(case)
    assert list(w.order[:ended]) == [0, 1, 2, 3, 4, 5]
    assert w.stop[5] == 9


def test_a_message_moves_on_while_it_still_comes() -> None:
    """Two links of 10 for each message, the second one 1 later: both are done after 11, not after 20."""
    _, w = fast(Case([10, 10], [0, 1], [1, -1], [(0, 1, 0)], [1, 1]))
    assert (w.start[1], w.stop[1]) == (1, 11)


@pytest.mark.parametrize(("in_flight", "makespan"), [(1, 12), (2, 8), (3, 8), (0, 8)])
def test_as_many_frames_are_under_way_as_the_rules_say(in_flight: int, makespan: int) -> None:
    """Two devices, 2 on each: one at a time 3 x 4, else one more every 2."""
    case = Case([2, 2], [0, 1], [-1, -1], [(0, 1, 0)], [1, 1], frames=3)
    ended, w = fast(case, Rules(False, False, in_flight, np.array([0], dtype=np.int32)))
    assert w.stop[w.order[ended - 1]] == makespan


def test_memory_of_a_larger_simulation_serves_a_smaller_one() -> None:
    large = Case([3, 1, 2], [0, 1, 0], [-1, 2, -1], [(0, 2, 0), (1, 2, 0)], [1, 1], frames=4)
    small = Case([1, 5], [1, 1], [-1, -1], [(0, 1, 0)], [1, 1])
    w = state(12, 2, 4, np.int64(0))
    simulate(large.tasks(np.int64), 3, 4, PLAIN, w)
    ended = simulate(small.tasks(np.int64), 2, 1, PLAIN, w)
    assert [(int(i), int(w.start[i]), int(w.stop[i])) for i in w.order[:ended]] == [(0, 0, 1), (1, 1, 6)]
