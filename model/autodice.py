"""AutoDiCE's mapping: two JSON files, read strictly and written where a mapping can be said in them.

``mapping.json``: ``{"edge00_cpu0123": ["conv1", "relu1"], "edge01_gpu": ["conv2"]}``: a key is host, unit and one
digit a core, in any order (older files write ``arm`` for ``cpu``); a split layer stands under each of its devices.

``horizontal.json``: ``{"conv2": ["lop", [128, 256], ["edge00_cpu0123", "edge01_gpu"]]}``: where the part of each
device ends, in output channels. A last point of 65535 means the end of the layer, as in AutoDiCE's own examples.

A layer goes by the name of its node, or by an output. Nodes that loading dropped or folded may be listed; they say
nothing. The order of keys, MPI ranks for AutoDiCE, says nothing either: ranks here follow the platform.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import onnx

from model import boxes
from model.graph import Graph, Layer
from model.mapping import FORMAT, Mapping, Shard, checked, extent
from model.platform import Device, Platform
from runtime.errors import CleaveError

LOP = "lop"
REST = 65535
"""As the last split point: all channels that are left."""

SPLIT = frozenset({"Conv", "Gemm"})
"""What AutoDiCE can split."""


def read_mapping(
    mapping_text: str,
    horizontal_text: str | None,
    graph: Graph,
    platform: Platform,
    where: str = "mapping.json",
    horizontal_where: str = "horizontal.json",
) -> Mapping:
    """Read a mapping in either form, our own or AutoDiCE's; ``CleaveError`` with every problem."""
    if is_autodice(mapping_text):
        return read(mapping_text, horizontal_text, graph, platform, where, horizontal_where)
    if horizontal_text is not None:
        raise CleaveError(f"{horizontal_where}: belongs to a mapping in AutoDiCE's form, which {where} is not")
    return Mapping.from_json(mapping_text, graph, platform, where)


def is_autodice(text: str) -> bool:
    """Whether the text is an object that does not call itself a mapping of ours."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(body, dict) and body.get("format") != FORMAT


def read(
    mapping_text: str,
    horizontal_text: str | None,
    graph: Graph,
    platform: Platform,
    where: str = "mapping.json",
    horizontal_where: str = "horizontal.json",
) -> Mapping:
    """Read AutoDiCE's two files, the second where there is one; ``CleaveError`` with every problem and its place."""
    reader = _Reader(graph, platform, where, horizontal_where)
    placed = reader.pairs(mapping_text, where)
    split = reader.pairs("{}" if horizontal_text is None else horizontal_text, horizontal_where)
    reader.give_up_on_problems()
    reader.place(placed)
    reader.split(split)
    mapping = Mapping.of(shard for layer in graph.layers for shard in reader.shards(layer))
    reader.problems += [f"{horizontal_where}: {problem}" for problem in mapping.check(graph, platform)]
    reader.give_up_on_problems()
    return mapping


def write(mapping: Mapping, graph: Graph, platform: Platform) -> tuple[str, str]:
    """The texts of ``mapping.json`` and ``horizontal.json``.

    A node that loading dropped or folded stands with the first layer that does its work, as AutoDiCE asks for every
    node. ``CleaveError`` with every reason why the mapping cannot be said in this form.
    """
    checked(mapping, graph, platform, "mapping")
    rows = mapping.by_layer(len(graph.layers))
    names = _Names(graph)
    problems = [p for layer in graph.layers for p in _unsayable(layer, rows[layer.index], names, platform)]
    problems += [p for d in mapping.devices for p in _keyless(platform.devices[d])]
    if problems:
        raise CleaveError(*[f"AutoDiCE's form cannot say this mapping: {problem}" for problem in problems])
    placed: dict[str, list[str]] = {platform.devices[d].name: [] for d in mapping.devices}
    split: dict[str, Any] = {}
    said: set[str] = set()
    for layer in graph.layers:
        own = names.own(layer)
        assert own is not None
        keys = [platform.devices[s.device].name for s in rows[layer.index]]
        placed[keys[0]] += [n for n in layer.origins if n != own and n not in names.layers and n not in said]
        said.update(layer.origins)
        for key in keys:
            placed[key].append(own)
        if len(keys) > 1:
            split[own] = [LOP, [s.stop for s in rows[layer.index]], keys]
    return _text(placed), _text(split)


def _text(body: dict[str, Any]) -> str:
    """An object as JSON, one key a line."""
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in body.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n" if lines else "{}\n"


def _unsayable(layer: Layer, shards: list[Shard], names: _Names, platform: Platform) -> Iterator[str]:
    """Why the files have no way to say where a layer is."""
    if names.own(layer) is None:
        yield f"layer '{layer.name}': has no name that means it alone"
    if len(shards) == 1:
        return
    if layer.op not in SPLIT:
        yield f"layer '{layer.name}': operator {layer.op} is split; AutoDiCE splits only Conv and Gemm"
    if shards[0].axis != boxes.CHANNELS:
        yield f"layer '{layer.name}': is split along axis {shards[0].axis}; 'lop' splits output channels"
    devices = [s.device for s in shards]
    for device in sorted({d for d in devices if devices.count(d) > 1}):
        yield f"layer '{layer.name}': device '{platform.devices[device].name}' has several parts of it"


