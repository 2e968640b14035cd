"""AutoDiCE's mapping: two JSON files, read strictly, and written where a mapping can be said in them.

``mapping.json``: ``{"edge00_cpu0123": ["conv1", "relu1"], "edge01_gpu": ["conv2"]}``: a key is host, unit and one
digit a core, in any order, or a host that has one CPU; a layer that is split stands under each of its devices.

``horizontal.json``: ``{"conv2": ["lop", [128, 256], ["edge00_cpu0123", "edge01_gpu"]]}``: where the part of each
device ends, in output channels. A last point of 65535 is the end of the layer, as in AutoDiCE's own examples.

A layer goes by the name of its node, or by an output. Nodes that loading dropped or folded may be listed; they say
nothing. Nor does the order of keys, which are AutoDiCE's MPI ranks: ranks here follow the platform.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from model.cluster.platform import Platform
from model.mappings.autodice_names import Names
from model.mappings.mapping import NEIGHBOUR, Mapping, Shard, checked, extent, shortened
from model.network import boxes
from model.network.graph import Graph, Layer
from runtime.errors import CleaveError
from runtime.reading import parsed

LOP = "lop"
REST = 65535
"""As the last split point: all channels that are left."""

SPLIT = frozenset({"Conv", "Gemm"})
"""What AutoDiCE can split."""

Pairs = tuple[tuple[str, Any], ...]
"""An object of a JSON file; a key may stand twice."""

T = TypeVar("T")


def read_mapping(
    mapping_text: str,
    horizontal_text: str | None,
    graph: Graph,
    platform: Platform,
    where: str = "mapping.json",
    horizontal_where: str = "horizontal.json",
) -> Mapping:
    """Read a mapping in either form, our own or AutoDiCE's; ``CleaveError`` with every problem."""
    if not is_ours(mapping_text):
        return read(mapping_text, horizontal_text, graph, platform, where, horizontal_where)
    if horizontal_text is not None:
        raise CleaveError(f"{horizontal_where}: goes with a mapping in AutoDiCE's form; {where} says its splits itself")
    return Mapping.from_json(mapping_text, graph, platform, where)


def is_ours(text: str) -> bool:
    """Whether the text is an object that says what form it has, or of layers; AutoDiCE's are of devices."""
    try:
        body = parsed(text)
    except ValueError:
        return False
    return isinstance(body, dict) and not {"format", "layers"}.isdisjoint(body)


def read(
    mapping_text: str,
    horizontal_text: str | None,
    graph: Graph,
    platform: Platform,
    where: str = "mapping.json",
    horizontal_where: str = "horizontal.json",
) -> Mapping:
    """Read AutoDiCE's two files, the second where there is one; ``CleaveError`` with every problem and its place."""
    reader = _Reader(graph, Names(graph, platform), where, horizontal_where)
    placed = reader.pairs(mapping_text, where)
    split = reader.pairs("{}" if horizontal_text is None else horizontal_text, horizontal_where)
    reader.raise_problems()
    reader.place(placed)
    reader.split(split)
    mapping = Mapping.of(shard for layer in graph.layers for shard in reader.shards(layer))
    reader.problems += [f"{horizontal_where}: {problem}" for problem in mapping.check(graph, platform)]
    reader.raise_problems()
    return mapping


def write(mapping: Mapping, graph: Graph, platform: Platform) -> tuple[str, str]:
    """The texts of ``mapping.json`` and ``horizontal.json``; ``CleaveError`` with all that they have no way to say.

    AutoDiCE asks for every node: one that loading dropped or folded stands beside the first layer that does its work.
    """
    checked(mapping, graph, platform, "mapping")
    names, rows = Names(graph, platform), mapping.by_layer(len(graph.layers))
    problems = _keyless(mapping, platform)
    if mapping.reader != NEIGHBOUR or mapping.writer != NEIGHBOUR:
        problems.append("it names the device that reads the frames, or that writes the results")
    problems += [p for layer in graph.layers for p in _unsayable(layer, rows[layer.index], names)]
    if problems:
        raise CleaveError(*[f"AutoDiCE's form cannot say this mapping: {problem}" for problem in problems])
    placed: dict[str, list[str]] = {platform.devices[d].name: [] for d in mapping.devices}
    split: dict[str, Any] = {}
    for layer in graph.layers:
        name, keys = _name(names, layer), [platform.devices[s.device].name for s in rows[layer.index]]
        placed[keys[0]] += names.dropped_of(layer)
        for key in keys:
            placed[key].append(name)
        if len(keys) > 1:
            split[name] = [LOP, [s.stop for s in rows[layer.index]], keys]
    return _text(placed), _text(split)


