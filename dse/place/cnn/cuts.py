"""Where a chromosome may cut a network of whole layers, and what its stretches cost on a platform."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dse.chromosomes import NAIVE, Chromosome
from dse.place.cnn.chains import Stages, Team, chains, in_pairs, soonest, team
from dse.place.cnn.kinds import Kinds, alike, counts, least_of, merged
from dse.place.cnn.limits import FREE, Limits
from dse.place.cnn.relaxed import Parts, critical, done, given_back, parts
from dse.place.cnn.shared import pair_loads
from dse.place.cnn.stretches import Stretches, last_read, stretches
from dse.place.cnn.wires import Wires, least, loads, wires
from model.cost.costs import RANK, SESSION, CostArrays
from model.mappings.arrays import Floats, GraphArrays, Ints, edges

MOST_STEPS = 1.5e8
"""Of dynamic programming, as many as take some tenths of a second; beyond, kinds of devices are put together."""
HALVINGS = 14
"""Of the interval that holds the least latency."""


@dataclass(frozen=True, eq=False)
class Line:
    """A network as a line of stretches, on a platform. Tables by group of kinds, see ``merged``; inf: it does not fit,
    or goes beyond a limit.

    cuts: (m+1,) layers; s: by kind, not by group
    part: of limits and memory that a stretch may take: what a chain takes is known only when all of it is
    """

    chromosome: Chromosome
    costs: CostArrays
    cuts: Ints
    s: Stretches
    w: Wires
    kinds: Kinds
    groups: list[Kinds]
    team: Team
    limits: Limits = FREE
    part: float = 1.0

    @property
    def _first(self) -> list[int]:
        return [kind[0] for kind in self.kinds]

    def _table(self, of: Floats, shared_by: int = 1) -> Floats:
        """By group, inf where a stretch cannot be."""
        return least_of(np.where(self._barred(shared_by), np.inf, of), self.kinds, self.groups)

    def _barred(self, shared_by: int) -> NDArray[np.bool_]:
        """(C, m+1, m+1) of stretches that so many devices share evenly: they take too much at least."""
        capacity = self.costs.capacity[self.costs.pool[self._first]][:, None, None]
        room = np.minimum(capacity, self.limits.memory_bytes) * self.part
        return (self._held(shared_by) > room) | (self._joules / shared_by > self.limits.energy_j * self.part)

    def _held(self, shared_by: int) -> Floats:
        """(C, m+1, m+1) resident bytes of a rank with one segment and its part of the weights."""
        memory = self.costs.memory[self._first]
        return self.s.held / shared_by + (memory[:, RANK] + memory[:, SESSION])[:, None, None]

    @property
    def barred(self) -> bytes:
        """What chains are looked for: of lines that bar the same stretches, the same."""
        return self._barred(1).tobytes() + self._barred(2).tobytes()

    @property
    def most(self) -> Limits:
        """What a device takes that has all layers, at least."""
        return Limits(float(self._joules.max()), float(self._held(1).max()))

    @cached_property
    def _under_way(self) -> Floats:
        """(C, m+1, m+1) seconds of messages, at least."""
        return np.array([self.s.into @ self.w.into[d] + self.s.out @ self.w.out[d] for d in self._first])

    @cached_property
    def _joules(self) -> Floats:
        """(C, m+1, m+1) of computing and of messages, at least."""
        return self.s.joules + self._under_way * self.costs.communication_w[self._first][:, None, None]

    def busy(self) -> Floats:
        """Seconds a frame of a device or link."""
        return self._table(loads(self.s, self.w, self._first))

    def period(self) -> float:
        """Seconds a frame of the busiest device or link, at least."""
        return float(chains(self.busy(), self.team, add=False).value[:, -1].min())

    def serial(self) -> Floats:
        """Seconds a frame of a device that does nothing while messages are under way: no bound, but fewer messages."""
        return self._table(self.s.seconds + self._under_way)

    def alone(self) -> Floats:
        """Seconds of a frame, messages that come in included."""
        arrive = np.array([self.s.into @ self.w.into[device] for device in self._first])
        return self._table(self.s.seconds + arrive)

    def latency(self) -> tuple[float, Stages]:
        """Seconds that a frame takes at least, and how the network is cut where that is so; inf where none fits."""
        p = parts(self.chromosome.g, self.costs, 1)
        ready, rest, arrives = self._around(p)
        seconds = self._table(self.s.seconds)
        until = least_of(self.s.until, self.kinds, self.groups)
        low, high = 0.0, float(chains(self.alone(), self.team, add=True).value[:, -1].min()) * (1 + 1e-9)
        found: Stages = []
        if not np.isfinite(high):
            return high, found
        for k in range(HALVINGS + 1):
            limit = high if k == 0 else (low + high) / 2
            table = soonest(seconds, until, arrives, ready, rest, self.team, limit)
            choice = int(np.argmin(table.value[:, -1]))
            if np.isfinite(table.value[choice, -1]):
                high, found = limit, table.stages(choice, self.team)
            else:
                low = limit
        return low, found

    def _around(self, p: Parts) -> tuple[Floats, Floats, Floats]:
        """Of ``soonest``: (m+1,) ready, rest, arrives."""
        g, w, m = self.chromosome.g, self.w, len(self.cuts)
        back = np.concatenate(([0.0], np.cumsum(given_back(p))))
        before, after = done(g, p, w, 1) + back[1:], _after(g, p) + back[-1] - back[:-1]
        ready, rest, arrives = (np.zeros(m) for _ in range(3))
        last = last_read(g, self.cuts)
        at = {int(layer): k for k, layer in enumerate(self.cuts)}
        for edge, maker, reader in edges(g):
            sent = float(least(w.any_, g.tensor_bytes[g.edge_tensor[edge]]))
            if reader in at:
                ready[at[reader]] = max(ready[at[reader]], before[maker] + sent)
                if maker == last[at[reader]]:
                    arrives[at[reader]] = max(arrives[at[reader]], sent)
            if maker + 1 in at:
                rest[at[maker + 1]] = max(rest[at[maker + 1]], sent + after[reader])
        return ready, rest, arrives

    def devices(self, stages: Stages) -> NDArray[np.int64]:
        """(2, n_layers) of a chain: of each group the next one that is free, and the one with whom it shares layers.

        Groups beyond the last are the same ones again, whose devices work in pairs.
        """
        free = [[device for kind in group for device in kind] for group in self.groups]
        found = np.zeros((2, self.chromosome.g.n_layers), dtype=np.int64)
        for a, b, group in stages:
            own = free[group % len(free)].pop(0)
            with_ = own if group < len(free) else free[group % len(free)].pop(0)
            found[:, self.cuts[a] : self.cuts[b]] = [[own], [with_]]
        return found

    def pairs(self) -> Iterator[Stages]:
        """Chains of devices and of pairs that share heavy layers, for every number of devices; good, not the best."""
        coding = self.chromosome.coding
        if coding.kind == NAIVE or coding.rows < 2:
            return
        shared = self._table(
            pair_loads(self.chromosome.g, coding, self.w, self.costs, self.cuts, self._first), shared_by=2
        )
        both = in_pairs(self.team)
        yield from chains(np.concatenate([self.busy(), shared]), both, add=False).best(both)


def _after(g: GraphArrays, p: Parts) -> Floats:
    """(L,) seconds of a layer and what follows it, at least, but for what these give back."""
    own = np.maximum(critical(p), 0)
    found = own.copy()
    for _, maker, reader in sorted(edges(g), key=lambda edge: -edge[1]):
        found[maker] = max(found[maker], own[maker] + found[reader])
    return found


def line(chromosome: Chromosome, costs: CostArrays, limits: Limits = FREE) -> Line:
    """A network's stretches on a platform."""
    cuts, w = places(chromosome), wires(costs)
    kinds = alike(costs, w)
    groups = merged(kinds, costs, MOST_STEPS / len(cuts) ** 2)
    s = stretches(chromosome.g, costs, cuts, [kind[0] for kind in kinds])
    return Line(chromosome, costs, cuts, s, w, kinds, groups, team(counts(groups)), limits)


def places(chromosome: Chromosome) -> Ints:
    """(m+1,) layers before which a mapping may go on to another device, the first one, and the end."""
    g = chromosome.g
    if chromosome.coding.kind == NAIVE:
        return np.arange(g.n_layers + 1, dtype=np.int32)
    anchor = chromosome.coding.anchor[g.n_inputs : g.n_inputs + g.n_layers]
    return np.concatenate(([0], np.flatnonzero(np.diff(anchor)) + 1, [g.n_layers])).astype(np.int32)
