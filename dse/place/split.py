"""Splits of a workload, and what they are worth: loads, memory, whether they are allowed.

This is what a split is judged by, whichever method has found it: plain, and by the definitions of the paper that
``workload`` names (sections 3 and 5, appendix C.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.place.workload import Workload, components
from model.mappings.arrays import Floats, Ints

SUM, OVERLAP, DUPLEX = MODES = ("sum", "overlap", "duplex")
"""The load of an accelerator: its computing and its transfers one after the other, at a time, or those in and out at a
time, too."""


@dataclass(frozen=True)
class Load:
    """What devices are busy with for one sample, each (devices,): computing, transfers in and out; bytes held."""

    compute: Floats
    into: Floats
    out: Floats
    held: Floats

    def of(self, mode: str) -> Floats:
        """(devices,) time for one sample."""
        if mode == SUM:
            return self.compute + self.into + self.out
        moves = [self.into + self.out] if mode == OVERLAP else [self.into, self.out]
        return np.maximum.reduce([self.compute, *moves])

    def shared(self, mode: str, copies: Ints | None, bandwidth: float | None) -> Floats:
        """(devices,) time for one sample where so many devices share a device's part and keep their weights equal.

        Appendix C.2: each has its share of the samples; of ``copies`` devices each sends and receives so much of its
        bytes, at ``bandwidth`` bytes per unit of time, in turn with the rest (``SUM``) or meanwhile.
        """
        if copies is None or bandwidth is None:
            return self.of(mode)
        share, wait = self.of(mode) / copies, (copies - 1) * self.held / (copies * bandwidth)
        return share + wait if mode == SUM else np.maximum(share, wait)


def machine_of(on: Workload, machines: int) -> Ints:
    """(devices,) the machine of each, where accelerators and CPUs are spread evenly over some."""
    each = [np.arange(count) * machines // max(1, count) for count in (on.accelerators, on.cpus)]
    return np.concatenate(each).astype(np.int32)


def load(on: Workload, device: Ints, machines: int = 1, slow: float = 1.0) -> Load:
    """Of a split: ``(n,)`` device of each node, accelerators first. CPUs pay nothing for transfers.

    With ``machines`` (appendix C.3) a transfer to another one takes ``slow`` times as long; what both devices of the
    same machine and others read leaves a device twice.
    """
    accelerated = device < on.accelerators
    time = np.where(accelerated, on.acc, on.cpu)
    source, reader = on.edge[:, 0], on.edge[:, 1]
    cut, at = device[source] != device[reader], machine_of(on, machines)[device]
    far = at[source] != at[reader]

    def moves(ends: Ints) -> Floats:
        """(devices,) transfers by the device that each edge counts at, once a source, device and distance."""
        keys = (source.astype(np.int64) * on.devices + device[ends]) * 2 + far
        of, is_far = np.divmod(np.unique(keys[cut]), 2)
        taken = on.cost[of // on.devices] * np.where(is_far, slow, 1.0)
        return _sum(on, of % on.devices, taken) * (np.arange(on.devices) < on.accelerators)

    return Load(_sum(on, device, time), moves(reader), moves(source), _sum(on, device, on.size))


def _sum(on: Workload, device: NDArray[np.integer[Any]], of: Floats) -> Floats:
    """(devices,) sums of figures by the device of each."""
    return np.asarray(np.bincount(device, of, on.devices), np.float64)


def period(on: Workload, device: Ints, mode: str = SUM) -> float:
    """Time between samples of a pipeline: the largest load of a device."""
    return float(load(on, device).of(mode).max())


def contiguous(on: Workload, device: Ints) -> bool:
    """Whether devices can follow one another: the graph of devices has no cycle, the backward pass seen by itself."""
    return all(_acyclic(on, device, part) for part in (on.backward, ~on.backward))


def _acyclic(on: Workload, device: Ints, part: NDArray[np.bool_]) -> bool:
    edges = device[on.edge[part[on.edge].all(axis=1)]]
    between = edges[edges[:, 0] != edges[:, 1]]
    count, _ = components(on.devices, between, strong=True)
    return count == on.devices


def faults(on: Workload, device: Ints) -> list[str]:
    """What a split may not do, in sentences: wrong devices, colours apart, too many bytes. Contiguity is not asked."""
    found = []
    if len(device) != len(on) or device.min(initial=0) < 0 or device.max(initial=0) >= on.devices:
        return ["a node is on no device"]
    for color in np.unique(on.color):
        if len(np.unique(device[on.color == color])) > 1:
            found.append(f"the nodes of colour {color} are on several devices")
    if np.isinf(on.acc[device < on.accelerators]).any():
        found.append("a node is on an accelerator that cannot run it")
    held = load(on, device).held[: on.accelerators]
    full = [(k, b) for k, b in enumerate(held) if b > on.room]
    found += [f"accelerator {k} holds {b:.0f} of {on.memory:.0f} bytes" for k, b in full]
    return found
