"""Workloads: a graph of operators with their times, and accelerators and CPUs to split it over.

The input of Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators" (2020), section 3, and
their files. A node and its readers form a net, which costs the same on every edge; where edges of one node differ in
cost, each gets a node of its own that stays with its source, as their appendix B has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from model.cluster.texts import read_text
from model.mappings.arrays import Floats, Ints
from runtime.errors import CleaveError
from runtime.reading import parsed

NODE = ("id", "supportedOnFpga", "cpuLatency", "fpgaLatency", "size")
EDGE = ("sourceId", "destId", "cost")
HEAD = ("maxSizePerFPGA", "maxFPGAs", "maxCPUs", "nodes", "edges")
MARGIN = 1 + 1e-9
"""Sums of the same numbers in another order differ by less."""
MOST, MOST_NUMBER, MOST_DEVICES = 2**63 - 1, 1e200, 100_000
"""The largest id of a node or a colour, the largest number, which leaves room for sums and products, and how many
devices there may be of a kind."""


@dataclass(frozen=True, eq=False)
class Workload:
    """What is split, and over what: ``n`` nodes, ``E`` edges. Times in any one unit, milliseconds in their files.

    ids:      (n,) as in the file; -1: a node that stands for an edge, see above
    acc, cpu: (n,) float time on an accelerator (inf: it cannot run there) and on a CPU
    cost:     (n,) float time by which the output of a node enters or leaves an accelerator, 0 where none reads it
    size:     (n,) float bytes on an accelerator
    color:    (n,) int; equal ones share a device
    backward: (n,) bool, of a training graph's backward pass
    edge:     (E, 2) int32 source and reader, sorted, no edge twice
    accelerators, cpus: how many; memory: bytes of an accelerator
    """

    name: str
    ids: NDArray[np.int64]
    acc: Floats
    cpu: Floats
    cost: Floats
    size: Floats
    color: NDArray[np.int64]
    backward: NDArray[np.bool_]
    edge: Ints
    accelerators: int
    cpus: int
    memory: float

    def __len__(self) -> int:
        """How many nodes."""
        return len(self.acc)

    @property
    def devices(self) -> int:
        """Accelerators, which come first, and CPUs."""
        return self.accelerators + self.cpus

    @property
    def room(self) -> float:
        """Bytes that the nodes of an accelerator may take: its memory, whichever the order in which they are summed."""
        return self.memory * MARGIN

    @cached_property
    def order(self) -> Ints:
        """(n,) nodes in a topological order: of those that could come next always the first."""
        return topological(len(self), self.edge)

    @staticmethod
    def from_file(file: Path) -> Workload:
        """Read a file of theirs; ``CleaveError`` says what is wrong with it."""
        try:
            body = parsed(read_text(file, "workload"))
        except json.JSONDecodeError as error:
            raise CleaveError(f"{file}:{error.lineno}: not JSON: {error.msg}") from None
        except ValueError as error:
            raise CleaveError(f"{file}: cannot be read: {error}") from None
        try:
            return Workload.of(body, file.stem)
        except CleaveError as error:
            raise CleaveError(*[f"{file}: {sentence}" for sentence in error.sentences]) from None

    @staticmethod
    def of(body: Any, name: str) -> Workload:
        """The workload that a parsed file holds. ``CleaveError`` as for ``from_file``"""
        _check_keys(body, HEAD, "the workload")
        nodes, edges = _rows(body, "nodes", NODE), _rows(body, "edges", EDGE)
        index = {_id(node, "id", f"nodes[{k}]"): k for k, node in enumerate(nodes)}
        if len(index) < len(nodes):
            raise CleaveError("two nodes have the same id")
        if not nodes:
            raise CleaveError("there are no nodes")
        pairs = [_ends(edge, index) for edge in edges]
        costs = [_number(edge, "cost", f"the edge {edge['sourceId']} → {edge['destId']}") for edge in edges]
        pairs, cost, added = _nets(len(nodes), pairs, costs)
        backward = ["isBackwardNode" in n and _flag(n, "isBackwardNode") for n in nodes]
        found = Workload(
            name,
            np.array([node["id"] for node in nodes] + [-1] * len(added), dtype=np.int64),
            np.array(
                [_number(n, "fpgaLatency", _name(n)) if _flag(n, "supportedOnFpga") else np.inf for n in nodes]
                + [0.0] * len(added)
            ),
            np.array([_number(n, "cpuLatency", _name(n)) for n in nodes] + [0.0] * len(added)),
            cost,
            np.array([_number(n, "size", _name(n)) for n in nodes] + [0.0] * len(added)),
            _colors(nodes, added),
            np.array(backward + [backward[k] for k in added]),
            np.array(sorted(set(pairs)), dtype=np.int32).reshape(-1, 2),
            _count(body, "maxFPGAs"),
            _count(body, "maxCPUs"),
            _number(body, "maxSizePerFPGA", "the workload"),
        )
        if found.devices < 1:
            raise CleaveError("there is no device: maxFPGAs and maxCPUs are 0")
        if len(found.order) < len(found):
            raise CleaveError("the graph has a cycle")
        return found


def topological(n: int, edge: Ints) -> Ints:
    """Nodes of a graph in topological order, the first one that can come next; those on cycles and after are left out.

    edge: (E, 2)
    """
    missing = np.bincount(edge[:, 1], minlength=n)
    ready = sorted(np.flatnonzero(missing == 0).tolist(), reverse=True)
    readers: list[list[int]] = [[] for _ in range(n)]
    for source, reader in edge.tolist():
        readers[source].append(reader)
    order: list[int] = []
    while ready:
        order.append(ready.pop())
        for reader in sorted(readers[order[-1]], reverse=True):
            missing[reader] -= 1
            if missing[reader] == 0:
                ready.append(reader)
    return np.array(order, dtype=np.int32)


def components(n: int, edge: Ints, strong: bool = False) -> tuple[int, Ints]:
    """Connected components of a graph: how many, and of each node which. strong: in both directions"""
    matrix = scipy.sparse.csr_matrix((np.ones(len(edge)), (edge[:, 0], edge[:, 1])), shape=(n, n))
    count, label = scipy.sparse.csgraph.connected_components(
        matrix, directed=True, connection="strong" if strong else "weak"
    )
    return int(count), label.astype(np.int32)


def _check_keys(body: Any, keys: Sequence[str], where: str) -> None:
    if not isinstance(body, dict):
        raise CleaveError(f"{where} is no JSON object")
    missing = [key for key in keys if key not in body]
    if missing:
        raise CleaveError(f"{where} has no {', '.join(missing)}")


def _rows(body: Mapping[str, Any], key: str, keys: Sequence[str]) -> list[dict[str, Any]]:
    if not isinstance(body[key], list):
        raise CleaveError(f"{key} is no list")
    for k, row in enumerate(body[key]):
        _check_keys(row, keys, f"{key}[{k}]")
    return body[key]


def _name(node: Mapping[str, Any]) -> str:
    return f"node {node['id']}"


def _number(body: Mapping[str, Any], key: str, where: str) -> float:
    """A number that is not negative, and whose sums are finite."""
    value = body[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_NUMBER:
        raise CleaveError(f"{where} has {key} = {json.dumps(value)}, which is no number from 0 to {MOST_NUMBER:g}")
    return float(value)


def _flag(node: Mapping[str, Any], key: str) -> bool:
    """What a node is or is not: a truth value, or 1 or 0 for it."""
    value = node[key]
    if not isinstance(value, int) or value not in (0, 1):
        raise CleaveError(f"{_name(node)} has {key} = {json.dumps(value)}, which is neither true (1) nor false (0)")
    return bool(value)


def _count(body: Mapping[str, Any], key: str) -> int:
    """How many devices there are."""
    value = _number(body, key, "the workload")
    if value != int(value) or value > MOST_DEVICES:
        raise CleaveError(f"the workload has {key} = {body[key]}, which is no whole number from 0 to {MOST_DEVICES}")
    return int(value)


def _id(body: Mapping[str, Any], key: str, where: str) -> int:
    """What a node or its colour is called: a whole number that is not negative."""
    value = body[key]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise CleaveError(f"{where} has {key} = {json.dumps(value)}, which is no whole number from 0 to {MOST}")
    return value


def _ends(edge: Mapping[str, Any], index: Mapping[int, int]) -> tuple[int, int]:
    where = f"the edge {edge['sourceId']} → {edge['destId']}"
    source, reader = (_id(edge, key, where) for key in ("sourceId", "destId"))
    if source not in index or reader not in index:
        raise CleaveError(f"{where} names a node that is not there")
    return index[source], index[reader]


def _nets(n: int, pairs: list[tuple[int, int]], costs: list[float]) -> tuple[list[tuple[int, int]], Floats, list[int]]:
    """Edges, cost by node, and sources of added nodes: one for each edge of a source whose edges differ in cost."""
    of: dict[int, set[float]] = {}
    for (source, _), cost in zip(pairs, costs, strict=True):
        of.setdefault(source, set()).add(cost)
    found: list[tuple[int, int]] = []
    cost_of, added = dict.fromkeys(range(n), 0.0), list[int]()
    for (source, reader), cost in zip(pairs, costs, strict=True):
        if len(of[source]) == 1:
            found.append((source, reader))
            cost_of[source] = cost
        else:
            between = n + len(added)
            added.append(source)
            cost_of[between] = cost
            found += [(source, between), (between, reader)]
    return found, np.array([cost_of[k] for k in range(n + len(added))]), added


def _colors(nodes: Sequence[Mapping[str, Any]], added: Sequence[int]) -> NDArray[np.int64]:
    """Colours, one of their own for those without; added nodes have that of their source."""
    given = [_id(n, "colorClass", _name(n)) if "colorClass" in n else None for n in nodes]
    known = {color: k for k, color in enumerate(dict.fromkeys(color for color in given if color is not None))}
    own = [len(known) + k if color is None else known[color] for k, color in enumerate(given)]
    return np.array(own + [own[source] for source in added], dtype=np.int64)
