"""The ideals of a graph: sets of nodes that hold, with a node, all that comes before it.

What lies between two ideals is a stretch that one device can run in one go (fact 5.2 of the paper that ``workload``
names). Ideals are found by size, each with its steps: the nodes that can come next, and the ideal that each leads to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.compiled import kernel
from model.mappings.arrays import Ints, ix

Bits = NDArray[np.uint64]
WORD = 64
STEPS = 4
"""Steps of an ideal that there is room for at first, on average."""


class Lattice(NamedTuple):
    """``I`` ideals by size, 0 is empty, the last is all; ``L`` steps.

    member: (I, words) uint64 of an ideal, a bit a node
    first: (I + 1,), node, to: (L,) int32 steps of an ideal, nodes ascending
    """

    member: Bits
    first: Ints
    node: Ints
    to: Ints

    def __len__(self) -> int:
        """How many ideals."""
        return len(self.member)

    def between(self, low: int, high: int) -> NDArray[np.intp]:
        """Nodes that are in the higher ideal and not in the lower."""
        bits = (self.member[high] & ~self.member[low]).view(np.uint8)
        return np.flatnonzero(np.unpackbits(bits, bitorder="little"))


class _Room(NamedTuple):
    """The lattice while it grows. code: hash; parent, by: an ideal below and the step from it; slot: ideals by hash"""

    member: Bits
    code: Bits
    parent: Ints
    by: Ints
    first: Ints
    node: Ints
    to: Ints
    slot: Ints


class _Graph(NamedTuple):
    """Successors and predecessors by node, and a random number for each."""

    after_ptr: Ints
    after: Ints
    before_ptr: Ints
    before: Ints
    key: Bits


Watch = Callable[[int], bool]
"""Told how many ideals there are; whether to go on."""


def ideals(n: int, edge: Ints, most: int, watch: Watch = lambda _: True) -> Lattice | None:
    """Those of a graph whose edges lead to higher numbers; none where there are more than ``most``."""
    graph, room = _graph(n, edge), _room(n + 256, n)
    room.slot[0] = 0
    done, count, steps = 0, 1, 0
    while done < count:
        done, count, steps = _grow(graph, room, done, count, steps)
        if done < count and (count > most or not watch(count)):
            return None
        if done < count:
            room = _larger(room, n, count, steps)
    if count > most:
        return None
    member, first = room.member[:count].copy(), room.first[: count + 1].copy()
    return Lattice(member, first, room.node[:steps].copy(), room.to[:steps].copy())


def _graph(n: int, edge: Ints) -> _Graph:
    key = np.random.default_rng(0).integers(1, 1 << 63, n, dtype=np.uint64)
    return _Graph(*_by(n, edge[:, 0], edge[:, 1]), *_by(n, edge[:, 1], edge[:, 0]), key)


def _by(n: int, of: Ints, other: Ints) -> tuple[Ints, Ints]:
    order = np.lexsort((other, of))
    pointers = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=n))])
    return pointers.astype(np.int32), np.ascontiguousarray(other[order])


def _room(ideals: int, n: int) -> _Room:
    def ints(count: int) -> Ints:
        return np.zeros(count, dtype=np.int32)

    steps, slots = STEPS * ideals + n, 1 << (2 * ideals).bit_length()
    member = np.zeros((ideals, max(1, -(-n // WORD))), dtype=np.uint64)
    below = np.zeros(ideals, dtype=np.uint64), ints(ideals), ints(ideals)
    return _Room(member, *below, ints(ideals + 1), ints(steps), ints(steps), ints(slots) - 1)


def _larger(room: _Room, n: int, count: int, steps: int) -> _Room:
    found = _room(max(2 * len(room.code), steps // STEPS + n, count + n), n)
    for name in room._fields[:-1]:
        old = getattr(room, name)
        getattr(found, name)[: len(old)] = old
    _fill(found, count)
    return found


@kernel()
def _fill(room: _Room, count: int) -> None:
    for ideal in range(count):
        mask = len(room.slot) - 1
        at = np.int64(room.code[ix(ideal)] & np.uint64(mask))
        while room.slot[ix(at)] >= 0:
            at = (at + 1) & mask
        room.slot[ix(at)] = ideal


@kernel()
def _grow(g: _Graph, room: _Room, done: int, count: int, steps: int) -> tuple[int, int, int]:
    """Find what ideals lead to, until all are done or there is no room for another's steps."""
    n = len(g.key)
    while done < count and count + n <= len(room.code) and steps + n <= len(room.node):
        stop = _ready(g, room, done, steps)
        for step in range(steps, stop):
            room.to[ix(step)] = _find(g, room, done, room.node[ix(step)], count)
            count = max(count, room.to[ix(step)] + 1)
        steps = stop
        done += 1
        room.first[ix(done)] = steps
    return done, count, steps


@kernel()
def _ready(g: _Graph, room: _Room, ideal: int, stop: int) -> int:
    """Write the steps of an ideal: those that its parent had, and what the step from there has made possible."""
    if ideal == 0:
        for node in range(len(g.key)):
            if g.before_ptr[ix(node)] == g.before_ptr[ix(node + 1)]:
                room.node[ix(stop)] = node
                stop += 1
        return stop
    begin, parent, by = stop, room.parent[ix(ideal)], room.by[ix(ideal)]
    for step in range(room.first[ix(parent)], room.first[ix(parent + 1)]):
        if room.node[ix(step)] != by:
            room.node[ix(stop)] = room.node[ix(step)]
            stop += 1
    for k in range(g.after_ptr[ix(by)], g.after_ptr[ix(by + 1)]):
        if _allowed(g, room, ideal, g.after[ix(k)]):
            at = stop
            while at > begin and room.node[ix(at - 1)] > g.after[ix(k)]:
                room.node[ix(at)] = room.node[ix(at - 1)]
                at -= 1
            room.node[ix(at)] = g.after[ix(k)]
            stop += 1
    return stop


@kernel()
def _allowed(g: _Graph, room: _Room, ideal: int, node: int) -> bool:
    for k in range(g.before_ptr[ix(node)], g.before_ptr[ix(node + 1)]):
        before = g.before[ix(k)]
        if not room.member[ix(ideal), ix(before >> 6)] >> np.uint64(before & 63) & np.uint64(1):
            return False
    return True


@kernel()
def _find(g: _Graph, room: _Room, ideal: int, node: int, count: int) -> int:
    """The ideal with a node more: one that is known, or number ``count``."""
    code, mask = room.code[ix(ideal)] ^ g.key[ix(node)], len(room.slot) - 1
    at = np.int64(code & np.uint64(mask))
    while room.slot[ix(at)] >= 0:
        if room.code[ix(room.slot[ix(at)])] == code and _is(room, room.slot[ix(at)], ideal, node):
            return room.slot[ix(at)]
        at = (at + 1) & mask
    room.slot[ix(at)] = count
    room.code[ix(count)], room.parent[ix(count)], room.by[ix(count)] = code, ideal, node
    for word in range(room.member.shape[1]):
        room.member[ix(count), ix(word)] = room.member[ix(ideal), ix(word)]
    room.member[ix(count), ix(node >> 6)] |= np.uint64(1) << np.uint64(node & 63)
    return count


@kernel()
def _is(room: _Room, found: int, ideal: int, node: int) -> bool:
    for word in range(room.member.shape[1]):
        more = np.uint64(1) << np.uint64(node & 63) if word == node >> 6 else np.uint64(0)
        if room.member[ix(found), ix(word)] != room.member[ix(ideal), ix(word)] | more:
            return False
    return True
