"""Methods that place a workload for the latency of one sample: subgraphs on accelerators, each run without a break."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dse.place.clock import due, now, usual
from dse.place.floor import beside, between, floor, longest
from dse.place.groups import Groups, by_color, grouped
from dse.place.improve import course, improve
from dse.place.latency import devices, latency, slots, wrong
from dse.place.period import dp
from dse.place.placed import Options, Placed, check
from dse.place.reach import tasks
from dse.place.series import OutOfReachError, Piece, placed
from dse.place.workload import MARGIN, Workload, components, topological
from model.mappings.arrays import Floats, Ints
from runtime.errors import CleaveError

ALL = 1_000_000
"""Of the longest path's nodes: more than there are."""
HEATS = (0.01, 0.001)
"""Temperatures at which annealings start, in turn."""
ROUNDS, STEPS = 8, 4_000
"""So often a split is annealed, with so many steps a group."""


def series(on: Workload, options: Options) -> Placed:
    """The best split in series and in parallel, annealed; and a bound."""
    check(on, options, subgraphs=True)
    end = due(usual(options.limit_s))
    found = [_some(on, options)]
    bound = longest(on)
    for most, share in ((40, 0.3), (ALL, 0.6), (24, 0.3)):
        options.watch(len(found), 4, "ideals")
        until = now() + share * (end - now())
        found += [slot for slot in [_by_ideals(on, options, False, until, most)] if slot is not None]
        if most == ALL:
            bound = floor(on, options.subgraphs, end - 0.3 * (end - now()))
    if len(found) == 1:
        until = now() + 0.5 * (end - now())
        found += [slot for slot in [_by_ideals(on, options, True, until)] if slot is not None]
    best = _annealed(on, options, _best(on, found, options.subgraphs), bound, end)
    return _judged(on, options, best, bound)


def chain(on: Workload, options: Options) -> Placed:
    """The best split in which subgraphs follow one another: the program over ideals, that sums."""
    check(on, options, subgraphs=True)
    found = _by_ideals(on, options, True, due(usual(options.limit_s)))
    return _judged(on, options, _some(on, options) if found is None else found, longest(on))


def greedy(on: Workload, options: Options) -> Placed:
    """The paper's: in topological order as much as fits on one accelerator after the other, the rest on CPUs."""
    check(on, options, subgraphs=True)
    return _judged(on, options, _some(on, options), longest(on))


def max_load(on: Workload, options: Options) -> Placed:
    """The paper's: the contiguous split that is best for the period."""
    check(on, options, subgraphs=True)
    device = dp(on, Options(limit_s=usual(options.limit_s), seed=options.seed, watch=options.watch)).device
    slot = np.where(device < on.accelerators, device * options.subgraphs, slots(on, options.subgraphs))
    return _judged(on, options, slot.astype(np.int32), longest(on))


def _judged(on: Workload, options: Options, slot: Ints, bound: float) -> Placed:
    """A split with its latency as ``latency`` has it; ``CleaveError`` where it may not be."""
    q = options.subgraphs
    found = wrong(on, slot, q)
    if found:
        raise CleaveError(f"the split that this method makes is none that may be: {found[0]}")
    value = latency(on, slot, q)
    of = slot if q > 1 else None
    return Placed(devices(on, slot, q), value, min(bound, value), value <= bound * MARGIN, slot=of)


@dataclass(frozen=True, eq=False)
class Layout:
    """Groups that have something to do in one order, and edges between groups. on_cpu: (g,) time that each takes"""

    groups: Groups
    edge: Ints
    order: Ints
    on_cpu: Floats


def _plan(on: Workload) -> Layout:
    """Groups of one colour, and of more where they wait for each other in a circle."""
    of = by_color(on)
    of = components(int(of.max(initial=-1)) + 1, between(on, of), strong=True)[1][of]
    groups, edge = grouped(on, of), between(on, of)
    order = topological(len(groups), edge)
    return Layout(groups, edge, order[_matters(on, of)[order]], _on_cpu(on, of, len(groups)))