def _keyless(device: Device) -> Iterator[str]:
    if any(core > 9 for core in device.cores):
        yield f"device '{device.name}': has a core over 9, and a key has one digit a core"


@dataclass(eq=False)
class _Names:
    """What a name in the files means."""

    graph: Graph

    @cached_property
    def layers(self) -> dict[str, list[Layer]]:
        """Name to the layers that go by it: their own name, that of their node, or of an output."""
        found: dict[str, list[Layer]] = {}
        for layer in self.graph.layers:
            for name in dict.fromkeys(_aliases(layer)):
                found.setdefault(name, []).append(layer)
        return found

    def own(self, layer: Layer) -> str | None:
        """The first name that means this layer and no other."""
        return next((name for name in _aliases(layer) if len(self.layers[name]) == 1), None)

    def is_node(self, name: str) -> bool:
        """Whether a node goes by the name, though no layer does: loading dropped it, or folded it away."""
        return name in self._origins or name in self._file

    def doer(self, name: str) -> Layer | None:
        """The layer that does the work of a folded node."""
        return next((layer for layer in self.graph.layers if name in layer.origins), None)

    @cached_property
    def _origins(self) -> frozenset[str]:
        return frozenset(name for layer in self.graph.layers for name in layer.origins)

    @cached_property
    def _file(self) -> frozenset[str]:
        """Nodes of the file and what they make: folded constants, and what no output depends on, have no layer."""
        if not self.graph.path.is_file():
            return frozenset()
        nodes = onnx.load(self.graph.path, load_external_data=False).graph.node
        return frozenset(name for node in nodes for name in (node.name, *node.output) if name)


def _aliases(layer: Layer) -> tuple[str, ...]:
    return (layer.name, *([layer.node.name] if layer.node.name else []), *layer.outputs)


