"""Splits for latency that run in series and in parallel: the best of them by dynamic programming, and a lower bound.

A node with which every other one is in order (before or after it) parts a sample's time: what comes before it has
ended when its subgraph starts, what comes after starts when that has ended, for a subgraph runs without a break. So
time is a chain from ideal to ideal of: a subgraph on an accelerator; a node on a CPU; a *span* between them without
such a node. Taken by itself a span falls into *pieces* between which there is no edge and which run at a time: its
time is the longest of theirs, and each of them is such a graph again.

Pieces that share no accelerator give a split. A split of a span, seen on one piece, is a split of that piece that
takes no longer and no more accelerators; so if each piece may have them all, no split is below. A connected piece
without such a node is bounded by its longest path.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dse.place.clock import now
from dse.place.reach import ACCELERATOR, SPAN, Tasks, reach
from dse.place.workload import components
from model.mappings.arrays import Floats, Ints

IDEALS = 150_000
"""More than so many ideals are not looked at."""
AT_ONCE = 64
"""From so many ideals others are reached before the clock is looked at."""
TABLE = 40_000_000
"""More numbers than this are not kept for one piece."""


class OutOfReachError(Exception):
    """A graph has too many ideals, or time is over."""


@dataclass(eq=False)
class Piece:
    """A part of the graph, its ideals, and the pieces that it falls into. node: (p,) groups in topological order."""

    tasks: Tasks
    node: Ints
    edge: Ints
    bound: bool
    due: float = np.inf
    closed: list[int] | None = None
    """Those ideals that can be; None: all."""
    chain: bool = False
    """Whether it is not to fall apart."""

    @cached_property
    def local(self) -> Ints:
        """(e, 2) its edges, by position in ``node``."""
        at = {int(v): k for k, v in enumerate(self.node)}
        return np.array([(at[a], at[b]) for a, b in self.edge.tolist() if a in at and b in at], np.int32).reshape(-1, 2)

    @cached_property
    def before(self) -> list[int]:
        """Ancestors of each node, as bits."""
        found = [0] * len(self.node)
        for source, reader in self.local[np.argsort(self.local[:, 1], kind="stable")].tolist():
            found[reader] |= found[source] | 1 << source
        return found

    @cached_property
    def parting(self) -> NDArray[np.bool_]:
        """(p,) whether every other node is in order with this one."""
        after = [0] * len(self.node)
        for bits in self.before:
            while bits:
                low = bits & -bits
                after[low.bit_length() - 1] += 1
                bits ^= low
        return np.array([b.bit_count() + a + 1 == len(self.node) for b, a in zip(self.before, after, strict=True)])

    @cached_property
    def parts(self) -> list[Ints]:
        """Positions of the nodes of each piece that is left without the parting nodes."""
        if self.chain or (not self.parting.any() and components(len(self.node), self.local)[0] == 1):
            return []
        inner = self.local[~self.parting[self.local].any(axis=1)]
        count, label = components(len(self.node), inner)
        of = [np.flatnonzero((label == c) & ~self.parting).astype(np.int32) for c in range(count)]
        return [part for part in of if len(part)]

    @cached_property
    def pieces(self) -> list[Piece]:
        """What it falls into, with the ideals that its own hold."""
        found = []
        for part in self.parts:
            held = {_taken(bits, part) for bits in self.ideals}
            closed = sorted(held, key=lambda bits: (bits.bit_count(), bits))
            found.append(Piece(self.tasks, self.node[part], self.edge, self.bound, self.due, closed))
        return found

    @cached_property
    def ideals(self) -> list[int]:
        """All ideals, as bits, smaller ones first. ``OutOfReachError``"""
        if self.closed is not None:
            return self.closed
        need = [sum(1 << u for u in set(self.local[self.local[:, 1] == v, 0].tolist())) for v in range(len(self.node))]
        found, level = [0], [0]
        while level:
            above: set[int] = set()
            for i in level:
                above.update(i | 1 << v for v in range(len(need)) if not i >> v & 1 and not need[v] & ~i)
                if len(found) + len(above) > IDEALS or now() > self.due:
                    raise OutOfReachError
            level = sorted(above)
            found += level
        return found

    @cached_property
    def index(self) -> dict[int, int]:
        """Where each ideal is."""
        return {bits: k for k, bits in enumerate(self.ideals)}

    @cached_property
    def steps(self) -> tuple[Ints, Ints, Ints]:
        """From each ideal: (ideals + 1,) first step; node that is added, and ideal that comes of it, by node."""
        first, node, to = [0], list[int](), list[int]()
        for bits in self.ideals:
            if now() > self.due:
                raise OutOfReachError
            for v in range(len(self.node)):
                if not bits >> v & 1 and (bits | 1 << v) in self.index:
                    node.append(v)
                    to.append(self.index[bits | 1 << v])
            first.append(len(node))
        return np.array(first, np.int32), np.array(node, np.int32), np.array(to, np.int32)

    @cached_property
    def seen(self) -> Ints:
        """(ideals, pieces) which ideal of a piece each ideal holds."""
        found = np.zeros((len(self.ideals), max(1, len(self.pieces))), np.int32)
        for p, (part, piece) in enumerate(zip(self.parts, self.pieces, strict=True)):
            memo: dict[int, int] = {}
            mask = sum(1 << int(v) for v in part)
            for k, bits in enumerate(self.ideals):
                inner = bits & mask
                if inner not in memo:
                    memo[inner] = piece.index[_taken(inner, part)]
                found[k, p] = memo[inner]
        return found

    @cached_property
    def part_of(self) -> Ints:
        """(p,) piece of each node; -1: a parting one, -2: nothing falls apart"""
        found = np.full(len(self.node), -1 if self.parts else -2, np.int32)
        for p, part in enumerate(self.parts):
            found[part] = p
        return found

    @cached_property
    def table(self) -> Floats:
        """(ideals, ideals, slots + 1) time from ideal to ideal with at most so many subgraphs on accelerators."""
        n, a = len(self.ideals), self.tasks.slots + 1
        if n * n * a > TABLE:
            raise OutOfReachError
        return np.stack([self.table_from(k) for k in range(n)])

    def table_from(self, start: int) -> Floats:
        """(ideals, slots + 1) of ``table`` from one ideal."""
        if not self.bound or self.parts or self.parting.any():
            return self.from_ideal(start)[0]
        takes = np.minimum(self.tasks.acc, self.tasks.cpu)[self.node]
        before = [self.local[self.local[:, 1] == v, 0].tolist() for v in range(len(self.node))]
        low = self.ideals[start]
        found = [np.inf if low & ~high else _longest(takes, before, high & ~low) for high in self.ideals]
        if now() > self.due:
            raise OutOfReachError
        return np.repeat(np.array(found)[:, None], self.tasks.slots + 1, axis=1)

    @cached_property
    def tables(self) -> tuple[Floats, NDArray[np.int64], Ints]:
        """Tables of its pieces in one row, where each starts, and how many ideals each has."""
        tables = [piece.table for piece in self.pieces]
        start = np.cumsum([0] + [t.size for t in tables]).astype(np.int64)
        return (
            np.concatenate([t.ravel() for t in tables] or [np.zeros(1)]),
            start,
            np.array([len(t) for t in tables] or [0], np.int32),
        )

    @cached_property
    def from_nothing(self) -> tuple[Floats, Ints]:
        """From the ideal that holds no node, once."""
        return self.from_ideal(0)

    def from_ideal(self, start: int) -> tuple[Floats, Ints]:
        """From one ideal to all others: (ideals, slots + 1) time with at most so many subgraphs, and (…, 3) from which
        ideal that was, with how many, and how."""
        n, a = len(self.ideals), self.tasks.slots + 1
        takes, came = np.full((n, a), np.inf), np.full((n, a, 3), -1, np.int32)
        takes[start] = 0.0
        spans = (*self.steps, self.part_of, self.seen, *self.tables, self.bound)
        for low in range(start, n, AT_ONCE):
            reach(self.tasks, self.node, low, min(n, low + AT_ONCE), *spans, takes, came)
            if now() > self.due:
                raise OutOfReachError
        return takes, came


def _taken(bits: int, part: Ints) -> int:
    """Of a set's bits those at some positions, next to each other."""
    return sum(1 << at for at, v in enumerate(part.tolist()) if bits >> v & 1)


