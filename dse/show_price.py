"""``dse price`` for a person and for machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import Console

from dse import show
from dse.evaluation import OBJECTIVES
from dse.units import UNITS, shown
from model.cluster.platform import Platform
from model.cost.confidence import expected_error
from model.cost.priced import Priced
from model.mappings.mapping import extent
from model.network import boxes
from model.network.graph import Graph

COSTLIEST = 10
"""Parts that are listed."""


def price_body(graph: Graph, cluster: Platform, found: Priced) -> dict[str, Any]:
    """``dse price --json``."""
    error = expected_error(graph, cluster, found)
    return {
        "latency_s": found.latency_s,
        "period_s": found.period_s,
        "energy_j": found.energy_j,
        "memory_bytes": found.memory_bytes,
        "fits": found.fits,
        "messages": int(found.messages.out_ptr[len(found.shards.device)]),
        "calibrated": not show.uncalibrated(cluster),
        "expected_error": error and asdict(error),
        "devices": found.devices(cluster),
        "layers": layer_costs(graph, cluster, found),
    }


def layer_costs(graph: Graph, cluster: Platform, found: Priced) -> list[dict[str, Any]]:
    """Where the time of a frame goes: every part of every layer, costliest first."""
    s, book = found.shards, found.ledger
    rows = []
    for layer in graph.layers:
        task = found.g.n_inputs + layer.index
        kind = int(s.kind[task])
        for k in range(s.ptr[task], s.ptr[task + 1]):
            rows.append(
                {
                    "layer": layer.name,
                    "op": layer.op,
                    "device": cluster.devices[s.device[k]].name,
                    "by": boxes.KIND_NAMES[kind],
                    "part": [int(s.start[k]), int(s.stop[k])],
                    "of": extent(graph, layer, kind),
                    "start_s": float(book.start[k]),
                    "time_s": float(book.stop[k] - book.start[k]),
                }
            )
    return sorted(rows, key=lambda row: -row["time_s"])


def price(console: Console, graph: Graph, cluster: Platform, found: Priced) -> None:
    """``dse price``."""
    for objective, value in zip(
        OBJECTIVES, (found.latency_s, found.energy_j, found.memory_bytes, found.period_s), strict=True
    ):
        show.line(console, f"{UNITS[objective][0]:28} {shown(objective, value)}")
    if not found.fits:
        show.line(console, "does NOT fit the devices' memory")
    _price_devices(console, found.devices(cluster))
    costs = layer_costs(graph, cluster, found)[:COSTLIEST]
    total = float(np.sum(found.account[:, 0])) or 1.0  # of a network of views alone
    cells = [
        [c["layer"], c["op"], c["device"], _part(c), f"{c['time_s'] * 1e3:.3f}", f"{c['time_s'] / total:.1%}"]
        for c in costs
    ]
    show.line(console, f"\nthe {len(cells)} costliest parts")
    console.print(show.table(["layer", "op", "device", "part", "ms", "of all"], cells, text=4), markup=False)
    show.warn_expected(console, cluster, expected_error(graph, cluster, found))


def _part(cost: dict[str, Any]) -> str:
    start, stop = cost["part"]
    return f"{start}..{stop} of {cost['of']} {cost['by']}"


def _price_devices(console: Console, rows: list[dict[str, Any]]) -> None:
    """Two tables, so that each fits a terminal of 80 columns."""
    times = [
        [
            r["device"],
            *[f"{r[k] * 1e3:.2f}" for k in ("compute_s", "busy_s", "communicate_s", "wait_s")],
            f"{r['energy_j']:.3g}",
        ]
        for r in rows
    ]
    show.line(console, "")
    headers = ["device", "compute ms", "of it busy", "transfer ms", "join wait ms", "energy J"]
    console.print(show.table(headers, times))
    device_memory(console, rows)


def device_memory(console: Console, rows: list[dict[str, Any]]) -> None:
    """What is resident on devices, of those that take part."""
    show.line(console, "")
    headers = ["device", "weights MB", "activations", "buffers", "the rest", "memory MB"]
    console.print(show.table(headers, [[r["device"], *[f"{size / 1e6:.1f}" for size in _sizes(r)]] for r in rows]))


def _sizes(row: dict[str, Any]) -> list[float]:
    """Weights, activations, buffers, what the process needs besides, and all of it, in bytes."""
    held = [*row["resident_bytes"].values()]
    return [*held, row["memory_bytes"] - sum(held), row["memory_bytes"]]
