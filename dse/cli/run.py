"""``dse run``: the search, its progress bar, and what comes of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from codegen import folder
from codegen.render import PYTHON, TARGETS
from dse import run as job
from dse import show
from dse.before import check_place, check_runs, check_target, check_whole
from dse.chromosomes import KINDS, SHARES
from dse.cli.access import Running, placed, unfit
from dse.cli.group import grouped
from dse.cli.options import (
    CALIBRATED,
    DryRunOption,
    ForceOption,
    JsonOption,
    ModelOption,
    Network,
    PlatformOption,
    SeedOption,
    TargetOption,
    aside,
    console,
    finite,
    one_of,
    print_json,
    read_platform,
    tell_dry,
)
from dse.cli.progress import searching
from dse.closing.loop import AGAIN, Limits
from dse.evaluation import BOTH, EVALUATORS, OBJECTIVES
from dse.ready import HERE
from dse.settings import Settings
from dse.units import quantity
from model.cluster.platform import Platform
from runtime.deploy.cluster import check_head
from runtime.errors import CleaveError
from runtime.launch import TIMEOUT_S, Mpirun


@dataclass(frozen=True)
class Way:
    """Which mappings are looked at, as options say it."""

    chromosome: Annotated[
        str, typer.Option(help="naive (a device a layer), vertical (stretches of layers), hybrid (some of them split)")
    ] = "hybrid"
    splits: Annotated[
        int | None, typer.Option(min=1, help="Most parts of a layer, hybrid only [2]", show_default=False)
    ] = None
    shares: Annotated[
        str, typer.Option(help="Sizes of parts: equal, speed (as devices are), multiplicity (as often as genes say)")
    ] = "equal"
    reader: Annotated[str | None, typer.Option(help="Device that frames come in at, e.g. the camera's")] = None
    writer: Annotated[str | None, typer.Option(help="Device that hands out the results")] = None

    def coding(self, cluster: Platform) -> job.Coding:
        """``CleaveError`` for options that cannot be."""
        kind, shares = one_of("--chromosome", self.chromosome, KINDS), one_of("--shares", self.shares, SHARES)
        if self.splits is not None and kind != "hybrid":
            raise CleaveError(f"--splits says nothing with --chromosome {kind}; leave it out")
        if shares != SHARES[0] and kind == "vertical":
            raise CleaveError("--shares says nothing with --chromosome vertical: no layer has parts; leave it out")
        return job.Coding(kind, splits_of(self.splits, cluster), shares, self.reader, self.writer)


@dataclass(frozen=True)
class Effort:
    """What is minimised, and how long, as options say it."""

    objectives: Annotated[
        str, typer.Option(help="What to minimise, two or more of latency, energy, memory, period")
    ] = "latency,energy,memory"
    population: Annotated[int, typer.Option(min=4, help="Mappings in a generation")] = 1000
    generations: Annotated[int, typer.Option(min=1, help="Rounds of the search")] = 100
    seed: SeedOption = 0
    evaluator: Annotated[
        str,
        typer.Option(help=f"Who scores: {', '.join(EVALUATORS)} (NSGA-II by the first, what is left by the second)"),
    ] = BOTH

    exact_seeds: Annotated[
        bool, typer.Option("--exact-seeds/--no-exact-seeds", help="Begin with the best chains of whole layers, too")
    ] = True
    local_search: Annotated[
        bool,
        typer.Option("--local-search/--no-local-search", help="Go on from the front by small changes of its mappings"),
    ] = True

    @property
    def settings(self) -> Settings:
        """``CleaveError`` for options that cannot be."""
        evaluator = one_of("--evaluator", self.evaluator, EVALUATORS)
        return Settings(
            self.population,
            self.generations,
            self.seed,
            _objectives(self.objectives),
            evaluator=evaluator,
            exact_seeds=self.exact_seeds,
            local_search=self.local_search,
        )


@dataclass(frozen=True)
class Measured:
    """What is measured on the cluster, as options say it."""

    measure: Annotated[
        int | None,
        typer.Option(min=1, help="Measure so many mappings, search on with what they teach, and confirm the best"),
    ] = None
    measure_budget: Annotated[
        float | None,
        typer.Option(min=0, callback=finite, metavar="SECONDS", help="Begin no more of them after this time"),
    ] = None
    earlier: Annotated[
        Path | None,
        typer.Option("--measured", metavar="FILE", help="Go on from what another run has measured: its measured.jsonl"),
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(min=1, callback=finite, help=f"Most seconds of each run [{TIMEOUT_S:.0f}]", show_default=False),
    ] = None

    @property
    def timeout_s(self) -> float:
        """Of each run."""
        return TIMEOUT_S if self.timeout is None else self.timeout

    def measuring(self, cluster: Platform, access: Running, target: str) -> job.Measuring | None:
        """``CleaveError`` for options that cannot be, and where nothing can run here though hosts are here."""
        if self.measure is None:
            if self.measure_budget is not None:
                raise CleaveError("--measure-budget says how long is measured: add --measure N")
            if self.earlier is not None:
                raise CleaveError("--measured is what measuring goes on from: add --measure N")
            for option in access.given:
                raise CleaveError(f"{option} says how hosts are reached to measure there: add --measure N")
            return None
        check_head(access.head, [host.name for host in cluster.hosts])
        here = [host.address in HERE for host in cluster.hosts]
        if any(here):
            Mpirun.find()
        if target != PYTHON and not all(here):
            raise CleaveError(f"--measure: no programs in {target} are brought to hosts so far; leave --target out")
        place = partial(placed, cluster, access)
        limits = Limits(self.measure, self.measure_budget, self.measure // AGAIN)
        return job.Measuring(limits, place, self.timeout_s, earlier=self.earlier)


@grouped
def run(
    network: Network,
    platform: PlatformOption,
    *,
    out: Annotated[Path | None, typer.Option("--out", help="Result folder [runs/CNN-PLATFORM]")] = None,
    way: Way,
    effort: Effort,
    measured: Measured,
    access: Running,
    model: ModelOption = CALIBRATED,
    target: TargetOption = PYTHON,
    check: Annotated[bool, typer.Option("--verify/--no-verify", help="Run every bundle here and compare")] = True,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Find the best mappings; generate, run and check their programs."""
    settings = effort.settings
    one_of("--target", target, TARGETS)
    loaded, cluster = network.read(), read_platform(platform, model)
    out = out or Path("runs") / f"{loaded.graph.name}-{cluster.name}"
    coding = way.coding(cluster)
    check_place(out, force, read=(network.cnn, platform), mark=folder.RUN)
    check_target(cluster, target)
    measuring = measured.measuring(cluster, access, target)
    if check:
        check_runs(target)
    elif measured.timeout is not None and measuring is None:
        raise CleaveError("--timeout says how long a run may take, and with --no-verify nothing is run; leave it out")
    encoding, _ = job.prepare(loaded, cluster, coding)
    say = aside(as_json)
    show.announce(say, loaded.graph, cluster, coding, settings)
    if dry_run:
        if check:
            check_whole(loaded)
        tell_dry(
            as_json, f"{encoding.n_genes} genes; would write {out}", genes=encoding.n_genes, would_write=[str(out)]
        )
        return
    if measuring:
        measuring = replace(measuring, unfit=_unfit(say, cluster, access))
    with searching(say, settings) as (step, tell):
        outcome = job.run(
            loaded,
            cluster,
            coding,
            settings,
            out,
            target=target,
            force=force,
            check=check,
            measuring=measuring,
            timeout_s=measured.timeout_s,
            progress=step,
            say=tell,
        )
    if as_json:
        print_json(json.loads((out / "summary.json").read_text()))
    else:
        show.outcome(console, outcome, cluster, settings.generations, out)
    in_vain = outcome.closed is not None and outcome.closed.in_vain
    raise typer.Exit(0 if outcome.passed and not in_vain else 1)


def _unfit(say: Console, cluster: Platform, access: Running) -> frozenset[str]:
    """Names of hosts that cannot be measured on, which are told."""
    lacking = unfit(say, cluster, access)
    for sentence in lacking.sentences:
        show.line(say, f"cannot be measured on: {sentence}")
    return frozenset(lacking.failures)


def splits_of(asked: int | None, cluster: Platform) -> int:
    """How many parts a layer may have: so many as are asked for, else two. ``CleaveError`` with too few devices."""
    devices = len(cluster.devices)
    if asked is not None and asked > devices:
        raise CleaveError(f"--splits {asked}: each part needs a device of its own; '{cluster.name}' has {devices}")
    return asked or min(2, devices)


def _objectives(text: str) -> tuple[str, ...]:
    known = {quantity(name): name for name in OBJECTIVES}
    names = [word.strip() for word in text.split(",")]
    unknown = [name for name in names if name not in known]
    if unknown or len(set(names)) < len(names) or len(names) < 2:
        raise CleaveError(f"--objectives {text}: name two or more of {', '.join(known)}, each once")
    return tuple(known[name] for name in names)