@dataclass(eq=False)
class _Reader:
    """Collects what the two files say, and everything that is wrong with them.

    placed: layer to its devices; -1 for one that is not on the platform, which has been told
    parts:  split layer to its shards; none where the entry is wrong, which has been told
    """

    graph: Graph
    platform: Platform
    where: str
    horizontal_where: str
    problems: list[str] = field(default_factory=list)
    placed: dict[int, list[int]] = field(default_factory=dict)
    parts: dict[int, list[Shard]] = field(default_factory=dict)

    @cached_property
    def names(self) -> _Names:
        return _Names(self.graph)

    def give_up_on_problems(self) -> None:
        if self.problems:
            raise CleaveError(*self.problems)

    def pairs(self, text: str, where: str) -> tuple[tuple[str, Any], ...]:
        """The entries of a JSON object; a key may stand twice. Objects become tuples, arrays are lists."""
        try:
            body = json.loads(text, object_pairs_hook=tuple)
        except (ValueError, RecursionError) as error:
            self.problems.append(f"{where}: is no JSON: {error}")
            return ()
        if not isinstance(body, tuple):
            self.problems.append(f"{where}: must be an object, {{…}}")
            return ()
        return body

    def place(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Take in ``mapping.json``."""
        seen: set[int] = set()
        for key, listed in pairs:
            device = self._device(key)
            if device in seen:
                self._say(self.where, f"key '{key}': device '{self._name(device)}' has a key already")
            elif device < 0:
                self._say(self.where, self._unknown_device(key))
            else:
                seen.add(device)
            if isinstance(listed, list) and all(isinstance(name, str) for name in listed):
                self._place_all(f"{self.where}: device '{key}'", device, listed)
            else:
                self._say(self.where, f"device '{key}': needs a list of layer names")
        missing = [layer.name for layer in self.graph.layers if layer.index not in self.placed]
        self.problems += [f"{self.where}: layer '{name}': is on no device" for name in missing]

    def _place_all(self, where: str, device: int, listed: list[str]) -> None:
        """Note the layers of one device."""
        here: set[int] = set()
        for name in listed:
            layer = self._layer(where, name)
            if layer is not None and layer.index in here:
                self._say(where, f"layer '{name}' is listed twice")
            elif layer is not None:
                here.add(layer.index)
                self.placed.setdefault(layer.index, []).append(device)

    def split(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Take in ``horizontal.json``."""
        for name, entry in pairs:
            layer = self._layer(self.horizontal_where, name)
            if layer is None and name not in self.names.layers and (doer := self.names.doer(name)) is not None:
                self._say(self.horizontal_where, f"layer '{name}': is part of layer '{doer.name}' here; split that")
            if layer is None:
                continue
            where = f"{self.horizontal_where}: layer '{name}'"
            if layer.index in self.parts:
                self._say(where, "has two entries")
            problems = list(self._wrong_entry(layer, entry))
            self.problems += [f"{where}: {problem}" for problem in problems]
            self.parts[layer.index] = [] if problems else self._cut(layer, entry)

    def shards(self, layer: Layer) -> list[Shard]:
        """Where the layer is. After a problem, it stands whole on some device, so that the rest can be checked."""
        devices = self.placed.get(layer.index, [])
        if self.parts.get(layer.index):
            return self.parts[layer.index]
        if len(devices) > 1 and layer.index not in self.parts:
            keys = ", ".join(self._name(d) for d in devices if d >= 0)
            self._say(self.where, f"layer '{layer.name}': is on several devices ({keys}), with no entry in "
                      f"{self.horizontal_where} that splits it")
        return [Shard(layer.index, 0, extent(self.graph, layer), max(devices[0], 0) if devices else 0)]

    def _wrong_entry(self, layer: Layer, entry: Any) -> Iterator[str]:
        """What is wrong with an entry of ``horizontal.json``."""
        if not _is_entry(entry):
            yield 'needs ["lop", [split points], [devices]]'
            return
        kind, points, keys = entry
        if kind != LOP:
            yield f"a split by '{kind}' is not supported, only '{LOP}' (output channels) is"
            return
        yield from _wrong_points(points, len(keys), extent(self.graph, layer))
        yield from (self._unknown_device(key) for key in keys if self._device(key) < 0)
        devices = [self._device(key) for key in keys]
        yield from (
            f"device '{self._name(d)}' has two parts" for d in sorted(set(devices)) if d >= 0 and devices.count(d) > 1
        )
        placed = self.placed.get(layer.index, devices)
        if set(placed) != set(devices) and min(*placed, *devices, 0) >= 0:
            yield f"is split over {self._names_of(devices)}, but {self.where} has it on {self._names_of(placed)}"

    def _cut(self, layer: Layer, entry: Any) -> list[Shard]:
        _, points, keys = entry
        stops = [*points[:-1], extent(self.graph, layer)]
        ends = zip([0, *stops[:-1]], stops, keys, strict=True)
        return [Shard(layer.index, start, stop, self._device(key)) for start, stop, key in ends]

    def _layer(self, where: str, name: str) -> Layer | None:
        """The layer of that name; None for a node without a layer, or after a problem."""
        found = self.names.layers.get(name, [])
        if len(found) > 1:
            ways = ", ".join(f"'{self.names.own(layer) or layer.name}'" for layer in found)
            self._say(where, f"layer '{name}' is ambiguous: {len(found)} layers go by it; write {ways}")
        elif not found and not self.names.is_node(name):
            self._say(where, f"layer '{name}' is not in '{self.graph.name}'")
        return found[0] if len(found) == 1 else None

    def _device(self, key: str) -> int:
        """Index of the device that a key names, -1 if there is none."""
        return next((i for i, device in enumerate(self.platform.devices) if self._goes_by(device, key)), -1)

    def _goes_by(self, device: Device, key: str) -> bool:
        host = self.platform.hosts[device.host].name
        stem = key.rstrip("0123456789")
        cores = sorted(int(digit) for digit in key[len(stem) :])
        same = device.unit == "cpu" and stem in (f"{host}_cpu", f"{host}_arm") and cores == list(device.cores)
        return same or key == device.name

    def _unknown_device(self, key: str) -> str:
        return f"device '{key}' is not on the platform (it has {', '.join(d.name for d in self.platform.devices)})"

    def _name(self, device: int) -> str:
        return self.platform.devices[device].name

    def _names_of(self, devices: Iterable[int]) -> str:
        return ", ".join(self._name(d) for d in sorted(devices))

    def _say(self, where: str, problem: str) -> None:
        self.problems.append(f"{where}: {problem}")


def _is_entry(entry: Any) -> bool:
    """Whether a value has the types of ``["lop", [1, 2], ["a", "b"]]``."""
    return (
        isinstance(entry, list)
        and len(entry) == 3
        and isinstance(entry[0], str)
        and isinstance(entry[1], list)
        and isinstance(entry[2], list)
        and all(type(point) is int for point in entry[1])
        and all(isinstance(key, str) for key in entry[2])
    )


def _wrong_points(points: list[int], devices: int, size: int) -> Iterator[str]:
    if len(points) != devices or not points:
        yield f"has {len(points)} split points for {devices} devices"
    if not points:
        return
    ends = [*points[:-1], size if points[-1] == REST else points[-1]]
    if any(a >= b for a, b in pairwise([0, *ends])):
        yield f"split points {', '.join(map(str, points))} do not rise; each is where a part ends"
    if ends[-1] != size:
        yield f"split points end at {ends[-1]}, not at {size}, the number of channels"
