"""Pipelines of a graph whose nodes come in one order: DPL, the linearised program (section 5.1.2), and PipeDream's.

Polynomial, and seldom far from the best: it bounds the search over ideals, and answers where that has no end.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dse.place.pipeline import ALONE, Found, Rules, best
from dse.place.reduced import Reduced
from dse.place.workload import topological
from model.mappings.arrays import Ints


def linearised(on: Reduced, rules: Rules = ALONE, under: float = np.inf) -> Found:
    """The better of two orders: depth first, each time the first or the last of what could come next.

    The stages hold nodes of ``on``; ``Found.value`` is inf where nothing is better than ``under``.
    """
    found = along(on, np.arange(len(on), dtype=np.int32), rules, under)
    other = along(on, len(on) - 1 - topological(len(on), len(on) - 1 - on.edge), rules, min(under, found.value))
    return other if other.value < found.value else found


def along(on: Reduced, order: Ints, rules: Rules = ALONE, under: float = np.inf) -> Found:
    """The best pipeline of nodes in that order."""
    found = best(on.along(order), rules, under)
    return replace(found, stages=[(kind, copies, order[nodes].astype(np.intp)) for kind, copies, nodes in found.stages])


def branchings(on: Reduced) -> Ints:
    """(n,) a number for each node, ascending: branches are one with what lies beside them.

    A node is by itself if every other one comes before or after it.
    """
    n = len(on)
    above, below = ([1 << v for v in range(n)] for _ in range(2))
    for source, reader in on.edge.tolist():  # sorted by source: all that comes before it is known
        below[reader] |= below[source]
    for source, reader in on.edge[::-1].tolist():
        above[source] |= above[reader]
    alone = np.array([(a | b).bit_count() == n for a, b in zip(above, below, strict=True)])
    starts = alone | np.roll(alone, 1)
    return (np.cumsum(starts) - starts[:1].sum()).astype(np.int32)
