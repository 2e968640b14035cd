"""What a search leaves behind: the front and the convergence as CSV, JSON and pictures."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping as Dict
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from dse import canvas
from dse.chromosomes import Chromosome
from dse.evaluation import OBJECTIVES
from dse.place.cnn.bounds import Proven
from dse.search import Front
from dse.units import UNITS, quantity
from model.cluster.platform import Platform
from model.mappings.mapping import NEIGHBOUR, Mapping, Shard, extent
from model.network.boxes import CHANNELS
from model.network.graph import Graph
from runtime.trace import MEASURED, PREDICTED

FRONT = "front.json"
"""In the folder of a run: the Pareto front, mappings included."""


def write_front(
    folder: Path,
    front: Front,
    mappings: Sequence[Mapping],
    chromosome: Chromosome,
    graph: Graph,
    platform: Platform,
    known: Dict[str, Proven] = MappingProxyType({}),
) -> None:
    """``front.csv`` (one line a point) and ``front.json`` (mappings included)."""
    rows = [_row(i, front, mapping, graph) for i, mapping in enumerate(mappings)]
    _write_csv(folder / "front.csv", rows)
    head = {
        "format": "cleave-front",
        "version": 1,
        "cnn": graph.name,
        "platform": platform.name,
        **_ends(chromosome, platform),
        "devices": [device.name for device in platform.devices],
        "layers": [layer.name for layer in graph.layers],
        "proven": proven_body(known),
    }
    entries = [row | {"mapping": compact(graph, m)} for row, m in zip(rows, mappings, strict=True)]
    lines = ",\n  ".join(json.dumps(entry) for entry in entries)
    opened = json.dumps(head, indent=1).removesuffix("\n}")
    (folder / FRONT).write_text(f'{opened},\n "points": [\n  {lines}\n ]\n}}\n')


def proven_body(known: Dict[str, Proven]) -> dict[str, dict[str, float | str | None]]:
    """By objective the best value that a search found, what no mapping of the kind goes below, and the gap, a part of
    the latter: all by the model, whatever is measured then.
    """
    return {name: {"best": p.value, "bound": p.bound, "gap": p.gap, "source": "predicted"} for name, p in known.items()}


def _ends(chromosome: Chromosome, platform: Platform) -> dict[str, str]:
    """Devices of the network's inputs and outputs, where the search was told them."""
    ends = {"reader": chromosome.coding.reader, "writer": chromosome.coding.writer}
    return {role: platform.devices[device].name for role, device in ends.items() if device != NEIGHBOUR}


def compact(graph: Graph, mapping: Mapping) -> list[Any]:
    """One entry a layer: the index of its device, or ``[device, start, stop]`` for each part along the channels.

    A part of another kind of split has the kind as a fourth number.
    """
    rows = mapping.by_layer(len(graph.layers))
    return [row[0].device if len(row) == 1 and row[0].axis == CHANNELS else [_part(s) for s in row] for row in rows]


def _part(shard: Shard) -> list[int]:
    return [shard.device, shard.start, shard.stop, *([shard.axis] if shard.axis != CHANNELS else [])]


def devices_of(entries: Sequence[Any]) -> set[int]:
    """The devices of a mapping that ``compact`` wrote."""
    return {device for entry in entries for device in ([entry] if isinstance(entry, int) else [p[0] for p in entry])}


def from_compact(graph: Graph, entries: Sequence[Any]) -> Mapping:
    """The mapping that ``compact`` wrote."""
    shards = []
    for layer, entry in zip(graph.layers, entries, strict=True):
        parts = [[entry, 0, extent(graph, layer)]] if isinstance(entry, int) else entry
        shards += [Shard(layer.index, start, stop, device, *axis) for device, start, stop, *axis in parts]
    return Mapping.of(shards)


def _row(index: int, front: Front, mapping: Mapping, graph: Graph) -> dict[str, Any]:
    return {
        "point": index,
        **{name: float(front.scores[index, k]) for k, name in enumerate(OBJECTIVES)},
        "devices": len(mapping.devices),
        "split_layers": sum(len(row) > 1 for row in mapping.by_layer(len(graph.layers))),
        **_errors(index, front),
        **_sources(index, front),
    }