def _name(names: Names, layer: Layer) -> str:
    name = names.of(layer)
    assert name is not None, "refused before"
    return name


def _text(body: dict[str, Any]) -> str:
    """An object as JSON, one key a line."""
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in body.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n" if lines else "{}\n"


def _keyless(mapping: Mapping, platform: Platform) -> list[str]:
    names = [platform.devices[d].name for d in mapping.devices if any(core > 9 for core in platform.devices[d].cores)]
    return [f"device '{name}': has a core over 9, and a key has one digit a core" for name in names]


def _unsayable(layer: Layer, shards: list[Shard], names: Names) -> Iterator[str]:
    """Why the files have no way to say where a layer is."""
    where = f"layer '{layer.name}'"
    if names.of(layer) is None:
        yield f"{where}: has no name that means it alone"
    if len(shards) == 1:
        return
    if layer.op not in SPLIT:
        yield f"{where}: is a {layer.op} and split; AutoDiCE splits only Conv and Gemm"
    if shards[0].axis != boxes.CHANNELS:
        yield f"{where}: is split along axis {shards[0].axis}; '{LOP}' splits output channels"
    for device in _repeated(s.device for s in shards):
        yield f"{where}: has several parts on device '{names.platform.devices[device].name}'"


def _repeated(devices: Iterable[int]) -> list[int]:
    found = sorted(devices)
    return sorted({a for a, b in pairwise(found) if a == b})


