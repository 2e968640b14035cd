"""A simulation that has been done, and the tasks it was of, which may change: what ``model.simulator.delta`` works on.

One frame, ``PLAIN`` rules, times in int64 ticks. Tasks and edges keep their numbers; a task may be there or not, an
edge may lead to another task or nowhere. Whoever changes tasks says so here, so that it is known which are *touched*,
and how: a task is another one, has other predecessors, or other successors than in the simulation that was accepted.

The log counts events (ends of tasks, releases by lag), as many as have been handled. "Ready at 7" is: not after six
events, but after seven. So the state after any number of events can be made again from the log.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.compiled import inlined, kernel
from model.mappings.arrays import Ints, ix
from model.simulator import events
from model.simulator.events import State, Tasks

Log = NDArray[np.int64]

NEVER = 1 << 62
START, STOP, READY, BEGUN, ENDED, RELEASED, PLACE, MARK = range(8)
"""Columns of a task's row: ticks, ticks, then events; its place in the order of being ready; see ``History``."""
COUNT, LOW, ENDS, LATEST = range(4)
"""Columns of an event's row: tasks that were ready so far, the place before which all were done, tasks that had
ended, when the last of them did."""
OTHER, REACHED, LEADING = 1, 2, 4
"""How a task is touched: it came, went, or has another duration, resource or lag; edges to it, or from it, changed."""
WAYS = 8
PROPOSAL, TURN, TASKS, TOUCHED, EVENTS, UNDONE, KEPT, HERE, THERE, SHIFT, WITNESS = range(11)
"""Numbers of a history: of the proposal, of the acceptance or rejection that is next; tasks that there are, and that
are touched; events of the accepted simulation, and tasks that waited for one another for ever; of the last proposal:
events before the first that changed, events when it was in step again, events of the accepted one then (NEVER: it was
not), by how many ticks it was late, an event that was out of step."""


class History(NamedTuple):
    """``n`` tasks, ``E`` edges.

    tasks:   with all changes
    present: (n,) 1 where there is a task; its edges lead nowhere else
    source, behind, ahead: (E,) task that an edge comes from; the edges behind and before it that lead to its task
    into: (n,) an edge that leads to a task; -1: none
    old: (n, 8) rows of the accepted simulation (MARK: 8 times the turn in which a task was touched, and how)
    new: (n, 8) rows of tasks that the proposal has simulated (MARK: number of the proposal)
    past, recent: (2 n + 1, 4) rows after so many events
    order, reorder: (n,) tasks as they became ready
    touched: (n,) those that are
    note: (11,) numbers
    state: working memory
    """

    tasks: Tasks
    present: Ints
    source: Ints
    behind: Ints
    ahead: Ints
    into: Ints
    old: Log
    new: Log
    past: Log
    recent: Log
    order: Ints
    reorder: Ints
    touched: Ints
    note: Log
    state: State


def history(tasks: Tasks, present: Any = 1) -> History:
    """Of tasks that nobody has simulated yet: all are touched. present: (n,) or for all"""
    n, edges, i = len(tasks.duration), len(tasks.to), np.int32
    made = History(
        tasks=tasks,
        present=np.full(n, present, i),
        source=np.repeat(np.arange(n, dtype=i), np.diff(tasks.first)),
        behind=np.full(edges, -1, i),
        ahead=np.full(edges, -1, i),
        into=np.full(n, -1, i),
        old=np.full((n, 8), NEVER),
        new=np.full((n, 8), NEVER),
        past=np.zeros((2 * n + 1, 4), np.int64),
        recent=np.zeros((2 * n + 1, 4), np.int64),
        order=np.zeros(n, i),
        reorder=np.zeros(n, i),
        touched=np.zeros(n, i),
        note=np.zeros(11, np.int64),
        state=events.state(n, len(tasks.lanes), 1, np.int64(0)),
    )
    _begin(made)
    return made