def _matters(on: Workload, of: Ints) -> NDArray[np.bool_]:
    """(g,) whether a group waits, is waited for, or takes time; what does not stays on CPUs."""
    g = int(of.max(initial=-1)) + 1
    waits = np.bincount(between(on, of).ravel(), minlength=g) > 0
    return waits | (np.bincount(of, weights=on.cpu, minlength=g) > 0) | (on.cpus == 0)


def _on_cpu(on: Workload, of: Ints, g: int) -> Floats:
    """(g,) longest path in a group."""
    takes, ends = on.cpu if on.cpus else np.full(len(on), np.inf), np.zeros(len(on))
    before: list[list[int]] = [[] for _ in range(len(on))]
    for source, reader in on.edge[of[on.edge[:, 0]] == of[on.edge[:, 1]]].tolist():
        before[reader].append(source)
    for v in on.order.tolist():
        ends[v] = takes[v] + max((ends[u] for u in before[v]), default=0.0)
    found = np.zeros(g)
    np.maximum.at(found, of, ends)
    return found


def _some(on: Workload, options: Options) -> Ints:
    """(n,) slot of each node: as much as fits, in order."""
    plan, q = _plan(on), options.subgraphs
    at, held, k = np.full(len(plan.groups), slots(on, q), np.int32), 0.0, 0
    for v in topological(len(plan.groups), plan.edge).tolist():
        while k < on.accelerators and held + plan.groups.size[v] > on.room and held > 0:
            k, held = k + 1, 0.0
        if k < on.accelerators and np.isfinite(plan.groups.acc[v]) and held + plan.groups.size[v] <= on.room:
            at[v], held = k * q, held + plan.groups.size[v]
        else:
            k, held = k + (held > 0), 0.0
    return at[plan.groups.of]


def _by_ideals(on: Workload, options: Options, chain: bool, due: float, most: int = ALL) -> Ints | None:
    """(n,) slots of the best split in series, or in series and in parallel too; None: out of reach.

    Groups beside more than so many nodes of the longest path are on CPUs, and taken to be done when asked for.
    """
    plan, q, aside = _plan(on), options.subgraphs, np.zeros(0, np.int32)
    if most < ALL:
        aside = np.unique(plan.groups.of[(beside(on) > most) & (on.cpu > 0)]) if on.cpus else aside
        if len(aside) == 0:
            return None  # as where none are beside
        plan = replace(plan, order=plan.order[~np.isin(plan.order, aside)])
    laid = tasks(plan.groups, plan.on_cpu, on.room, on.accelerators)
    piece = Piece(laid, plan.order, plan.edge, False, due, chain=chain)
    try:
        takes, _ = piece.from_nothing
        if not np.isfinite(takes[-1, -1]):
            return None
        at = np.full(len(plan.groups), on.accelerators, np.int32)
        placed(piece, 0, len(piece.ideals) - 1, on.accelerators, at, 0)
    except OutOfReachError:
        return None
    return np.where(at < on.accelerators, at * q, slots(on, q)).astype(np.int32)[plan.groups.of]


def _best(on: Workload, found: list[Ints], q: int) -> Ints:
    allowed = [slot for slot in found if not wrong(on, slot, q)]
    if not allowed:
        raise CleaveError("no split was found that fits: accelerators have too little memory")
    return min(allowed, key=lambda slot: latency(on, slot, q))


def _annealed(on: Workload, options: Options, slot: Ints, bound: float, end: float) -> Ints:
    """A better split, by annealing one again and again; not one that is as good as the bound."""
    q, of = options.subgraphs, by_color(on)
    order = of[on.order][np.sort(np.unique(of[on.order], return_index=True)[1])]
    laid, found = course(on, of, order[_matters(on, of)[order]], q), [slot]
    for k in range(ROUNDS):
        if now() > end or latency(on, _best(on, found, q), q) <= bound * MARGIN:
            break
        options.watch(k, ROUNDS, "annealings")
        start = slot if k < ROUNDS // 2 else _best(on, found, q)
        found.append(improve(laid, start, options.seed + k, STEPS * len(order), HEATS[k % 2], end))
    return _best(on, found, q)
