"""Delta simulation: after a change of some tasks only what changes in the timeline is simulated again.

FlexFlow (Jia et al., 2019, section 5.3) simulates again what starts at another time. In a network that is a chain this
is all that follows. But what follows is mostly the old timeline, later: with times in whole ticks a simulation whose
state is that of the old one, so many ticks later, goes on as the old one did, so many ticks later. Hence

1. the events before any touched task could have a part in them stay (``_kept``),
2. the state after them is made again from the log (``_restore``),
3. the new tasks are simulated from there (``_go_on``), until
4. old and new simulation are in step (``_in_step``): the rest is the old rest, shifted.

A proposal is accepted (the log is brought up to date) or forgotten, after the tasks have been put back.
The result is that of ``events.simulate``, exactly.
"""

from __future__ import annotations

import numpy as np

from model.compiled import inlined, kernel
from model.mappings.arrays import ix
from model.simulator import events
from model.simulator.events import PLAIN
from model.simulator.history import (
    BEGUN,
    COUNT,
    ENDED,
    ENDS,
    EVENTS,
    HERE,
    KEPT,
    LATEST,
    LEADING,
    LOW,
    MARK,
    NEVER,
    OTHER,
    PLACE,
    PROPOSAL,
    REACHED,
    READY,
    RELEASED,
    SHIFT,
    START,
    STOP,
    THERE,
    TOUCHED,
    UNDONE,
    WITNESS,
    History,
    touched,
)


@kernel()
def propose(h: History) -> tuple[int, int]:
    """Simulate the tasks as they are now; returns when the last one ended, and how many did.

    Fewer than there are: the others wait for one another.
    """
    h.note[PROPOSAL] += 1
    h.note[KEPT] = _kept(h)
    h.note[SHIFT], h.note[WITNESS] = 0, -1
    size = _begin(h) if h.note[KEPT] < 0 else _restore(h)
    _go_on(h, size)
    last = h.recent[h.note[HERE]]
    if h.note[THERE] == NEVER:
        return last[LATEST], last[ENDS]
    total, there = h.past[h.note[EVENTS]], h.past[h.note[THERE]]
    more = total[ENDS] - there[ENDS]
    return total[LATEST] + h.note[SHIFT] if more else last[LATEST], last[ENDS] + more


@inlined
def _kept(h: History) -> int:
    """After how many events of the old simulation the new one is the same, at least; -1: not even before the first."""
    kept = h.note[EVENTS]
    for k in range(h.note[TOUCHED]):
        task = h.touched[k]
        if touched(h, task, OTHER | REACHED):
            kept = min(kept, h.old[ix(task), READY] - 1)
            if h.present[ix(task)]:
                kept = min(kept, _possible(h, task) - 1)
    return kept


@inlined
def _possible(h: History, task: int) -> int:
    """When all that a task needs now has happened in the old simulation."""
    last, edge = 0, h.into[ix(task)]
    while edge >= 0:
        last = max(last, h.old[ix(h.source[ix(edge)]), RELEASED])
        edge = h.behind[ix(edge)]
    return last


@inlined
def _reset(h: History) -> None:
    """No task anywhere."""
    for resource in range(len(h.tasks.lanes)):
        h.state.head[ix(resource)], h.state.idle[ix(resource)] = -1, h.tasks.lanes[ix(resource)]


@inlined
def _appear(h: History, task: int) -> None:
    """Nothing has happened to a task in this proposal yet."""
    row = h.new[ix(task)]
    row[READY] = row[BEGUN] = row[ENDED] = row[RELEASED] = NEVER
    row[MARK] = h.note[PROPOSAL]


