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
    return loads(on, device, mode).max(axis=1)


def shared_values(on: Workload, device: np.ndarray, mode: str, bandwidth: float) -> np.ndarray:
    """(splits,) periods where devices of a kind that have nothing may share the part of one that has."""
    alone, used, best = loads(on, device, mode), np.stack([(device == d).any(axis=1) for d in range(on.devices)], 1), []
    held = np.stack([(device == d) @ on.size for d in range(on.devices)], axis=1)
    kind = np.arange(on.devices) >= on.accelerators
    most = np.where(kind, on.cpus, on.accelerators)
    for copies in map(np.array, product(*[range(1, count + 1) for count in most])):
        wait = (copies - 1) * held / copies / bandwidth
        each = alone / copies + wait if mode == "sum" else np.maximum(alone / copies, wait)
        fits = [(used * copies)[:, kind == which].sum(axis=1) <= (kind == which).sum() for which in (False, True)]
        best.append(np.where(fits[0] & fits[1], np.where(used, each, 0.0).max(axis=1), np.inf))
    return np.min(best, axis=0)


def machines_of(on: Workload, count: int) -> np.ndarray:
    """(devices,) machine of each."""
    return np.array([k // (total // count) for total in (on.accelerators, on.cpus) for k in range(total)])


def loads(on: Workload, device: np.ndarray, mode: str, machines: int = 1, slow: float = 1.0) -> np.ndarray:
    """(splits, devices) what each is busy with; inf where it may not be."""
    found, machine = [], machines_of(on, machines)
    for d in range(on.devices):
        here = device == d
        if d >= on.accelerators:
            found.append(here @ on.cpu)
            continue
        compute = np.where(here, on.acc, 0.0).sum(axis=1)
        into, out = transfers(on, here, machine[device] == machine[d], slow)
        load = {
            "sum": compute + into + out,
            "overlap": np.maximum(compute, into + out),
            "duplex": np.maximum(np.maximum(compute, into), out),
        }[mode]
        found.append(np.where(here @ on.size > on.memory, np.inf, load))
    return np.stack(found, axis=1)


def transfers(on: Workload, here: np.ndarray, near: np.ndarray, slow: float) -> tuple[np.ndarray, np.ndarray]:
    """(splits,) what goes in and out of a device that has some nodes, while its machine has others near."""
    into, out = np.zeros(len(here)), np.zeros(len(here))
    for source in range(len(on)):
        readers = on.edge[on.edge[:, 0] == source, 1]
        if len(readers):
            reads = here[:, readers].any(axis=1) & ~here[:, source]
            into += on.cost[source] * reads * np.where(near[:, source], 1, slow)
            close = (near & ~here)[:, readers].any(axis=1)
            out += on.cost[source] * here[:, source] * (close + slow * (~near)[:, readers].any(axis=1))
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


def pipelines(on: Workload, device: np.ndarray, machines: int = 1) -> np.ndarray:
    """(splits,) whether it is a pipeline of machines and devices, backward in the reverse order or in the same."""
    forward, backward = (on.edge[part[on.edge].all(axis=1)] for part in (~on.backward, on.backward))
    ways = [np.concatenate([forward, edge]) for edge in (backward, backward[:, ::-1])]
    machine = machines_of(on, machines)[device]
    way, other = (without_cycle(on, device, edge) & without_cycle(on, machine, edge) for edge in ways)
    return way | other


def best_pipeline(on: Workload, mode: str, bandwidth: float | None = None) -> float:
    """The least period of a pipeline, inf: there is none. bandwidth: devices may share a part"""
    device = all_splits(on)
    worth = values(on, device, mode) if bandwidth is None else shared_values(on, device, mode, bandwidth)
    return float(np.where(pipelines(on, device), worth, np.inf).min())


def best_over_machines(on: Workload, mode: str, machines: int, slow: float) -> float:
    """The least period over machines, inf: there is none."""
    device = all_splits(on)
    worth = loads(on, device, mode, machines, slow).max(axis=1)
    return float(np.where(pipelines(on, device, machines), worth, np.inf).min())
