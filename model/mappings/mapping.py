"""The mapping: which device computes which part of which layer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from model.cluster.platform import Platform
from model.network import boxes
from model.network.graph import Graph, Layer
from runtime.errors import CleaveError
from runtime.reading import parsed

FORMAT = "cleave-mapping"
VERSION = 1
KEYS = ("format", "version", "cnn", "platform", "reader", "writer", "layers")
PART = ("device", "axis", "start", "stop")
MOST = 20
"""Problems of a mapping that are printed at once."""


@dataclass(frozen=True, order=True)
class Shard:
    """One device's part of one layer: the box ``start <= i < stop`` of its output along ``axis``.

    layer:  index into ``Graph.layers``
    start, stop: zero-based, half-open, in elements of ``axis``; the whole layer is one shard ``0..size``
    device: index into ``Platform.devices``
    axis:   output axis that is split: 0 = samples, 1 = channels (LOP), 2 = rows (neighbours exchange a halo, or each
            computes some rows of the other's itself: boxes of rows may overlap, see ``model.mappings.tiles``);
            3 = input channels (LIP): each shard makes a partial sum of the whole output (``boxes.PARTIAL``)
    """

    layer: int
    start: int
    stop: int
    device: int
    axis: int = boxes.CHANNELS


def extent(graph: Graph, layer: Layer, kind: int = boxes.CHANNELS) -> int:
    """Elements that a kind of split divides: of the layer's largest output along the axis; 1 without such an axis."""
    if kind == boxes.PARTIAL:
        rule = boxes.rule(graph, layer, kind)
        return rule.size if rule else 1
    shapes = [graph.tensors[name].shape for name in layer.outputs]
    return max(shape[kind] if 0 <= kind < len(shape) else 1 for shape in shapes)


NEIGHBOUR = -1
"""In place of a device: the one that has the first shard of the layer next to the network's input or output."""


@dataclass(frozen=True)
class Mapping:
    """Shards of every layer, sorted by layer and start.

    reader: device that the frames come in at (the camera's); writer: device that hands out the results
    """

    shards: tuple[Shard, ...]
    reader: int = NEIGHBOUR
    writer: int = NEIGHBOUR

    @staticmethod
    def of(shards: Iterable[Shard], reader: int = NEIGHBOUR, writer: int = NEIGHBOUR) -> Mapping:
        """A mapping with its shards in order."""
        return Mapping(tuple(sorted(shards)), reader, writer)

    @staticmethod
    def whole(graph: Graph, devices: Sequence[int]) -> Mapping:
        """Every layer whole, layer i on ``devices[i]``."""
        return Mapping.of(Shard(i.index, 0, extent(graph, i), devices[i.index]) for i in graph.layers)

    def by_layer(self, n_layers: int) -> list[list[Shard]]:
        """Shards of each layer, in order."""
        rows: list[list[Shard]] = [[] for _ in range(n_layers)]
        for shard in self.shards:
            rows[shard.layer].append(shard)
        return rows

    @property
    def devices(self) -> tuple[int, ...]:
        """Devices that take part, ascending: the ranks, in order."""
        ends = {self.reader, self.writer} - {NEIGHBOUR}
        return tuple(sorted(ends | {shard.device for shard in self.shards}))

    def check(self, graph: Graph, platform: Platform) -> list[str]:
        """Everything that is wrong with the mapping, a sentence each; empty if it can be built."""
        problems = [
            f"layer {s.layer} does not exist ('{graph.name}' has {len(graph.layers)})"
            for s in self.shards
            if not 0 <= s.layer < len(graph.layers)
        ]
        known = ", ".join(d.name for d in platform.devices)
        problems += [
            f"device {device} is not on the platform (it has {known})"
            for device in sorted({s.device for s in self.shards} | {self.reader, self.writer} - {NEIGHBOUR})
            if not 0 <= device < len(platform.devices)
        ]
        if problems:
            return problems
        rows = self.by_layer(len(graph.layers))
        return [p for layer in graph.layers for p in _check_layer(graph, layer, rows[layer.index])]

    def to_json(self, graph: Graph, platform: Platform) -> str:
        """The mapping as text: a device name for a whole layer, a list of boxes for a split one."""
        rows = self.by_layer(len(graph.layers))
        layers = {layer.name: _row_to_json(rows[layer.index], platform) for layer in graph.layers}
        body: dict[str, Any] = {"format": FORMAT, "version": VERSION, "cnn": graph.name, "platform": platform.name}
        ends = {"reader": self.reader, "writer": self.writer}
        body |= {role: platform.devices[device].name for role, device in ends.items() if device != NEIGHBOUR}
        return json.dumps(body | {"layers": layers}, indent=1) + "\n"

    @staticmethod
    def from_json(text: str, graph: Graph, platform: Platform, where: str = "mapping") -> Mapping:
        """Read and check a mapping; ``CleaveError`` with every problem, each beginning with ``where``."""
        try:
            body = parsed(text, object_pairs_hook=_once)
        except ValueError as error:
            raise CleaveError(f"{where}: is no JSON: {error}") from error
        if not isinstance(body, dict) or body.get("format") != FORMAT or body.get("version") != VERSION:
            raise CleaveError(f"{where}: is no {FORMAT} of version {VERSION}")
        if not isinstance(body.get("layers"), dict):
            raise CleaveError(f"{where}: 'layers' must be an object of layer names")
        if strangers := _of_another(graph, body["layers"]):
            raise CleaveError(f"{where}: {strangers}")
        problems = [f"'{key}' is not known here ({', '.join(KEYS)})" for key in body if key not in KEYS]
        shards: list[Shard] = []
        for name, row in body["layers"].items():
            if name not in graph.by_name:
                problems.append(f"layer '{name}' is not in '{graph.name}'")
                continue
            try:
                shards += _row_from_json(graph, graph.by_name[name], row, platform)
            except CleaveError as error:
                problems.append(f"layer '{name}': {error}")
        ends = dict.fromkeys(("reader", "writer"), NEIGHBOUR)
        for role in (role for role in ends if role in body):
            try:
                ends[role] = platform.index(body[role])
            except CleaveError as error:
                problems.append(f"{role}: {error}")
        return checked(Mapping.of(shards, **ends), graph, platform, where, problems)


def _of_another(graph: Graph, layers: Iterable[str]) -> str:
    """What to say of a mapping of another network than this, or of this one in another form."""
    unknown, left = [name for name in layers if name not in graph.by_name], set(graph.by_name).difference(layers)
    other = "it is of another network, or of this one"
    if len(unknown) > MOST:
        return f"{len(unknown)} of its layers, as '{unknown[0]}', are not in '{graph.name}': {other} without --fold"
    if len(left) > MOST and not unknown:
        first = next(name for name in graph.by_name if name in left)
        return f"{len(left)} layers of '{graph.name}', as '{first}', are not in it: {other} with --fold"
    return ""


def checked(mapping: Mapping, graph: Graph, platform: Platform, where: str, problems: Sequence[str] = ()) -> Mapping:
    """The mapping, or a ``CleaveError`` with ``problems`` and everything that ``check`` finds."""
    found = list(problems) or mapping.check(graph, platform)
    if found:
        raise CleaveError(*shortened([f"{where}: {problem}" for problem in found], where))
    return mapping


def shortened(problems: Sequence[str], where: str) -> list[str]:
    """As many of them as somebody reads."""
    more = [f"{where}: and {len(problems) - MOST} more like these"] if len(problems) > MOST else []
    return [*problems[:MOST], *more]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ: of two equal ones JSON would silently drop the first."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"'{next(key for key in keys if keys.count(key) > 1)}' stands in it twice")
    return found


def _check_layer(graph: Graph, layer: Layer, shards: list[Shard]) -> list[str]:
    where = f"layer '{layer.name}'"
    if not shards:
        return [f"{where}: is on no device"]
    axes = {s.axis for s in shards}
    if len(axes) > 1:
        return [f"{where}: is split along several axes ({', '.join(map(str, sorted(axes)))}); choose one"]
    axis = axes.pop()
    if not 0 <= axis < boxes.KINDS:
        return [f"{where}: there is no axis {axis} to split (0 samples, 1 channels, 2 rows, 3 input channels)"]
    size = extent(graph, layer, axis)
    problems = _check_cover(where, shards, size, axis)
    whole = len(shards) == 1 and not problems
    rule = boxes.rule(graph, layer, axis)
    if not whole and rule is None:
        problems.append(f"{where}: operator {layer.op} cannot be split by {boxes.KIND_NAMES[axis]} here; keep it whole")
    elif not whole and rule is not None:
        problems += [
            f"{where}: the cut at {cut} lies inside a group of {rule.grain} {boxes.KIND_NAMES[axis]}; "
            "cut at a multiple of it"
            for cut in sorted({edge for s in shards for edge in (s.start, s.stop)} - {size})
            if cut % rule.grain
        ]
    return problems


def _check_cover(where: str, shards: list[Shard], size: int, axis: int) -> list[str]:
    """Gaps, overlaps and empty or outlying boxes."""
    problems = [
        f"{where}: box {s.start}..{s.stop} is not inside 0..{size}" for s in shards if not 0 <= s.start < s.stop <= size
    ]
    if problems:
        return problems
    what = boxes.KIND_NAMES[axis]
    for (_, end), (start, _) in pairwise([(0, 0), *[(s.start, s.stop) for s in shards], (size, size)]):
        if start > end:
            problems.append(f"{where}: {what} {end}..{start} are on no device")
        elif start < end and axis != boxes.ROWS:
            problems.append(f"{where}: {what} {start}..{end} are in two parts")
    return problems + (_check_tiles(where, shards) if axis == boxes.ROWS else [])


def _check_tiles(where: str, shards: list[Shard]) -> list[str]:
    """Rows may be on several devices, but each box must have some that those before it do not have."""
    problems = []
    for k, (one, other) in enumerate(pairwise(shards)):
        if one.start == other.start or one.stop >= other.stop:
            problems.append(
                f"{where}: of rows {one.start}..{one.stop} and {other.start}..{other.stop} one holds the other"
            )
        twice = [s for s in shards[: k + 1] if s.device == other.device and s.stop > other.start]
        problems += [f"{where}: rows {other.start}..{s.stop} are on one device twice" for s in twice]
    return problems


def _row_to_json(shards: list[Shard], platform: Platform) -> Any:
    if len(shards) == 1:
        return platform.devices[shards[0].device].name
    return [
        {"device": platform.devices[s.device].name, "axis": s.axis, "start": s.start, "stop": s.stop} for s in shards
    ]


def _row_from_json(graph: Graph, layer: Layer, row: Any, platform: Platform) -> list[Shard]:
    if isinstance(row, str):
        return [Shard(layer.index, 0, extent(graph, layer), platform.index(row))]
    if not isinstance(row, list) or any(not isinstance(part, dict) or set(part) != set(PART) for part in row):
        raise CleaveError(f"a part needs {', '.join(PART[:-1])} and {PART[-1]}, and nothing else")
    parts = [(platform.index(r["device"]), r["axis"], r["start"], r["stop"]) for r in row]
    for values in parts:
        if not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
            raise CleaveError("axis, start and stop must be whole numbers")
    return [Shard(layer.index, start, stop, device, axis) for device, axis, start, stop in parts]
