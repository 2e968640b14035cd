"""Small workloads of all kinds, for comparing with brute force."""

from __future__ import annotations

from typing import Any

import numpy as np

from dse.place.workload import Workload

MOST_SPLITS = 3000


def workload(seed: int, *, nodes: int = 6, training: bool = False, path: bool = False, whole: bool = True) -> Workload:
    """A random one. whole: times are integers, so that many splits are equally good"""
    rng = np.random.default_rng(seed)
    accelerators, cpus = int(rng.integers(0, 4)), int(rng.integers(0, 3))
    accelerators += accelerators + cpus == 0
    n = int(rng.integers(1, nodes + 1))
    while (accelerators + cpus) ** n > MOST_SPLITS:
        n -= 1
    rows, edges = _forward(rng, n, path)
    if training:
        _add_backward(rng, rows, edges)
    _color(rng, rows)
    _weigh(rng, rows, edges, whole)
    total = sum(row["size"] for row in rows)
    tight = total / max(1, accelerators) * float(rng.uniform(0.8, 2))
    body = {
        "maxSizePerFPGA": tight if rng.random() < 0.5 else 1000.0,
        "maxFPGAs": accelerators,
        "maxCPUs": cpus,
        "nodes": rows,
        "edges": edges,
    }
    return Workload.of(body, f"small-{seed}")


def _forward(rng: np.random.Generator, n: int, path: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rows = [{"id": 3 * k + 1, "isBackwardNode": 0} for k in range(n)]
    density = rng.uniform(0.1, 0.7)
    pairs = [(a, b) for b in range(n) for a in range(b) if (b == a + 1 if path else rng.random() < density)]
    return rows, [{"sourceId": rows[a]["id"], "destId": rows[b]["id"]} for a, b in pairs]


def _add_backward(rng: np.random.Generator, rows: list[dict[str, Any]], edges: list[dict[str, Any]]) -> None:
    """Backward nodes of most forward ones, with edges turned round or as they are, and some of neither kind."""
    n, turned, kept = len(rows), rng.random() < 0.7, []
    for row in rows[:n]:
        row["colorClass"] = row["id"]
        if rng.random() < 0.8:
            kept.append(row["id"])
            colored = {"colorClass": row["id"]} if rng.random() < 0.8 else {}
            rows.append({"id": 1000 + row["id"], "isBackwardNode": 1, **colored})
    for edge in edges[:]:
        ends = [edge["sourceId"], edge["destId"]]
        if set(ends) <= set(kept) and rng.random() < 0.9:
            source, reader = ends[::-1] if turned else ends
            edges.append({"sourceId": 1000 + source, "destId": 1000 + reader})
    for at in kept:
        if rng.random() < 0.4:
            edges.append({"sourceId": at, "destId": 1000 + at})


def _color(rng: np.random.Generator, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if rng.random() < 0.15:
            row["colorClass"] = rows[int(rng.integers(len(rows)))]["id"]


def _weigh(rng: np.random.Generator, rows: list[dict[str, Any]], edges: list[dict[str, Any]], whole: bool) -> None:
    def number(most: int) -> float:
        return float(rng.integers(0, most + 1)) if whole else float(rng.uniform(0, most))

    transfers = int(rng.integers(1, 12))
    for row in rows:
        row |= {"fpgaLatency": number(9), "cpuLatency": number(30), "size": number(9)}
        row["supportedOnFpga"] = bool(rng.random() < 0.92)
    cost = {row["id"]: number(transfers) for row in rows}
    for edge in edges:
        edge["cost"] = number(transfers) if rng.random() < 0.05 else cost[edge["sourceId"]]
