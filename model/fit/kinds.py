"""From a table of kernels to a coefficient a kind: what a layer takes that was not measured.

The coefficients of ``model.cost.layer_time``, by non-negative least squares of relative errors over the layers of a
kind. What to expect of them is found by leaving out, in turn, what belongs together: the layers that only one network
has, or a part of the layers where all are of one network. What caches hold between frames (``model.cluster.caches``) is
what makes kernels of one kind most alike in all networks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product, starmap
from statistics import fmean

import numpy as np

from model.cluster.caches import COLD, Caches
from model.cluster.coefficients import Kernel, LayerCost, UnitCost
from model.cost import layer_time
from model.cost.layer_time import Work
from model.fit.least_squares import nonnegative
from model.mappings.arrays import Floats
from model.network import layer_kinds
from model.network.graph import Graph
from model.network.relayout import SINGLY
from model.network.signature import signatures

FOLDS = 5
LEAST = 3
"""Layers of a kind from which an error is told."""
ROUNDS = 5
POSSIBLE = (COLD, *starmap(Caches, product((0.2, 0.4, 0.6, 0.8), (1e-2, 2e-2, 4e-2))))
"""What caches may hold: that with which kernels of one kind are most alike in all networks."""
MOST_OFF, CLEARLY = 0.5, 0.98
FAR = 0.1
"""Relative error beyond which a layer counts less."""
PULL = 0.01
"""How much what is declared counts beside a layer: it decides where layers are too few, or too much alike, to tell."""
FREE = 1e6
"""MACs a cycle of kernels whose time does not go with them."""


@dataclass(frozen=True)
class Measured:
    """One kernel of the table. networks: that have it, each with the seconds that all its kernels take together;
    splits: by axis, seconds that are fixed, and ``layer_time.repeated``"""

    kind: str
    networks: Mapping[str, float]
    work: Work
    seconds: float
    splits: Mapping[int, tuple[float, float]]

    def held(self, caches: Caches) -> Measured:
        """The same with what caches hold of it."""
        return replace(self, work=self.work._replace(part=fmean(map(caches.part, self.networks.values()))))


def measured(graphs: Mapping[str, Graph], kernels: Mapping[str, Kernel], vector: int) -> list[Measured]:
    """The kernels that take any time, by signature. vector: as ``UnitCost`` has it"""
    found: dict[str, Measured] = {}
    for network, graph in graphs.items():
        names = signatures(graph)
        mine = {network: sum(kernels[name].whole_s for name in names if name in kernels)}
        for layer, name in zip(graph.layers, names, strict=True):
            if name in found:
                found[name] = replace(found[name], networks={**found[name].networks, **mine})
            elif name in kernels and kernels[name].whole_s > 0:
                kind, done = layer_kinds.kind(graph, layer), layer_time.work(graph, layer, vector)
                fixed = {axis: fixed_s for axis, (fixed_s, _) in kernels[name].splits.items() if axis != SINGLY}
                splits = {axis: (s, layer_time.repeated(graph, layer, axis)) for axis, s in fixed.items()}
                found[name] = Measured(kind, mine, done, kernels[name].whole_s, splits)
    return [found[name] for name in sorted(found)]


def fit_kinds(table: Sequence[Measured], declared: UnitCost) -> UnitCost:
    """With a coefficient for each kind, and what caches hold. A kind that was not measured is declared, as much slower
    or faster as the others."""
    caches = _caches(table, declared)
    return replace(declared, caches=caches, layers=_layers([kernel.held(caches) for kernel in table], declared))


def _caches(table: Sequence[Measured], declared: UnitCost) -> Caches:
    """What caches hold; nothing, where that does not make kernels clearly more alike."""
    if len({name for kernel in table for name in kernel.networks}) < 2:
        return COLD
    off = {caches: _misfit([kernel.held(caches) for kernel in table], declared) for caches in POSSIBLE}
    best = min(POSSIBLE, key=off.__getitem__)
    return best if off[best] < CLEARLY * off[COLD] else COLD


def _misfit(table: Sequence[Measured], declared: UnitCost) -> float:
    """Relative error of all kernels, fitted; one that is far off counts ``MOST_OFF``."""
    off = 0.0
    for _, mine, likely in _by_kind(table, declared):
        if mine:
            rows, seconds = _amounts(mine), _seconds(mine)
            found = _solved(rows, seconds, np.array(layer_time.rates(likely, declared.frequency_hz)), rounds=1)
            off += float(np.minimum(np.abs(rows @ found / seconds - 1), MOST_OFF).sum())
    return off


def _layers(table: Sequence[Measured], declared: UnitCost) -> dict[str, LayerCost]:
    found = {}
    for kind, mine, likely in _by_kind(table, declared):
        fitted = _fitted(mine, likely, declared.frequency_hz) if mine else likely
        found[kind] = replace(fitted, paper=_paper(mine, declared.frequency_hz), splits=_splits(mine))
    return found


def _splits(mine: Sequence[Measured]) -> dict[int, tuple[float, float]]:
    """By axis, what shards take whatever their share, as ``LayerCost.splits`` has it; nothing of axes along which too
    few layers were split."""
    found = {}
    for axis in sorted({axis for kernel in mine for axis in kernel.splits}):
        split = [kernel for kernel in mine if axis in kernel.splits]
        if len(split) >= LEAST:
            fixed_s, repeated = np.array([kernel.splits[axis] for kernel in split]).T
            amounts = np.stack([np.ones(len(split)), repeated], axis=1)
            start_s, each_s = _solved(amounts, fixed_s, np.zeros(2), of=_seconds(split))
            found[axis] = float(start_s), float(each_s)
    return found


def _by_kind(table: Sequence[Measured], declared: UnitCost) -> Iterator[tuple[str, list[Measured], LayerCost]]:
    """Each kind with its kernels, and what it takes if it is as much slower than declared as the others."""
    scale = _scale(table, declared)
    for kind, cost in declared.layers.items():
        yield kind, [kernel for kernel in table if kernel.kind == kind], _scaled(cost, scale)


def _paper(mine: Sequence[Measured], frequency_hz: float) -> float | None:
    """The coefficient of Eq. 4.7: all multiply-accumulates of a kind over all its time; None: it has none of either."""
    macs, seconds = sum(kernel.work.macs for kernel in mine), sum(kernel.seconds for kernel in mine)
    return macs / seconds / frequency_hz if macs and seconds else None


def _fitted(mine: Sequence[Measured], likely: LayerCost, frequency_hz: float) -> LayerCost:
    rows = _amounts(mine)
    guess = np.array(layer_time.rates(likely, frequency_hz))
    overhead_s, s_per_mac, s_per_byte, s_per_weight_byte = map(float, _solved(rows, _seconds(mine), guess))
    speed = min(FREE, 1 / (frequency_hz * s_per_mac)) if s_per_mac > 0 else FREE
    return replace(
        likely,
        overhead_s=overhead_s,
        macs_per_cycle=speed,
        s_per_byte=s_per_byte,
        s_per_weight_byte=s_per_weight_byte,
        error=_held_out(mine, rows, guess),
    )


def _amounts(mine: Sequence[Measured]) -> Floats:
    return np.array([kernel.work.amounts for kernel in mine])


def _seconds(mine: Sequence[Measured]) -> Floats:
    return np.array([kernel.seconds for kernel in mine])


def _solved(amounts: Floats, seconds: Floats, guess: Floats, rounds: int = ROUNDS, of: Floats | None = None) -> Floats:
    """(k,) seconds of one of each. amounts: (n, k); guess: what they are where layers do not tell them apart; rounds:
    after each but the last, layers that are far off count less; of: (n,) what errors are relative to, the seconds
    themselves unless something else is given"""
    of = seconds if of is None else of
    rows, parts = amounts / of[:, None], seconds / of
    usual = rows.mean(axis=0)
    pull = np.diag(PULL * np.where(usual > 0, usual, 1.0))
    weight = np.ones(len(seconds))
    for _ in range(rounds):
        both = np.vstack([rows * weight[:, None], pull])
        x = nonnegative(both, np.append(parts * weight, pull @ guess))
        off = np.abs(rows @ x - parts)
        weight = 1 / np.sqrt(np.maximum(1.0, off / max(FAR, float(np.median(off)))))
    return x


def _held_out(mine: Sequence[Measured], amounts: Floats, guess: Floats) -> float | None:
    """Relative error of layers that the fit has not seen; None: they are too few to tell."""
    if len(mine) < LEAST:
        return None
    seconds, predicted = _seconds(mine), np.zeros(len(mine))
    for fold in _folds(mine):
        rest, out = sorted(set(range(len(mine))) - fold), sorted(fold)
        predicted[out] = amounts[out] @ _solved(amounts[rest], seconds[rest], guess)
    return relative_error(predicted, seconds)


def _folds(mine: Sequence[Measured]) -> list[set[int]]:
    """Places of kernels that are left out together: those of a network alone, or each fifth one."""
    networks = sorted({name for kernel in mine for name in kernel.networks})
    by_network = [{k for k, kernel in enumerate(mine) if [*kernel.networks] == [name]} for name in networks]
    shared = {k for k in range(len(mine)) if not any(k in fold for fold in by_network)}
    folds = [fold for fold in (*by_network, shared) if fold]
    if len(networks) > 1 and all(len(fold) <= len(mine) - LEAST for fold in folds):
        return folds
    return [set(range(first, len(mine), FOLDS)) for first in range(min(FOLDS, len(mine)))]


def relative_error(predicted: Floats, seconds: Floats) -> float:
    """By how much predictions are off, in proportion to all the time: what a sum of many is off by at most."""
    return float(np.abs(predicted - seconds).sum() / seconds.sum())


def _scale(table: Sequence[Measured], declared: UnitCost) -> float:
    """How many times longer kernels take than is declared, the middle one."""
    found = [kernel.seconds / _declared_s(kernel, declared) for kernel in table if _declared_s(kernel, declared) > 0]
    return float(np.median(found)) if found else 1.0


def _declared_s(kernel: Measured, unit: UnitCost) -> float:
    return sum(layer_time.seconds(kernel.work, unit.layers[kernel.kind], unit.frequency_hz))


def _scaled(cost: LayerCost, scale: float) -> LayerCost:
    return replace(
        cost,
        overhead_s=cost.overhead_s * scale,
        macs_per_cycle=cost.macs_per_cycle / scale,
        s_per_byte=cost.s_per_byte * scale,
        s_per_weight_byte=None if cost.s_per_weight_byte is None else cost.s_per_weight_byte * scale,
        error=None,
    )
