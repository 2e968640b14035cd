"""Which bundle goes to the cluster: one that is there, or one made first, of a mapping or without some hosts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console

from codegen import bundle as bundles
from codegen.bundle import Form
from dse import replan, show
from dse.before import check_place
from dse.cli.access import Access
from dse.cli.options import (
    FoldOption,
    ForceOption,
    HorizontalOption,
    JoinOption,
    Network,
    Placement,
    ShapeOption,
    check_bundle,
    one_of,
)
from dse.cli.progress import searching
from dse.inputs import Cnn, cnn_path
from dse.replan import Found, Role
from dse.results import FRONT
from dse.saved import Saved
from dse.units import UNITS, many, shown
from model.cluster.platform import Platform
from model.cost.confidence import of_mapping
from model.mappings.mapping import Mapping
from model.mappings.planning import seat
from runtime.deploy.parcel import area
from runtime.errors import CleaveError
from runtime.launch import read_plan
from runtime.plan import Plan

BUILT_IN = {
    "threads": "threads",
    "provider": "provider",
    "arena": "arena",
    "meter": "meter",
    "idle_w": "idle_power",
    "busy_w": "power",
}
"""What a rank's program has of its device, and how platform files call it. Its cores are in its name."""


@dataclass(frozen=True)
class Recipe:
    """What a bundle is made of before it goes, as options say it."""

    cnn: Annotated[
        str | None,
        typer.Option("--cnn", help="The whole model, if it has moved; with --mapping: ONNX file, or zoo:NAME"),
    ] = None
    mapping: Annotated[
        Path | None, typer.Option("--mapping", help="Make BUNDLE first, of this mapping, as dse generate does")
    ] = None
    horizontal: HorizontalOption = None
    join: JoinOption = bundles.USE
    shape: ShapeOption = field(default_factory=list)
    fold: FoldOption = False
    force: ForceOption = False

    @property
    def whole_model(self) -> Path | None:
        """The file of the network, where it is said."""
        return cnn_path(self.cnn) if self.cnn else None

    def check(self) -> None:
        """``CleaveError`` for options that mean nothing without another."""
        one_of("--join", self.join, bundles.JOINS)
        if self.mapping is not None and self.cnn is None:
            raise CleaveError("--mapping: say with --cnn which network it maps")
        plain = Recipe(cnn=self.cnn)
        idle = [name for name in ("horizontal", "join", "shape", "fold", "force")
                if getattr(self, name) != getattr(plain, name)]  # fmt: skip
        if self.mapping is None and idle:
            raise CleaveError(f"--{idle[0]}: goes with --mapping, which says what BUNDLE is made of")


@dataclass(frozen=True)
class Excluded:
    """Hosts that are to be done without, as options say it."""

    exclude: Annotated[
        list[str], typer.Option("--exclude", metavar="HOST", help="Leave a host alone; may be given again")
    ] = field(default_factory=list)

    def left(self, cluster: Platform) -> Platform:
        """The platform without the excluded hosts."""
        names = [host.name for host in cluster.hosts]
        unknown = [host for host in self.exclude if host not in names]
        if unknown:
            raise CleaveError(*[f"--exclude {host}: the platform has no such host (it has {', '.join(names)})"
                                for host in unknown])  # fmt: skip
        left = cluster.without(tuple(self.exclude))
        if not left.devices:
            raise CleaveError(f"--exclude {', '.join(dict.fromkeys(self.exclude))}: no device is left")
        return left


@dataclass(frozen=True)
class Loss(Excluded):
    """The same, where a bundle may need them."""

    replan: Annotated[
        bool, typer.Option("--replan", help="Where the bundle needs that host, go on with the best that does not")
    ] = False
    run: Annotated[
        Path | None, typer.Option("--run", metavar="DIR", help="Run to choose it from [the one that BUNDLE is in]")
    ] = None

    def check(self) -> None:
        """``CleaveError`` for options that mean nothing without another."""
        if self.replan and not self.exclude:
            raise CleaveError("--replan: say with --exclude HOST which host is lost")
        if self.run is not None and not self.replan:
            raise CleaveError("--run: goes with --exclude HOST --replan")


@dataclass(frozen=True)
class Outgoing:
    """A bundle, and the platform that it goes to. body: what JSON says of how it came about"""

    bundle: Path
    left: Platform
    body: dict[str, Any]

    @property
    def area(self) -> str:
        """The name of its folder on hosts: that of its place, where it is not in a dry run."""
        return area(Path(self.body["bundle"]))


@dataclass(frozen=True)
class Shelf:
    """Puts bundles in their places. drafts: the folder that takes them instead, in a dry run"""

    say: Console
    drafts: Path | None

    def put(
        self,
        out: Path,
        cnn: Cnn,
        platform: Platform,
        mapping: Mapping,
        form: Form,
        force: bool = False,
        way_out: str = "move it away",
    ) -> Path:
        """Where the bundle is now. ``force``: what is there is replaced, else one that is the very same stays."""
        if not force and bundles.is_there(out, cnn.graph, platform, mapping, cnn.source, form):
            show.line(self.say, f"{out} is there already, made of the same")
            return out
        check_place(out, force, way_out=f"it is not made of the same; {way_out}")
        to = self.drafts / out.name if self.drafts else out
        bundles.write_bundle(cnn.graph, platform, mapping, cnn.source, to, force, form)
        show.line(self.say, f"dry run: would write {out}" if self.drafts else f"wrote {out}")
        return to


