"""What the commands of all files have in common: where they print, and the options that mean the same everywhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from codegen import bundle as bundles
from dse import show
from dse.inputs import Cnn, read_cnn
from model.cluster.platform import Platform
from model.cluster.texts import read_text
from model.mappings import autodice, autodice_cores
from model.mappings.mapping import Mapping
from runtime.errors import CleaveError
from runtime.images import ORDERS, Pixels, numbers

WIDE = 160
"""Columns where the output is no terminal: a table in a file or a pipe is not squeezed into 80."""

CALIBRATED, PAPER = MODELS = ("calibrated", "paper")
"""See ``--model``."""

console = Console(width=None if sys.stdout.isatty() else WIDE)


def finite(value: float | None) -> float | None:
    """The callback of every float option: typer's limits let ``inf`` pass, those of older ones ``nan`` too."""
    if value is not None and not isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Check everything, say what would be done, write nothing")
]

CnnOption = Annotated[str, typer.Option("--cnn", help="ONNX file, or zoo:NAME (see dse models)")]
WholeOption = Annotated[str | None, typer.Option("--cnn", help="The whole model, if it has moved")]
ShapeOption = Annotated[list[str], typer.Option("--shape", help="Size of a dynamic input: NAME=1,3,224,224")]
FoldOption = Annotated[
    bool, typer.Option("--fold/--no-fold", help="Let exact passes of ONNX Runtime rewrite it first: folds norms")
]
MappingOption = Annotated[Path, typer.Option("--mapping", help="Mapping: this program's form or AutoDiCE's")]
HorizontalOption = Annotated[Path | None, typer.Option("--horizontal", help="AutoDiCE's horizontal.json")]
JoinOption = Annotated[
    str, typer.Option("--join", help="Where parts of a layer are joined: use, or gather (by one device)")
]
TargetOption = Annotated[
    str, typer.Option("--target", help="What the programs are written in: python, or cpp (less memory, CPUs only)")
]
ModelOption = Annotated[
    str,
    typer.Option("--model", help="What predicts: calibrated, or paper (the thesis' equations alone)"),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of everything random")]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=1, callback=finite, help="Most seconds of each run")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace an earlier result")]
PlatformOption = Annotated[Path, typer.Option("--platform", help="Platform file, or the name of a shipped one")]
HostsOption = Annotated[
    Path | None, typer.Option("--platform", help="Run on the hosts of this platform file [on this machine]")
]
InputOption = Annotated[
    str | None,
    typer.Option("--input", metavar="PATH", help="Frames: .npz, .npy, .raw, an image, or a folder of these"),
]
MeanOption = Annotated[str, typer.Option("--mean", help="Of images, 0..255: a number, or one a channel: 123.7,116.8,…")]
ScaleOption = Annotated[str, typer.Option("--scale", help="Of images: an input is (pixel - mean) * scale")]
ChannelsOption = Annotated[str, typer.Option("--channels", help=f"Order of an image's: {', '.join(ORDERS)}")]
BundleArgument = Annotated[
    Path, typer.Argument(metavar="BUNDLE", help="Bundle folder, made by dse generate or dse run")
]


def tell_dry(as_json: bool, sentence: str, **would: Any) -> None:
    """What a dry run says. would: the same for machines"""
    print_json({"dry_run": True, **would}) if as_json else show.line(console, f"dry run: {sentence}")


def read_network(cnn: str, shape: list[str], fold: bool) -> Cnn:
    """Load a CNN, and say aside what it leaves open."""
    found = read_cnn(cnn, shape, fold)
    for name in found.graph.assumed:
        sizes = ",".join(map(str, found.graph.tensors[name].shape))
        text = f"{found.graph.path}: leaves open how many samples {name} has; a frame is one, --shape {name}={sizes}"
        show.line(Console(stderr=True), text)
    return found


@dataclass(frozen=True)
class Network:
    """The CNN, as options name it."""

    cnn: CnnOption
    shape: ShapeOption = field(default_factory=list)
    fold: FoldOption = False

    def read(self) -> Cnn:
        """Load it."""
        return read_network(self.cnn, self.shape, self.fold)


@dataclass(frozen=True)
class Placement:
    """A mapping, as options name its files."""

    mapping: MappingOption
    horizontal: HorizontalOption = None

    def read(self, cnn: Cnn, platform: Platform) -> tuple[Mapping, Platform]:
        """Read it, in our form or in AutoDiCE's; with the platform, its CPUs divided as AutoDiCE's form asks."""
        text = read_text(self.mapping, "mapping")
        more = read_text(self.horizontal, "horizontal.json") if self.horizontal else None
        where = (str(self.mapping), str(self.horizontal or "horizontal.json"))
        cluster = autodice_cores.platform_of(text, platform, where[0])
        return autodice.read_mapping(text, more, cnn.graph, cluster, *where), cluster


@dataclass(frozen=True)
class Images:
    """How images become frames, as options say it."""

    mean: MeanOption = "0"
    scale: ScaleOption = "1"
    channels: ChannelsOption = "rgb"

    @property
    def pixels(self) -> Pixels:
        """``CleaveError`` for options that cannot be."""
        order = one_of("--channels", self.channels, ORDERS)
        return Pixels(_numbers("--mean", self.mean), _numbers("--scale", self.scale), order)


def aside(as_json: bool) -> Console:
    """Where to say what goes on: not in the midst of JSON."""
    return Console(stderr=True) if as_json else console


def print_json(body: Any) -> None:
    """One JSON value, for machines."""
    sys.stdout.write(json.dumps(body, indent=1) + "\n")


def read_platform(file: Path, model: str) -> Platform:
    """The platform, and what predicts on it: one of ``MODELS``."""
    found = Platform.from_file(file)
    return found.by_paper() if one_of("--model", model, MODELS) == PAPER else found


def one_of(option: str, text: str, known: Sequence[str]) -> str:
    """The value of an option that names one of a few things."""
    if text not in known:
        raise CleaveError(f"{option} {text}: must be one of {', '.join(known)}")
    return text


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return numbers(text)
    except CleaveError as error:
        raise CleaveError(f"{option}: {error}") from error


def check_bundle(folder: Path) -> None:
    """``CleaveError`` where it is no whole bundle; of a run's folder, with the bundles in it."""
    inside = sorted(str(file.parent) for file in folder.glob("*/bundle.json"))
    if inside and not (folder / "bundle.json").exists():
        raise CleaveError(f"{folder}: is no bundle, but has some in it: {', '.join(inside)}")
    bundles.check_complete(folder)
