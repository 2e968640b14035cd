"""What a name in AutoDiCE's files means: which layer, which device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import onnx

from model.cluster.platform import Device, Platform
from model.network.graph import Graph, Layer
from runtime.errors import CleaveError


def cores_of(key: str, host: str) -> tuple[int, ...] | None:
    """The cores of a host that a key names, one digit each, in any order; older files write ``arm`` for ``cpu``."""
    stem = key.rstrip("0123456789")
    return tuple(sorted(map(int, key[len(stem) :]))) if stem in (f"{host}_cpu", f"{host}_arm") else None


@dataclass(frozen=True, eq=False)
class Names:
    """Names of the layers of one graph and of the devices of one platform."""

    graph: Graph
    platform: Platform

    def layer(self, name: str) -> Layer | None:
        """The layer of that name. None: a node of the file that has no layer, as loading dropped or folded it.

        ``CleaveError`` for a name that nothing has, or several layers.
        """
        found = self._layers.get(name, [])
        if len(found) > 1:
            ways = ", ".join(f"'{self.of(layer) or layer.name}'" for layer in found)
            raise CleaveError(f"layer '{name}' is ambiguous, {len(found)} layers go by it: write {ways}")
        if not found and not self._dropped(name):
            raise CleaveError(f"layer '{name}' is not in '{self.graph.name}'")
        return found[0] if found else None

    def layer_to_split(self, name: str) -> Layer:
        """The layer of that name; ``CleaveError`` also for a node that has no layer."""
        layer = self.layer(name)
        if layer is None:
            doer = next((f"; split layer '{i.name}', which does its work" for i in self._doers.get(name, [])), "")
            raise CleaveError(f"layer '{name}' was dropped or folded into another when loading{doer}")
        return layer

    def of(self, layer: Layer) -> str | None:
        """The first name that means this layer and no other; None if it has none."""
        return next((name for name in _aliases(layer) if len(self._layers[name]) == 1), None)

    def dropped_of(self, layer: Layer) -> tuple[str, ...]:
        """Names of nodes that have no layer, and whose work this layer is the first to do."""
        return tuple(n for n in layer.origins if n not in self._layers and self._doers[n][0] is layer)

    def device(self, key: str) -> int:
        """Index of the device that a key names; ``CleaveError`` if it is not on the platform."""
        try:
            return self.platform.index(key)
        except CleaveError as error:
            spoken = (i for i, device in enumerate(self.platform.devices) if self._meant(device, key))
            if (found := next(spoken, -1)) < 0:
                raise CleaveError(f"{error}{self._advice(key)}") from None
            return found

    def _meant(self, device: Device, key: str) -> bool:
        """Whether a key is the CPU's host and cores, or the host alone, which has no other CPU."""
        host = self.platform.hosts[device.host].name
        alone = key == host and [d.host for d in self.platform.devices if d.unit == "cpu"].count(device.host) == 1
        return device.unit == "cpu" and (alone or cores_of(key, host) == device.cores)

    def _advice(self, key: str) -> str:
        """What to write in the platform file, where a key is a host of it with other cores."""
        for host in self.platform.hosts:
            cores = cores_of(key, host.name)
            if cores and len(set(cores)) == len(cores):
                return f"; say in the platform file which cores it has: {host.name}, slots={'+'.join(map(str, cores))}"
            if key == f"{host.name}_gpu":
                return f"; say in the platform file what drives it: {host.name}, gpu=NAME (CUDA)"
        return ""

    @cached_property
    def _layers(self) -> dict[str, list[Layer]]:
        """Name to the layers that go by it."""
        found: dict[str, list[Layer]] = {}
        for layer in self.graph.layers:
            for name in _aliases(layer):
                found.setdefault(name, []).append(layer)
        return found

    @cached_property
    def _doers(self) -> dict[str, list[Layer]]:
        """Node of the file to the layers that do its work."""
        found: dict[str, list[Layer]] = {}
        for layer in self.graph.layers:
            for name in layer.origins:
                found.setdefault(name, []).append(layer)
        return found

    def _dropped(self, name: str) -> bool:
        return name in self._doers or name in self._file

    @cached_property
    def _file(self) -> frozenset[str]:
        """Nodes of the file and what they make: constants, and nodes that no output depends on, are no one's origin."""
        if not self.graph.path.is_file():
            return frozenset()
        nodes = onnx.load(self.graph.path, load_external_data=False).graph.node
        return frozenset(name for node in nodes for name in (node.name, *node.output) if name)


def _aliases(layer: Layer) -> tuple[str, ...]:
    """Names that a layer goes by: its own, that of its node, those of what both make; each once."""
    return tuple(dict.fromkeys(n for n in (layer.name, layer.node.name, *layer.outputs, *layer.node.output) if n))
