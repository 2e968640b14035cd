"""The price of one mapping, to look at: totals, and where time, memory and energy go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.cluster.platform import Platform
from model.cost import pricing, spending
from model.cost.case import Case
from model.cost.ledger import (
    ACTIVATIONS,
    BUFFERS,
    BUSY,
    COMMUNICATE,
    COMPUTE,
    ENERGY,
    MEMORY,
    PASSED,
    WAIT,
    WEIGHTS,
    Ledger,
)
from model.cost.settling import resident
from model.mappings.arrays import GraphArrays
from model.mappings.lowering import Messages, Shards
from model.mappings.mapping import Mapping
from model.network.graph import Graph


@dataclass(frozen=True, eq=False)
class Priced:
    """A mapping with its price.

    latency_s: one frame alone; period_s: between frames of a steady pipeline
    energy_j, memory_bytes: the largest of any device
    fits: every memory pool holds what its devices need
    account: (D, COLUMNS) per device, columns as named in ``model.cost.ledger``; memory: (D, 6) of ``CostArrays``
    """

    latency_s: float
    period_s: float
    energy_j: float
    memory_bytes: float
    fits: bool
    account: np.ndarray
    memory: np.ndarray
    g: GraphArrays
    shards: Shards
    messages: Messages
    ledger: Ledger

    @property
    def takes_part(self) -> NDArray[np.bool_]:
        """(D,) whether a device has anything to do, as ``settling`` has it."""
        return np.asarray(self.account[:, [COMPUTE, COMMUNICATE, ACTIVATIONS]].any(axis=1))

    def devices(self, platform: Platform) -> list[dict[str, Any]]:
        """One row for each device that takes part, SI units."""
        a, there = self.account, self.takes_part
        return [
            {
                "device": device.name,
                "compute_s": a[d, COMPUTE],
                "busy_s": a[d, BUSY],
                "communicate_s": a[d, COMMUNICATE],
                "wait_s": a[d, WAIT],
                "energy_j": a[d, ENERGY],
                "weights_bytes": a[d, WEIGHTS],
                "activations_bytes": a[d, ACTIVATIONS],
                "buffers_bytes": a[d, BUFFERS] + a[d, PASSED],
                "memory_bytes": a[d, MEMORY],
                "resident_bytes": resident(a[d], self.memory[d]),
            }
            for d, device in enumerate(platform.devices)
            if there[d]
        ]


def priced(graph: Graph, platform: Platform, mapping: Mapping) -> Priced:
    """Price a checked mapping by the analytical model."""
    return charged(Case.of(graph, platform, mapping))


def pricer(graph: Graph, platform: Platform) -> Callable[[Mapping], Priced]:
    """``priced`` for many mappings: what things cost is worked out once."""
    case = Case.maker(graph, platform)
    return lambda mapping: charged(case(mapping))


def charged(case: Case) -> Priced:
    """Price a mapping that is lowered already."""
    desk = pricing.desk(case.size, case.costs)
    return booked(case, *pricing.price(case.g, case.shards, case.messages, case.costs, case.ledger, desk))


def booked(case: Case, latency_s: float, period_s: float) -> Priced:
    """What the ledger of a case holds, with the times that came of filling it."""
    book = case.ledger
    return Priced(
        latency_s=float(latency_s),
        period_s=float(period_s),
        energy_j=float(book.account[:, ENERGY].max()),
        memory_bytes=float(book.account[:, MEMORY].max()),
        fits=bool(spending.excess(case.costs, book) <= 0),
        account=book.account,
        memory=case.costs.memory,
        g=case.g,
        shards=case.shards,
        messages=case.messages,
        ledger=book,
    )
