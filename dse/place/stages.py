"""The dynamic program over ideals, compiled: section 5.1.1 of the paper that ``workload`` names, C.1 and C.2 with it.

A state is an ideal and how many devices of each class have run it; its value is the largest load among them. From each
ideal the stretches that a next device could run are walked depth first, nodes added by ascending number: each ideal
above is met once, without a search for it, and what a net costs is kept up from node to node. No pairs are kept.

A walk turns back once a device's computing, with the nets that are cut whatever is added (they have a node in the ideal
below and one in the stretch), is as much as the best that is known. States are passed over whose remaining work is
more than what the devices that are left can do in that time, and those that others reach with fewer devices and no
more load.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.place.ideals import Lattice
from dse.place.workload import MARGIN
from model.compiled import inlined, kernel
from model.mappings.arrays import Floats, Ints, ix

SUM, OVERLAP, DUPLEX = range(3)
"""``split.MODES``, by number."""


class Costs(NamedTuple):
    """``reduced.Reduced`` as the walk wants it, ``P`` = product of (counts + 1) cells.

    time (n, C), size (n,), cost (N, C), source (N,), counts, memory (C,): as there; pins: (N,) nodes of a net, one more
    for those outside, outside: (N,) 1: there are such
    net_ptr, net: nets of a node; used: (P, C) devices of a cell; stride: (C,) from a cell to that with a device more
    weight: (C,) of a second of each class, work: (n,) the least weighted time of a node
    mode: see above; pace: seconds a byte of keeping copies of a stage equal; copies: of a stage at most
    """

    time: Floats
    size: Floats
    cost: Floats
    source: Ints
    counts: Ints
    memory: Floats
    pins: Ints
    outside: Ints
    net_ptr: Ints
    net: Ints
    used: Ints
    stride: Ints
    weight: Floats
    work: Floats
    mode: int
    pace: float
    copies: int


class Table(NamedTuple):
    """value: (I, P) largest load so far; below: (I, P) ideal before the last stage; stage: (I, P) class + C * (copies
    - 1) of it; best: (1,) value of a whole split, which a better one must stay under"""

    value: Floats
    below: Ints
    stage: NDArray[np.int16]
    best: Floats


class Walk(NamedTuple):
    """Working memory of a walk from an ideal.

    low, here: (N,) nodes of a net in that ideal (or outside), and in the stretch; made: (N,) where its source is, 1:
    in that ideal (or outside), 2: in the stretch, 0: elsewhere
    least: (P,) smallest value with so many devices or fewer; kept: (P,); open: (C,) copies that a stage could have
    first: (C * copies + 1,), value, cell: states that a stage of a class and number of copies can follow, and what with
    By depth: at, next, last: ideal, step, node; held: bytes; time, into, out: (., C) computing and transfers; fixed,
    fixed_out: (., C) those transfers that stay whatever is added
    """

    low: Ints
    here: Ints
    made: Ints
    least: Floats
    kept: NDArray[np.bool_]
    open: Ints
    first: Ints
    value: Floats
    cell: Ints
    at: Ints
    next: Ints
    last: Ints
    held: Floats
    time: Floats
    into: Floats
    out: Floats
    fixed: Floats
    fixed_out: Floats


def walk(on: Costs) -> Walk:
    """Memory for walks."""
    (n, classes), nets, cells = on.time.shape, len(on.pins), len(on.used)
    i, f = np.int32, np.float64
    states = cells * classes * on.copies
    shapes = [(nets, i)] * 3 + [(cells, f), (cells, np.bool_), (classes, i), (classes * on.copies + 1, i)]
    shapes += [(states, f), (states, i), *[(n + 1, i)] * 3, (n + 1, f), *[((n + 1, classes), f)] * 5]
    return Walk(*[np.zeros(shape, dtype) for shape, dtype in shapes])


@inlined
def busy(mode: int, time: float, into: float, out: float) -> float:
    if mode == SUM:
        return time + into + out
    return max(time, into + out) if mode == OVERLAP else max(time, into, out)


@inlined
def _each(on: Costs, load: float, held: float, copies: int) -> float:
    """Time for one sample of a stage that several devices share, and that keep their weights equal (C.2)."""
    if copies == 1:
        return load
    wait = (copies - 1) * held * on.pace / copies
    return load / copies + wait if on.mode == SUM else max(load / copies, wait)


@kernel()
def sweep(on: Costs, of: Lattice, table: Table, w: Walk, begin: int, most: int) -> tuple[int, int]:
    """Walk from ideals from ``begin`` on until the last, or until ``most`` pairs: where to go on, pairs walked."""
    pairs, ideal = 0, begin
    while ideal < len(of.first) - 2 and pairs < most:
        if _states(on, of, table, w, ideal):
            _below(on, of, w, ideal)
            pairs += _climb(on, of, table, w, ideal)
        ideal += 1
    return ideal, pairs


@kernel()
def _states(on: Costs, of: Lattice, table: Table, w: Walk, ideal: int) -> int:
    """List the states of an ideal from which there may be something better; how many."""
    if not _useful(on, table, w, ideal):
        return 0
    _fitting(on, of, table, w, ideal)
    found = 0
    for c in range(len(on.counts)):
        w.open[ix(c)] = 0
        for copies in range(1, on.copies + 1):
            w.first[ix(c * on.copies + copies - 1)] = found
            for cell in range(len(on.used)):
                if w.kept[ix(cell)] and on.used[ix(cell), ix(c)] + copies <= on.counts[ix(c)]:
                    w.value[ix(found)] = table.value[ix(ideal), ix(cell)]
                    w.cell[ix(found)] = cell + copies * on.stride[ix(c)]
                    found += 1
                    w.open[ix(c)] = copies
    w.first[ix(len(on.counts) * on.copies)] = found
    return found


@kernel()
def _useful(on: Costs, table: Table, w: Walk, ideal: int) -> int:
    """Keep states under the best that no other with fewer devices equals; how many."""
    count = 0
    for cell in range(len(on.used)):
        least = np.inf
        for c in range(len(on.counts)):
            if on.used[ix(cell), ix(c)]:
                least = min(least, w.least[ix(cell - on.stride[ix(c)])])
        value = table.value[ix(ideal), ix(cell)]
        w.least[ix(cell)] = min(least, value)
        w.kept[ix(cell)] = value < least and value < table.best[0]
        count += w.kept[ix(cell)]
    return count


@kernel()
def _fitting(on: Costs, of: Lattice, table: Table, w: Walk, ideal: int) -> None:
    """Of those kept, drop which leave more work or bytes than the other devices can take."""
    work = held = 0.0
    for node in range(len(on.size)):
        if not _has(of, ideal, node):
            work += on.work[ix(node)]
            held += on.size[ix(node)]
    for cell in range(len(on.used)):
        time = room = 0.0
        for c in range(len(on.counts)):
            free = on.counts[ix(c)] - on.used[ix(cell), ix(c)]
            if free:
                time += free * on.weight[ix(c)] * table.best[0]
                room += free * on.memory[ix(c)]
        if work > time * MARGIN or held > room * MARGIN:
            w.kept[ix(cell)] = False


@inlined
def _has(of: Lattice, ideal: int, node: int) -> bool:
    return of.member[ix(ideal), ix(node >> 6)] >> np.uint64(node & 63) & np.uint64(1) != 0


@kernel()
def _below(on: Costs, of: Lattice, w: Walk, ideal: int) -> None:
    """What each net has in an ideal, or outside."""
    for net in range(len(on.pins)):
        w.low[ix(net)], w.made[ix(net)] = on.outside[ix(net)], on.source[ix(net)] < 0
    for node in range(len(on.size)):
        if _has(of, ideal, node):
            for k in range(on.net_ptr[ix(node)], on.net_ptr[ix(node + 1)]):
                net = on.net[ix(k)]
                w.low[ix(net)] += 1
                if on.source[ix(net)] == node:
                    w.made[ix(net)] = 1


@kernel()
def _climb(on: Costs, of: Lattice, table: Table, w: Walk, ideal: int) -> int:
    """Walk all stretches above an ideal; how many."""
    depth, pairs = 0, 0
    w.at[0], w.next[0], w.last[0] = ideal, of.first[ix(ideal + 1)], -1
    while depth >= 0:
        step = w.next[ix(depth)] - 1
        w.next[ix(depth)] = step
        if step < of.first[ix(w.at[ix(depth)])] or of.node[ix(step)] <= w.last[ix(depth)]:
            if depth:
                _take(on, w, w.last[ix(depth)])
            depth -= 1
            continue
        node = of.node[ix(step)]
        pairs += 1
        if not _computed(on, table, w, depth, node):
            continue
        _put(on, w, depth, node)
        if not _hopeful(on, table, w, depth + 1):
            _take(on, w, node)
            continue
        depth += 1
        w.at[ix(depth)], w.last[ix(depth)] = of.to[ix(step)], node
        w.next[ix(depth)] = of.first[ix(of.to[ix(step)] + 1)]
        _update(on, of, table, w, depth, ideal)
    return pairs


@inlined
def _computed(on: Costs, table: Table, w: Walk, depth: int, node: int) -> bool:
    """Computing and bytes with a node more; whether any class could still do it."""
    held = w.held[ix(depth)] + on.size[ix(node)]
    w.held[ix(depth + 1)] = held
    hope = False
    for c in range(len(on.counts)):
        time = w.time[ix(depth), ix(c)] + on.time[ix(node), ix(c)]
        w.time[ix(depth + 1), ix(c)] = time
        hope |= time < w.open[ix(c)] * table.best[0] and held <= on.memory[ix(c)]
    return hope


@inlined
def _put(on: Costs, w: Walk, depth: int, node: int) -> None:
    """Add a node to the stretch: what its nets cost then."""
    classes = len(on.counts)
    for c in range(classes):
        w.into[ix(depth + 1), ix(c)] = w.into[ix(depth), ix(c)]
        w.out[ix(depth + 1), ix(c)] = w.out[ix(depth), ix(c)]
        w.fixed[ix(depth + 1), ix(c)] = w.fixed[ix(depth), ix(c)]
        w.fixed_out[ix(depth + 1), ix(c)] = w.fixed_out[ix(depth), ix(c)]
    for k in range(on.net_ptr[ix(node)], on.net_ptr[ix(node + 1)]):
        net = on.net[ix(k)]
        before, all_here = w.here[ix(net)], w.here[ix(net)] + 1 == on.pins[ix(net)]
        w.here[ix(net)] += 1
        if on.mode != DUPLEX:
            if before == 0 or all_here:
                sign = 1 - int(all_here)
                for c in range(classes):
                    cost = on.cost[ix(net), ix(c)]
                    if before == 0:
                        w.into[ix(depth + 1), ix(c)] += cost
                    else:
                        w.into[ix(depth + 1), ix(c)] -= cost
                    if before == 0 and w.low[ix(net)] > 0:
                        w.fixed[ix(depth + 1), ix(c)] += cost * sign
        else:
            _put_duplex(on, w, depth, net, node, before, all_here)


@kernel()
def _put_duplex(on: Costs, w: Walk, depth: int, net: int, node: int, before: int, all_here: bool) -> None:
    source = on.source[ix(net)] == node
    for c in range(len(on.counts)):
        cost = on.cost[ix(net), ix(c)]
        if source:
            if before:
                w.into[ix(depth + 1), ix(c)] -= cost
            if not all_here:
                w.out[ix(depth + 1), ix(c)] += cost
            if w.low[ix(net)]:
                w.fixed_out[ix(depth + 1), ix(c)] += cost
        elif w.made[ix(net)] == 2:
            if all_here:
                w.out[ix(depth + 1), ix(c)] -= cost
        elif before == 0:
            w.into[ix(depth + 1), ix(c)] += cost
            if w.made[ix(net)] == 1:
                w.fixed[ix(depth + 1), ix(c)] += cost
    if source:
        w.made[ix(net)] = 2


@inlined
def _take(on: Costs, w: Walk, node: int) -> None:
    """Take a node out of the stretch again."""
    for k in range(on.net_ptr[ix(node)], on.net_ptr[ix(node + 1)]):
        net = on.net[ix(k)]
        w.here[ix(net)] -= 1
        if on.source[ix(net)] == node:
            w.made[ix(net)] = 0


@inlined
def _hopeful(on: Costs, table: Table, w: Walk, depth: int) -> bool:
    """Whether some class could run the stretch, and maybe more, in less than the best."""
    hope = False
    for c in range(len(on.counts)):
        least = busy(on.mode, w.time[ix(depth), ix(c)], w.fixed[ix(depth), ix(c)], w.fixed_out[ix(depth), ix(c)])
        hope |= least < w.open[ix(c)] * table.best[0] and w.held[ix(depth)] <= on.memory[ix(c)]
    return hope


@inlined
def _update(on: Costs, of: Lattice, table: Table, w: Walk, depth: int, ideal: int) -> None:
    """All states that a stage of this stretch leads to."""
    to, held, last = w.at[ix(depth)], w.held[ix(depth)], len(of.first) - 2
    for c in range(len(on.counts)):
        load = busy(on.mode, w.time[ix(depth), ix(c)], w.into[ix(depth), ix(c)], w.out[ix(depth), ix(c)])
        if load < w.open[ix(c)] * table.best[0] and held <= on.memory[ix(c)]:
            for copies in range(1, w.open[ix(c)] + 1):
                each, list_at = _each(on, load, held, copies), c * on.copies + copies - 1
                if each < table.best[0]:
                    for k in range(w.first[ix(list_at)], w.first[ix(list_at + 1)]):
                        value, cell = max(each, w.value[ix(k)]), w.cell[ix(k)]
                        if value < table.value[ix(to), ix(cell)]:
                            table.value[ix(to), ix(cell)] = value
                            table.below[ix(to), ix(cell)] = ideal
                            table.stage[ix(to), ix(cell)] = c + (copies - 1) * len(on.counts)
                            if to == last and value < table.best[0]:
                                table.best[0] = value
