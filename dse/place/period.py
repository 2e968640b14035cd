"""Contiguous splits of a workload for the period, the best one and those of methods that look at one order of nodes.

A training workload is a pipeline in either of two orders (``reduced``); the best is that of the better one.
"""

from __future__ import annotations

import time

import numpy as np

from dse.place.linear import branchings, linearised
from dse.place.pipeline import Found, Rules, Watch, best, floor
from dse.place.placed import Options, Placed, check, judged
from dse.place.reduced import Reduction, contracted, reductions
from dse.place.workload import Workload
from model.arrays import Ints
from runtime.errors import CleaveError

STOPPED = "the time limit came first: the best so far, no worse than that of the linearised program (dpl)"
MANY = "there are too many ideals to search them all: the answer of the linearised program (dpl)"


def dp(on: Workload, options: Options) -> Placed:
    """The best contiguous split; after the time limit, or where there are too many ideals, the best so far."""
    check(on, options)
    rules, watch, under = rules_of(options), _watch(options), np.inf
    answers, bounds, note = [], [], ""
    for of in reductions(on):
        line = linearised(of.on, rules, under)
        whole = best(of.on, rules, min(under, line.value), watch)
        under = min(under, line.value, whole.value)
        answers += [(of, line), (of, whole)]
        bounds.append(whole.bound)
        if not whole.complete:
            note = MANY if whole.crowded else STOPPED
    of, found = min(answers, key=lambda answer: answer[1].value)
    at, copies = stages_of(of, found)
    return judged(on, options, at, min(bounds), note=note, ideals=answers[1][1].ideals or None, copies=copies)


def dpl(on: Workload, options: Options) -> Placed:
    """The best contiguous split in which nodes follow one another depth first."""
    check(on, options)
    answers = [(of, linearised(of.on, rules_of(options))) for of in reductions(on)]
    of, found = min(answers, key=lambda answer: answer[1].value)
    at, copies = stages_of(of, found)
    return judged(on, options, at, floor_of(on, options), copies=copies)


def pipedream(on: Workload, options: Options) -> Placed:
    """As PipeDream's optimizer has it: branches are contracted, what is left is a path."""
    check(on, options)
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
        raise CleaveError("no contiguous split was found that fits: accelerators have too little memory")
    free = (np.cumsum(of.on.counts) - of.on.counts).tolist()
    at, shared_by = np.empty(len(of.on), dtype=np.int32), np.ones(int(of.on.counts.sum()), dtype=np.int32)
    for kind, copies, nodes in found.stages:
        at[nodes] = free[kind]
        shared_by[free[kind]] = copies
        free[kind] += copies
    return at[of.part], shared_by if (shared_by > 1).any() else None


def _watch(options: Options) -> Watch:
    end = np.inf if options.limit_s is None else time.monotonic() + options.limit_s

    def watch(done: int, of: int) -> bool:
        options.watch(done, of, "ideals")
        return time.monotonic() < end

    return watch