@kernel()
def _begin(h: History) -> None:
    """Hang up the edges, and touch all."""
    for edge in range(len(h.source)):
        if h.tasks.to[edge] >= 0:
            _hang(h, edge)
    h.note[TURN] = 1
    for task in range(len(h.present)):
        h.old[task, MARK] = 0
        if h.present[task]:
            h.note[TASKS] += 1
            touch(h, task, OTHER)


@inlined
def touch(h: History, task: int, how: int) -> None:
    """Note that a task is not what it was."""
    row = h.old[ix(task)]
    if row[MARK] < WAYS * h.note[TURN]:
        row[MARK] = WAYS * h.note[TURN]
        h.touched[ix(h.note[TOUCHED])] = task
        h.note[TOUCHED] += 1
    row[MARK] |= how


@inlined
def touched(h: History, task: int, how: int) -> bool:
    """Whether a task is touched in one of some ways."""
    mark = h.old[ix(task), MARK]
    return mark >= WAYS * h.note[TURN] and mark & how != 0


@kernel()
def put(h: History, task: int, resource: int, duration: int, lag: int) -> None:
    """A task is there, and so."""
    t, k = h.tasks, ix(task)
    same = t.resource[k] == resource and t.duration[k] == duration and t.lag[k] == lag
    if not (h.present[k] and same):
        touch(h, task, OTHER)
        h.note[TASKS] += 1 - h.present[k]
        h.present[k], t.resource[k], t.duration[k], t.lag[k] = 1, resource, duration, lag


@kernel()
def take_out(h: History, task: int) -> None:
    """A task, and all edges from it and to it, are no more."""
    if h.present[ix(task)]:
        touch(h, task, OTHER)
        h.present[ix(task)] = 0
        h.note[TASKS] -= 1
        for edge in range(h.tasks.first[ix(task)], h.tasks.first[ix(task + 1)]):
            link(h, edge, -1)
        while h.into[ix(task)] >= 0:
            link(h, h.into[ix(task)], -1)


@kernel()
def link(h: History, edge: int, task: int) -> None:
    """An edge leads to a task; -1: nowhere."""
    before = h.tasks.to[ix(edge)]
    if before != task:
        touch(h, h.source[ix(edge)], LEADING)
        if before >= 0:
            _unhang(h, edge)
            touch(h, before, REACHED)
        h.tasks.to[ix(edge)] = task
        if task >= 0:
            _hang(h, edge)
            touch(h, task, REACHED)


@inlined
def _hang(h: History, edge: int) -> None:
    """Put an edge among those that lead to its task."""
    task, e = ix(h.tasks.to[ix(edge)]), ix(edge)
    first = h.into[task]
    h.behind[e], h.ahead[e], h.into[task] = first, -1, edge
    if first >= 0:
        h.ahead[ix(first)] = edge


@inlined
def _unhang(h: History, edge: int) -> None:
    """Take an edge from those that lead to its task."""
    behind, ahead = h.behind[ix(edge)], h.ahead[ix(edge)]
    if behind >= 0:
        h.ahead[ix(behind)] = ahead
    if ahead >= 0:
        h.behind[ix(ahead)] = behind
    else:
        h.into[ix(h.tasks.to[ix(edge)])] = behind


@kernel()
def times(h: History, task: int) -> tuple[int, int]:
    """When a task begins and ends in the last proposal; NEVER: it does not."""
    old, new = h.old[ix(task)], h.new[ix(task)]
    start = stop = NEVER
    if new[MARK] == h.note[PROPOSAL] and new[BEGUN] < NEVER:
        start, stop = h.state.start[ix(task)], h.state.stop[ix(task)]
    elif old[BEGUN] <= h.note[KEPT]:
        start, stop = old[START], old[STOP]
    elif h.note[THERE] < old[BEGUN] < NEVER:
        start, stop = old[START] + h.note[SHIFT], old[STOP] + h.note[SHIFT]
    return start, stop


@inlined
def forget(h: History) -> None:
    """Reject a proposal. All tasks and edges have been put back as they were."""
    h.note[TOUCHED] = 0
    h.note[TURN] += 1


