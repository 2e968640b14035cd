"""``dse run``: the search, its progress bar, and what comes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from codegen.render import TARGETS
from dse import ending, show
from dse import run as job
from dse.chromosomes import KINDS, SHARES
from dse.cli_options import (
    CnnOption,
    DryRunOption,
    FoldOption,
    ForceOption,
    JsonOption,
    PlatformOption,
    SeedOption,
    ShapeOption,
    TargetOption,
    console,
    one_of,
    print_json,
)
from dse.evaluation import OBJECTIVES
from dse.inputs import read_cnn
from dse.results import shown
from dse.search import Settings
from model.platform import Platform
from runtime.errors import CleaveError


def run(
    cnn: CnnOption,
    platform: PlatformOption,
    out: Annotated[Path | None, typer.Option("--out", help="Result folder [runs/CNN-PLATFORM]")] = None,
    chromosome: Annotated[str, typer.Option(help=f"One of {', '.join(KINDS)}")] = "hybrid",
    splits: Annotated[
        int | None, typer.Option(min=1, help="Most parts of a layer, hybrid only [2]", show_default=False)
    ] = None,
    shares: Annotated[str, typer.Option(help=f"Sizes of the parts: {', '.join(SHARES)}")] = "equal",
    reader: Annotated[str | None, typer.Option(help="Device that frames come in at, e.g. the camera's")] = None,
    writer: Annotated[str | None, typer.Option(help="Device that hands out the results")] = None,
    objectives: Annotated[
        str, typer.Option(help="What to minimise, two or more of latency, energy, memory, period")
    ] = "latency,energy,memory",
    population: Annotated[int, typer.Option(min=4, help="Mappings in a generation")] = 1000,
    generations: Annotated[int, typer.Option(min=1, help="Rounds of the search")] = 100,
    target: TargetOption = "python",
    seed: SeedOption = 0,
    shape: ShapeOption = [],
    fold: FoldOption = False,
    check: Annotated[bool, typer.Option("--verify/--no-verify", help="Run every bundle here and compare")] = True,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Find the best mappings; generate, run and check their programs."""
    settings = Settings(population, generations, seed, _objectives(objectives))
    (
        one_of("--chromosome", chromosome, KINDS),
        one_of("--shares", shares, SHARES),
        one_of("--target", target, TARGETS),
    )
    loaded, cluster = read_cnn(cnn, shape, fold), Platform.from_file(platform)
    out = out or Path("runs") / f"{loaded.graph.name}-{cluster.name}"
    coding = job.Coding(chromosome, _splits(splits, cluster), shares, reader, writer)
    job.check_place(out, force)
    job.check_target(cluster, target)
    if check:
        job.check_mpi()
    encoding, _ = job.prepare(loaded, cluster, coding)
    say = Console(stderr=True) if as_json else console
    show.announce(say, loaded.graph, cluster, coding, settings)
    if dry_run:
        show.line(say, f"dry run: {encoding.n_genes} genes; would write {out}")
        return
    progress = _progress(say)
    bar = progress.add_task("searching", total=generations, best="")

    def step(generation: int, best: Any) -> None:
        ending.leave_if_asked()
        columns = [OBJECTIVES.index(o) for o in settings.objectives]
        text = "best " + "  ".join(shown(OBJECTIVES[k], best[k]) for k in columns)
        progress.update(bar, completed=generation, best=text if np.isfinite(best).all() else "nothing fits yet")

    def tell(text: str) -> None:
        ending.leave_if_asked()
        _stop(progress)  # the search is done
        show.line(say, text)

    progress.start()
    try:
        outcome = job.run(
            loaded, cluster, coding, settings, out, target=target, force=force, check=check, progress=step, say=tell
        )
    finally:
        _stop(progress)
    if as_json:
        print_json(json.loads((out / "summary.json").read_text()))
    else:
        show.outcome(console, outcome, cluster, generations, out)
    raise typer.Exit(0 if outcome.passed else 1)


def _splits(asked: int | None, cluster: Platform) -> int:
    devices = len(cluster.devices)
    if asked is not None and asked > devices:
        raise CleaveError(f"--splits {asked}: each part needs a device of its own; '{cluster.name}' has {devices}")
    return asked or min(2, devices)


def _objectives(text: str) -> tuple[str, ...]:
    known = {name.split("_")[0]: name for name in OBJECTIVES}
    names = [word.strip() for word in text.split(",")]
    unknown = [name for name in names if name not in known]
    if unknown or len(set(names)) < len(names) or len(names) < 2:
        raise CleaveError(f"--objectives {text}: name two or more of {', '.join(known)}, each once")
    return tuple(known[name] for name in names)


def _progress(target: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
    return Progress(*columns, TextColumn("{task.fields[best]}"), TimeRemainingColumn(), console=target)


def _stop(progress: Progress) -> None:
    """Once: each time it would print an empty line."""
    if progress.live.is_started:
        progress.stop()
