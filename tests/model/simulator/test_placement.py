"""Placements of whole operators: tasks, times and memory against values by hand and against plain bookkeeping."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.simulator.events import PLAIN, simulate, state
from model.simulator.placed import admitting, evaluate, usage, walk
from model.simulator.placement import Work, lower, room, work

BYTES = 1000


def chain(times: list[list[int]], move: int = 10, passes: int = 1, devices: int = 2) -> Work:
    """Operators one after the other; ``times[p][i]`` on any device, ``move`` between any two, own channel each way."""
    n = len(times[0])
    time = np.repeat(np.array(times[:passes])[:, :, None], devices, axis=2)
    channel = devices + np.arange(devices * devices).reshape(devices, devices)
    children, parents = [[i + 1] for i in range(n - 1)] + [[]], [[], *([i] for i in range(n - 1))]
    size = BYTES * 2 ** np.arange(n)
    pace = np.full((devices, devices), move)
    return work(children, parents, time, np.ones(n, dtype=int), pace, 0 * pace, channel, size, np.full(n, 7))


@st.composite
def works(draw: st.DrawFn, passes: int, devices: int = 3) -> Work:
    """Random graphs; channels that some pairs of devices share."""
    n = draw(st.integers(1, 8))
    edges = [(i, j) for j in range(n) for i in range(j) if draw(st.booleans())]
    small = st.integers(0, 5)
    table, pairs = (st.lists(small, min_size=k, max_size=k) for k in (2 * n * devices, devices**2))
    channels = st.lists(st.integers(devices, devices + 3), min_size=devices**2, max_size=devices**2)
    return work(
        [draw(st.permutations([j for i, j in edges if i == op])) for op in range(n)],
        [draw(st.permutations([i for i, j in edges if j == op])) for op in range(n)],
        np.array(draw(table)).reshape(2, n, devices)[:passes],
        np.array(draw(st.lists(small, min_size=n, max_size=n))),
        np.array(draw(pairs)).reshape(devices, devices),
        np.array(draw(pairs)).reshape(devices, devices),
        np.array(draw(channels)).reshape(devices, devices),
        np.array(draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))),
        np.array(draw(st.lists(small, min_size=n, max_size=n))),
        np.array(draw(st.lists(st.integers(-1, devices + 5), min_size=devices, max_size=devices))),
        np.array(draw(st.lists(small, min_size=devices, max_size=devices))),
    )


def placements(work: Work, most: int = 1) -> st.SearchStrategy[np.ndarray]:
    """(B, n) devices."""
    _, n, devices = work.time.shape
    row = st.lists(st.integers(0, devices - 1), min_size=n, max_size=n)
    return st.lists(row, min_size=1, max_size=most).map(lambda rows: np.array(rows, dtype=np.int32))


def of(ptr: np.ndarray, values: np.ndarray, i: int) -> list[int]:
    return [int(v) for v in values[ptr[i] : ptr[i + 1]]]


def time_of(work: Work, place: list[int], frames: int = 1, in_flight: int = 0) -> int:
    times, _ = evaluate(work, np.array([place]), admitting(work, in_flight), frames)
    return int(times[0])


def peak_of(work: Work, place: list[int]) -> list[int]:
    _, peaks = evaluate(work, np.array([place]), PLAIN)
    return [int(x) for x in peaks[0]]


def test_an_operator_waits_for_its_operand_to_arrive() -> None:
    w = chain([[1, 2, 4]])
    assert time_of(w, [0, 0, 0]) == 7
    assert time_of(w, [0, 1, 1]) == 17
    assert time_of(w, [0, 1, 0]) == 27


def test_a_training_step_goes_back_over_the_same_channels() -> None:
    w = chain([[1, 2, 4], [10, 20, 40]], passes=2)
    assert time_of(w, [0, 0, 0]) == 77
    assert time_of(w, [0, 1, 1]) == 97


def test_an_output_moves_to_a_device_once_and_gradients_each() -> None:
    """One operator with two readers elsewhere; then two operands of one operator elsewhere."""
    shape = {"size": np.array([5] * 3), "pace": np.full((2, 2), 2), "least": np.zeros((2, 2), dtype=int)}
    shape |= {"channel": np.full((2, 2), 2), "output": [1] * 3, "weights": [0] * 3}
    fork = work([[1, 2], [], []], [[], [0], [0]], np.ones((2, 3, 2), dtype=int), **shape)
    join = work([[2], [2], []], [[], [], [0, 1]], np.ones((2, 3, 2), dtype=int), **shape)
    assert time_of(fork._replace(time=fork.time[:1]), [0, 1, 1]) == 1 + 10 + 2
    assert time_of(fork, [0, 1, 1]) == 1 + 10 + 3 + 2 * 10 + 1
    assert time_of(join, [0, 0, 1]) == 1 + 2 * 10 + 2 + (10 + 10) + 2


def test_a_transfer_takes_what_its_size_takes_and_at_least_so_long() -> None:
    w = chain([[1, 2]])._replace(size=np.array([3, 1]))
    assert time_of(w, [0, 1]) == 1 + 3 * 10 + 2
    assert time_of(w._replace(least=np.full((2, 2), 31)), [0, 1]) == 1 + 31 + 2


def staged(apart: bool) -> Work:
    """Two devices that bring in for 3, compute 4 and bring out for 5: on a resource each, or one for all."""
    ways = {"channel": np.array([[2, 3], [2, 3]]), "leave": np.array([4, 5])} if apart else {
        "channel": np.array([[0, 1], [0, 1]]), "leave": np.array([0, 1])
    }  # fmt: skip
    w = chain([[4, 4, 4, 0]], move=3)
    names = ("time", "size", "pace", "least")
    rows = [[1], [2], [3], []], [[], [0], [1], [2]]
    tables = {name: getattr(w, name) for name in names}
    return work(*rows, **tables, **ways, output=w.output, weights=w.weights, leave_pace=np.array([5, 5]))


@pytest.mark.parametrize(("apart", "period"), [(True, 10), (False, 21)])
def test_a_device_brings_in_computes_and_brings_out_at_once_or_in_turn(apart: bool, period: int) -> None:
    """Device 0 computes twice a frame (8), brings out twice (10) and in once (3); device 1 4 + 5 + 2 * 3."""
    one = time_of(staged(apart), [0, 1, 0, 1])
    assert one == 4 + 5 + 3 + 4 + 5 + 3 + 4 + 5 + 3
    assert 80 * period <= time_of(staged(apart), [0, 1, 0, 1], frames=80) <= 80 * period + one


def test_what_several_devices_need_leaves_once() -> None:
    """One operator, readers on two other devices and its own."""
    size, pairs = np.ones(4, dtype=int), np.full((3, 3), 10)
    channel = np.arange(3, 12).reshape(3, 3)
    w = work(
        [[1, 2, 3], [], [], []], [[], [0], [0], [0]], np.ones((2, 4, 3), dtype=int), size, pairs, 0 * pairs, channel,
        size, size, np.array([12, -1, 13]), np.array([100, 0, 7]),
    )  # fmt: skip
    assert time_of(w._replace(time=w.time[:1]), [0, 1, 0, 2]) == 1 + 100 + 10 + 1
    assert time_of(w, [0, 1, 0, 2]) == (1 + 100 + 10 + 1) + 1 + 7 + 10 + 1
    assert peak_of(w._replace(time=w.time[:1]), [0, 1, 0, 2]) == [4, 2 + 1, 2 + 1]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_device_that_does_all_itself_has_the_load_of_the_partitioning_papers(data: st.DataObject) -> None:
    """Its operators, and once for every output that is cut there the cost of it, in or out (Tarnawski et al., 2020)."""
    w = data.draw(works(1))
    devices = np.arange(len(w.channel))
    own = {
        "channel": np.repeat(devices[None], len(devices), axis=0).astype(np.int32),
        "leave": devices.astype(np.int32),
    }
    w = w._replace(pace=np.ones_like(w.pace), leave_pace=np.ones_like(w.leave_pace), least=0 * w.least, **own)
    place = data.draw(placements(w))[0]
    tasks, moves = room(w)
    n = lower(w, place, tasks, moves)
    for device in devices:
        load = sum(int(w.time[0, op, device]) for op in range(len(place)) if place[op] == device)
        for op in range(len(place)):
            there = {int(place[i]) for i in of(w.child_ptr, w.child, op)} | {int(place[op])}
            load += int(w.size[op]) if device in there and len(there) > 1 else 0
        assert tasks.duration[:n][tasks.resource[:n] == device].sum() == load


def test_frames_follow_one_another_when_the_first_device_idles() -> None:
    w = chain([[4, 6]], move=0)
    assert time_of(w, [0, 1], frames=5, in_flight=1) == 5 * 10
    assert time_of(w, [0, 1], frames=5, in_flight=2) == 4 + 5 * 6
    assert time_of(w, [0, 1], frames=5) == 4 + 5 * 6


def test_inference_keeps_an_output_until_its_last_reader_is_done() -> None:
    """1000, 2000, 4000 bytes, of which two lie on a device together; weights are 7 bytes an operator."""
    w = chain([[1, 2, 4]])
    assert peak_of(w, [0, 0, 0]) == [21 + 6000, 0]
    assert peak_of(w, [0, 0, 1]) == [14 + 3000, 7 + 6000]
    assert peak_of(w, [0, 1, 0]) == [14 + 6000, 7 + 3000]


def test_training_keeps_activations_until_the_gradient_has_used_them() -> None:
    """Operator 2 ends: 1000 and 2000; its gradient makes one of 2000 and lets go of the operand of 2000."""
    w = chain([[1, 2, 4], [1, 1, 1]], passes=2)
    assert peak_of(w, [0, 0, 0]) == [21 + 3000, 0]
    assert peak_of(w, [0, 1, 1]) == [7 + 1000, 14 + 3000]


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from([1, 2]), st.integers(1, 3))
def test_memory_is_what_plain_bookkeeping_says(data: st.DataObject, passes: int, frames: int) -> None:
    w = data.draw(works(passes))
    place = data.draw(placements(w))[0]
    tasks, moves = room(w)
    n = lower(w, place, tasks, moves)
    desk, memory = state(frames * n, len(tasks.lanes), frames, np.int64(0)), usage(w, frames)
    ended = simulate(tasks, n, frames, PLAIN, desk)
    assert ended == frames * n
    walk(w, place, moves, desk.order[:ended], n, memory)
    now, peak = bookkeeping(w, place, moves, desk.order[:ended], n)
    assert list(memory.peak) == peak
    assert list(memory.now) == now


def bookkeeping(w: Work, place: np.ndarray, moves: Any, order: np.ndarray, n: int) -> tuple[list[int], list[int]]:
    """What lies on each device as a dictionary: (frame, whose output or gradient, device) to who still needs it."""
    passes, ops, devices = w.time.shape
    lies: dict[tuple, set[int]] = {}
    resident = [sum(int(w.weights[op]) for op in range(ops) if place[op] == d) for d in range(devices)]

    def now() -> list[int]:
        sizes = [(key[-1], int(w.output[key[2]])) for key in lies]
        return [r + sum(size for device, size in sizes if device == d) for d, r in enumerate(resident)]

    def drop(key: tuple, users: set[int]) -> None:
        lies[key] -= users
        if not lies[key]:
            del lies[key]

    peak = now()
    for row in order:
        frame, task = int(row) // n, int(row) % n
        op = task % ops if task < passes * ops else -1
        readers = set(of(w.child_ptr, w.child, op)) if op >= 0 else set()
        operands = of(w.parent_ptr, w.parent, op) if op >= 0 else []
        after = None
        if op < 0 and moves.source[task - passes * ops] < 0:
            continue
        if 0 <= task < ops:
            if readers or passes == 1:
                lies[frame, "output", op, place[op]] = readers or {-1}
            after = now() if passes == 1 else None
        elif op >= 0:
            for parent in operands:
                lies[frame, "gradient", parent, op, place[op]] = {parent}
            for child in readers:
                drop((frame, "gradient", op, child, place[op]), {op})
        else:
            source, device = int(moves.source[task - passes * ops]), int(moves.device[task - passes * ops])
            op = source % ops
            if source < ops:
                there = {c for c in of(w.child_ptr, w.child, op) if place[c] == device}
                drop((frame, "output", op, place[op]), there)
                lies[frame, "output", op, device] = there
            else:
                for parent in of(w.parent_ptr, w.parent, op):
                    if place[parent] == device:
                        drop((frame, "gradient", parent, op, place[op]), {parent})
                        lies[frame, "gradient", parent, op, device] = {parent}
        if task >= (passes - 1) * ops and task < passes * ops:
            for parent in operands:
                drop((frame, "output", parent, place[op]), {op})
        peak = [max(p) for p in zip(peak, after or now(), strict=True)]
    return now(), peak


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_after_training_nothing_is_left_but_weights(data: st.DataObject) -> None:
    w = data.draw(works(2))
    place = data.draw(placements(w))[0]
    tasks, moves = room(w)
    n = lower(w, place, tasks, moves)
    desk, memory = state(n, len(tasks.lanes), 1, np.int64(0)), usage(w, 1)
    walk(w, place, moves, desk.order[: simulate(tasks, n, 1, PLAIN, desk)], n, memory)
    assert list(memory.now) == [w.weights[place == device].sum() for device in range(len(w.channel))]
    assert (memory.held == 0).all()


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from([1, 2]))
def test_transfers_are_the_pairs_of_an_operator_and_another_device_that_needs_it(
    data: st.DataObject, passes: int
) -> None:
    w = data.draw(works(passes))
    place = data.draw(placements(w))[0]
    tasks, moves = room(w)
    n = lower(w, place, tasks, moves)
    ops = len(place)
    pairs = []
    for p, (ptr, near) in enumerate([(w.child_ptr, w.child), (w.parent_ptr, w.parent)][:passes]):
        pairs += [(p * ops + i, place[j]) for i in range(ops) for j in of(ptr, near, i) if place[j] != place[i]]
    found = [(int(moves.source[i]), int(moves.device[i])) for i in range(n - passes * ops) if moves.source[i] >= 0]
    assert sorted(found) == sorted(set(pairs))


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from([1, 2]), st.integers(1, 3))
def test_no_device_and_no_path_is_faster_than_its_operators(data: st.DataObject, passes: int, frames: int) -> None:
    w = data.draw(works(passes))
    place = data.draw(placements(w))[0]
    time = time_of(w, list(place), frames)
    mine = w.time[:, np.arange(len(place)), place]
    for device in range(len(w.channel)):
        assert time >= frames * mine[:, place == device].sum()
    path = np.zeros(len(place), dtype=np.int64)
    for op in range(len(place)):
        path[op] = mine[0, op] + max([path[i] for i in of(w.parent_ptr, w.parent, op)], default=0)
    assert time >= path.max()


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from([1, 2]), st.integers(1, 3))
def test_on_one_device_everything_adds_up(data: st.DataObject, passes: int, frames: int) -> None:
    w = data.draw(works(passes))
    assert time_of(w, [1] * w.time.shape[1], frames) == frames * w.time[:, :, 1].sum()


@settings(max_examples=20, deadline=None)
@given(st.data(), st.sampled_from([1, 2]))
def test_neither_company_nor_threads_change_a_result(data: st.DataObject, passes: int) -> None:
    w = data.draw(works(passes))
    rows = np.repeat(data.draw(placements(w, most=5)), 40, axis=0)
    rules = admitting(w, 2, heap_ties=True, wakeups=True)
    times, peaks = evaluate(w, rows, rules, 3)
    alone = [evaluate(w, row[None], rules, 3) for row in rows[::40]]
    assert (times == np.repeat([t[0] for t, _ in alone], 40)).all()
    assert (peaks == np.repeat([p[0] for _, p in alone], 40, axis=0)).all()
    assert (evaluate(w, rows, rules, 3, memory=False)[0] == times).all()
    threads = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        again = evaluate(w, rows, rules, 3)
    finally:
        numba.set_num_threads(threads)
    assert (again[0] == times).all()
    assert (again[1] == peaks).all()
