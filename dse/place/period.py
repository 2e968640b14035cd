"""Contiguous splits of a workload for the period, the best one and those of methods that look at one order of nodes.

A training workload is a pipeline in either of two orders (``reduced``); the best is that of the better one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dse.place.clock import due, now
from dse.place.linear import branchings, linearised
from dse.place.machines import Machines, dealt, devices, spread
from dse.place.pipeline import Found, Rules, Watch, best, floor
from dse.place.placed import Options, Placed, check, judged, worth
from dse.place.reduced import Reduction, contracted, reductions
from dse.place.workload import Workload
from model.mappings.arrays import Ints
from runtime.errors import CleaveError

STOPPED = "the time limit came first: the best so far, no worse than that of the linearised program (dpl)"
NOTHING = "no contiguous split was found that fits: accelerators have too little memory"
MANY = "there are too many ideals to search them all: the answer of the linearised program (dpl)"


@dataclass(frozen=True, eq=False)
class Row:
    """One reduction of a workload. found: what is better than those before it; bound: that none is better than"""

    of: Reduction
    found: Found
    bound: float
    note: str
    ideals: int


def dp(on: Workload, options: Options) -> Placed:
    """The best contiguous split; after the time limit, or where there are too many ideals, the best so far."""
    check(on, options, machines=True, copies=True)
    watch = _watch(options)
    rows = list(_solved(on, options, watch))
    bound, note, count = min(row.bound for row in rows), max(row.note for row in rows), rows[0].ideals or None
    if options.machines > 1:
        return _over_machines(on, options, rows, watch, ideals=count)
    best_row = min(rows, key=lambda row: row.found.value)
    at, copies = stages_of(best_row.of, best_row.found)
    return judged(on, options, at, bound, note=note, ideals=count, copies=copies)


def _solved(on: Workload, options: Options, watch: Watch) -> Iterator[Row]:
    """Each reduction by itself, with what was found before as a bound."""
    rules, under = rules_of(options), np.inf
    for of in reductions(on):
        line = linearised(of.on, rules, under)
        whole = best(of.on, rules, min(under, line.value), watch)
        found = whole if whole.value < line.value else line
        under = min(under, found.value)
        note = "" if whole.complete else MANY if whole.crowded else STOPPED
        yield Row(of, found, whole.bound, note, whole.ideals)


def _over_machines(on: Workload, options: Options, rows: list[Row], watch: Watch, **more: Any) -> Placed:
    """The best split over machines; if there is no time to look for it, one for a single machine, dealt.

    That of a machine whose links are as fast as those within one, or all as slow as those between them.
    """
    machines = Machines(options.machines, options.slow)
    ends = [*_dealt(rows, machines), *_dealt(_solved(_slower(on, options), options, watch), machines)]
    under = min((worth(on, options, at) for at in ends), default=np.inf)
    bound, complete = np.inf, True
    for row in rows:
        value, found, all_seen = spread(row.of.on, machines, rules_of(options), under, watch)
        complete &= all_seen
        bound, under = min(bound, value, under), min(under, value)
        if found:
            ends.append(devices(row.of.on, found, machines)[row.of.part])
    if not ends:
        raise CleaveError(NOTHING)
    at = min(ends, key=lambda device: worth(on, options, device))
    flat = min(row.bound for row in rows)
    return judged(on, options, at, bound if complete else flat, note="" if complete else STOPPED, **more)


def _dealt(rows: Iterable[Row], machines: Machines) -> Iterator[Ints]:
    """Devices of the nodes of a workload, where the stages that were found can be dealt."""
    for row in rows:
        first = dealt(row.of.on, row.found.stages, machines) if row.found.stages else None
        if first:
            yield devices(row.of.on, first, machines)[row.of.part]


def _slower(on: Workload, options: Options) -> Workload:
    return replace(on, cost=on.cost * options.slow)


def dpl(on: Workload, options: Options) -> Placed:
    """The best contiguous split in which nodes follow one another depth first."""
    check(on, options, copies=True)
    answers = [(of, linearised(of.on, rules_of(options))) for of in reductions(on)]
    of, found = min(answers, key=lambda answer: answer[1].value)
    at, copies = stages_of(of, found)
    return judged(on, options, at, floor_of(on, options), copies=copies)


def pipedream(on: Workload, options: Options) -> Placed:
    """As PipeDream's optimizer has it: branches are contracted, what is left is a path."""
    check(on, options, copies=True)
    first = reductions(on)[0]
    path = contracted(on, branchings(first.on)[first.part], on.edge[:0])
    at, copies = stages_of(path, linearised(path.on, rules_of(options)))
    return judged(on, options, at, floor_of(on, options), copies=copies)


def floor_of(on: Workload, options: Options) -> float:
    """What no contiguous split is better than."""
    return min(floor(of.on, rules_of(options)) for of in reductions(on))


def rules_of(options: Options) -> Rules:
    """How devices work."""
    return Rules(options.mode, options.bandwidth)


def stages_of(of: Reduction, found: Found) -> tuple[Ints, Ints | None]:
    """(n,) first device of each of a workload's nodes, and (devices,) how many share its part, None: nowhere any do.

    ``CleaveError`` where nothing was found.
    """
    if found.crowded:
        raise CleaveError(f"the graph is too large: {len(of.on):,} nodes that could be apart")
    if not np.isfinite(found.value):
        raise CleaveError(NOTHING)
    free = (np.cumsum(of.on.counts) - of.on.counts).tolist()
    at, shared_by = np.empty(len(of.on), dtype=np.int32), np.ones(int(of.on.counts.sum()), dtype=np.int32)
    for kind, copies, nodes in found.stages:
        at[nodes] = free[kind]
        shared_by[free[kind]] = copies
        free[kind] += copies
    return at[of.part], shared_by if (shared_by > 1).any() else None


def _watch(options: Options) -> Watch:
    end = due(options.limit_s)

    def watch(done: int, of: int) -> bool:
        options.watch(done, of, "ideals")
        return now() < end

    return watch
