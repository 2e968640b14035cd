"""The command line of the exact partitioners: ``dse place``."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dse import ending, show, show_placed
from dse import run as job
from dse.before import check_file
from dse.cli.group import grouped
from dse.cli.options import (
    FoldOption,
    ForceOption,
    JsonOption,
    SeedOption,
    ShapeOption,
    aside,
    console,
    finite,
    one_of,
    print_json,
    read_network,
)
from dse.cli.progress import Working, working
from dse.cli.run import splits_of
from dse.evaluation import EVALUATORS, SIMULATOR
from dse.place.cnn.exact import exact
from dse.place.cnn.limits import Limits
from dse.place.methods import METHODS, PERIOD, usual
from dse.place.placed import Options
from dse.place.split import MODES, SUM
from dse.place.workload import Workload
from dse.show_placed import Look
from model.cluster import quantity
from model.cluster.platform import Platform
from model.cost.confidence import of_mapping
from runtime.errors import CleaveError
from runtime.frames import save_text


@dataclass(frozen=True)
class OfWorkload:
    """How a graph of operators is placed, as options say it."""

    method: Annotated[
        str | None,
        typer.Option("--method", help="; ".join(f"{name}: {', '.join(of)}" for name, of in METHODS.items())),
    ] = None
    mode: Annotated[
        str, typer.Option("--mode", help=f"Transfers and computing of an accelerator: {', '.join(MODES)}")
    ] = SUM
    non_contiguous: Annotated[
        bool, typer.Option("--non-contiguous", help="A device may have nodes before and after another's")
    ] = False
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            min=0,
            callback=finite,
            metavar="S",
            help="Seconds; then the best so far is given [120, where a method may not end by itself]",
        ),
    ] = None
    bandwidth: Annotated[
        float | None,
        typer.Option(
            "--replicate",
            min=1e-9,
            callback=finite,
            metavar="BYTES",
            help="Devices may share a part: bytes/ms between them",
        ),
    ] = None
    subgraphs: Annotated[
        int, typer.Option("--subgraphs", "-q", min=1, help="For latency: how many parts an accelerator may run in turn")
    ] = 1
    machines: Annotated[
        int, typer.Option("--machines", min=1, help="That accelerators and CPUs are spread over evenly")
    ] = 1
    slow: Annotated[
        float,
        typer.Option(
            "--slow", min=1, callback=finite, help="A transfer to another machine takes so many times as long"
        ),
    ] = 1.0


@dataclass(frozen=True)
class OfCnn:
    """How a CNN is placed on a platform, as options say it."""

    cnn: Annotated[str | None, typer.Option("--cnn", help="ONNX file, or zoo:NAME, in place of a workload")] = None
    shape: ShapeOption = field(default_factory=list)
    fold: FoldOption = False
    platform: Annotated[Path | None, typer.Option("--platform", help="For a CNN: platform file, or a name")] = None
    splits: Annotated[
        int | None, typer.Option("--splits", min=1, help="For a CNN: parts of a layer at most [default: 2]")
    ] = None
    evaluator: Annotated[
        str | None, typer.Option("--evaluator", help=f"For a CNN: {', '.join(EVALUATORS[:2])} [default: {SIMULATOR}]")
    ] = None
    max_energy: Annotated[
        float | None,
        typer.Option("--max-energy", min=0, callback=finite, metavar="J", help="For a CNN: of a device and frame"),
    ] = None
    max_memory: Annotated[str | None, typer.Option("--max-memory", help="For a CNN: of a device, as in 300MB")] = None

    def limits(self) -> Limits:
        """``CleaveError`` where one is no quantity."""
        found = Limits() if self.max_energy is None else Limits(energy_j=self.max_energy)
        if self.max_memory is None:
            return found
        try:
            return found._replace(memory_bytes=quantity.positive(self.max_memory, "size"))
        except CleaveError as error:
            raise CleaveError(f"--max-memory: {error}") from error


@grouped
def place(
    on: OfWorkload,
    of: OfCnn,
    workload: Annotated[
        Path | None, typer.Option("--workload", help="Graph and devices, as msr-fiddle/dnn-partitioning has")
    ] = None,
    objective: Annotated[str, typer.Option("--objective", help=f"What is least: {', '.join(METHODS)}")] = PERIOD,
    seed: SeedOption = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the mapping here, or the JSON of a workload's split")
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Place a CNN on a platform, or a graph of operators on accelerators: the best split, or how far from it one is."""
    one_of("--objective", objective, list(METHODS))
    if out:
        check_file(out, "", force, (workload, of.cnn, of.platform))
    if (workload is None) == (of.cnn is None):
        raise CleaveError("name one thing to place: --cnn with --platform, or --workload")
    if workload:
        _refuse(of, OfCnn(), "--workload")
        if on.slow != OfWorkload().slow and on.machines == OfWorkload().machines:
            raise CleaveError("--slow says nothing of one machine: add --machines")
        _place_workload(workload, objective, on, seed, out, as_json)
    else:
        _refuse(on, OfWorkload(), "--cnn")
        if seed:
            raise CleaveError("--seed says nothing with --cnn: nothing is random there")
        _place_cnn(of, objective, out, as_json)