def _errors(index: int, front: Front) -> dict[str, float | None]:
    """By how much scores are expected to be off, if that is known of any point; None: was measured, or is unknown."""
    if front.off is None or np.isnan(front.off).all():
        return {}
    off = known(front.off[index])
    return {f"expected_error_{quantity(name)}": off.get(name) for name in OBJECTIVES}


def _sources(index: int, front: Front) -> dict[str, Any]:
    """Where anything was measured: whether each score was, ``latency: measured``, and what the model alone says."""
    if front.measured is None or front.predicted is None:
        return {}
    words = {name: MEASURED if name in known(front.measured[index]) else PREDICTED for name in OBJECTIVES}
    said = {f"predicted_{name}": float(front.predicted[index, k]) for k, name in enumerate(OBJECTIVES)}
    return {**{quantity(name): word for name, word in words.items()}, **said}


def known(values: np.ndarray) -> dict[str, float]:
    """(4,) figures by objective, without those that are NaN: there are none."""
    return {name: float(v) for name, v in zip(OBJECTIVES, values, strict=True) if not np.isnan(v)}


def write_convergence(folder: Path, front: Front) -> None:
    """``convergence.csv``: the best of each objective so far and the hypervolume, a line a generation."""
    rows = [
        {"generation": i + 1, **{n: float(v) for n, v in zip(OBJECTIVES, best, strict=True)}, "hypervolume": float(hv)}
        for i, (best, hv) in enumerate(zip(front.best, front.volume, strict=True))
    ]
    _write_csv(folder / "convergence.csv", rows)


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _label(objective: str) -> str:
    name, unit, _ = UNITS[objective]
    return f"{name} [{unit}]"


def plot_front(path: Path, front: Front, objectives: Sequence[str], best: dict[str, int], title: str) -> None:
    """Every pair of objectives, a dot a mapping, with bars as far as it is expected to be off; the points that are
    shipped are marked.
    """
    pairs = [(a, b) for i, a in enumerate(objectives) for b in objectives[i + 1 :]]
    figure = canvas.blank(5.2 * len(pairs), 4.4)
    for k, (a, b) in enumerate(pairs):
        axes = figure.add_subplot(1, len(pairs), k + 1)
        x, y = (front.scores[:, OBJECTIVES.index(o)] * UNITS[o][2] for o in (a, b))
        x_off, y_off = _reach(front, a, x), _reach(front, b, y)
        axes.errorbar(x, y, y_off, x_off, fmt="none", ecolor="0.85", elinewidth=0.6, zorder=0)
        axes.scatter(x, y, s=14, color="0.55", label="front")
        if front.measured is not None:
            seen = ~np.isnan(front.measured[:, [OBJECTIVES.index(o) for o in (a, b)]]).any(axis=1)
            axes.scatter(x[seen], y[seen], s=14, color="tab:red", label="measured")
        for mark, (name, i) in zip("os^D", best.items(), strict=False):
            axes.scatter(x[i], y[i], s=70, marker=mark, edgecolor="black", label=name)
        axes.set(xlabel=_label(a), ylabel=_label(b))
        axes.grid(alpha=0.3)
    figure.axes[0].legend()
    figure.suptitle(title)
    canvas.save(figure, path, dpi=120)


def _reach(front: Front, objective: str, values: np.ndarray) -> np.ndarray | None:
    """(n,) by how much values of an objective may be off; None: nothing is known of any."""
    if front.off is None:
        return None
    off = front.off[:, OBJECTIVES.index(objective)]
    return None if np.isnan(off).all() else values * off


def plot_convergence(path: Path, curves: dict[str, np.ndarray], objectives: Sequence[str], title: str) -> None:
    """Best value of each objective by generation; ``curves``: label to ``(generations, 4)`` best values."""
    figure = canvas.blank(5.2 * len(objectives), 4.0)
    for k, objective in enumerate(objectives):
        axes = figure.add_subplot(1, len(objectives), k + 1)
        for label, best in curves.items():
            values = best[:, OBJECTIVES.index(objective)] * UNITS[objective][2]
            axes.plot(np.arange(1, len(values) + 1), values, label=label)
        axes.set(xlabel="generation", ylabel=_label(objective))
        axes.grid(alpha=0.3)
    if len(curves) > 1:
        figure.axes[0].legend()
    figure.suptitle(title)
    canvas.save(figure, path, dpi=120)
