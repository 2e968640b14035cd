"""What the commands of all files have in common: where they print, and the options that mean the same everywhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from codegen import bundle as bundles
from runtime.errors import CleaveError
from runtime.images import ORDERS, Pixels, numbers

WIDE = 160
"""Columns where the output is no terminal: a table in a file or a pipe is not squeezed into 80."""

console = Console(width=None if sys.stdout.isatty() else WIDE)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Check everything, say what would be done, write nothing")
]

CnnOption = Annotated[str, typer.Option("--cnn", help="ONNX file, or zoo:NAME (see dse models)")]
ShapeOption = Annotated[list[str], typer.Option("--shape", help="Size of a dynamic input: NAME=1,3,224,224")]
FoldOption = Annotated[bool, typer.Option("--fold/--no-fold", help="Fold BatchNormalization into convolutions")]
MappingOption = Annotated[Path, typer.Option("--mapping", help="Mapping: this program's form or AutoDiCE's")]
HorizontalOption = Annotated[Path | None, typer.Option("--horizontal", help="AutoDiCE's horizontal.json")]
JoinOption = Annotated[str, typer.Option("--join", help="Where parts of a layer are joined: use, or gather (AutoDiCE)")]
TargetOption = Annotated[
    str, typer.Option("--target", help="What the programs are written in: python, or cpp (half the memory)")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace an earlier result")]
PlatformOption = Annotated[Path, typer.Option("--platform", help="Platform file, or the name of a shipped one")]
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


def print_json(body: Any) -> None:
    """One JSON value, for machines."""
    sys.stdout.write(json.dumps(body, indent=1) + "\n")


def one_of(option: str, text: str, known: Sequence[str]) -> str:
    """The value of an option that names one of a few things."""
    if text not in known:
        raise CleaveError(f"{option} {text}: must be one of {', '.join(known)}")
    return text


def pixels(mean: str, scale: str, channels: str) -> Pixels:
    """How images become frames, as three options say it."""
    order = one_of("--channels", channels, ORDERS)
    return Pixels(_numbers("--mean", mean), _numbers("--scale", scale), order)


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return numbers(text)
    except CleaveError as error:
        raise CleaveError(f"{option}: {error}") from error


def check_bundle(folder: Path) -> None:
    """``CleaveError`` where it is no bundle; of a run's folder, with the bundles in it."""
    inside = sorted(str(file.parent) for file in folder.glob("*/bundle.json"))
    if inside and not (folder / "bundle.json").exists():
        raise CleaveError(f"{folder}: is no bundle, but has some in it: {', '.join(inside)}")
    bundles.read_source(folder)
