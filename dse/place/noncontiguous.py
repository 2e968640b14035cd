"""Splits for the period that need not be contiguous: the program of section 5.1.3 without contiguity.

What can only be together is one: nodes of a colour, and ends of a net that no split better than the best known cuts.
The best known comes from the contiguous split and from annealing; two solvers in turn improve it and the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import chain

import numpy as np

from dse.place import split
from dse.place.anneal import anneal, board
from dse.place.clock import due, now, usual
from dse.place.groups import Groups, by_color, grouped, joined
from dse.place.period import dp, rules_of
from dse.place.pipeline import floor
from dse.place.placed import Options, Placed, check, judged
from dse.place.program import Program, Solved, Whole, cp_sat, highs
from dse.place.reduced import contracted
from dse.place.spare import without_spare
from dse.place.workload import Workload
from model.mappings.arrays import Ints
from runtime.errors import CleaveError

UNITS = 2_000_000
"""In so many parts the best known period is divided: what the bound loses to rounding is less than a part a term."""
BYTES = 2**30
"""In so many the memory of an accelerator is."""
ANNEALINGS, STEPS = 6, 20_000
"""So often a split is annealed, with so many steps a group."""
HEATS = (0.003, 0.001, 0.0003)
"""Temperatures at which annealings start, in turn."""
POLISH, POLISHINGS, EACH_S = 0.3, 40, 4.0
"""Which part of the time left has the program for a few devices; how often it is solved, and for how long."""
SHARES = (0.35, 1.0)
"""Of the time left: how much the first solver has, and the second."""


@without_spare
def ip(on: Workload, options: Options) -> Placed:
    """The best split that a program finds, contiguous or not, and the bound that it proves."""
    check(on, options, contiguous=False)
    end = due(usual(options.limit_s))
    best = _annealed(on, options, _first(on, options), end)
    best = _polished(on, options, best, now() + POLISH * (end - now()))
    bound = least(on, options)
    for solver, share in zip((cp_sat, highs), SHARES, strict=True):
        best, proven, over = _solved(on, options, best, solver, share * (end - now()))
        bound = max(bound, proven)
        if over or now() > end:
            break
    return judged(on, options, best, bound)


def least(on: Workload, options: Options) -> float:
    """What no split is better than, contiguous or not; known at once."""
    return floor(contracted(on, on.color, on.edge[:0]).on, rules_of(options))


def _first(on: Workload, options: Options) -> Ints:
    """Some split that fits: the contiguous one where there is one, else the largest groups first."""
    limit = min(10.0, 0.2 * usual(options.limit_s))
    try:
        return dp(on, replace(options, contiguous=True, limit_s=limit, bandwidth=None)).device
    except CleaveError:
        return _packed(on)


def _packed(on: Workload) -> Ints:
    """Largest groups first, each where most is free; on a CPU what no accelerator runs or holds."""
    groups = grouped(on, by_color(on))
    free, at = np.full(on.accelerators, on.room), np.empty(len(groups), np.int32)
    for v in np.argsort(-groups.size, kind="stable").tolist():
        most = int(np.argmax(free)) if on.accelerators else -1
        if most >= 0 and free[most] >= groups.size[v] and np.isfinite(groups.acc[v]):
            free[most] -= groups.size[v]
            at[v] = most
        elif on.cpus:
            at[v] = on.accelerators
        else:
            raise CleaveError("no split was found that fits: accelerators have too little memory")
    return at[groups.of]


def _annealed(on: Workload, options: Options, device: Ints, end: float) -> Ints:
    """A better split, by annealing from one; only the sum of transfers and computing is known there."""
    if options.mode != split.SUM:
        return device
    of = by_color(on)
    groups = grouped(on, of)
    at = np.empty(len(groups), np.int32)
    at[of] = device
    begin, laid, found, best = now(), board(on, groups), [at], at
    for k in range(ANNEALINGS):
        if now() - begin > 0.2 * (end - begin):
            break
        options.watch(k, ANNEALINGS, "annealings")
        found.append(anneal(laid, best, options.seed + k, STEPS * len(groups), HEATS[k % len(HEATS)], end))
        best = min(best, found[-1], key=lambda f: split.period(on, f[of]))
    return best[of]


def _together(on: Workload, options: Options, under: float) -> Groups:
    """Groups that a split of less than ``under`` may have apart."""
    groups = grouped(on, _idle_joined(grouped(on, by_color(on))))
    while True:
        pairs = [
            (int(groups.source[net]), int(v))
            for net in range(len(groups.source))
            for v in groups.readers(net)
            if not _may_part(on, options, groups, net, int(v), under)
        ]
        if not pairs:
            return groups
        groups = grouped(on, joined(groups.of, np.array(pairs, np.int32)))


def _idle_joined(groups: Groups) -> Ints:
    """(n,) groups, where those that cost nothing anywhere are one."""
    costs = groups.acc + groups.cpu + groups.size
    costs[groups.source] = costs[groups.reader] = 1
    idle = np.flatnonzero(costs == 0).astype(np.int32)
    return joined(groups.of, np.stack([idle[:-1], idle[1:]], axis=1))


def _may_part(on: Workload, options: Options, groups: Groups, net: int, reader: int, under: float) -> bool:
    """Whether the source of a net and a reader can be on two devices, each of which takes less than ``under``."""
    ends = [int(groups.source[net]), reader]
    cost = float(groups.cost[net])
    with_net = [groups.acc[v] + cost if options.mode == split.SUM else max(groups.acc[v], cost) for v in ends]
    on_acc, on_cpu = ([bool(t < under) for t in times] for times in (with_net, [groups.cpu[v] for v in ends]))
    return bool(
        (on.accelerators > 1 and all(on_acc))
        or (on.accelerators > 0 and on.cpus > 0 and ((on_acc[0] and on_cpu[1]) or (on_acc[1] and on_cpu[0])))
        or (on.cpus > 1 and all(on_cpu))
    )


def _polished(on: Workload, options: Options, best: Ints, end: float) -> Ints:
    """A better split, by the program for a few devices at a time: the one with most to do, and others at random."""
    groups, rng = grouped(on, by_color(on)), np.random.default_rng(options.seed)
    first = split.period(on, best, options.mode)
    if first <= 0 or on.devices < 3:
        return best
    model = Model(on, options.mode, groups, first)
    for _ in range(POLISHINGS):
        limit = min(EACH_S, end - now())
        if limit < 0.5:
            break
        loads = split.load(on, best).of(options.mode)
        most = int(np.argmax(loads))
        free = np.array([most, *rng.choice(np.delete(np.arange(on.devices), most), 2, replace=False)])
        at = np.empty(len(groups), np.int32)
        at[groups.of] = best
        answer = cp_sat(model.only(at, free, model.whole(loads.max()) - 1), limit)
        if answer.columns is not None:
            found = model.split_of(answer.columns)[groups.of]
            if not split.faults(on, found) and split.period(on, found, options.mode) < loads.max():
                best = found
    return best


def _solved(
    on: Workload, options: Options, best: Ints, solver: Callable[..., Solved], limit: float
) -> tuple[Ints, float, bool]:
    """A split no worse than ``best``, a bound, and whether to look no further."""
    value = split.period(on, best, options.mode)
    if value <= 0:
        return best, 0.0, True
    groups = _together(on, options, value)
    model = Model(on, options.mode, groups, value)
    at = np.empty(len(groups), np.int32)
    at[groups.of] = best  # those that are one in any better split may be apart in this one: a hint all the same
    answer = solver(model.program, max(0.1, limit), model.columns_of(at))
    if answer.columns is not None:
        found = model.split_of(answer.columns)[groups.of]
        if not split.faults(on, found) and split.period(on, found, options.mode) < value:
            best = found
    return best, min(value, model.time(answer.bound)), answer.done


class Model:
    """The program: a column for each group and device, and for each net and accelerator whether it comes or goes.

    known: the best period that is known; the program is of those that are no longer
    """

    def __init__(self, on: Workload, mode: str, groups: Groups, known: float) -> None:
        self.on, self.groups, self.known, self.program = on, groups, known, Program()
        self.largest = self.program.column(UNITS)
        self.held = np.array([[self._held(v, d) for d in range(on.devices)] for v in range(len(groups))])
        for row in self.held.tolist():
            self.program.row([(x, 1) for x in row], 1, 1)
        self._memory()
        moves = [self._net(net, d) for d in range(on.accelerators) for net in range(len(groups.source))]
        self.moves = np.array(moves, np.int64).reshape(on.accelerators, len(groups.source), 2)
        for d in range(on.devices):
            self._load(d, mode)

    def whole(self, time: float) -> int:
        """A time in the program's units."""
        return _parts(time, self.known, UNITS)

    def time(self, whole: int) -> float:
        """What so many of the program's units are."""
        return whole / UNITS * self.known

    def _held(self, v: int, d: int) -> int:
        takes = self.groups.acc[v] if d < self.on.accelerators else self.groups.cpu[v]
        fits = d >= self.on.accelerators or self.groups.size[v] <= self.on.room
        return self.program.column(int(fits and takes <= self.known), chosen=True)

    def _memory(self) -> None:
        size, room = self.groups.size, self.on.room
        if size.sum() > room > 0:
            for d in range(self.on.accelerators):
                terms = [(int(self.held[v, d]), _parts(size[v], room, BYTES)) for v in range(len(size))]
                self.program.row(terms, None, BYTES)

    def _net(self, net: int, d: int) -> tuple[int, int]:
        """Columns of a net that comes into an accelerator, and that goes out."""
        into, out = self.program.column(1), self.program.column(1)
        source = int(self.held[self.groups.source[net], d])
        for v in self.groups.readers(net):
            reader = int(self.held[v, d])
            self.program.row([(into, 1), (reader, -1), (source, 1)], 0)
            self.program.row([(out, 1), (source, -1), (reader, 1)], 0)
        return into, out

    def _load(self, d: int, mode: str) -> None:
        accelerated = d < self.on.accelerators
        times = self.groups.acc if accelerated else self.groups.cpu
        can = [v for v in range(len(times)) if self.program.hi[self.held[v, d]]]
        parts = [[(int(self.held[v, d]), self.whole(times[v])) for v in can]]
        if accelerated:
            for way in range(2):
                nets = range(len(self.groups.source))
                parts.append([(int(self.moves[d, net, way]), self.whole(self.groups.cost[net])) for net in nets])
        if mode == split.SUM:
            parts = [list(chain(*parts))]
        elif mode == split.OVERLAP:
            parts = [parts[0], list(chain(*parts[1:]))]
        for terms in parts:
            self.program.row([(self.largest, -1), *terms], None, 0)

    def only(self, at: Ints, free: Ints, under: int) -> Program:
        """The program where groups on other devices than the free ones stay where they are."""
        lo, hi = list(self.program.lo), list(self.program.hi)
        moves, others = np.isin(at, free), np.setdiff1d(np.arange(self.on.devices), free)
        for v, d in enumerate(at.tolist()):
            if moves[v]:
                for other in others:
                    hi[self.held[v, other]] = 0
            else:
                for other in range(self.on.devices):
                    lo[self.held[v, other]] = hi[self.held[v, other]] = int(other == d)
        hi[self.largest] = under
        return replace(self.program, lo=lo, hi=hi)

    def columns_of(self, at: Ints) -> Whole:
        """Values of columns for a split of the groups."""
        values = np.zeros(len(self.program.lo), np.int64)
        values[self.held[np.arange(len(at)), at]] = 1
        for d in range(self.on.accelerators):
            for net, source in enumerate(self.groups.source.tolist()):
                read = at[self.groups.readers(net)] == d
                values[self.moves[d, net]] = (at[source] != d and read.any(), at[source] == d and not read.all())
        values[self.largest] = UNITS
        return values

    def split_of(self, columns: Whole) -> Ints:
        """(g,) device of each group."""
        return np.argmax(columns[self.held], axis=1).astype(np.int32)


def _parts(what: float, whole: float, count: int) -> int:
    """How many of ``count`` parts of a whole something is, rounded down; more than the whole is all the same."""
    return math.floor(min(count * (float(what) / float(whole)), count + 1))
