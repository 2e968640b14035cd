"""The event simulator: tasks that need one another, resources that serve them first come, first served.

One core for all that is simulated here: plans on a cluster, pipelines of frames, training steps, other systems' rules.
It knows nothing of devices or layers; builders fill its arrays (``model.simulator.simulation`` for plans).

What is served, and when. A task is ready once all that it needs has happened. It then joins the queue of its resource
and starts when one of the resource's lanes is idle; without a resource it starts at once. Its successors are released
when it ends or, where it has a lag, so long after it *started*: a message goes on to the next of several links while
it still comes from the last one.

Order. Events are handled by time; those of one time by number: ends of tasks as they are numbered, earlier frames
first, then releases by lag. A result thus depends on the arrays alone. Times are float64, or int64 ticks: no sum of
ticks rounds, so a timeline that begins later is the same timeline.

``Rules`` hold what other simulators do in another way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.compiled import allocating, inlined, kernel
from model.mappings.arrays import Ints, ix

Times = NDArray[Any]
"""float64 or int64."""


class Tasks(NamedTuple):
    """The tasks of one frame: ``n`` tasks, ``E`` edges of a distance less than ``K``, ``R`` resources.

    duration: (n,) time; resource: (n,) that serves the task; -1: none
    lag:      (n,) time from a task's start to the release of its successors; negative: they are released when it ends
    needs:    (K, n) releases until a task is ready, of frame 0, 1 ...; the last row holds for all later frames, too
    first, to: (n + 1,), (E,) successors of a task; -1 is skipped
    distance: (E,) how many frames later a successor is
    lanes:    (R,) tasks that a resource serves at once
    """

    duration: Times
    resource: Ints
    lag: Times
    needs: Ints
    first: Ints
    to: Ints
    distance: Ints
    lanes: Ints


class Rules(NamedTuple):
    """What a simulation does in a way of its own.

    heap_ties: events of one time come as a binary heap (Python's ``heapq``) returns them that compares times alone
    wakeups:   an idle resource that gets work starts it by an event of its own, and not at once
    in_flight: frames that are under way at most: one more is let in after an event if the resources of ``entry`` are
               idle; 0: all frames come at the beginning, as far as edges between frames let them
    entry:     (k,) tasks that a frame begins with; for ``in_flight``
    """

    heap_ties: bool
    wakeups: bool
    in_flight: int
    entry: Ints


class State(NamedTuple):
    """Working memory and results of ``F`` frames; task ``i`` of frame ``f`` has row ``f * n + i``, ``N`` rows in all.

    start, stop: (N,) of each task
    order:   (N,) rows in the order in which they ended
    missing: (N,) releases that are still to come; left: (F,) tasks of a frame that have not ended
    behind:  (N,) the row behind in a queue; head, tail: (R,) of a queue, head -1: empty; idle: (R,) lanes
    when, what: (2 * N + R,) heap of events: ends (row), releases by lag (N + row), wake-ups (2 * N + resource)
    """

    start: Times
    stop: Times
    order: Ints
    missing: Ints
    left: Ints
    behind: Ints
    head: Ints
    tail: Ints
    idle: Ints
    when: Times
    what: Ints


PLAIN = Rules(False, False, 0, np.zeros(0, dtype=np.int32))


@allocating()
def state(rows: int, resources: int, frames: int, zero: Any) -> State:
    """Memory for ``rows`` tasks of all frames together. zero: 0 of the type that times have"""
    i, events = np.int32, 2 * rows + resources
    return State(
        np.full(rows, zero),
        np.full(rows, zero),
        np.zeros(rows, i),
        np.zeros(rows, i),
        np.zeros(frames, i),
        np.zeros(rows, i),
        np.zeros(resources, i),
        np.zeros(resources, i),
        np.zeros(resources, i),
        np.full(events, zero),
        np.zeros(events, i),
    )


@kernel()
def simulate(t: Tasks, n: int, frames: int, rules: Rules, w: State) -> int:
    """Run the first ``n`` tasks of each of some frames; returns how many ended, the last one is ``order[ended - 1]``.

    Fewer than ``frames * n``: the others wait for one another.
    """
    rows = frames * n
    _reset(t, n, frames, w)
    size = entered = ended = int(np.int64(0))  # not the constant, which would compile what takes it once more
    for _ in range(1 if rules.in_flight else frames):
        size = _enter(t, n, rows, rules, w, size, entered, w.when[0] * 0)
        entered += 1
    alive = entered
    while size:
        now, event = w.when[0], w.what[0]
        pop(w.when, w.what, rules.heap_ties, size)
        size -= 1
        if event >= 2 * rows:
            following = _next(w, event - 2 * rows)
        else:
            row = event if event < rows else event - rows
            task, frame = _place(row, n)
            following = -1
            if event >= rows or t.lag[ix(task)] < 0:
                for edge in range(t.first[ix(task)], t.first[ix(task + 1)]):
                    task_there, later = t.to[ix(edge)], (frame + t.distance[ix(edge)]) * n
                    if task_there >= 0 and later < rows:
                        size = _release(t, rows, rules, w, size, task_there + later, task_there, now)
            if event < rows:
                w.order[ix(ended)] = row
                ended += 1
                w.left[ix(frame)] -= 1
                if w.left[ix(frame)] == 0 and frame < entered:
                    alive -= 1
                following = leave(t, w, task)
        if following >= 0:
            task, _ = _place(following, n)
            size = begin(t, rows, rules, w, size, following, task, now)
        if entered < frames and alive < rules.in_flight and _all_idle(t, rules, w):
            size = _enter(t, n, rows, rules, w, size, entered, now)
            alive += int(w.left[ix(entered)] > 0)  # all of it may have ended before it came
            entered += 1
    return ended


@inlined
def _reset(t: Tasks, n: int, frames: int, w: State) -> None:
    for frame in range(frames):
        needs = t.needs[min(frame, len(t.needs) - 1)]
        for task in range(n):
            w.missing[ix(frame * n + task)] = needs[task]
        w.left[ix(frame)] = n
    for resource in range(len(t.lanes)):
        w.head[ix(resource)], w.idle[ix(resource)] = -1, t.lanes[resource]


@inlined
def _place(row: int, n: int) -> tuple[int, int]:
    """Task and frame of a row."""
    frame: Any = 0 if row < n else np.int64(np.uint32(row) // np.uint32(n))  # 32 bits divide in half the time
    return row - frame * n, frame


@kernel()
def _enter(t: Tasks, n: int, rows: int, rules: Rules, w: State, size: int, frame: int, now: Any) -> int:
    """Tasks of a frame that need nothing are ready; others may have begun before it."""
    needs = t.needs[min(frame, len(t.needs) - 1)]
    for task in range(n):
        if needs[task] == 0:
            size = ready(t, rows, rules, w, size, frame * n + task, task, now)
    return size


@inlined
def _all_idle(t: Tasks, rules: Rules, w: State) -> bool:
    """Whether one more frame could begin at once."""
    idle = True
    for task in rules.entry:
        idle = idle and w.idle[ix(t.resource[task])] > 0
    return idle


@inlined
def _release(t: Tasks, rows: int, rules: Rules, w: State, size: int, row: int, task: int, now: Any) -> int:
    """One of the things that a task needs has happened."""
    w.missing[ix(row)] -= 1
    if w.missing[ix(row)] == 0:
        size = ready(t, rows, rules, w, size, row, task, now)
    return size


@inlined
def ready(t: Tasks, rows: int, rules: Rules, w: State, size: int, row: int, task: int, now: Any) -> int:
    """Start a task, or have it wait for its resource."""
    resource = t.resource[ix(task)]
    if resource < 0:
        size = begin(t, rows, rules, w, size, row, task, now)
    elif w.idle[ix(resource)] == 0:
        queue(w, resource, row)
    else:
        w.idle[ix(resource)] -= 1
        if rules.wakeups:
            queue(w, resource, row)
            push(w.when, w.what, rules.heap_ties, size, now, 2 * rows + resource)
            size += 1
        else:
            size = begin(t, rows, rules, w, size, row, task, now)
    return size


@inlined
def begin(t: Tasks, rows: int, rules: Rules, w: State, size: int, row: int, task: int, now: Any) -> int:
    """Begin a task that has what it needs, and a lane."""
    w.start[ix(row)] = now
    w.stop[ix(row)] = now + t.duration[ix(task)]
    if t.lag[ix(task)] >= 0:
        push(w.when, w.what, rules.heap_ties, size, now + t.lag[ix(task)], rows + row)
        size += 1
    push(w.when, w.what, rules.heap_ties, size, w.stop[ix(row)], row)
    return size + 1


@inlined
def leave(t: Tasks, w: State, task: int) -> int:
    """A lane is done with a task: the row that it goes on with, or -1."""
    following = -1
    if t.resource[ix(task)] >= 0:
        following = _next(w, t.resource[ix(task)])
    return following


@inlined
def _next(w: State, resource: int) -> int:
    """The row that a lane takes from the queue; -1: there is none, and it is idle."""
    row = w.head[ix(resource)]
    if row >= 0:
        w.head[ix(resource)] = w.behind[ix(row)]
    else:
        w.idle[ix(resource)] += 1
    return row


@inlined
def queue(w: State, resource: int, row: int) -> None:
    """Join the end of a queue."""
    w.behind[ix(row)] = -1
    if w.head[ix(resource)] < 0:
        w.head[ix(resource)] = row
    else:
        w.behind[ix(w.tail[resource])] = row
    w.tail[ix(resource)] = row


@inlined
def _before(by_time: bool, time: Any, event: int, other_time: Any, other: int) -> bool:
    """Whether an event comes before another one. by_time: ``heap_ties``"""
    return (time < other_time) | ((time == other_time) & (not by_time) & (event < other))


@kernel()
def push(when: Times, what: Ints, by_time: bool, at: int, time: Any, event: int) -> None:
    """Put an event on the heap, whose first free place is ``at``: it rises to where it belongs."""
    while at > 0:
        above = (at - 1) >> 1
        if not _before(by_time, time, event, when[ix(above)], what[ix(above)]):
            break
        when[ix(at)], what[ix(at)] = when[ix(above)], what[ix(above)]
        at = above
    when[ix(at)], what[ix(at)] = time, event


@kernel()
def pop(when: Times, what: Ints, by_time: bool, size: int) -> None:
    """Take the first event off a heap of ``size`` as ``heapq`` does: its hole sinks to the bottom, the last one rises.

    Any way gives the same order, unless times alone are compared.
    """
    last = size - 1
    at, below = 0, 1
    while below < last:
        right = below + 1
        before = _before(by_time, when[ix(below)], what[ix(below)], when[ix(right)], what[ix(right)])
        below += int(right < last) & int(not before)  # no branch: nobody could guess which way it goes
        when[ix(at)], what[ix(at)] = when[ix(below)], what[ix(below)]
        at, below = below, 2 * below + 1
    push(when, what, by_time, at, when[ix(last)], what[ix(last)])
