"""What exact partitioners run on: nodes that must share a device are one, and what comes before what is a graph.

Appendix B of the paper that ``workload`` names, in one rule: a pipeline passes its devices in one order forward, and
backward either in the reverse order (``MIRROR``, as backpropagation does) or in the same (``PARALLEL``, as in the
files of layers). So the edges of the backward part, turned round or as they are, join those of the forward part; nodes
of one colour are contracted, then what lies on a cycle. Backward nodes without a forward one (orphans) stay as nodes of
their own. Edges from the forward to the backward part cost, but order nothing.

Contiguous splits that are no such pipeline, forward and backward parts each without a cycle of devices but in orders
that have nothing to do with one another, are not among those looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dse.place.workload import Workload, components, topological
from model.mappings.arrays import Floats, Ints

MIRROR, PARALLEL = "mirror", "parallel"


@dataclass(frozen=True, eq=False)
class Reduced:
    """``n`` nodes, ``N`` nets, ``C`` classes of devices that are alike.

    edge:   (E, 2) int32, each from a lower to a higher number: nodes are in topological order
    time:   (n, C) float time of a node on a device of each class, inf: cannot run there
    size:   (n,) float bytes of a node
    cost:   (N, C) float time that a device is busy with a net that it cuts
    source: (N,) int32 node that makes it, -1: none of these; pin_ptr, pin: (N + 1,), (P,) int32 all nodes of it
    counts: (C,) int32 devices; memory: (C,) float bytes that a device has room for
    outside: (N,) int32 1: the net has nodes elsewhere, so that any device with one of these cuts it; None: none has

    Devices are numbered class by class.
    """

    edge: Ints
    time: Floats
    size: Floats
    cost: Floats
    source: Ints
    pin_ptr: Ints
    pin: Ints
    counts: Ints
    memory: Floats
    outside: Ints | None = None

    def __len__(self) -> int:
        """How many nodes."""
        return len(self.size)

    def along(self, order: Ints) -> Reduced:
        """The same with nodes one after the other, numbered as they come."""
        rank, steps = np.argsort(order).astype(np.int32), np.arange(len(self), dtype=np.int32)
        return replace(
            self,
            edge=np.stack([steps[:-1], steps[1:]], axis=1),
            time=self.time[order],
            size=self.size[order],
            source=np.where(self.source >= 0, rank[self.source], -1).astype(np.int32),
            pin=rank[self.pin],
        )


@dataclass(frozen=True, eq=False)
class Reduction:
    """A workload's. part: (nodes of the workload,) node of ``on`` that each is in"""

    on: Reduced
    part: Ints


def reductions(on: Workload) -> list[Reduction]:
    """Its reductions for the orders that there are (one, without a backward part), that with most nodes first."""
    found = [reduced(on, order) for order in ((MIRROR, PARALLEL) if on.backward.any() else (MIRROR,))]
    return sorted(found, key=lambda r: -len(r.on))


def reduced(on: Workload, order: str = MIRROR) -> Reduction:
    """Its reduction for an order."""
    forward, backward = (on.edge[part[on.edge].all(axis=1)] for part in (~on.backward, on.backward))
    edge = np.concatenate([forward, backward[:, ::-1] if order == MIRROR else backward])
    return contracted(on, _together(on.color, edge), edge)


def contracted(on: Workload, label: Ints | NDArray[np.int64], edge: Ints) -> Reduction:
    """Nodes with a label are one; of edges between them there may be no cycle. Classes: accelerators, CPUs."""
    part, between = _numbered(label, edge)
    n = int(part.max(initial=-1)) + 1
    time, size, nets = np.zeros((n, 2)), np.zeros(n), _nets(on, part)
    np.add.at(time, part, np.stack([on.acc, on.cpu], axis=1))
    np.add.at(size, part, on.size)
    made = Reduced(
        between,
        time,
        size,
        np.array([[cost, 0.0] for cost in nets.values()]).reshape(-1, 2),
        np.array([source for source, _ in nets], dtype=np.int32),
        np.cumsum([0, *[len(pins) for _, pins in nets]], dtype=np.int32),
        np.array([pin for _, pins in nets for pin in pins], dtype=np.int32),
        np.array([on.accelerators, on.cpus], dtype=np.int32),
        np.array([on.room, np.inf]),
    )
    return Reduction(made, part)


def _together(color: NDArray[np.int64], edge: Ints) -> Ints:
    """(n,) a number for each set of nodes that must share a device: colours, and cycles between them."""
    label = np.unique(color, return_inverse=True)[1].astype(np.int32)
    return components(int(label.max(initial=-1)) + 1, label[edge], strong=True)[1][label]


def _numbered(label: Ints | NDArray[np.int64], edge: Ints) -> tuple[Ints, Ints]:
    """Nodes with labels in topological order: of each which it is, and the edges between them."""
    names, part = np.unique(label, return_inverse=True)
    between = part[edge]
    between = between[between[:, 0] != between[:, 1]]
    rank = np.empty(len(names), dtype=np.int32)
    rank[topological(len(names), np.unique(between, axis=0))] = np.arange(len(names))
    return rank[part], np.unique(rank[between], axis=0)


def _nets(on: Workload, part: Ints) -> dict[tuple[int, tuple[int, ...]], float]:
    """Cost of each source and pins, of all that can be cut."""
    pins: dict[int, set[int]] = {}
    for source, reader in on.edge.tolist():
        if on.cost[source] > 0:
            pins.setdefault(source, {int(part[source])}).add(int(part[reader]))
    found: dict[tuple[int, tuple[int, ...]], float] = {}
    for source, of in pins.items():
        key = int(part[source]), tuple(sorted(of))
        if len(of) > 1:
            found[key] = found.get(key, 0.0) + float(on.cost[source])
    return found
