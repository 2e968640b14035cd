"""What consecutive layers cost, wherever a chromosome may cut the network: each stretch on each kind of device.

Where whole layers follow one another on a device, all others being elsewhere, its segments are known: one begins with
a layer that is the first to read something from before the stretch, and after one that something behind it reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import numpy as np

from model.compiled import kernel, on_all_cores
from model.cost.costs import HOLD, WATTS, CostArrays
from model.cost.rest import busy_after
from model.cost.seconds import seconds_of
from model.mappings.arrays import Floats, GraphArrays, Ints, edges
from model.mappings.lowering import Shards
from model.network.boxes import CHANNELS

COUNT, BYTES = 0, 1
"""Columns of what crosses the borders of a stretch."""
ROWS_AT_ONCE = 64


class Stretches(NamedTuple):
    """Entry ``[a, b]``, a < b: the layers from ``cuts[a]`` up to ``cuts[b]``. ``C`` devices, ``m`` = len(cuts) - 1.

    seconds: (C, m+1, m+1) they take; until: (C, m+1, m+1) up to the last one that layer ``cuts[b]`` reads, 0: none
    into, out: (m+1, m+1, 2) how many tensors come in and go out at least, and their bytes
    joules: (C, m+1, m+1) of computing; held: (C, m+1, m+1) resident bytes of their weights
    """

    seconds: Floats
    until: Floats
    into: Floats
    out: Floats
    joules: Floats
    held: Floats


def stretches(g: GraphArrays, c: CostArrays, cuts: Ints, devices: list[int]) -> Stretches:
    """Of all pairs of cuts. cuts: (m+1,) rising layers, the first 0 and the last ``n_layers``"""
    tables = (len(devices), len(cuts), len(cuts))
    seconds, until, joules = np.zeros(tables), np.zeros(tables), np.zeros(tables)
    last, (behind, last_use) = last_read(g, cuts), _news(g)
    for k, device in enumerate(devices):
        known = (g, _on_one(g, device), c, device, cuts, last, behind, last_use, seconds[k], until[k], joules[k])
        on_all_cores(partial(_time, *known), len(cuts) - 1, ROWS_AT_ONCE)
    layers = slice(g.n_inputs, g.n_inputs + g.n_layers)
    bytes_of = c.cut_bytes[layers, CHANNELS] + c.kept_bytes[layers, CHANNELS]
    resident = bytes_of[:, None] * c.work[layers][:, devices, HOLD]
    so_far = np.vstack((np.zeros(len(devices)), np.cumsum(resident, axis=0)))[cuts].T
    crosses = crossing(g, positions(g, cuts), np.ones(g.n_layers), len(cuts), edges(g))
    return Stretches(seconds, until, *crosses, joules, so_far[:, None, :] - so_far[:, :, None])


def last_read(g: GraphArrays, cuts: Ints) -> Ints:
    """(m+1,) the last layer that the layer behind a cut reads; -1 where it reads none, and at the end."""
    read = [g.tensor_task[g.edge_tensor[g.edge_ptr[t] : g.edge_ptr[t + 1]]] for t in g.n_inputs + cuts[:-1]]
    return np.array([max(0, *makers, g.n_inputs - 1) - g.n_inputs for makers in read] + [-1], dtype=np.int32)


def _on_one(g: GraphArrays, device: int) -> Shards:
    """Everything whole on one device: a shard a task, so that tasks can be named in place of shards."""
    tasks = len(g.size)
    ptr = np.arange(tasks + 1, dtype=np.int32)
    i = np.int32
    kind = np.full(tasks, CHANNELS, i)
    return Shards(ptr, ptr[1:], kind, np.full(tasks, device, i), np.zeros(tasks, i), np.ones(tasks, i))


@kernel(nogil=True)
def _time(
    g: GraphArrays,
    s: Shards,
    c: CostArrays,
    device: int,
    cuts: Ints,
    last: Ints,
    behind: Ints,
    last_use: Ints,
    seconds: Floats,
    until: Floats,
    joules: Floats,
    first: int,
    stop: int,
) -> None:
    """Rows ``first`` to ``stop`` of the tables of a device."""
    for a in range(first, stop):
        for b in range(a + 1, len(cuts)):
            begin, end = g.n_inputs + cuts[a], g.n_inputs + cuts[b]
            since, spent, total, energy = -1, 0.0, 0.0, 0.0
            for task in range(begin, end):
                if since < 0 or behind[task] < begin:
                    since, spent = task, 0.0
                added = seconds_of(g, s, c, task, 1.0, device, since, spent, False)
                energy += busy_after(c, device, spent, added, False, False) * c.work[task, device, WATTS]
                spent += added
                total += added
                if task == g.n_inputs + last[b]:
                    until[a, b] = total
                if last_use[task] >= end:
                    since = -1
            seconds[a, b] = total
            joules[a, b] = energy


def _news(g: GraphArrays) -> tuple[Ints, Ints]:
    """(T,) each: a task is the first of a stretch to read something of before it, where the stretch begins behind the
    first of these tasks; and it sends something, where the stretch ends before the second."""
    behind, last = np.full(len(g.size), len(g.size), np.int32), np.full(len(g.size), -1, np.int32)
    for tensor, task in enumerate(g.tensor_task):
        uses = g.use_task[g.use_ptr[tensor] : g.use_ptr[tensor + 1]]
        uses = np.unique(uses[uses < g.n_inputs + g.n_layers])
        if task >= g.n_inputs and len(uses):
            behind[uses] = np.minimum(behind[uses], [task, *uses[:-1]])
            last[task] = max(last[task], uses[-1])
    return behind, last


def positions(g: GraphArrays, cuts: Ints) -> Ints:
    """(L,) between which cuts a layer lies."""
    return (np.searchsorted(cuts, np.arange(g.n_layers), side="right") - 1).astype(np.int32)


def crossing(
    g: GraphArrays, at: Ints, kept: Floats, cuts: int, over: Iterable[tuple[int, int, int]]
) -> tuple[Floats, Floats]:
    """(cuts, cuts, 2) messages and bytes that come into a stretch and go out of it, by first and last cut; what enters
    and leaves the network is not counted.

    at: ``positions``; kept: (L,) share of what a layer makes that its device has; over: ``edges`` that are looked at
    """
    into, out = (np.zeros((cuts, cuts, 2)) for _ in range(2))
    readers: dict[tuple[int, int], set[int]] = {}
    for edge, maker, reader in over:
        readers.setdefault((maker, int(g.edge_tensor[edge])), set()).add(int(at[reader]))
    for (maker, tensor), on in readers.items():
        here, behind = int(at[maker]), np.array(sorted(reader for reader in on if reader > at[maker]))
        message = 1.0, g.tensor_bytes[tensor] * kept[maker]
        if len(behind):
            out[: here + 1, here + 1 : behind[-1] + 1] += message
            for a in range(here + 1, behind[-1] + 1):
                into[a, behind[np.searchsorted(behind, a)] + 1 :] += message
    return into, out
