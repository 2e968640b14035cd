"""What stays together as one: groups of nodes, and the nets between groups. What searches and programs run on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dse.place.workload import Workload, components
from model.mappings.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class Groups:
    """``g`` groups and ``m`` nets between them: a device that shares a net with others pays its cost once.

    of: (n,) group of each node; acc, cpu, size: (g,) sums
    source, cost: (m,) group and time of a net; first: (m + 1,) where its readers start in ``reader``
    """

    of: Ints
    acc: Floats
    cpu: Floats
    size: Floats
    source: Ints
    cost: Floats
    first: Ints
    reader: Ints

    def __len__(self) -> int:
        """How many groups."""
        return len(self.acc)

    def readers(self, net: int) -> Ints:
        """Groups that read a net, its source not among them."""
        return self.reader[self.first[net] : self.first[net + 1]]


def by_color(on: Workload) -> Ints:
    """(n,) group of each node: its colour, counted from 0."""
    return np.unique(on.color, return_inverse=True)[1].astype(np.int32).reshape(-1)


def joined(of: Ints, pairs: Ints) -> Ints:
    """Groups where those of each pair are one. pairs: (p, 2)"""
    return components(int(of.max(initial=-1)) + 1, pairs)[1][of]


def grouped(on: Workload, of: Ints) -> Groups:
    """Sums and nets of groups; nets with the same source and readers are one."""
    g = int(of.max(initial=-1)) + 1
    found: dict[tuple[int, ...], float] = {}
    readers: list[set[int]] = [set() for _ in range(len(on))]
    for source, reader in on.edge.tolist():
        readers[source].add(int(of[reader]))
    for v, read in enumerate(readers):
        others = sorted(read - {int(of[v])})
        if others and on.cost[v] > 0:
            key = (int(of[v]), *others)
            found[key] = found.get(key, 0.0) + float(on.cost[v])
    ends = np.cumsum([0] + [len(key) - 1 for key in found])
    return Groups(
        of,
        _sums(of, on.acc, g),
        _sums(of, on.cpu, g),
        _sums(of, on.size, g),
        np.array([key[0] for key in found], dtype=np.int32),
        np.array(list(found.values()), dtype=np.float64),
        ends.astype(np.int32),
        np.array([r for key in found for r in key[1:]], dtype=np.int32),
    )


def starts(of: Ints, n: int) -> Ints:
    """(n + 1,) where the members of each of ``n`` start in a list by number. of: (m,) numbers"""
    return np.cumsum(np.concatenate([[0], np.bincount(of, minlength=n)])).astype(np.int32)


def _sums(of: Ints, what: Floats, g: int) -> Floats:
    found = np.zeros(g)
    np.add.at(found, of, what)
    return found