def _refuse(given: Any, usual_: Any, with_: str) -> None:
    """``CleaveError`` where an option says something about the other kind of thing that is placed."""
    said = [f.name for f in fields(given) if getattr(given, f.name) != getattr(usual_, f.name)]
    names = ["--replicate" if name == "bandwidth" else f"--{name.replace('_', '-')}" for name in said]
    if names:
        raise CleaveError(f"{', '.join(names)}: says nothing with {with_}; leave it out")


def _place_workload(
    workload: Path, objective: str, how: OfWorkload, seed: int, out: Path | None, as_json: bool
) -> None:
    methods = METHODS[objective]
    name = one_of("--method", how.method or usual(objective, not how.non_contiguous), list(methods))
    if one_of("--mode", how.mode, MODES) != SUM and objective != PERIOD:
        raise CleaveError(f"--mode says nothing with --objective {objective}; leave it out")
    on = Workload.from_file(workload)
    begin = time.monotonic()
    with ExitStack() as stack:
        options = Options(
            how.mode,
            not how.non_contiguous,
            how.time_limit,
            seed,
            _bar(stack, name),
            how.bandwidth,
            min(how.subgraphs, len(on)),
            how.machines,
            how.slow,
        )
        stack.enter_context(ending.patient())
        found = methods[name](on, options)
    look = Look(on, found, objective, name, options, time.monotonic() - begin)
    body = show_placed.body(look)
    if out:
        save_text(str(out), json.dumps(body, indent=1) + "\n")
    print_json(body) if as_json else show_placed.placed(console, look)


def _place_cnn(of: OfCnn, objective: str, out: Path | None, as_json: bool) -> None:
    if of.platform is None:
        raise CleaveError("--cnn needs the devices that it is placed on: add --platform")
    evaluator, limits = one_of("--evaluator", of.evaluator or SIMULATOR, EVALUATORS[:2]), of.limits()
    cnn, platform = read_network(of.cnn or "", of.shape, of.fold), Platform.from_file(of.platform)
    coding = job.Coding(job.widest(cnn), splits_of(of.splits, platform))
    begin = time.monotonic()
    found = exact(*job.prepare(cnn, platform, coding), f"{objective}_s", evaluator, limits)
    seconds, error = time.monotonic() - begin, of_mapping(cnn.graph, platform, found.mapping)
    if out:
        save_text(str(out), found.mapping.to_json(cnn.graph, platform))
    if as_json:
        print_json(show_placed.cnn_body(cnn, platform, found, error, evaluator, seconds))
    else:
        show_placed.cnn(console, platform, found, seconds)
        show.line(console, f"use it: {_use(of, out)}" if out else "keep the mapping with --out FILE")
        show.warn_expected(console, platform, error)
    show.warn_unlike(aside(as_json), cnn.graph, platform)


def _use(of: OfCnn, mapping: Path) -> str:
    """The command that makes a bundle of a mapping."""
    network = ["--cnn", str(of.cnn), *(word for shape in of.shape for word in ("--shape", shape))]
    words = [*network, *["--fold"] * of.fold, "--platform", str(of.platform), "--mapping", str(mapping)]
    return shlex.join(["dse", "generate", *words, "--out", "bundle"])


def _bar(stack: ExitStack, what: str) -> Callable[[int, int, str], None]:
    """A bar from when there is something to tell: what is done at once needs none."""
    steps: list[Working] = []

    def step(done: int, of: int, text: str) -> None:
        ending.leave_if_asked()
        if of and not steps:
            steps.append(stack.enter_context(working(Console(stderr=True), what)))
        for tell in steps:
            tell(what, done, of, text)

    return step
