"""The command line: one function a command. What it prints is in ``dse.show``, what it does in the other modules."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from codegen import bundle as bundles
from codegen import folder, zoo
from codegen.render import TARGETS, check_providers
from codegen.verify import verify as verify_bundle
from dse import ending, show, show_price
from dse.before import check_place
from dse.cli import calibrate, cluster, infer, place, prepare, run, simulate, testbed
from dse.cli.group import grouped
from dse.cli.options import (
    CALIBRATED,
    BundleArgument,
    DryRunOption,
    ForceOption,
    Images,
    InputOption,
    JoinOption,
    JsonOption,
    ModelOption,
    Network,
    Placement,
    PlatformOption,
    SeedOption,
    TargetOption,
    TimeoutOption,
    WholeOption,
    aside,
    check_bundle,
    console,
    one_of,
    print_json,
    read_platform,
    tell_dry,
)
from dse.inputs import cnn_path
from model.cluster.platform import Platform
from model.cost.priced import priced
from model.mappings import autodice
from model.mappings.gather import gathered
from runtime.errors import CleaveError
from runtime.launch import TIMEOUT_S

app = typer.Typer(
    help="Spread a CNN over a cluster of small devices: search, generate, verify.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(testbed.app, name="testbed")


def main() -> None:
    """Run a command."""
    ending.run(app)


def _show_version(asked: bool) -> None:
    if asked:
        show.line(console, f"cleave-dse {version('cleave-dse')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Spread a CNN over a cluster of small devices: search, generate, verify."""


@app.command()
@grouped
def inspect(network: Network, as_json: JsonOption = False) -> None:
    """Print the layers of a CNN. Index, name, operator, output shape, MACs, weights, and how each can be split."""
    graph = network.read().graph
    rows = show.layer_rows(graph)
    if as_json:
        print_json({"cnn": graph.name, "inputs": graph.inputs, "outputs": graph.outputs, "layers": rows})
    else:
        show.layers(console, graph, rows)


