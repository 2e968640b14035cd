"""Going on without some hosts: the best mapping of the saved front that does without them, else a short new search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from codegen import bundle as bundles
from codegen.bundle import check_source
from dse.evaluation import OBJECTIVES
from dse.inputs import Cnn
from dse.run import Coding, prepare, widest
from dse.saved import Saved
from dse.search import Progress, search
from dse.settings import Settings
from model.cluster.platform import Platform
from model.cluster.texts import read_text
from model.mappings.mapping import NEIGHBOUR, Mapping
from model.network.load import load
from runtime.errors import CleaveError
from runtime.reading import parsed, readable
from runtime.trace import MEASURED, PREDICTED

POPULATION, GENERATIONS = 200, 50
"""Of a new search, at most: a few seconds for most networks."""


@dataclass(frozen=True)
class Role:
    """What a bundle is there for.

    name:      of the bundle whose place it takes: its own, unless it was planned anew
    objective: that it is the best in; latency, unless it is one of a run's best
    without:   names of hosts that it was made to do without
    reader, writer: names of the devices of inputs and outputs; None: next to their layers
    """

    name: str
    objective: str
    without: tuple[str, ...]
    reader: str | None
    writer: str | None

    @staticmethod
    def of(bundle: Path, saved: Saved | None) -> Role:
        """As the bundle and its run have it."""
        note = bundles.read_bundle(bundle)[1].note
        name = Path(str(note.get("in_place_of", bundle.resolve().name))).name
        without = note.get("without")
        objective = note.get("objective") or (saved.best.get(name) if saved else None)
        ends = _ends(bundle / "mapping.json")
        return Role(
            name=name,
            objective=objective if objective in OBJECTIVES else OBJECTIVES[0],
            without=tuple(map(str, without if isinstance(without, list) else ())),
            reader=ends.get("reader"),
            writer=ends.get("writer"),
        )

    def less(self, hosts: tuple[str, ...], platform: Platform) -> Role:
        """The same without some hosts more. ``CleaveError`` where frames come in or results go out at one of them."""
        gone = {*self.without, *hosts}
        names = tuple(host.name for host in platform.hosts if host.name in gone)
        lost = platform.host_names
        problems = [
            f"--exclude {lost[end]}: {what} at {end}, and no other device can stand in for it; "
            f"search again with another --{option}"
            for option, end, what in (
                ("reader", self.reader, "frames come in"),
                ("writer", self.writer, "results go out"),
            )
            if end in lost and lost[end] in names
        ]
        if problems:
            raise CleaveError(*problems)
        return replace(self, without=names)

    @property
    def place(self) -> str:
        """Name of the bundle's folder."""
        return f"{self.name}-without-{'-'.join(self.without)}"

    def note(self, point: int | None) -> dict[str, Any]:
        """For ``bundle.json``."""
        return {
            "objective": self.objective,
            "point": point,
            "in_place_of": self.name,
            "without": list(self.without),
        }


@dataclass(frozen=True)
class Found:
    """A mapping on the platform that is left.

    value: of the objective, SI; source: whether it is ``PREDICTED`` or ``MEASURED``
    point: of the saved front; None: of a new search
    """

    mapping: Mapping
    value: float
    source: str = PREDICTED
    point: int | None = None


def from_front(saved: Saved, cnn: Cnn, left: Platform, role: Role) -> Found | None:
    """The best mapping of a saved front that the platform has all devices for, of those that were measured if there are
    any; None: it has none."""
    points = saved.within(left)
    if not points:
        return None
    best = min(points, key=lambda p: (role.objective not in p.measured, p.scores[role.objective], p.index))
    source = MEASURED if role.objective in best.measured else PREDICTED
    ends = [NEIGHBOUR if name is None else left.index(name) for name in (role.reader, role.writer)]
    return Found(saved.mapping(best, cnn.graph, left, *ends), best.scores[role.objective], source, best.index)


def asked_anew(saved: Saved | None, cnn: Cnn, left: Platform, role: Role) -> tuple[Coding, Settings]:
    """What a new search looks for: what the run did, for a bounded time; where that is gone, what the bundle is best
    in, too."""
    coding = saved.coding if saved else Coding(widest(cnn))
    usual = tuple(dict.fromkeys((*Settings().objectives, role.objective)))
    settings = saved.settings if saved else Settings(objectives=usual)
    coding = replace(coding, splits=min(coding.splits, len(left.devices)), reader=role.reader, writer=role.writer)
    population, generations = min(settings.population, POPULATION), min(settings.generations, GENERATIONS)
    return coding, replace(settings, population=population, generations=generations)


def anew(
    cnn: Cnn, left: Platform, role: Role, coding: Coding, settings: Settings, progress: Progress = lambda *_: None
) -> Found:
    """The best mapping of a new search."""
    chromosome, costs = prepare(cnn, left, coding)
    front = search(chromosome, costs, settings, progress)
    best = front.best_of(role.objective)
    return Found(chromosome.decode(front.genes[best]), float(front.scores[best, OBJECTIVES.index(role.objective)]))


def whole_model(bundle: Path, moved: Path | None) -> Cnn:
    """The network of a bundle, read as it was for the bundle. moved: where it is now"""
    origin = bundles.read_source(bundle)
    return Cnn(load(check_source(bundle, moved), origin.shapes, origin.folded), origin.folded, origin.shapes)


def _ends(file: Path) -> dict[str, str]:
    """Reader and writer of a mapping, where it names them."""
    with readable(f"{file}: is no mapping that this version can read; generate the bundle again"):
        body = parsed(read_text(file, "mapping"))
        return {role: str(body[role]) for role in ("reader", "writer") if role in body}
