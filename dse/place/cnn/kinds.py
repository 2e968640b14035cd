"""Devices that are alike: those of a kind can stand for one another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from dse.place.cnn.wires import Wires
from model.cost.costs import CostArrays, whole_s
from model.mappings.arrays import Floats

Kinds = list[list[int]]
"""Devices of each kind."""


def alike(c: CostArrays, w: Wires) -> Kinds:
    """Devices with the same costs, memory and, at best, messages."""
    of: dict[bytes, list[int]] = {}
    for d in range(len(c.pool)):
        wire = [table[d] for table in w[:-1]]
        watts, room = [c.communication_w[d], c.awake_w[d], c.idle_w[d]], c.capacity[c.pool[d]]
        own = [c.work[:, d], c.beside[:, d], c.busy[d], c.memory[d], room, watts, *wire]
        of.setdefault(b"".join(np.ascontiguousarray(part).tobytes() for part in own), []).append(d)
    return list(of.values())


def merged(kinds: Kinds, c: CostArrays, most: float) -> list[Kinds]:
    """Kinds put together, the most similar ones first, until there are at most so many ways to choose from them.

    Each group is a list of kinds, whose table of costs is the least of theirs: a bound holds, if less tightly.
    """
    work = whole_s(c).sum(axis=0)
    groups = [[kind] for kind in sorted(kinds, key=lambda kind: work[kind[0]])]
    while len(groups) > 1 and ways(counts(groups)) > most:
        total = [work[group[0][0]] for group in groups]
        k = int(np.argmin([after / max(before, 1e-300) for before, after in pairwise(total)]))
        groups[k : k + 2] = [groups[k] + groups[k + 1]]
    return groups


def counts(groups: Sequence[Kinds]) -> list[int]:
    """Devices of each group."""
    return [sum(map(len, group)) for group in groups]


def ways(most: Sequence[int]) -> float:
    """Choices of so many devices of each kind at most, times kinds: what dynamic programming goes through."""
    return float(np.prod([count + 1.0 for count in most])) * len(most)


def least_of(table: Floats, kinds: Kinds, groups: list[Kinds]) -> Floats:
    """(groups, …) the least of a (kinds, …) table over the kinds of each group."""
    at = {kind[0]: k for k, kind in enumerate(kinds)}
    return np.array([table[[at[kind[0]] for kind in group]].min(axis=0) for group in groups])