@kernel()
def _begin(h: History) -> int:
    """The state before the first event; returns the size of the heap. Tasks that need nothing, as they are numbered."""
    w, size = h.state, 0
    for k in range(h.past[0, COUNT]):
        if not touched(h, h.order[k], OTHER | REACHED):
            events.push(w.when, w.what, False, size, 0, h.order[k])
            size += 1
    for k in range(h.note[TOUCHED]):
        task = h.touched[k]
        if touched(h, task, OTHER | REACHED) and h.present[ix(task)] and h.into[ix(task)] < 0:
            events.push(w.when, w.what, False, size, 0, task)
            size += 1
    count = size
    for k in range(count):
        h.reorder[k] = w.what[0]
        events.pop(w.when, w.what, False, count - k)
    _reset(h)
    size = 0
    for k in range(count):
        _appear(h, h.reorder[k])
        size = _ready(h, size, h.reorder[k], k, 0, 0)
    h.recent[0, COUNT], h.recent[0, LOW], h.recent[0, ENDS], h.recent[0, LATEST] = count, 0, 0, 0
    return size


@kernel()
def _restore(h: History) -> int:
    """The state after the events that stay; returns the size of the heap."""
    kept, size = h.note[KEPT], 0
    _reset(h)
    for column in range(4):
        h.recent[kept, column] = h.past[kept, column]
    for place in range(h.past[kept, LOW], h.past[kept, COUNT]):
        task = h.order[ix(place)]
        h.reorder[ix(place)] = task
        if max(h.old[ix(task), ENDED], h.old[ix(task), RELEASED]) > kept:
            size = _resume(h, size, task, kept)
    return size


@inlined
def _resume(h: History, size: int, task: int, kept: int) -> int:
    """A task that is ready but not done is where it was: in the queue, or under way."""
    t, w, old, row, k = h.tasks, h.state, h.old[ix(task)], h.new[ix(task)], ix(task)
    _appear(h, task)
    row[READY], row[PLACE] = old[READY], old[PLACE]
    if old[BEGUN] > kept:
        events.queue(w, t.resource[k], task)
    else:
        row[BEGUN], w.start[k], w.stop[k] = old[BEGUN], old[START], old[STOP]
        if old[ENDED] > kept:
            events.push(w.when, w.what, False, size, old[STOP], task)
            size += 1
            if t.resource[k] >= 0:
                w.idle[ix(t.resource[k])] -= 1
        else:
            row[ENDED] = old[ENDED]
        if old[RELEASED] <= kept:
            row[RELEASED] = old[RELEASED]
        elif t.lag[k] >= 0:
            events.push(w.when, w.what, False, size, old[START] + t.lag[k], len(h.present) + task)
            size += 1
    return size


@inlined
def _ready(h: History, size: int, task: int, place: int, now: int, handled: int) -> int:
    """A task is ready; returns the size of the heap."""
    h.new[ix(task), READY], h.new[ix(task), PLACE] = handled, place
    grown = events.ready(h.tasks, len(h.present), PLAIN, h.state, size, task, task, now)
    if grown > size:
        h.new[ix(task), BEGUN] = handled
    return grown


@kernel()
def _go_on(h: History, size: int) -> None:
    """Handle events until old and new simulation are in step, or there are none."""
    t, w, n = h.tasks, h.state, len(h.present)
    gone, highest, remaining = _to_come(h)
    handled = max(h.note[KEPT], 0)
    same = handled
    row = h.recent[ix(handled)]
    count, low, ended, latest = row[COUNT], row[LOW], row[ENDS], row[LATEST]
    h.note[THERE] = NEVER
    while size:
        now, event = w.when[0], w.what[0]
        events.pop(w.when, w.what, False, size)
        size -= 1
        handled += 1
        task = event if event < n else event - n
        column = ENDED if event < n else RELEASED
        h.new[ix(task), column] = handled
        if event >= n or t.lag[ix(task)] < 0:
            h.new[ix(task), RELEASED] = handled
            for edge in range(t.first[ix(task)], t.first[ix(task + 1)]):
                following = t.to[ix(edge)]
                if following >= 0 and _released(h, following):
                    h.reorder[ix(count)] = following
                    size = _ready(h, size, following, count, now, handled)
                    count += 1
        if event < n:
            ended, latest = ended + 1, now
            following = events.leave(t, w, task)
            if following >= 0:
                size = events.begin(t, n, PLAIN, w, size, following, following, now)
                h.new[ix(following), BEGUN] = handled
        while low < count and _done(h, h.reorder[ix(low)]):
            low += 1
        row = h.recent[ix(handled)]
        row[COUNT], row[LOW], row[ENDS], row[LATEST] = count, low, ended, latest
        if touched(h, task, OTHER):
            remaining -= 1
        else:
            same += 1
            highest = max(highest, h.old[ix(task), column])
            if touched(h, task, LEADING) and h.new[ix(task), RELEASED] == handled:
                remaining -= 1
        if remaining == 0 and highest == same + gone and size > 0 and _in_step(h, size, highest):
            h.note[THERE] = highest
            break
    h.note[HERE] = handled


