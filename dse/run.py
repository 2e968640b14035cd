"""The main job: search, write the front, generate the best points' bundles, run each and check its answer."""

from __future__ import annotations

import json
import platform as machine
import shutil
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dict
from dataclasses import asdict, astuple, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from codegen import bundle, folder
from codegen.render import PYTHON
from codegen.verify import Verification, verify
from dse import provenance, results
from dse.before import check_place, check_runs, check_whole
from dse.chromosomes import Chromosome, chromosome
from dse.closing import earlier
from dse.closing.attempts import Attempt, Closed
from dse.closing.figures import Rig, kept
from dse.closing.loop import Closing, Limits
from dse.closing.pool import Space
from dse.closing.trouble import Trouble
from dse.evaluation import OBJECTIVES
from dse.inputs import Cnn
from dse.place.cnn.bounds import Proven, bounds, proven
from dse.ready import Place
from dse.search import Front, Progress, search
from dse.settings import Settings
from dse.units import many
from model.cluster import coefficients
from model.cluster.platform import Platform
from model.cost.confidence import of_mappings
from model.cost.costs import CostArrays, in_vectors, whole_s
from model.cost.costs import costs as cost_arrays
from model.mappings.arrays import arrays
from model.mappings.mapping import NEIGHBOUR, Mapping
from model.network import boxes
from runtime.errors import CleaveError
from runtime.launch import TIMEOUT_S

BEST = {
    "best-latency": "latency_s",
    "best-energy": "energy_j",
    "best-memory": "memory_bytes",
    "best-period": "period_s",
}
"""Folders of a run and the objective whose lowest point of the front each holds, as far as it was asked for."""


@dataclass(frozen=True)
class Coding:
    """Which chromosome, with how many rows (splits a layer) and which shares.

    reader, writer: names of the devices of the network's inputs and outputs; None: next to their layers
    """

    kind: str = "hybrid"
    splits: int = 2
    shares: str = "equal"
    reader: str | None = None
    writer: str | None = None


@dataclass(frozen=True)
class Shipped:
    """One point of the front that became a bundle.

    verification: None when it was not asked for, or ``failed``
    """

    name: str
    objective: str
    point: int
    mapping: Mapping
    verification: Verification | None = None
    failed: bool = False


@dataclass(frozen=True)
class Measuring:
    """How mappings are measured.

    place: what brings bundles to their hosts; timeout_s: of each run there
    unfit: hosts that cannot take part, by name
    earlier: file of what another run has measured
    """

    limits: Limits
    place: Place
    timeout_s: float = TIMEOUT_S
    unfit: frozenset[str] = frozenset()
    earlier: Path | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run found.

    closed: what was measured; None: nothing was to be
    proven: by objective, how good the best of the search is, as the model predicts it
    """

    front: Front
    shipped: tuple[Shipped, ...]
    closed: Closed | None = None
    proven: Dict[str, Proven] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every bundle that was to be checked gives the whole model's answer, but for those whose mappings were
        measured on their cluster and cannot be run here."""
        measured = {attempt.mapping for attempt in self.closed.measured} if self.closed else set()
        checked = [s.verification for s in self.shipped if s.verification or (s.failed and s.mapping not in measured)]
        return all(found is not None and found.passed for found in checked)


def widest(cnn: Cnn) -> str:
    """The chromosome with the most mappings of a network: layers are split where any can be."""
    return "hybrid" if any(boxes.is_heavy(cnn.graph, layer) for layer in cnn.graph.layers) else "vertical"


def prepare(cnn: Cnn, platform: Platform, coding: Coding) -> tuple[Chromosome, CostArrays]:
    """The chromosome and the costs that a search needs."""
    g = arrays(cnn.graph)
    costs = cost_arrays(cnn.graph, g, platform)
    g = in_vectors(g, costs)
    devices = len(platform.devices)
    ends = [NEIGHBOUR if name is None else platform.index(name) for name in (coding.reader, coding.writer)]
    return chromosome(coding.kind, cnn.graph, g, devices, coding.splits, coding.shares, whole_s(costs), *ends), costs


