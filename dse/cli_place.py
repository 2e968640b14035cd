"""The command line of the exact partitioners: ``dse place``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dse import ending, show_placed
from dse.cli_options import JsonOption, SeedOption, console, one_of, print_json
from dse.cli_progress import working
from dse.place.methods import METHODS, PERIOD, usual
from dse.place.placed import Options
from dse.place.split import MODES, SUM
from dse.place.workload import Workload
from dse.show_placed import Look
from runtime.frames import save_text


def place(
    workload: Annotated[Path, typer.Option("--workload", help="Graph and devices, as msr-fiddle/dnn-partitioning has")],
    *,
    objective: Annotated[str, typer.Option("--objective", help=f"What is least: {', '.join(METHODS)}")] = PERIOD,
    method: Annotated[
        str | None,
        typer.Option("--method", help="; ".join(f"{name}: {', '.join(of)}" for name, of in METHODS.items())),
    ] = None,
    mode: Annotated[
        str, typer.Option("--mode", help=f"Transfers and computing of an accelerator: {', '.join(MODES)}")
    ] = SUM,
    non_contiguous: Annotated[
        bool, typer.Option("--non-contiguous", help="A device may have nodes before and after another's")
    ] = False,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", min=0, metavar="S", help="Seconds; then the best so far is given")
    ] = None,
    bandwidth: Annotated[
        float | None,
        typer.Option("--replicate", min=1e-9, metavar="BYTES", help="Devices may share a part: bytes/ms between them"),
    ] = None,
    subgraphs: Annotated[
        int, typer.Option("--subgraphs", "-q", min=1, help="For latency: how many parts an accelerator may run in turn")
    ] = 1,
    machines: Annotated[
        int, typer.Option("--machines", min=1, help="That accelerators and CPUs are spread over evenly")
    ] = 1,
    slow: Annotated[
        float, typer.Option("--slow", min=1, help="A transfer to another machine takes so many times as long")
    ] = 1.0,
    seed: SeedOption = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Write the JSON here, too")] = None,
    as_json: JsonOption = False,
) -> None:
    """Place a graph of operators on accelerators and CPUs: the best split, or how far from it one may be."""
    methods = METHODS[one_of("--objective", objective, list(METHODS))]
    name = one_of("--method", method or usual(objective, not non_contiguous), list(methods))
    one_of("--mode", mode, MODES)
    on = Workload.from_file(workload)
    begin = time.monotonic()
    with ExitStack() as stack:
        bar = _bar(stack, name)
        options = Options(mode, not non_contiguous, time_limit, seed, bar, bandwidth, subgraphs, machines, slow)
        found = methods[name](on, options)
    look = Look(on, found, objective, name, options, time.monotonic() - begin)
    body = show_placed.body(look)
    if out:
        save_text(str(out), json.dumps(body, indent=1) + "\n")
    print_json(body) if as_json else show_placed.placed(console, look)


def _bar(stack: ExitStack, what: str) -> Callable[[int, int, str], None]:
    """A bar from when there is something to tell: what is done at once needs none."""
    steps: list[Callable[[int, int, str], None]] = []

    def step(done: int, of: int, text: str) -> None:
        ending.leave_if_asked()
        if of and not steps:
            steps.append(stack.enter_context(working(Console(stderr=True), what)))
        for show in steps:
            show(done, of, text)

    return step
