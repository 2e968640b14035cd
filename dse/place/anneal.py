"""Simulated annealing of a split for the period: groups move and swap, loads follow net by net.

What is lowered is a norm of the loads that is close to the largest and still tells of the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dse.place.clock import SLICE, slices
from dse.place.groups import Groups
from dse.place.workload import Workload
from model.compiled import released
from model.mappings.arrays import Floats, Ints

COLD = 0.00002
"""The temperature at last: by which part of the norm a worse split may be worse."""


ROW = 16
"""So many groups move together at most."""


class Board(NamedTuple):
    """Groups for compiled code. k: accelerators; time: (g, devices); width: readers of a net; nets: of each group, from
    ``start``"""

    k: int
    memory: float
    time: Floats
    size: Floats
    source: Ints
    cost: Floats
    first: Ints
    reader: Ints
    width: Ints
    start: Ints
    nets: Ints


def board(on: Workload, groups: Groups) -> Board:
    """The groups of a workload, laid out."""
    found: list[list[int]] = [[] for _ in range(len(groups))]
    for net, source in enumerate(groups.source.tolist()):
        for group in (source, *groups.readers(net).tolist()):
            found[group].append(net)
    return Board(
        on.accelerators,
        on.room,
        np.stack([groups.acc] * on.accelerators + [groups.cpu] * on.cpus, axis=1),
        groups.size,
        groups.source,
        groups.cost,
        groups.first,
        groups.reader,
        np.diff(groups.first).astype(np.int32),
        np.cumsum([0] + [len(nets) for nets in found]).astype(np.int32),
        np.array([net for nets in found for net in nets], dtype=np.int32),
    )


def anneal(on: Board, device: Ints, seed: int, steps: int, hot: float, end: float = np.inf) -> Ints:
    """The best split found from one given, which fits the memory. device: (g,); hot: the temperature at first; end:
    when to stop looking"""
    best = device.astype(np.int32).copy()
    at, lowest = best.copy(), np.zeros(2)
    if on.time.shape[0] > 0 and on.time.shape[1] > 1:
        for first in slices(steps, end):
            _anneal(on, best, at, lowest, seed, first, steps, hot)
    return best


@released
def _count(on, v, d, by, reads):  # type: ignore[no-untyped-def]
    """``v`` joins (1) or leaves (-1) the readers on device ``d``."""
    for e in range(on.start[v], on.start[v + 1]):
        if on.source[on.nets[e]] != v:
            reads[on.nets[e], d] += by


@released
def _joins(on, v, d, reads, device):  # type: ignore[no-untyped-def]
    """Time by which the load of device ``d`` grows if ``v`` joins it, which is not counted on it."""
    if d >= on.k:
        return on.time[v, d]
    gain = on.time[v, d]
    for e in range(on.start[v], on.start[v + 1]):
        net = on.nets[e]
        here, source = reads[net, d], on.source[net]
        if source == v:
            gain += (here < on.width[net]) * on.cost[net] - (here > 0) * on.cost[net]
        elif device[source] == d:
            gain -= (here + 1 == on.width[net]) * on.cost[net]
        elif here == 0:
            gain += on.cost[net]
    return gain


@released
def _move(on, v, to, reads, device, load, held):  # type: ignore[no-untyped-def]
    """Take ``v`` to a device."""
    at = device[v]
    _count(on, v, at, -1, reads)
    load[at] -= _joins(on, v, at, reads, device)
    load[to] += _joins(on, v, to, reads, device)
    held[at] -= on.size[v]
    held[to] += on.size[v]
    device[v] = to
    _count(on, v, to, 1, reads)


@released
def _loads(on, device, reads, load, held):  # type: ignore[no-untyped-def]
    """Loads from nothing: no error of sums builds up."""
    reads[:] = 0
    load[:] = 0
    held[:] = 0
    for v in range(len(device)):
        load[device[v]] += on.time[v, device[v]]
        held[device[v]] += on.size[v]
        _count(on, v, device[v], 1, reads)
    for net in range(len(on.source)):
        at = device[on.source[net]]
        if at < on.k and reads[net, at] < on.width[net]:
            load[at] += on.cost[net]
        for d in range(on.k):
            if d != at and reads[net, d] > 0:
                load[d] += on.cost[net]


@released
def _norm(load, scale):  # type: ignore[no-untyped-def]
    total = 0.0
    for x in load:
        y = (x / scale) ** 2
        y = y * y
        y = y * y
        total += y * y
    return total ** (1 / 16)


@released
def _row(on, v, to, device, row):  # type: ignore[no-untyped-def]
    """Some groups that move together: one, and with luck a neighbour by a net on the same device, and its, …"""
    row[0], count = v, 1
    while count < ROW and np.random.random() < 0.6:
        u = row[count - 1]
        if on.start[u + 1] == on.start[u]:
            break
        net = on.nets[np.random.randint(on.start[u], on.start[u + 1])]
        w = on.source[net]
        if w == u:
            w = on.reader[np.random.randint(on.first[net], on.first[net + 1])]
        if device[w] != device[v] or on.time[w, to] == np.inf:
            break
        for k in range(count):
            if row[k] == w:
                return count
        row[count] = w
        count += 1
    return count


@released
def _anneal(on, best, device, lowest, seed, first, steps, hot):  # type: ignore[no-untyped-def]
    """``SLICE`` steps, from the first on. device: where it has come to; lowest: largest load of the best, and of what
    it began with"""
    g, devices = on.time.shape
    reads = np.zeros((len(on.source), devices), np.int32)
    load, held = np.zeros(devices), np.zeros(devices)
    _loads(on, device, reads, load, held)
    if first == 0:
        np.random.seed(seed)
        lowest[:] = load.max()
    scale = lowest[1] if lowest[1] > 0 else 1.0
    now, row = _norm(load, scale), np.zeros(ROW, np.int32)
    for step in range(first, min(first + SLICE, steps) if now > 0 else first):
        heat = hot * (COLD / hot) ** (step / steps)
        v = np.random.randint(g)
        at, to = device[v], np.random.randint(devices)
        w = -1
        kind = np.random.randint(4)
        if kind == 0:  # where a neighbour by a net is
            w = np.random.randint(g)
            to = device[w]
        elif kind < 3 and on.start[v + 1] > on.start[v]:
            net = on.nets[np.random.randint(on.start[v], on.start[v + 1])]
            to = device[on.source[net]]
            if to == at:
                for d in range(devices):
                    if d != at and reads[net, d] > 0:
                        to = d
        if to == at or on.time[v, to] == np.inf or (w >= 0 and on.time[w, at] == np.inf):
            continue
        count = _row(on, v, to, device, row)
        for k in range(count):
            _move(on, row[k], to, reads, device, load, held)
        if w >= 0:
            _move(on, w, at, reads, device, load, held)
        new = _norm(load, scale)
        fits = (to >= on.k or held[to] <= on.memory) and (at >= on.k or held[at] <= on.memory)
        if fits and (new <= now or np.random.random() < np.exp((now - new) / (heat * now))):
            now = new
            if load.max() < lowest[0] - 1e-12:
                lowest[0] = load.max()
                best[:] = device
            if now <= 0:
                return
        else:
            if w >= 0:
                _move(on, w, to, reads, device, load, held)
            for k in range(count - 1, -1, -1):
                _move(on, row[k], at, reads, device, load, held)