@kernel()
def accept(h: History) -> None:
    """The last proposal, since which nothing has been changed, is what further ones are compared with."""
    for k in range(h.note[TOUCHED]):
        if touched(h, h.touched[k], OTHER):
            _erase(h, h.touched[k])
    if h.note[THERE] == NEVER:
        for place in range(h.past[max(h.note[KEPT], 0), LOW], h.past[h.note[EVENTS], COUNT]):
            if h.old[ix(h.order[ix(place)]), RELEASED] > h.note[KEPT]:
                _erase(h, h.order[ix(place)])
        h.note[THERE] = h.note[EVENTS]
    _write(h)
    _shift_tasks(h)
    _shift_events(h)
    _copy(h)
    h.note[EVENTS] += h.note[HERE] - h.note[THERE]
    h.note[UNDONE] = h.note[TASKS] - h.past[h.note[EVENTS], ENDS]
    forget(h)


@inlined
def _erase(h: History, task: int) -> None:
    """Nothing happens to a task."""
    row = h.old[ix(task)]
    row[READY] = row[BEGUN] = row[ENDED] = row[RELEASED] = NEVER


@inlined
def _write(h: History) -> None:
    """What happened to tasks that the proposal has simulated; what was still to come comes as it did, but later."""
    later, shift = h.note[HERE] - h.note[THERE], h.note[SHIFT]
    for place in range(h.recent[max(h.note[KEPT], 0), LOW], h.recent[h.note[HERE], COUNT]):
        task = ix(h.reorder[ix(place)])
        old, new = h.old[task], h.new[task]
        if new[MARK] == h.note[PROPOSAL]:
            begun = new[BEGUN] < NEVER
            old[START] = h.state.start[task] if begun else old[START] + shift
            old[STOP] = h.state.stop[task] if begun else old[STOP] + shift
            for column in (BEGUN, ENDED, RELEASED):
                old[column] = new[column] if new[column] < NEVER else old[column] + later
            old[READY], old[PLACE] = new[READY], place


@inlined
def _shift_tasks(h: History) -> None:
    """Tasks that were not ready yet when old and new simulation were in step; their places, too."""
    first, last = h.past[h.note[THERE], COUNT], h.past[h.note[EVENTS], COUNT]
    later, further = h.note[HERE] - h.note[THERE], h.recent[h.note[HERE], COUNT] - first
    if later != 0 or further != 0 or h.note[SHIFT] != 0:
        for k in range(last - first):
            place = last - 1 - k if further > 0 else first + k
            task = h.order[ix(place)]
            h.order[ix(place + further)] = task
            row = h.old[ix(task)]
            row[PLACE] += further
            for column in (START, STOP):
                row[column] += h.note[SHIFT]
            for column in (READY, BEGUN, ENDED, RELEASED):
                row[column] += later


@inlined
def _shift_events(h: History) -> None:
    """Events that came after old and new simulation were in step."""
    there, events_before, later = h.note[THERE], h.note[EVENTS], h.note[HERE] - h.note[THERE]
    here, count, ends = h.recent[h.note[HERE]], h.past[there, COUNT], h.past[there, ENDS]
    for k in range(events_before - there):
        event = events_before - k if later > 0 else there + 1 + k
        row, shifted = h.past[event], h.past[event + later]
        any_since = row[ENDS] > ends
        shifted[LATEST] = row[LATEST] + h.note[SHIFT] if any_since else here[LATEST]
        shifted[ENDS] = row[ENDS] + here[ENDS] - ends
        shifted[LOW] = row[LOW] + here[COUNT] - count if row[LOW] >= count else here[LOW]
        shifted[COUNT] = row[COUNT] + here[COUNT] - count


@inlined
def _copy(h: History) -> None:
    """Events that the proposal has simulated, and the order in which tasks were ready."""
    kept, here = max(h.note[KEPT], 0), h.note[HERE]
    for event in range(kept, here + 1):
        for column in range(4):
            h.past[event, column] = h.recent[event, column]
    for place in range(h.recent[kept, LOW], h.recent[here, COUNT]):
        h.order[ix(place)] = h.reorder[ix(place)]