def run(
    cnn: Cnn,
    platform: Platform,
    coding: Coding,
    settings: Settings,
    out: Path,
    *,
    target: str = PYTHON,
    force: bool = False,
    check: bool = True,
    measuring: Measuring | None = None,
    timeout_s: float = TIMEOUT_S,
    progress: Progress = lambda *_: None,
    say: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Do the whole job and leave its results in the folder ``out``. timeout_s: of each bundle's run here"""
    check_place(out, force, mark=folder.RUN)
    if check:
        check_runs(target)
        check_whole(cnn)
    encoding, costs = prepare(cnn, platform, coding)
    rig = Rig(cnn, platform, target, measuring.place, measuring.timeout_s) if measuring else None
    known_before = earlier.read(measuring.earlier, encoding, rig) if measuring and rig and measuring.earlier else []
    front = search(encoding, costs, settings, progress)
    known = proven(dict(zip(OBJECTIVES, front.scores.min(axis=0), strict=True)), bounds(encoding, costs))
    with folder.fresh(out, force, folder.RUN) as draft, kept(draft, out, say):
        closed = None
        if measuring and rig:
            space = _space(encoding, costs, settings, platform)
            known_before = earlier.that_fit(known_before, space, say)
            trouble = Trouble(measuring.unfit)
            closed = Closing(space, rig, measuring.limits, draft, say, trouble, known_before).run(front)
            front = closed.front
            _warn(platform, rig, say)
        say(f"writing {many(len(front.genes), 'point')} of the front")
        mappings = [encoding.decode(genes) for genes in front.genes]
        front = _expecting(front, mappings, cnn, platform)
        shipped = choose(front, mappings, settings)
        results.write_front(draft, front, mappings, encoding, cnn.graph, platform, known)
        results.write_convergence(draft, front)
        _write_pictures(draft, front, encoding.name, f"{cnn.graph.name} on {platform.name}", settings, shipped)
        done: list[Shipped] = []
        for point in shipped:
            if twin := next((other for other in done if other.point == point.point), None):
                done.append(_copied(draft, twin, point, say))
                continue
            place = draft / point.name
            _write(place, point, cnn, platform, target, say)
            done.append(_verified(place, point, cnn, settings.seed, say, timeout_s) if check else point)
        outcome = Outcome(front, tuple(done), closed, known)
        summary = summarise(outcome, cnn, platform, coding, settings, _asked(cnn, target, measuring))
        (draft / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    return outcome


def _warn(platform: Platform, rig: Rig, say: Callable[[str], None]) -> None:
    """Of hosts that are not as they were calibrated, where that was seen only when they were reached."""
    known = provenance.unlike(platform, provenance.here(platform))
    text = provenance.warning([clause for clause in provenance.unlike(platform, rig.seen) if clause not in known])
    if text:
        say(text)


def _space(encoding: Chromosome, costs: CostArrays, settings: Settings, platform: Platform) -> Space:
    hosts = tuple(platform.host_names.values())
    return Space(encoding, costs, settings, hosts, all(host.meter for host in platform.hosts))


def _expecting(front: Front, mappings: Sequence[Mapping], cnn: Cnn, platform: Platform) -> Front:
    """With what calibration lets expect of its points, where measurements do not say it."""
    errors = of_mappings(cnn.graph, platform, mappings)
    off = np.array([[None] * len(OBJECTIVES) if e is None else astuple(e) for e in errors], dtype=float)
    if front.measured is not None:
        off[~np.isnan(front.measured)] = np.nan
    return replace(front, off=off if front.off is None else np.where(np.isnan(front.off), off, front.off))


def choose(front: Front, mappings: Sequence[Mapping], settings: Settings) -> list[Shipped]:
    """The points of the front that become bundles: the best of each objective that was searched for."""
    wanted = {name: o for name, o in BEST.items() if o in settings.objectives}
    best = {name: (o, front.best_of(o)) for name, o in wanted.items()}
    return [Shipped(name, o, i, mappings[i]) for name, (o, i) in best.items()]


def _write_pictures(
    draft: Path, front: Front, chromosome: str, title: str, settings: Settings, shipped: Sequence[Shipped]
) -> None:
    best, asked = {s.name: s.point for s in shipped}, settings.objectives
    results.plot_front(draft / "front.png", front, asked, best, f"{title}: {_kind(front)} Pareto front")
    curves = {chromosome: front.best}
    results.plot_convergence(draft / "convergence.png", curves, asked, f"{title}: best so far")


def _kind(front: Front) -> str:
    return "predicted" if front.measured is None else "predicted and measured"


def _write(place: Path, point: Shipped, cnn: Cnn, platform: Platform, target: str, say: Callable[[str], None]) -> None:
    """Generate a bundle."""
    say(f"{point.name}: cutting the model for {many(len(point.mapping.devices), 'rank')}")
    place.mkdir()
    bundle.fill(place, cnn.graph, platform, point.mapping, cnn.source, bundle.Form(target=target))


def _copied(draft: Path, twin: Shipped, point: Shipped, say: Callable[[str], None]) -> Shipped:
    """Of a point that is the best in something else, too, what has been made and checked already."""
    say(f"{point.name}: the same mapping as {twin.name}")
    shutil.copytree(draft / twin.name, draft / point.name, symlinks=True)
    return replace(twin, name=point.name, objective=point.objective)


def _verified(
    place: Path, point: Shipped, cnn: Cnn, seed: int, say: Callable[[str], None], timeout_s: float
) -> Shipped:
    """Run a bundle here and compare. It is kept, too, where it cannot be run here: the search took long."""
    say(f"{point.name}: running {many(len(point.mapping.devices), 'MPI rank')} here")
    try:
        return replace(point, verification=verify(place, cnn.graph.path, frames=1, seed=seed, timeout_s=timeout_s))
    except CleaveError as error:
        sentences = [f"{point.name}: {text}" for text in error.sentences]
        say("; ".join([*sentences, "it is kept without having been run here"]))
        return replace(point, failed=True)


def _asked(cnn: Cnn, target: str, measuring: Measuring | None) -> dict[str, Any]:
    """What was asked for beyond the chromosome and the settings of the search."""
    asked = {"shapes": cnn.shapes, "folded": cnn.folded, "target": target}
    if measuring is None:
        return asked
    earlier = None if measuring.earlier is None else str(measuring.earlier)
    limits = measuring.limits
    return {**asked, "measure": limits.count, "measure_budget_s": limits.budget_s, "measured": earlier}


def summarise(
    outcome: Outcome, cnn: Cnn, platform: Platform, coding: Coding, settings: Settings, asked: dict[str, Any]
) -> dict[str, Any]:
    """What was asked, what was found, and with which versions. asked: what else"""
    front = outcome.front
    sets = sorted({d.coefficients for d in platform.devices})
    return {
        "format": "cleave-run",
        "version": 1,
        "cnn": {"name": cnn.graph.name, "path": str(cnn.graph.path), "layers": len(cnn.graph.layers)},
        "platform": {"name": platform.name, "devices": len(platform.devices)},
        "coefficients": {name: {"calibrated": coefficients.load(name).calibrated} for name in sets},
        "chromosome": asdict(coding),
        "settings": asdict(settings),
        "asked": asked,
        "front": {"points": len(front.genes), "evaluated": front.evaluated},
        "nsga2": {"generations": len(front.best), "hypervolume": float(front.volume[-1])},
        "proven": results.proven_body(outcome.proven),
        "time": {
            "search_s": front.search_s,
            "seeds_s": front.seeds_s,
            "decode_lower_price_s": front.scoring_s,
            "decode_lower_price_share": front.scoring_s / front.search_s,
        },
        "best": {s.name: _summary_of(s, front) for s in outcome.shipped},
        **({"measured": _summary_of_measured(outcome.closed, platform)} if outcome.closed else {}),
        "versions": versions(),
    }


def _summary_of_measured(closed: Closed, platform: Platform) -> dict[str, Any]:
    failed = [a for a in closed.attempts if a.found.failed]
    return {
        "mappings": len(closed.measured),
        "errors": {name: {"model": m, "corrected": c} for name, (m, c) in closed.errors().items()},
        "failed": [{"devices": _names(a, platform), "why": list(a.found.failed)} for a in failed],
    }


def _names(attempt: Attempt, platform: Platform) -> list[str]:
    return [platform.devices[device].name for device in sorted(attempt.mapping.devices)]


def _summary_of(point: Shipped, front: Front) -> dict[str, Any]:
    found, predicted = point.verification, front.scores if front.predicted is None else front.predicted
    return {
        "objective": point.objective,
        "point": point.point,
        "predicted": {name: float(predicted[point.point, k]) for k, name in enumerate(OBJECTIVES)},
        **({} if front.measured is None else {"measured": results.known(front.measured[point.point])}),
        "expected_error": (error := front.expected(point.point)) and asdict(error),
        "ranks": len(point.mapping.devices),
        "verified": None if found is None else {"passed": found.passed, "error": found.error},
    }


def versions() -> dict[str, str]:
    """What this ran with."""
    names = ("cleave-dse", "numpy", "onnx", "onnxruntime", "pymoo", "numba", "mpi4py")
    return {"python": machine.python_version(), **{name: version(name) for name in names}}
