"""A lower bound on latency: the program of ``series`` on what is left of a workload when some of it costs nothing.

Without some nodes no split is slower: subgraphs lose work, transfers and inputs to wait for. Nodes that run beside a
large part of the longest path (a mask that every layer reads) leave few nodes that part the time; without them the
bound of the rest is sharp. Which are best left out is tried.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dse.place.clock import now
from dse.place.groups import by_color, grouped
from dse.place.latency import slots
from dse.place.reach import tasks
from dse.place.series import OutOfReachError, Piece
from dse.place.workload import Workload, components, topological
from model.mappings.arrays import Floats, Ints

BESIDE = (0, 4, 8, 12, 16, 24, 40, 1_000_000)
"""Nodes that run beside more than so many of the longest path are left out. Those that leave little come first, for
they take least time."""


def floor(on: Workload, q: int, due: float) -> float:
    """A time that no split with so many subgraphs on each accelerator is below. due: when to stop looking"""
    best = longest(on)
    count, label = components(len(on), on.edge)
    for part in range(count):
        whole = _kept(on, label == part)
        before: set[int] = set()
        for most in BESIDE:
            keep = beside(whole) <= most
            begin = now()
            if keep.any() and int(keep.sum()) not in before:
                before.add(int(keep.sum()))
                best = max(best, _in_series(_kept(whole, keep), q, due))
            if now() + 3 * (now() - begin) > due:
                break
    return best


def longest(on: Workload) -> float:
    """The longest path, where each node takes the least that it can."""
    return float(_longest(on, _least(on))[0].max(initial=0.0))


def _least(on: Workload) -> Floats:
    cpu = on.cpu if on.cpus else np.full(len(on), np.inf)
    return np.minimum(on.acc, cpu) if on.accelerators else cpu


def _longest(on: Workload, takes: Floats) -> tuple[Floats, Ints]:
    """(n,) ends of longest paths to each node, and which node comes before on it, -1: none."""
    ends, came = takes.copy(), np.full(len(on), -1, np.int32)
    readers: list[list[int]] = [[] for _ in range(len(on))]
    for source, reader in on.edge.tolist():
        readers[source].append(reader)
    for v in on.order.tolist():
        for w in readers[v]:
            if ends[v] + takes[w] > ends[w]:
                ends[w], came[w] = ends[v] + takes[w], v
    return ends, came


def _kept(on: Workload, keep: NDArray[np.bool_]) -> Workload:
    """A workload without some of its nodes."""
    new = np.cumsum(keep) - 1
    edge = on.edge[keep[on.edge].all(axis=1)]
    arrays = {name: getattr(on, name)[keep] for name in ("ids", "acc", "cpu", "cost", "size", "color", "backward")}
    return replace(on, **arrays, edge=new[edge].astype(np.int32).reshape(-1, 2))


def beside(on: Workload) -> Ints:
    """(n,) with how many nodes of the path with most work and transfers each one is not in order."""
    ends, came = _longest(on, _least(on) + on.cost + 1e-9)
    path = [int(np.argmax(ends))]
    while came[path[-1]] >= 0:
        path.append(int(came[path[-1]]))
    bit = {v: 1 << k for k, v in enumerate(path)}
    down, up = ([bit.get(v, 0) for v in range(len(on))] for _ in range(2))
    at = np.argsort(on.order)
    for source, reader in on.edge[np.argsort(at[on.edge[:, 0]], kind="stable")].tolist():
        down[reader] |= down[source]
    for source, reader in on.edge[np.argsort(-at[on.edge[:, 1]], kind="stable")].tolist():
        up[source] |= up[reader]
    return np.array([len(path) - (d | u).bit_count() for d, u in zip(down, up, strict=True)], np.int32)


def _in_series(on: Workload, q: int, due: float) -> float:
    of = _safely_grouped(on, q)
    groups = grouped(on, of)
    edge = between(on, of)
    order = topological(len(groups), edge)
    if len(order) < len(groups):
        return 0.0
    cpu = _inner_paths(on, of) if on.cpus else np.full(len(groups), np.inf)
    whole = Piece(tasks(groups, cpu, on.room, slots(on, q)), order, edge, True, due)
    try:
        return float(whole.table_from(0)[-1, -1])
    except OutOfReachError:
        return 0.0


def between(on: Workload, of: Ints) -> Ints:
    """(e, 2) edges between groups, sorted."""
    edge = of[on.edge]
    return np.unique(edge[edge[:, 0] != edge[:, 1]], axis=0).reshape(-1, 2).astype(np.int32)


def _safely_grouped(on: Workload, q: int) -> Ints:
    """Groups of one colour that wait for nothing together that they would not wait for apart; other nodes alone.

    Of several subgraphs of an accelerator each may have some nodes of a colour: all are alone then.
    """
    if q > 1:
        return np.arange(len(on), dtype=np.int32)
    of = by_color(on)
    paths = _inner_paths(on, of)
    alone = np.isinf(paths)[of]
    found = of.copy()
    found[alone] = len(paths) + np.arange(int(alone.sum()))
    return np.unique(found, return_inverse=True)[1].astype(np.int32).reshape(-1)


def _inner_paths(on: Workload, of: Ints) -> Floats:
    """(g,) the least, over inputs and outputs of a group, of the longest path between the two; inf where there is none.

    On accelerators a group waits for all that it reads anyway.
    """
    g = int(of.max(initial=-1)) + 1
    edge = of[on.edge]
    cut = edge[:, 0] != edge[:, 1]
    enters, leaves = (np.isin(np.arange(len(on)), on.edge[cut, side]) for side in (1, 0))
    members: list[list[int]] = [[] for _ in range(g)]
    for v in on.order.tolist():
        members[of[v]].append(v)
    before: list[list[int]] = [[] for _ in range(len(on))]
    for source, reader in on.edge[~cut].tolist():
        before[reader].append(source)
    return np.array([_inner(on, m, before, enters, leaves) for m in members], np.float64)


def _inner(on: Workload, members: list[int], before: list[list[int]], enters, leaves) -> float:  # type: ignore[no-untyped-def]
    if len(members) == 1:
        return float(on.cpu[members[0]])
    starts = [v for v in members if enters[v]] or [-1]
    ends_at = [v for v in members if leaves[v]]
    least = np.inf
    for start in starts:
        ends: dict[int, float] = {}
        for v in members:
            known = [ends[u] for u in before[v] if ends.get(u, -np.inf) > -np.inf]
            begin = max(known, default=0.0 if start in (-1, v) else -np.inf)
            ends[v] = begin + float(on.cpu[v])
        reached = [ends[v] for v in ends_at] or [max(ends.values())]
        if min(reached) == -np.inf:
            return np.inf
        least = min(least, min(reached))
    return float(least)
