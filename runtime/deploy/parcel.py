"""What goes to which host: the files of a bundle, checked before any of them is opened for sending."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from runtime.contents import described
from runtime.deploy.far import common as far
from runtime.deploy.target import Target
from runtime.errors import CleaveError
from runtime.hashing import file_hash
from runtime.launch import read_plan
from runtime.plan import Plan, RankPlan

BUFFERS_AND_MORE_BYTES = 90_000_000
"""Memory of a process with numpy, MPI and ONNX Runtime before it opens a segment."""
OWN = re.compile(r"rank_?(\d+)(?:\.py|/.*)")
"""Files that belong to one rank."""
LEFT = ("bundle.json", "mapping.json", "sender.json", "receiver.json")
"""Files that no rank reads."""


@dataclass(frozen=True)
class File:
    """path: on the workstation; sha256: of its content, hexadecimal"""

    path: Path
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Parcel:
    """What one host has to do with: what it gets, and what it needs for that.

    files:        path inside the bundle → file
    ranks:        of the bundle that run on the host
    cores:        that ranks are bound to
    providers:    that its ONNX Runtime must have
    """

    target: Target
    files: dict[str, File] = field(default_factory=dict)
    ranks: tuple[RankPlan, ...] = ()
    cores: frozenset[int] = frozenset()
    providers: frozenset[str] = frozenset()

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(file.size_bytes for file in self.files.values())

    @property
    def memory_bytes(self) -> int:
        """That its ranks take at least, to be held against what the host has free."""
        files = [run.file + beside for rank in self.ranks for run in rank.runs for beside in ("", ".data")]
        segments = sum(self.files[file].size_bytes for file in files if file in self.files)
        return segments + BUFFERS_AND_MORE_BYTES * len(self.ranks)


@dataclass(frozen=True)
class Shipment:
    """A bundle, and what of it goes where. name: of its folder on the hosts"""

    bundle: Path
    name: str
    plan: Plan
    parcels: tuple[Parcel, ...]

    @property
    def targets(self) -> list[Target]:
        """The hosts that have a rank."""
        return [parcel.target for parcel in self.parcels]


def pack(bundle: Path, targets: list[Target], name: str | None = None) -> Shipment:
    """Share a bundle out. ``CleaveError`` with everything that is wrong with it, or that no host is there for.

    name: as ``Shipment`` has it; None: that of the place where the bundle is
    """
    plan, files = read_plan(bundle), read_files(bundle)
    by_name = {target.name: target for target in targets}
    hosts = list(dict.fromkeys(rank.host for rank in plan.ranks))
    problems = [f"{bundle}: rank {r.rank} runs on {r.host!r}, which the platform does not have ({', '.join(by_name)})"
                for r in plan.ranks if r.host not in by_name]  # fmt: skip
    problems += [f"{bundle}: plan.json wants {run.file!r}, which bundle.json does not list"
                 for r in plan.ranks for run in r.runs if run.file not in files]  # fmt: skip
    if problems:
        raise CleaveError(*problems)
    parcels = [_parcel(by_name[host], files, tuple(r for r in plan.ranks if r.host == host)) for host in hosts]
    return Shipment(bundle, name or area(bundle), plan, tuple(parcels))


def area(place: Path) -> str:
    """The name of the folder on hosts of the bundle that is in a place: its own, as far as it is safe, and a hash.

    Bundles of several runs have the same name, and each has a folder of its own.
    """
    path = place.resolve()
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", path.name).lstrip(".-")[:80] or "bundle"
    return f"{plain}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


def read_files(bundle: Path) -> dict[str, File]:
    """The files that ``bundle.json`` lists, each there, inside the folder, no link, and as it was generated."""
    with described(bundle) as body:
        listed = {str(path): str(hash_) for path, hash_ in body["files"].items()}
    if body.get("target", "python") != "python":
        raise CleaveError(
            f"{bundle}: programs in C++ are compiled on the device by hand so far; generate it for python"
        )
    problems = [f"{bundle}: {wrong}" for path, hash_ in listed.items() if (wrong := _wrong(bundle, path, hash_))]
    if problems:
        raise CleaveError(*problems)
    return {path: _file(bundle / path) for path in listed}


def _file(path: Path) -> File:
    return File(path, far.file_hash(str(path)), path.stat().st_size)


def _wrong(bundle: Path, path: str, hash_: str) -> str:
    """What is wrong with one file of a bundle, or nothing."""
    if not safe(path):
        return f"bundle.json lists {path!r}, which is no path inside the bundle"
    if any((bundle / part).is_symlink() for part in (Path(path), *Path(path).parents) if str(part) != "."):
        return f"{path} is a symbolic link, or in one; a bundle has none"
    if not (bundle / path).is_file():
        return f"{path} is gone; generate the bundle again"
    if file_hash(bundle / path) != hash_:
        return f"{path} is not as it was generated (another hash); generate the bundle again"
    return ""


def safe(path: str) -> bool:
    """Whether a path stays in its folder, written plainly."""
    parts = path.split("/")
    return bool(path) and path.isprintable() and "\\" not in path and not {"", ".", ".."} & set(parts)


def _parcel(target: Target, files: dict[str, File], ranks: tuple[RankPlan, ...]) -> Parcel:
    own = {rank.rank for rank in ranks}
    wanted = {}
    for path, file in files.items():
        match = OWN.fullmatch(path)
        if path not in LEFT and (match is None or int(match[1]) in own):
            wanted[path] = file
    cores = frozenset(core for rank in ranks for core in rank.cores)
    return Parcel(target, wanted, ranks, cores, frozenset(rank.provider for rank in ranks))