def stays_here(recipe: Recipe, loss: Loss, access: Access) -> None:
    """``CleaveError`` where an option wants a platform and there is none."""
    asked = {
        "--cnn": recipe.cnn,
        "--mapping": recipe.mapping,
        "--exclude": loss.exclude,
        "--replan": loss.replan,
        "--run": loss.run,
    }
    for option in (*(name for name, value in asked.items() if value), *access.given):
        raise CleaveError(f"{option}: goes with --platform")
    recipe.check()


@contextmanager
def ready(
    bundle: Path, cluster: Platform, recipe: Recipe, loss: Loss, say: Console, dry: bool = False
) -> Iterator[Outgoing]:
    """The bundle that goes, as long as the block lasts or for good."""
    recipe.check()
    loss.check()
    left = loss.left(cluster)
    with TemporaryDirectory(prefix="cleave-") as drafts:
        shelf = Shelf(say, Path(drafts) if dry else None)
        found = _made(bundle, cluster, recipe, shelf)
        check_bundle(found)
        body: dict[str, Any] = {"bundle": str(bundle)}
        lost = [host for host in dict.fromkeys(rank.host for rank in read_plan(found).ranks) if host in loss.exclude]
        if lost and not loss.replan:
            raise CleaveError(f"{bundle}: has ranks on {', '.join(lost)}, which you exclude; "
                              "add --replan to go on with a mapping that does without")  # fmt: skip
        if lost:
            found, body = _replanned(bundle, found, cluster, recipe, loss, shelf)
        if others := unlike(read_plan(found), left):
            show.line(say, f"{found}: the platform file says something else now of {', '.join(others)}; "
                      "generate the bundle again for that to count")  # fmt: skip
        yield Outgoing(found, left, body)


def unlike(plan: Plan, platform: Platform) -> list[str]:
    """Devices that a platform says something else of than was built into a plan, and what."""
    first = {rank.host: rank.rank for rank in reversed(plan.ranks)}
    devices = {device.name: index for index, device in enumerate(platform.devices)}
    found = []
    for rank in (rank for rank in plan.ranks if rank.device in devices):
        now = seat(platform, devices[rank.device], rank.rank, reads_meter=first[rank.host] == rank.rank)
        if keys := [key for name, key in BUILT_IN.items() if getattr(now, name) != getattr(rank, name)]:
            found.append(f"{rank.device} ({', '.join(keys)})")
    return found


def _made(bundle: Path, cluster: Platform, recipe: Recipe, shelf: Shelf) -> Path:
    """The bundle of a mapping, if there is one."""
    if recipe.mapping is None or recipe.cnn is None:
        return bundle
    cnn = Network(recipe.cnn, recipe.shape, recipe.fold).read()
    mapping, platform = Placement(recipe.mapping, recipe.horizontal).read(cnn, cluster)
    way_out = "use --force to replace it, or name another folder"
    return shelf.put(bundle, cnn, platform, mapping, Form(recipe.join), recipe.force, way_out)


def _replanned(
    bundle: Path, found: Path, cluster: Platform, recipe: Recipe, loss: Loss, shelf: Shelf
) -> tuple[Path, dict[str, Any]]:
    """A bundle that does without the excluded hosts, and what JSON says of it."""
    saved = _saved(bundle, loss)
    role = Role.of(found, saved).less(tuple(loss.exclude), cluster)
    left = cluster.without(role.without)
    cnn = replan.whole_model(found, recipe.whole_model)
    if saved:
        saved.check_network(cnn.graph)
    best = (saved and _chosen(saved, cnn, left, role, shelf.say)) or _searched(saved, cnn, left, role, shelf.say)
    form = replace(bundles.read_bundle(found)[1], note=role.note(best.point))
    out = _beside(bundle) / role.place
    made = shelf.put(out, cnn, left, best.mapping, form)
    show.warn_expected(shelf.say, left, of_mapping(cnn.graph, left, best.mapping))
    note = form.note | {"from": str(bundle), best.source: best.value}
    return made, {"bundle": str(out), "replanned": note}


def _saved(bundle: Path, loss: Loss) -> Saved | None:
    """The run that a bundle is of."""
    if loss.run is None and not Saved.is_in(_beside(bundle)):
        return None
    return Saved.read(loss.run or _beside(bundle))


def _beside(bundle: Path) -> Path:
    """The folder that a bundle is in."""
    plain = bundle.name not in ("", "..") and not bundle.is_symlink()
    return bundle.parent if plain else bundle.resolve().parent


def _chosen(saved: Saved, cnn: Cnn, left: Platform, role: Role, say: Console) -> Found | None:
    best = replan.from_front(saved, cnn, left, role)
    if best:
        usable, every = len(saved.within(left)), len(saved.points)
        show.line(say, f"without {', '.join(role.without)} {usable} of {every} points of {saved.folder / FRONT} can be "
                  f"used; the best is point {best.point}: {_value(best, role)}")  # fmt: skip
    return best


def _searched(saved: Saved | None, cnn: Cnn, left: Platform, role: Role, say: Console) -> Found:
    coding, settings = replan.asked_anew(saved, cnn, left, role)
    why = f"no point of {saved.folder / FRONT} can be used" if saved else "there is no front to choose from"
    show.line(say, f"without {', '.join(role.without)} {why}, so a short new search is made: {coding.kind}, "
              f"{settings.generations} generations of {settings.population}, seed {settings.seed}")  # fmt: skip
    with searching(say, settings) as (step, tell):
        best = replan.anew(cnn, left, role, coding, settings, step)
        tell(f"the best that was found: {_value(best, role)}")
    return best


def _value(best: Found, role: Role) -> str:
    name, *_ = UNITS[role.objective]
    devices = len(best.mapping.devices)
    return f"{name} {shown(role.objective, best.value)} ({best.source}) on {many(devices, 'device')}"