@inlined
def _to_come(h: History) -> tuple[int, int, int]:
    """Events of other tasks in the old simulation, the last one of them or of those that stay, and what must happen
    before old and new simulation can be in step: other tasks are done, and edges that changed have had their effect.

    A simulation in which tasks were left undone is never in step with another one: their last event never comes.
    """
    gone, last, coming = 0, NEVER if h.note[UNDONE] else max(h.note[KEPT], 0), 0
    for k in range(h.note[TOUCHED]):
        task = ix(h.touched[k])
        old = h.old[task]
        if not touched(h, h.touched[k], OTHER):
            coming += int(touched(h, h.touched[k], LEADING) and old[RELEASED] > h.note[KEPT])
        else:
            if old[ENDED] < NEVER:
                gone += 1 + int(old[ENDED] != old[RELEASED])
                last = max(last, old[ENDED], old[RELEASED])
            if h.present[task]:
                coming += 1 + int(h.tasks.lag[task] >= 0)
    return gone, last, coming


@inlined
def _released(h: History, task: int) -> bool:
    """One of the things that a task needs has happened; whether it was the last one.

    Those that had happened before the proposal are counted when the task is met for the first time.
    """
    k = ix(task)
    if h.new[k, MARK] != h.note[PROPOSAL]:
        _appear(h, task)
        missing, edge = 0, h.into[k]
        while edge >= 0:
            missing += int(h.old[ix(h.source[ix(edge)]), RELEASED] > h.note[KEPT])
            edge = h.behind[ix(edge)]
        h.state.missing[k] = missing
    h.state.missing[k] -= 1
    return h.state.missing[k] == 0


@inlined
def _done(h: History, task: int) -> bool:
    """Whether a task that was ready has no event any more."""
    row = h.new[ix(task)]
    return row[MARK] != h.note[PROPOSAL] or max(row[ENDED], row[RELEASED]) < NEVER


@kernel()
def _in_step(h: History, size: int, there: int) -> bool:
    """Whether the new simulation is where the old one was after ``there`` events.

    It is known that other tasks are done in both, that the same events of all tasks but these have been handled, and
    that no edge that changed is still to have an effect: so the same tasks are ready. What is under way must be so
    late as everything else, and queues must be in the same order.
    """
    w, n, witness = h.state, len(h.present), h.note[WITNESS]
    shift = _late(h, w.what[0], there)
    if witness >= 0:
        column = ENDED if witness < n else RELEASED
        if h.new[ix(witness % n), column] == NEVER and _late(h, witness, there) != shift:
            return False
    for k in range(size):
        late = _late(h, w.what[ix(k)], there)
        if late != shift or late == NEVER:
            h.note[WITNESS] = w.what[ix(k)]
            return False
    for resource in range(len(w.head)):
        task, place = w.head[ix(resource)], np.int64(-1)
        while task >= 0:
            if h.old[ix(task), PLACE] < place:
                return False
            place, task = h.old[ix(task), PLACE], w.behind[ix(task)]
    h.note[SHIFT] = shift
    return True


@inlined
def _late(h: History, event: int, there: int) -> int:
    """By how many ticks an event comes later than in the old simulation; NEVER: its task had not begun there."""
    late, n = NEVER, len(h.present)
    task = ix(event if event < n else event - n)
    if h.old[task, BEGUN] <= there:
        late = h.state.start[task] - h.old[task, START] if event >= n else h.state.stop[task] - h.old[task, STOP]
    return late
