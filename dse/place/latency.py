"""The latency of a split for one sample, as section 4 of the paper that ``workload`` names defines it.

An accelerator runs a subgraph once all its inputs are in memory: transfers in, computing, transfers out, without a
break. Its subgraphs run one after the other in the order of their slots. A node on a CPU runs as soon as its
predecessors are there: there is a CPU for every node that could run at a time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dse.place.split import SUM, faults, load
from dse.place.workload import Workload, topological
from model.mappings.arrays import Floats, Ints
from runtime.errors import CleaveError


def slots(on: Workload, q: int = 1) -> int:
    """How many subgraphs accelerators have: slot ``s`` is on accelerator ``s // q``. From there on: CPUs."""
    return on.accelerators * q


def devices(on: Workload, slot: Ints, q: int = 1) -> Ints:
    """(n,) device of each node. slot: (n,)"""
    return np.where(slot < slots(on, q), slot // q, on.accelerators).astype(np.int32)


def latency(on: Workload, slot: Ints, q: int = 1) -> float:
    """Time from the sample to the last result. slot: (n,); ``CleaveError`` if subgraphs wait for each other."""
    return float(_ends(on, slot, q).max(initial=0.0))


def wrong(on: Workload, slot: Ints, q: int = 1) -> list[str]:
    """What a split may not do, in sentences, as ``split.faults`` says it; with subgraphs that wait for each other."""
    found = faults(on, devices(on, slot, q))
    if (slot >= slots(on, q)).any() and on.cpus == 0:
        found.append("a node is on a CPU, and there is none")
    try:
        _ends(on, slot, q)
    except CleaveError as error:
        found += error.sentences
    return found


def _ends(on: Workload, slot: Ints, q: int) -> Floats:
    """When slots and CPU nodes have ended: (slots + n,)."""
    count = slots(on, q)
    unit = np.where(slot < count, slot, count + np.arange(len(on))).astype(np.int32)
    takes = np.concatenate([_slot_times(on, slot, count), on.cpu])
    edge = unit[on.edge]
    same = np.arange(count - 1)[np.diff(np.arange(count) // q) == 0]
    edge = np.concatenate([edge[edge[:, 0] != edge[:, 1]], np.stack([same, same + 1], axis=1)]).astype(np.int32)
    order = topological(len(takes), edge)
    if len(order) < len(takes):
        raise CleaveError("subgraphs wait for each other in a circle")
    ends = np.zeros(len(takes))
    before: list[list[int]] = [[] for _ in takes]
    for source, reader in edge.tolist():
        before[reader].append(source)
    used = np.bincount(unit, minlength=len(takes)) > 0
    for u in order.tolist():
        ends[u] = max((ends[b] for b in before[u]), default=0.0) + (takes[u] if used[u] else 0.0)
    return ends


def _slot_times(on: Workload, slot: Ints, count: int) -> Floats:
    """(slots,) what slots take: in, computing, out. As many accelerators as slots would take the same."""
    apart = replace(on, accelerators=count, cpus=1)
    return load(apart, np.minimum(slot, count).astype(np.int32)).of(SUM)[:count]