@dataclass(eq=False)
class _Reader:
    """Collects what the two files say, and everything that is wrong with them.

    placed: layer to the devices that list it; None for a key that is no device, which has been told
    parts:  layer to its shards by ``horizontal.json``; none where its entry is wrong, which has been told
    """

    graph: Graph
    names: Names
    where: str
    horizontal_where: str
    problems: list[str] = field(default_factory=list)
    placed: dict[int, list[int | None]] = field(default_factory=dict)
    parts: dict[int, list[Shard]] = field(default_factory=dict)

    def raise_problems(self) -> None:
        if self.problems:
            raise CleaveError(*shortened(self.problems, self.where))

    def pairs(self, text: str, where: str) -> Pairs:
        """The entries of a JSON object. Objects become tuples, so that no key is lost; arrays are lists."""
        try:
            body = parsed(text, object_pairs_hook=tuple)
        except ValueError as error:
            self.problems.append(f"{where}: is no JSON: {error}")
            return ()
        if not isinstance(body, tuple):
            self.problems.append(f"{where}: must be an object, {{…}}")
            return ()
        return body

    def place(self, pairs: Pairs) -> None:
        """Take in ``mapping.json``."""
        seen: set[int] = set()
        for key, listed in pairs:
            where = f"{self.where}: key '{key}'"
            device = self._try(where, self.names.device, key)
            if device in seen:
                self.problems.append(f"{where}: device '{self._name(device)}' has a key already")
            if device is not None:
                seen.add(device)
            if isinstance(listed, list) and all(isinstance(name, str) for name in listed):
                self._list(where, device, listed)
            else:
                self.problems.append(f"{where}: needs a list of layer names")

    def _list(self, where: str, device: int | None, listed: list[str]) -> None:
        """Note the layers of one device."""
        here: set[int] = set()
        for name in listed:
            layer = self._try(where, self.names.layer, name)
            if layer is not None and layer.index in here:
                self.problems.append(f"{where}: layer '{name}' is listed twice")
            elif layer is not None:
                here.add(layer.index)
                self.placed.setdefault(layer.index, []).append(device)

    def split(self, pairs: Pairs) -> None:
        """Take in ``horizontal.json``."""
        for name, entry in pairs:
            layer = self._try(self.horizontal_where, self.names.layer_to_split, name)
            if layer is None:
                continue
            problems = list(self._wrong_entry(layer, entry))
            if layer.index in self.parts:
                problems.append("has two entries")
            self.problems += [f"{self.horizontal_where}: layer '{name}': {problem}" for problem in problems]
            self.parts[layer.index] = [] if problems else self._cut(layer, entry)

    def shards(self, layer: Layer) -> list[Shard]:
        """Where the layer is. After a problem it stands whole anywhere, so that the others can be checked."""
        devices = self.placed.get(layer.index, [])
        parts = self.parts.get(layer.index)
        if not devices:
            self.problems.append(f"{self.where}: layer '{layer.name}' is on no device")
        if len(devices) > 1 and parts is None and None not in devices:
            on = f"is on several devices ({self._names_of(devices)})"
            self.problems.append(f"{self.where}: layer '{layer.name}' {on}, and no horizontal.json splits it")
        device = next((d for d in devices if d is not None), 0)
        return parts or [Shard(layer.index, 0, extent(self.graph, layer), device)]

    def _wrong_entry(self, layer: Layer, entry: Any) -> Iterator[str]:
        """What is wrong with an entry of ``horizontal.json``."""
        if not _is_entry(entry):
            yield 'needs ["lop", [split points], [devices]]'
            return
        kind, points, keys = entry
        if kind != LOP:
            yield f"a split by '{kind}' is not supported, only by '{LOP}' (output channels)"
            return
        yield from _wrong_points(points, len(keys), extent(self.graph, layer))
        yield from self._wrong_devices(self.placed.get(layer.index, []), keys)

    def _wrong_devices(self, placed: list[int | None], keys: list[str]) -> Iterator[str]:
        devices = []
        for key in keys:
            try:
                devices.append(self.names.device(key))
            except CleaveError as error:
                yield str(error)
        yield from (f"device '{self._name(device)}' has two parts" for device in _repeated(devices))
        comparable = placed and devices and None not in placed and len(devices) == len(keys)
        if comparable and set(placed) != set(devices):
            yield f"is split over {self._names_of(devices)}, but {self.where} has it on {self._names_of(placed)}"

    def _cut(self, layer: Layer, entry: Any) -> list[Shard]:
        """The shards of a right entry."""
        _, points, keys = entry
        ends = [0, *points[:-1], extent(self.graph, layer)]
        devices = [self.names.device(key) for key in keys]
        return [Shard(layer.index, a, b, d) for (a, b), d in zip(pairwise(ends), devices, strict=True)]

    def _try(self, where: str, find: Callable[[str], T], name: str) -> T | None:
        """What a name means; None after a problem, which is noted."""
        try:
            return find(name)
        except CleaveError as error:
            self.problems.append(f"{where}: {error}")
            return None

    def _name(self, device: int | None) -> str:
        return "" if device is None else self.names.platform.devices[device].name

    def _names_of(self, devices: Iterable[int | None]) -> str:
        return ", ".join(self._name(d) for d in sorted({d for d in devices if d is not None}))


def _is_entry(entry: Any) -> bool:
    """Whether a value has the types of ``["lop", [1, 2], ["a", "b"]]``."""
    if not isinstance(entry, list) or [type(part) for part in entry] != [str, list, list]:
        return False
    return all(type(point) is int for point in entry[1]) and all(isinstance(key, str) for key in entry[2])


def _wrong_points(points: list[int], devices: int, size: int) -> Iterator[str]:
    """What is wrong with split points of a layer that has ``size`` output channels."""
    if len(points) != devices or not points:
        yield f"has {len(points)} split points for {devices} devices"
    ends = [*points[:-1], size if size < REST == points[-1] else points[-1]] if points else []
    if any(a >= b for a, b in pairwise([0, *ends])):
        yield f"split points {', '.join(map(str, ends))} do not rise from 0; each is where a part ends"
    if ends and ends[-1] != size:
        yield f"split points end at {ends[-1]}, but the layer has {size} channels"
