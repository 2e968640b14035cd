"""``dse place`` for a person and for machines."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console

from dse import show
from dse.evaluation import OBJECTIVES
from dse.inputs import Cnn
from dse.place import split
from dse.place.cnn.exact import Exact
from dse.place.methods import PERIOD
from dse.place.placed import Options, Placed
from dse.place.workload import Workload
from dse.results import proven_body
from dse.units import UNITS, shown
from model.cluster.platform import Platform
from model.cost.confidence import Expected

MOST_DEVICES = 30
"""Rows of a table; devices without a node are left out anyway."""


@dataclass(frozen=True)
class Look:
    """All that there is to say of a split. options: that were asked for; seconds: that it took"""

    on: Workload
    found: Placed
    objective: str
    method: str
    options: Options
    seconds: float

    @property
    def names(self) -> list[str]:
        """Of devices."""
        return [f"acc{k}" for k in range(self.on.accelerators)] + [f"cpu{k}" for k in range(self.on.cpus)]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each device."""
        of = split.load(self.on, self.found.device, self.options.machines, self.options.slow)
        nodes = np.bincount(self.found.device[self.on.ids >= 0], minlength=self.on.devices)
        copies = np.ones(self.on.devices, dtype=np.int32) if self.found.copies is None else self.found.copies
        load = of.shared(self.options.mode, copies, self.options.bandwidth)
        columns = (self.names, nodes, copies, of.compute, of.into, of.out, load, of.held)
        keys = ("device", "nodes", "copies", "compute", "in", "out", "load", "memory_bytes")
        return [
            dict(zip(keys, row, strict=True)) for row in zip(*[np.asarray(c).tolist() for c in columns], strict=True)
        ]


def body(look: Look) -> dict[str, Any]:
    """For machines. The split: the device of each node, by its id in the file; the first of them, where some share it.

    Of a device, ``copies``: how many have its nodes, that and the next ones; all else is as if it had them alone, but
    for the load, which is by sample.
    """
    on, found = look.on, look.found
    return {
        "workload": on.name,
        "objective": look.objective,
        "method": look.method,
        "mode": look.options.mode,
        "value": found.value,
        "bound": found.bound,
        "optimal": found.optimal,
        "contiguous": _contiguous(look),
        "time_s": look.seconds,
        "ideals": found.ideals,
        "note": found.note,
        "devices": look.rows,
        "subgraphs": None
        if found.slot is None
        else {str(i): s for i, s in zip(on.ids.tolist(), found.slot.tolist(), strict=True) if i >= 0},
        "split": {str(i): look.names[d] for i, d in zip(on.ids.tolist(), found.device.tolist(), strict=True) if i >= 0},
    }


def placed(console: Console, look: Look) -> None:
    """For a person: what it is worth, and the devices that have something."""
    on, found = look.on, look.found
    kind = {None: "", True: "contiguous, ", False: "not contiguous, "}[_contiguous(look)]
    show.line(console, f"{on.name}: {(on.ids >= 0).sum()} nodes, {on.accelerators} accelerators, {on.cpus} CPUs")
    show.line(console, f"{look.objective} {found.value:.6g} ms, {kind}{_known(found)}")
    if found.note:
        show.line(console, found.note)
    ideals = "" if found.ideals is None else f", {found.ideals:,} ideals"
    show.line(console, f"{look.method} in {look.seconds:.2f} s{ideals}")
    used = [row for row in look.rows if row["nodes"]]
    headers = ["device", "nodes", "compute ms", "in ms", "out ms", "load ms", "memory MB"]
    console.print(show.table(headers, [_row(row) for row in used[:MOST_DEVICES]]))
    if len(used) > MOST_DEVICES:
        show.line(console, f"and {len(used) - MOST_DEVICES} more devices (--json has them all)")


def _contiguous(look: Look) -> bool | None:
    """None for latency, where what is on CPUs is on the first: each node may have one of its own."""
    return split.contiguous(look.on, look.found.device) if look.objective == PERIOD else None


def _known(found: Placed) -> str:
    if found.optimal:
        return "optimal"
    gap = found.value / found.bound - 1 if found.bound > 0 else float("inf")
    return f"at most {100 * gap:.3g} % more than the best: none is under {found.bound:.6g} ms"


def _row(row: dict[str, Any]) -> list[str]:
    times = [f"{row[key]:.4g}" for key in ("compute", "in", "out", "load")]
    shared = f" ×{row['copies']}" if row["copies"] > 1 else ""
    return [row["device"] + shared, str(row["nodes"]), *times, f"{row['memory_bytes'] / 1e6:.1f}"]


def cnn_body(
    cnn: Cnn, platform: Platform, found: Exact, error: Expected | None, evaluator: str, seconds: float
) -> dict[str, Any]:
    """Of a CNN on a platform, for machines. Scores in SI; error: that these are expected to be off by; proven: see
    ``dse.results.proven_body``
    """
    return {
        "cnn": cnn.graph.name,
        "platform": platform.name,
        "objective": found.objective,
        "evaluator": evaluator,
        **dict(zip(OBJECTIVES, found.scores.tolist(), strict=True)),
        "expected_error": error and asdict(error),
        "proven": proven_body({found.objective: found.proven})[found.objective],
        "time_s": seconds,
        "mapping": json.loads(found.mapping.to_json(cnn.graph, platform)),
    }


def cnn(console: Console, platform: Platform, found: Exact, seconds: float) -> None:
    """The same for a person."""
    for objective, value in zip(OBJECTIVES, found.scores, strict=True):
        show.line(console, f"{UNITS[objective][0]:28} {shown(objective, value)}")
    show.line(console, f"{show.proven_line(found.objective, found.proven)} ({seconds:.2g} s)")
    rows = [[platform.devices[d].name, sum(s.device == d for s in found.mapping.shards)] for d in found.mapping.devices]
    console.print(show.table(["device", "parts of layers"], rows), markup=False)
