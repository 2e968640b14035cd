"""Splits as people and simple rules make them, which better ones are compared with (sections 6 and 7)."""

from __future__ import annotations

import numpy as np

from dse.place.period import floor_of
from dse.place.placed import Options, Placed, check, judged
from dse.place.reduced import reductions
from dse.place.workload import Workload
from runtime.errors import CleaveError


def greedy(on: Workload, options: Options) -> Placed:
    """Fill one accelerator after the other with the nodes that come next, as far as memory lets; a CPU has the rest."""
    check(on, options)
    of = reductions(on)[0]
    at, next_node = np.empty(len(of.on), dtype=np.int32), 0
    for device, kind in enumerate(np.repeat(np.arange(len(of.on.counts)), of.on.counts)):
        held = 0.0
        while next_node < len(at) and np.isfinite(of.on.time[next_node, kind]):
            held += of.on.size[next_node]
            if held > of.on.memory[kind]:
                break
            at[next_node] = device
            next_node += 1
    if next_node < len(at):
        raise CleaveError("filling one accelerator after the other leaves nodes over, and there is no CPU for them")
    return judged(on, options, at[of.part], floor_of(on, options))


def expert(on: Workload, options: Options) -> Placed:
    """As many nodes for each accelerator (without any, for each CPU), in topological order."""
    check(on, options)
    of = reductions(on)[0]
    shares = on.accelerators or on.cpus
    at = (np.arange(len(of.on)) * shares // max(1, len(of.on))).astype(np.int32)
    return judged(on, options, at[of.part], floor_of(on, options))