@app.command()
def models(
    names: Annotated[list[str], typer.Argument(help="Networks to write; none: list them")] = [],
    out: Annotated[Path, typer.Option("--out", help="Folder for the files")] = Path("."),
    seed: SeedOption = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist")] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """List or write the networks of the zoo. They are ONNX files with seeded random weights."""
    for name in names:
        if name not in zoo.NAMES:
            raise CleaveError(f"there is no network '{name}' in the zoo (it has {', '.join(zoo.NAMES)})")
    given = {"--out": out != Path("."), "--seed": seed, "--force": force}
    if not names:
        for option in (option for option, said in given.items() if said):
            raise CleaveError(f"{option}: is about files that are written; say which networks")
        print_json(zoo.NAMES) if as_json else show.line(console, "\n".join(zoo.NAMES))
        return
    files = [out / f"{name}.onnx" for name in names]
    for file in files:
        if file.exists() and not force:
            raise CleaveError(f"{file}: exists already; use --force to replace it, or choose another folder with --out")
    if dry_run:
        names = [str(file) for file in files]
        tell_dry(as_json, f"would write {', '.join(names)}", would_write=names)
        return
    try:
        for name in names:
            zoo.write(name, out, seed)
    except OSError as error:
        raise CleaveError(f"{out}: cannot be written: {error.strerror}") from error
    print_json([str(file) for file in files]) if as_json else show.line(console, "\n".join(map(str, files)))


app.command()(run.run)


@app.command()
@grouped
def generate(
    network: Network,
    platform: PlatformOption,
    placement: Placement,
    out: Annotated[Path, typer.Option("--out", help="Folder of the bundle")],
    join: JoinOption = "use",
    target: TargetOption = "python",
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make a bundle from a mapping. Submodels, plan, one program a rank, rankfile and hostfile."""
    loaded = network.read()
    found, cluster = placement.read(loaded, Platform.from_file(platform))
    one_of("--join", join, bundles.JOINS), one_of("--target", target, TARGETS)
    check_providers({cluster.devices[d].name: cluster.devices[d].provider for d in found.devices}, target)
    check_place(out, force, read=(network.cnn, platform, placement.mapping, placement.horizontal))
    if dry_run:
        tell_dry(as_json, f"the mapping is right; would write {out}", would_write=[str(out)])
        return
    made = bundles.write_bundle(loaded.graph, cluster, found, loaded.source, out, force, bundles.Form(join, target))
    rows = show.rank_rows(made)
    show.warn_rounded(aside(as_json), loaded.graph, cluster)
    if not priced(loaded.graph, cluster, found).fits:
        show.line(aside(as_json), "the mapping does NOT fit the devices' memory, as dse price has it")
    print_json({"bundle": str(out), "ranks": rows}) if as_json else show.ranks(console, rows, out)


@app.command()
@grouped
def price(
    network: Network,
    platform: PlatformOption,
    placement: Placement,
    join: JoinOption = "use",
    model: ModelOption = CALIBRATED,
    as_json: JsonOption = False,
) -> None:
    """Price a mapping, and show where its time, memory and energy go."""
    loaded = network.read()
    found, cluster = placement.read(loaded, read_platform(platform, model))
    graph = loaded.graph
    if one_of("--join", join, bundles.JOINS) == bundles.GATHER:
        graph, found = gathered(graph, found)
    result = priced(graph, cluster, found)
    if as_json:
        print_json(show_price.price_body(graph, cluster, result))
    else:
        show_price.price(console, graph, cluster, result)
    show.warn_unlike(aside(as_json), graph, cluster)


app.command()(simulate.simulate)
app.command()(place.place)


@app.command()
@grouped
def convert(
    network: Network,
    platform: PlatformOption,
    placement: Placement,
    out: Annotated[Path, typer.Option("--out", help="New folder for the files")],
    to: Annotated[str, typer.Option("--to", help="autodice, or cleave")] = "autodice",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Turn a mapping into AutoDiCE's two files, or back."""
    one_of("--to", to, ("autodice", "cleave"))
    loaded = network.read()
    found, cluster = placement.read(loaded, Platform.from_file(platform))
    files = {"mapping.json": found.to_json(loaded.graph, cluster)}
    if to == "autodice":
        files["mapping.json"], files["horizontal.json"] = autodice.write(found, loaded.graph, cluster)
    check_place(out, False, way_out=folder.ELSEWHERE)
    written = [str(out / name) for name in files]
    if dry_run:
        tell_dry(as_json, f"the mapping is right; would write {', '.join(files)} to {out}", would_write=written)
        return
    with folder.fresh(out) as draft:
        for name, text in files.items():
            (draft / name).write_text(text)
    print_json(written) if as_json else show.line(console, f"wrote {', '.join(written)}")


@app.command()
@grouped
def verify(
    bundle: BundleArgument,
    *,
    cnn: WholeOption = None,
    frames: Annotated[
        int | None, typer.Option(min=1, help="Frames to compare [all of --input; 3 random ones]", show_default=False)
    ] = None,
    seed: SeedOption = 0,
    input: InputOption = None,
    images: Images,
    timeout: TimeoutOption = TIMEOUT_S,
    as_json: JsonOption = False,
) -> None:
    """Run a bundle here and compare its answer with the whole model's. One MPI process a rank."""
    how = images.pixels
    if input is not None and seed:
        raise CleaveError("--seed: is of random frames, and those of --input are compared; leave out one of them")
    check_bundle(bundle)
    path = bundles.check_source(bundle, cnn_path(cnn) if cnn else None)
    found = verify_bundle(bundle, path, frames=frames, seed=seed, input=input, pixels=how, timeout_s=timeout)
    if as_json:
        sys.stdout.write(found.to_json())
    else:
        show.verification(console, bundle, found)
    raise typer.Exit(0 if found.passed else 1)


app.command()(infer.infer)
app.command()(prepare.prepare)
app.command()(cluster.deploy)
app.command()(cluster.bench)
app.command()(calibrate.calibrate)
