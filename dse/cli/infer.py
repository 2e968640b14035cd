"""``dse infer``: a user's frames through a bundle, here or on its hosts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from dse import show
from dse.before import check_file
from dse.cli.access import Running
from dse.cli.bundle import Loss, Recipe, ready, stays_here
from dse.cli.cluster import running
from dse.cli.group import grouped
from dse.cli.options import (
    BundleArgument,
    DryRunOption,
    ForceOption,
    HostsOption,
    Images,
    JsonOption,
    aside,
    check_bundle,
    console,
    finite,
    print_json,
    tell_dry,
)
from model.cluster.platform import Platform
from runtime.infer import asked
from runtime.infer import infer as infer_bundle
from runtime.launch import read_plan
from runtime.options import Options
from runtime.segment import CPU


@grouped
def infer(
    bundle: BundleArgument,
    input: Annotated[
        str, typer.Option("--input", metavar="PATH", help="Frames: .npz, .npy, .raw, an image, or a folder of these")
    ],
    output: Annotated[Path, typer.Option("--output", metavar="FILE.npz", help="New file for the results")],
    *,
    platform: HostsOption = None,
    frames: Annotated[
        int | None, typer.Option(min=1, help="How many, round and round [all of --input]", show_default=False)
    ] = None,
    images: Images,
    access: Running,
    timeout: Annotated[
        float | None,
        typer.Option(min=1, callback=finite, help="Most seconds of the run [no limit; on hosts a day]"),
    ] = None,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a bundle on your frames, here or on its hosts, and keep its results. An array for each output, first axis =
    frame."""
    how = images.pixels
    if platform is None:
        stays_here(Recipe(), Loss(), access)
    cluster = None if platform is None else Platform.from_file(platform)
    check_bundle(bundle)
    check_file(output, ".npz", force, (input,))
    provider = CPU if platform is None else None
    options = Options(input=input, output=str(output), provider=provider, pixels=how, stream=True)
    options, _ = asked(read_plan(bundle), options, frames)
    if dry_run:
        fits = f"{options.frames} frames fit the network"
        tell_dry(as_json, f"{fits}; would write {output}", frames=options.frames, would_write=[str(output)])
        return
    if cluster is None:
        found = infer_bundle(bundle, options, timeout)
        sys.stdout.write(found.to_json()) if as_json else show.answer(console, found)
        return
    with (
        ready(bundle, cluster, Recipe(), Loss(), aside(as_json)) as made,
        running(made, access, as_json) as runner,
    ):
        found = infer_bundle(bundle, options, timeout, runner)
    print_json({**made.body, **json.loads(found.to_json())}) if as_json else show.answer(console, found)
