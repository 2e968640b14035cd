"""All splits of a small workload, and what each is worth: slow, plain, and by itself."""

from __future__ import annotations

from itertools import product

import numpy as np

from dse.place.workload import Workload


def all_splits(on: Workload) -> np.ndarray:
    """(splits, n) devices, nodes of a colour together."""
    colors, unit = np.unique(on.color, return_inverse=True)
    return np.array(list(product(range(on.devices), repeat=len(colors))), dtype=np.int32)[:, unit]


def values(on: Workload, device: np.ndarray, mode: str) -> np.ndarray:
    """(splits,) periods; inf where a split may not be."""
    worst = np.zeros(len(device))
    for d in range(on.devices):
        here = device == d
        if d >= on.accelerators:
            worst = np.maximum(worst, here @ on.cpu)
            continue
        compute = np.where(here, on.acc, 0.0).sum(axis=1)
        into, out = transfers(on, here)
        load = {
            "sum": compute + into + out,
            "overlap": np.maximum(compute, into + out),
            "duplex": np.maximum(np.maximum(compute, into), out),
        }[mode]
        worst = np.maximum(worst, np.where(here @ on.size > on.memory, np.inf, load))
    return worst


def transfers(on: Workload, here: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(splits,) what goes in and out of a device that has those nodes."""
    into, out = np.zeros(len(here)), np.zeros(len(here))
    for source in range(len(on)):
        readers = on.edge[on.edge[:, 0] == source, 1]
        if len(readers):
            into += on.cost[source] * (here[:, readers].any(axis=1) & ~here[:, source])
            out += on.cost[source] * (here[:, source] & ~here[:, readers].all(axis=1))
    return into, out


def without_cycle(on: Workload, device: np.ndarray, edge: np.ndarray) -> np.ndarray:
    """(splits,) whether the devices can follow one another as edges have it."""
    count, rows = on.devices, np.arange(len(device))
    before = np.zeros((len(device), count, count), dtype=bool)
    for source, reader in edge.tolist():
        apart = device[:, source] != device[:, reader]
        before[rows[apart], device[apart, source], device[apart, reader]] = True
    for k in range(count):
        before |= before[:, :, k, None] & before[:, None, k, :]
    return ~before[:, range(count), range(count)].any(axis=1)


def pipelines(on: Workload, device: np.ndarray) -> np.ndarray:
    """(splits,) whether it is a pipeline: backward through devices in the reverse order, or in the same."""
    forward, backward = (on.edge[part[on.edge].all(axis=1)] for part in (~on.backward, on.backward))
    ways = [np.concatenate([forward, edge]) for edge in (backward, backward[:, ::-1])]
    return without_cycle(on, device, ways[0]) | without_cycle(on, device, ways[1])


def best_pipeline(on: Workload, mode: str) -> float:
    """The least period of a pipeline, inf: there is none."""
    device = all_splits(on)
    return float(np.where(pipelines(on, device), values(on, device, mode), np.inf).min())
