"""From ideal to ideal, compiled: a subgraph on an accelerator, a node on a CPU, or pieces of a span at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dse.place.groups import Groups, starts
from model.compiled import released
from model.mappings.arrays import Floats, Ints

ACCELERATOR, CPU, SPAN = range(3)
"""How an ideal was come by."""


class Tasks(NamedTuple):
    """Groups for compiled code: times, sizes, nets that each reads and makes. slots: subgraphs on accelerators."""

    acc: Floats
    cpu: Floats
    size: Floats
    cost: Floats
    width: Ints
    source: Ints
    read_first: Ints
    read: Ints
    made_first: Ints
    made: Ints
    memory: float
    slots: int


def tasks(groups: Groups, cpu: Floats, memory: float, slots: int) -> Tasks:
    """Groups laid out. cpu: (g,) time of each on CPUs, inf where there are none"""
    g, width = len(groups), np.diff(groups.first).astype(np.int32)
    net = np.repeat(np.arange(len(groups.source)), width)
    read = net[np.argsort(groups.reader, kind="stable")]
    return Tasks(
        groups.acc, cpu, groups.size, groups.cost, width, groups.source,
        starts(groups.reader, g), read.astype(np.int32),
        starts(groups.source, g), np.argsort(groups.source, kind="stable").astype(np.int32),
        memory, slots,
    )  # fmt: skip


@released
def _add(on, v, inside, touched, missing):  # type: ignore[no-untyped-def]
    """``v`` joins a subgraph: how much its transfers in, and those out, grow."""
    into = out = 0.0
    for e in range(on.read_first[v], on.read_first[v + 1]):
        net = on.read[e]
        if inside[on.source[net]]:
            missing[net] -= 1
            if missing[net] == 0:
                out -= on.cost[net]
        else:
            if touched[net] == 0:
                into += on.cost[net]
            touched[net] += 1
    for e in range(on.made_first[v], on.made_first[v + 1]):
        net = on.made[e]
        missing[net] = on.width[net]
        out += on.cost[net]
    inside[v] = True
    return into, out


@released
def _take(on, v, inside, touched, missing):  # type: ignore[no-untyped-def]
    """What ``_add`` did, undone."""
    inside[v] = False
    for e in range(on.read_first[v], on.read_first[v + 1]):
        net = on.read[e]
        if inside[on.source[net]]:
            missing[net] += 1
        else:
            touched[net] -= 1


@released
def _better(time, came, low, high, more, takes, how):  # type: ignore[no-untyped-def]
    for a in range(time.shape[1] - more):
        new = time[low, a] + takes
        if new < time[high, a + more]:
            time[high, a + more] = new
            came[high, a + more, 0] = low
            came[high, a + more, 1] = a
            came[high, a + more, 2] = how


@released
def _piece_time(p, low, high, a, slots, seen, flat, at, ideals):  # type: ignore[no-untyped-def]
    return flat[at[p] + (np.int64(seen[low, p]) * ideals[p] + seen[high, p]) * (slots + 1) + a]


@released
def _span(slots, low, high, counts, seen, flat, at, ideals, bound, time, came, takes, other):  # type: ignore[no-untyped-def]
    """A span between two ideals. counts: how many nodes of each piece are in it"""
    least = 0.0
    for p in range(len(counts)):
        if counts[p] > 0:
            least = max(least, _piece_time(p, low, high, slots, slots, seen, flat, at, ideals))
    use = False
    for a in range(slots + 1):
        use = use or time[low, a] + least < time[high, a]
    if not use:
        return
    takes[:] = 0.0
    for p in range(len(counts)):
        if counts[p] == 0:
            continue
        if bound:
            for a in range(slots + 1):
                takes[a] = max(takes[a], _piece_time(p, low, high, a, slots, seen, flat, at, ideals))
        else:
            other[:] = np.inf
            for a in range(slots + 1):
                for b in range(slots + 1 - a):
                    new = max(takes[b], _piece_time(p, low, high, a, slots, seen, flat, at, ideals))
                    if new < other[a + b]:
                        other[a + b] = new
            takes[:] = other
    for a in range(slots + 1):
        if a == 0 or takes[a] < takes[a - 1]:
            _better(time, came, low, high, a, takes[a], 2)


@released
def reach(on, nodes, start, stop, first, node, to, part, seen, flat, at, ideals, bound, time, came):  # type: ignore[no-untyped-def]
    """Times from some ideals on, see ``series.Piece.from_ideal``. From each lower one nodes are added in rising order,
    so that each higher one is reached once."""
    p, slots = len(nodes), on.slots
    inside = np.zeros(len(on.acc), np.bool_)
    touched, missing = np.zeros(len(on.cost), np.int32), np.zeros(len(on.cost), np.int32)
    ideal, pointer = np.zeros(p + 1, np.int32), np.zeros(p + 1, np.int32)
    into, out, work, held = np.zeros(p + 1), np.zeros(p + 1), np.zeros(p + 1), np.zeros(p + 1)
    parts = np.zeros(p + 1, np.int32)
    counts = np.zeros(len(ideals), np.int32)
    takes, other = np.zeros(slots + 1), np.zeros(slots + 1)
    for low in range(start, stop):
        for a in range(1, slots + 1):
            if time[low, a - 1] <= time[low, a]:
                time[low, a] = time[low, a - 1]
                came[low, a] = came[low, a - 1]
        if time[low, slots] == np.inf:
            continue
        depth = 0
        ideal[0], pointer[0] = low, first[low]
        into[0] = out[0] = work[0] = held[0] = 0.0
        parts[0] = 0
        while depth >= 0:
            if pointer[depth] == first[ideal[depth] + 1]:
                depth -= 1
                if depth >= 0:
                    v = node[pointer[depth] - 1]
                    _take(on, nodes[v], inside, touched, missing)
                    if part[v] >= 0:
                        counts[part[v]] -= 1
                continue
            v, high = node[pointer[depth]], to[pointer[depth]]
            pointer[depth] += 1
            if depth > 0 and v < node[pointer[depth - 1] - 1]:
                continue
            u = nodes[v]
            size, parting = held[depth] + on.size[u], parts[depth] + (part[v] < 0)
            fits = size <= on.memory and on.acc[u] < np.inf and work[depth] < np.inf and slots > 0
            if not fits and parting > 0 and depth > 0:
                continue
            if depth == 0:
                _better(time, came, low, high, 0, on.cpu[u], 1)
            i, o = _add(on, u, inside, touched, missing)
            if part[v] >= 0:
                counts[part[v]] += 1
            depth += 1
            ideal[depth], pointer[depth] = high, first[high]
            into[depth], out[depth] = into[depth - 1] + i, out[depth - 1] + o
            work[depth], held[depth] = work[depth - 1] + on.acc[u], size
            parts[depth] = parting
            if fits:
                _better(time, came, low, high, 1, into[depth] + work[depth] + out[depth], 0)
            if parting == 0 and depth > 1:
                _span(slots, low, high, counts, seen, flat, at, ideals, bound, time, came, takes, other)
            if not fits and parting > 0:
                pointer[depth] = first[high + 1]