def _longest(takes: Floats, before: list[list[int]], bits: int) -> float:
    ends: dict[int, float] = {}
    for v in range(len(takes)):
        if bits >> v & 1:
            ends[v] = takes[v] + max((ends[u] for u in before[v] if u in ends), default=0.0)
    return max(ends.values(), default=0.0)


def placed(piece: Piece, start: int, end: int, a: int, slot: Ints, free: int) -> int:
    """Put the groups between two ideals into slots from ``free`` on, as ``table`` has it with ``a``; the next free one.

    slot: (g,) is written to; what it does not write stays as it was: on a CPU
    """
    _, came = piece.from_ideal(start) if start else piece.from_nothing
    while end != start:
        low, less, how = (int(x) for x in came[end, a])
        if how == ACCELERATOR:
            added = piece.ideals[end] & ~piece.ideals[low]
            slot[piece.node[[v for v in range(len(piece.node)) if added >> v & 1]]] = free
            free += 1
        elif how == SPAN:
            for p, share in _shares(piece, low, end, a - less):
                free = placed(piece.pieces[p], int(piece.seen[low, p]), int(piece.seen[end, p]), share, slot, free)
        end, a = low, less
    return free


def _shares(piece: Piece, low: int, high: int, a: int) -> list[tuple[int, int]]:
    """Which piece of a span has how many subgraphs on accelerators, so that the longest takes least."""
    seen = [p for p in range(len(piece.pieces)) if piece.seen[low, p] != piece.seen[high, p]]
    takes = {p: piece.pieces[p].table[piece.seen[low, p], piece.seen[high, p]] for p in seen}
    share = dict.fromkeys(seen, 0)
    for _ in range(a):
        longest = max(seen, key=lambda p: float(takes[p][share[p]]))
        share[longest] += 1
    return list(share.items())
