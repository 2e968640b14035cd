"""Simulated annealing of a split for latency: groups move between subgraphs and CPUs, alone or a row of them.

Where accelerators have several subgraphs, a node of a group moves between those of one accelerator, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dse.place.clock import SLICE, slices
from dse.place.groups import grouped, starts
from dse.place.workload import Workload
from model.compiled import released
from model.mappings.arrays import Floats, Ints

COLD = 0.003
"""What is left of the temperature at last. Temperatures are the part of the latency by which a split may be worse."""


class Course(NamedTuple):
    """A workload's nodes for compiled code. slots: subgraphs; q: of them on one accelerator.

    source, cost, net_first, reader: nets, as in ``Groups``; succ_first, succ: who comes after each node
    first, member: nodes of each group, which share a device; order: groups in topological order
    """

    acc: Floats
    cpu: Floats
    size: Floats
    source: Ints
    cost: Floats
    net_first: Ints
    reader: Ints
    succ_first: Ints
    succ: Ints
    first: Ints
    member: Ints
    order: Ints
    memory: float
    slots: int
    q: int


def course(on: Workload, of: Ints, order: Ints, q: int) -> Course:
    """A workload laid out. of: (n,) group of each node; order: of the groups that move"""
    nodes = grouped(on, np.arange(len(on), dtype=np.int32))
    cpu = on.cpu if on.cpus else np.full(len(on), np.inf)
    return Course(
        on.acc, cpu, on.size, nodes.source, nodes.cost, nodes.first, nodes.reader,
        starts(on.edge[:, 0], len(on)), np.ascontiguousarray(on.edge[:, 1]),
        starts(of, int(of.max()) + 1), np.argsort(of, kind="stable").astype(np.int32), order,
        on.room, on.accelerators * q, q,
    )  # fmt: skip


def improve(on: Course, slot: Ints, seed: int, steps: int, hot: float, end: float = np.inf) -> Ints:
    """The best split found from one that is allowed. slot: (n,), ``on.slots`` for CPUs; end: when to stop looking"""
    best = slot.astype(np.int32).copy()
    at = best.copy()
    if len(on.order) and on.slots:
        for first in slices(steps, end):
            _improve(on, best, at, seed, first, steps, hot)
    return best


@released
def time_of(on, slot, unit_first, member, wait, ends, queue, held, mark):  # type: ignore[no-untyped-def]
    """Latency of a split; inf: not allowed. The other arguments are room to work in."""
    g, cpus = len(slot), on.slots
    held[:] = 0.0
    for v in range(g):
        if slot[v] < cpus:
            held[slot[v] // on.q] += on.size[v]
            if on.acc[v] == np.inf:
                return np.inf
    for d in range(on.slots // on.q):
        if held[d] > on.memory:
            return np.inf
    # takes of slots
    takes = ends  # reused: how long first, then when it ends
    for u in range(cpus + g):
        takes[u] = 0.0
        wait[u] = 0
        queue[u] = 0
    for s in range(cpus):
        mark[s] = -1
    for v in range(g):
        takes[slot[v] if slot[v] < cpus else cpus + v] += on.acc[v] if slot[v] < cpus else on.cpu[v]
    for net in range(len(on.source)):
        at, leaves = slot[on.source[net]], False
        for e in range(on.net_first[net], on.net_first[net + 1]):
            to = slot[on.reader[e]]
            if to != at:
                leaves = True
                if to < cpus and mark[to] != net:
                    mark[to] = net
                    takes[to] += on.cost[net]
        if leaves and at < cpus:
            takes[at] += on.cost[net]
    # members of slots
    unit_first[:] = 0
    for v in range(g):
        if slot[v] < cpus:
            unit_first[slot[v] + 1] += 1
    for s in range(cpus):
        unit_first[s + 1] += unit_first[s]
    for v in range(g):
        if slot[v] < cpus:
            member[unit_first[slot[v]]] = v
            unit_first[slot[v]] += 1
    for s in range(cpus, 0, -1):
        unit_first[s] = unit_first[s - 1]
    unit_first[0] = 0
    # what waits for how many
    for v in range(g):
        a = slot[v] if slot[v] < cpus else cpus + v
        for e in range(on.succ_first[v], on.succ_first[v + 1]):
            w = on.succ[e]
            b = slot[w] if slot[w] < cpus else cpus + w
            wait[b] += a != b
    for s in range(cpus):
        wait[s] += s % on.q > 0
    return _follow(on, slot, unit_first, member, wait, ends, queue)


@released
def _follow(on, slot, unit_first, member, wait, ends, queue):  # type: ignore[no-untyped-def]
    g, cpus = len(slot), on.slots
    first = last = 0
    total = 0
    for u in range(cpus + g):
        if u < cpus or slot[u - cpus] == cpus:
            total += 1
            if wait[u] == 0:
                queue[last] = u
                last += 1
    longest = 0.0
    begin = np.zeros(cpus + g)
    while first < last:
        u = queue[first]
        first += 1
        ends[u] += begin[u]
        longest = max(longest, ends[u])
        if u < cpus:
            if u % on.q + 1 < on.q:
                begin[u + 1] = max(begin[u + 1], ends[u])
                wait[u + 1] -= 1
                if wait[u + 1] == 0:
                    queue[last] = u + 1
                    last += 1
            low, high = unit_first[u], unit_first[u + 1]
        else:
            low, high = 0, 1
        for k in range(low, high):
            v = member[k] if u < cpus else u - cpus
            for e in range(on.succ_first[v], on.succ_first[v + 1]):
                w = on.succ[e]
                b = slot[w] if slot[w] < cpus else cpus + w
                if b != u:
                    begin[b] = max(begin[b], ends[u])
                    wait[b] -= 1
                    if wait[b] == 0:
                        queue[last] = b
                        last += 1
    return longest if first == total else np.inf


@released
def _put(on, group, to, slot):  # type: ignore[no-untyped-def]
    for k in range(on.first[group], on.first[group + 1]):
        slot[on.member[k]] = to


@released
def _slot_near(on, v, slot):  # type: ignore[no-untyped-def]
    """Where some node is that comes after one of a group; where the group is if none does."""
    u = on.member[np.random.randint(on.first[v], on.first[v + 1])]
    if on.succ_first[u + 1] > on.succ_first[u]:
        u = on.succ[np.random.randint(on.succ_first[u], on.succ_first[u + 1])]
    return slot[u]


@released
def _move_groups(on, slot):  # type: ignore[no-untyped-def]
    """Take a group elsewhere, and with luck some that follow; whether it was not there."""
    n = len(on.order)
    at = np.random.randint(n)
    v = on.order[at]
    was, kind = slot[on.member[on.first[v]]], np.random.randint(6)
    to = np.random.randint(on.slots + 1)
    if kind > 2:
        to = _slot_near(on, v, slot)
    elif kind > 1:
        to = slot[on.member[on.first[on.order[min(n - 1, max(0, at + np.random.randint(-6, 7)))]]]]
    if to == was:
        return False
    _put(on, v, to, slot)
    if kind % 2 == 1:
        for k in range(at + 1, min(n, at + 1 + np.random.randint(1, 16))):
            if slot[on.member[on.first[on.order[k]]]] == was:
                _put(on, on.order[k], to, slot)
    return True


@released
def _move_node(on, slot):  # type: ignore[no-untyped-def]
    """Take a node of a group to another subgraph of its accelerator; whether it was not there."""
    v = on.order[np.random.randint(len(on.order))]
    u = on.member[np.random.randint(on.first[v], on.first[v + 1])]
    was = slot[u]
    if was < on.slots:
        slot[u] = was // on.q * on.q + np.random.randint(on.q)
    return slot[u] != was


@released
def _improve(on, best, slot, seed, first, steps, hot):  # type: ignore[no-untyped-def]
    """``SLICE`` steps, from the first on. slot: where it has come to"""
    if first == 0:
        np.random.seed(seed)
    g = len(best)
    unit_first, member = np.zeros(on.slots + 1, np.int32), np.zeros(g, np.int32)
    wait, queue = np.zeros(on.slots + g, np.int32), np.zeros(on.slots + g, np.int32)
    ends, held, mark = np.zeros(on.slots + g), np.zeros(on.slots // on.q), np.zeros(on.slots, np.int32)
    saved = slot.copy()
    lowest = time_of(on, best, unit_first, member, wait, ends, queue, held, mark)
    now = time_of(on, slot, unit_first, member, wait, ends, queue, held, mark)
    for step in range(first, min(first + SLICE, steps) if lowest > 0 else first):
        heat = hot * COLD ** (step / steps)
        saved[:] = slot
        moved = _move_node(on, slot) if on.q > 1 and np.random.randint(4) == 0 else _move_groups(on, slot)
        if not moved:
            continue
        new = time_of(on, slot, unit_first, member, wait, ends, queue, held, mark)
        if new <= now or np.random.random() < np.exp((now - new) / (heat * now)):
            now = new
            if now < lowest - 1e-12:
                lowest = now
                best[:] = slot
            if now <= 0:
                return
        else:
            slot[:] = saved
