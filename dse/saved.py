"""What a run has left in its folder, read back: what was asked for, and the front with its mappings."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dse import results
from dse.evaluation import OBJECTIVES
from dse.results import FRONT
from dse.run import Coding
from dse.settings import Settings
from dse.units import quantity
from model.cluster.platform import Platform
from model.cluster.texts import read_text
from model.mappings.mapping import Mapping, checked
from model.network.graph import Graph
from runtime.errors import CleaveError
from runtime.reading import parsed, readable
from runtime.trace import MEASURED

SUMMARY = "summary.json"


@dataclass(frozen=True)
class Point:
    """A mapping of a saved front.

    index: its number; scores: SI, by objective; measured: the objectives of which these are measurements
    entries: one a layer, as ``results.compact`` wrote them; devices: names of those that take part
    """

    index: int
    scores: dict[str, float]
    measured: frozenset[str]
    entries: list[Any]
    devices: frozenset[str]


@dataclass(frozen=True)
class Saved:
    """The results of a run.

    devices, layers: names, in the order of the platform and of the network that the search saw
    best: the objective that each of its bundles is the best in, by the bundle's name
    """

    folder: Path
    coding: Coding
    settings: Settings
    devices: tuple[str, ...]
    layers: tuple[str, ...]
    points: tuple[Point, ...]
    best: dict[str, str]

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a folder is that of a run."""
        return (folder / FRONT).is_file() and (folder / SUMMARY).is_file()

    @staticmethod
    def read(folder: Path) -> Saved:
        """``CleaveError`` for a folder that is not that of a run."""
        with _as_written(folder / SUMMARY):
            body = _body(folder / SUMMARY, "cleave-run")
            coding, settings = _coding(body["chromosome"]), _settings(body["settings"])
            best = {name: _objective(one["objective"]) for name, one in body["best"].items()}
        with _as_written(folder / FRONT):
            body = _body(folder / FRONT, "cleave-front")
            devices = tuple(map(str, body["devices"]))
            points = tuple(_point(i, point, devices) for i, point in enumerate(body["points"]))
            return Saved(folder, coding, settings, devices, tuple(map(str, body["layers"])), points, best)

    def check_network(self, graph: Graph) -> None:
        """``CleaveError`` where the run was of another network."""
        if self.layers != tuple(layer.name for layer in graph.layers):
            raise CleaveError(
                f"{self.folder / FRONT}: has other layers than '{graph.name}'; say with --run whose it is"
            )

    def within(self, platform: Platform) -> list[Point]:
        """The points that need no device but those of a platform."""
        names = {device.name for device in platform.devices}
        return [point for point in self.points if point.devices <= names]

    def mapping(self, point: Point, graph: Graph, platform: Platform, reader: int, writer: int) -> Mapping:
        """A point's mapping on a platform that has all its devices, maybe under other numbers: names are what counts.

        reader, writer: as ``Mapping`` has them
        """
        file = self.folder / FRONT
        there = {i: platform.index(name) for i, name in enumerate(self.devices) if name in point.devices}
        with _as_written(file):
            shards = results.from_compact(graph, point.entries).shards
            found = Mapping.of((replace(s, device=there[s.device]) for s in shards), reader, writer)
            return checked(found, graph, platform, f"{file}: point {point.index}")


def _as_written(file: Path) -> AbstractContextManager[None]:
    """For what is not as a run writes it, said of its file."""
    return readable(f"{file}: is not as this version writes it; run dse run again")


def _body(file: Path, form: str) -> dict[str, Any]:
    """An object that says what form it has."""
    body: dict[str, Any] = parsed(read_text(file, "file; a run leaves it in its folder"))
    if body["format"] != form or body["version"] != 1:
        raise CleaveError(f"{file}: is no {form} of version 1")
    return body


def _coding(body: dict[str, Any]) -> Coding:
    return replace(Coding(**body), splits=int(body["splits"]), reader=None, writer=None)


def _settings(body: dict[str, Any]) -> Settings:
    usual = asdict(Settings())
    given = {name: type(usual[name])(value) for name, value in body.items()}
    return Settings(**given | {"objectives": tuple(map(_objective, body["objectives"]))})


def _objective(name: Any) -> str:
    return OBJECTIVES[OBJECTIVES.index(name)]


def _point(index: int, body: dict[str, Any], devices: tuple[str, ...]) -> Point:
    entries = list(body["mapping"])
    numbered = dict(enumerate(devices))
    names = frozenset(numbered[device] for device in results.devices_of(entries))
    measured = frozenset(name for name in OBJECTIVES if body.get(quantity(name)) == MEASURED)
    return Point(index, {name: float(body[name]) for name in OBJECTIVES}, measured, entries, names)
