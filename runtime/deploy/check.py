"""Can every host take its part? Facts come from the hosts, the verdicts are made here, all hosts side by side."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime.deploy.connect import Connection
from runtime.deploy.parcel import Parcel
from runtime.segment import CPU

OLDEST = (3, 8)
PACKAGES = ("numpy", "mpi4py", "onnxruntime")
FAMILIES = {"arm64": "aarch64", "amd64": "x86_64"}
SPARE_BYTES = 64 * 2**20
"""Of disk, besides what is sent."""
CLOCK_S, FAR_OFF_S = 1.0, 3600.0
"""A clock that is off by the first is worth a word; by the second, packages are not fetched: certificates fail."""
PREPARE = "run dse prepare"
ANOTHER = ("name one that has in a file for dse prepare --requirements, or move venv away from the folder for "
           "--work and name the Python that has it with --python")  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """One host: what it is, what keeps it from taking its part, and what is only worth knowing.

    facts: for the table, as text: ``python``, ``open mpi``, ``onnxruntime`` …
    overloaded: whether all that keeps it is that it has no room for this part
    """

    host: str
    facts: dict[str, str]
    failures: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    overloaded: bool = False
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def word(self) -> str:
        """In one word."""
        return "FAILS" if self.failures else "ok, but" if self.warnings else "ok"


def look(connection: Connection, peers: Sequence[str]) -> dict[str, Any]:
    """The facts of one host, and by how much its clock is ahead. peers: addresses of the hosts it will speak with"""
    before = time.time()
    facts: dict[str, Any] = connection.call("facts", peers=list(peers))
    after = time.time()
    early, late = facts["time"] - after, facts["time"] - before  # the truth lies between
    facts["clock"] = 0.0 if early <= 0 <= late else min(early, late, key=abs)
    return facts


def judge(
    parcels: Sequence[Parcel],
    facts: Mapping[str, Mapping[str, Any]],
    lost: Mapping[str, Sequence[str]],
    shared: Mapping[str, str],
    sizes: Mapping[str, int] | None = None,
    *,
    prepare: bool = False,
    mixed: bool = False,
) -> list[Verdict]:
    """A verdict for each host.

    facts: by host; lost: by host, what went wrong where there are none
    shared: host → another that has the same work folder
    sizes: by host, bytes that it gets, where it is known to have some of its files
    prepare: the environment is about to be made, so what is in it does not count
    mixed: other versions of packages than on the other hosts are worth a word, no more
    """
    odd = {} if prepare else differences(facts)
    verdicts = []
    for parcel in parcels:
        host = parcel.target.name
        if host in lost:
            verdicts.append(Verdict(host, {}, tuple(lost[host])))
            continue
        found, packages = facts[host], odd.get(host, {})
        crowded = room(parcel, found, (sizes or {}).get(host, parcel.size_bytes))
        failures = [*apart(shared.get(host)), *machine(parcel, found), *([] if prepare else software(parcel, found))]
        warnings = list[str]()
        (failures if prepare and abs(found["clock"]) >= FAR_OFF_S else warnings).extend(clock(found["clock"]))
        for name, sentence in packages.items():
            harmless = name == "Python" or (mixed and name != "Open MPI")
            (warnings if harmless else failures).append(sentence)
        overloaded = bool(crowded) and not failures and not tight(found, 0)
        verdicts.append(Verdict(host, shown(found), (*failures, *crowded), tuple(warnings), overloaded, found))
    return verdicts


def apart(other: str | None) -> list[str]:
    """What is wrong where another host has the same work folder: each would take away what the other needs."""
    if other is None:
        return []
    return [f"shares its work folder with {other}: name one on a disk of its own with --work /var/tmp/cleave, or, if "
            "both are one machine, make them one host in the platform file"]  # fmt: skip


def machine(parcel: Parcel, facts: Mapping[str, Any]) -> list[str]:
    """What is wrong with the host itself."""
    wrong = []
    asked, arch, base = parcel.target.arch, facts["arch"], facts["base python"]
    if not same_arch(asked, arch):
        wrong.append(f"is {arch}, the platform file says {asked}: correct one of them")
    if older(base):
        wrong.append(f"its Python is {base}: install 3.8 or later, and say where it is with --python")
    if not facts["writable"]:
        wrong.append(f"may not write to {facts['work']}: choose another place with --work")
    absent = sorted(parcel.cores - set(range(facts["cores"])))
    if absent:
        wrong.append(f"has no core {', '.join(map(str, absent))} (it has {facts['cores']}, counted from 0): "
                     "correct slots= in the platform file, and generate the bundle again")  # fmt: skip
    interface = parcel.target.interface
    if interface is not None and interface not in facts["interfaces"]:
        wrong.append(f"has no interface {interface!r} with an IPv4 address (it has {', '.join(facts['interfaces'])}): "
                     "correct interface= in the platform file")  # fmt: skip
    return wrong


def room(parcel: Parcel, facts: Mapping[str, Any], size_bytes: int) -> list[str]:
    """Of what the host has too little for its part. size_bytes: that it gets"""
    wrong = disk(facts, size_bytes)
    free = facts["free memory"]
    if free is not None and free < parcel.memory_bytes:
        wrong.append(f"has {mb(free)} of memory free, its ranks need {mb(parcel.memory_bytes)}: end other programs "
                     "there, or choose another mapping")  # fmt: skip
    return wrong


def disk(facts: Mapping[str, Any], size_bytes: int) -> list[str]:
    """A sentence where the disk of a host has no room for so many bytes."""
    if not tight(facts, size_bytes):
        return []
    return [f"has {mb(facts['free disk'])} of disk free at {facts['work']}, needs {mb(size_bytes + SPARE_BYTES)}: "
            "make room, or choose another place with --work"]  # fmt: skip


def tight(facts: Mapping[str, Any], size_bytes: int) -> bool:
    """Whether the disk of a host has no room for so many bytes."""
    return bool(facts["free disk"] < size_bytes + SPARE_BYTES)


def software(parcel: Parcel, facts: Mapping[str, Any]) -> list[str]:
    """What is missing of what ranks run with."""
    packages = facts["packages"]
    if "why" in packages:
        return [f"{packages['why']}: {PREPARE}"]
    wrong = [f"its Python for ranks is {packages['python']}, needed is 3.8"] if older(packages["python"]) else []
    for name in PACKAGES:
        if packages.get(f"why {name}"):
            wrong.append(f"{name} cannot be loaded ({packages[f'why {name}']}): {PREPARE}, or install it")
    if facts["mpirun"] is None:
        wrong.append(f"has no mpirun: {PREPARE}, or install Open MPI 4.1 or later")
    elif not str(facts["open mpi"])[:1].isdigit() or two(facts["open mpi"]) < (4, 1):
        wrong.append(f"{facts['mpirun']} is not Open MPI 4.1 or later, it says: {facts['open mpi']}")
    elif two(facts["open mpi"]) < (5, 0) and parcel.providers - {CPU}:
        wrong.append(f"{facts['mpirun']} is Open MPI {facts['open mpi']}, which binds every rank to cores, and one on "
                     f"a GPU has none: {PREPARE}, which brings Open MPI 5, or install that")  # fmt: skip
    lacking = sorted(parcel.providers - set(packages["providers"]))
    if lacking and packages.get("onnxruntime"):
        way = ANOTHER if facts.get("prepared") else "install one that has, and name its Python with --python"
        wrong.append(f"its ONNX Runtime has no {', '.join(lacking)} (it has {', '.join(packages['providers'])}): {way}")
    return wrong


def differences(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Host → package → what is other there than on most hosts."""
    odd: dict[str, dict[str, str]] = {}
    for name in (*PACKAGES, "Open MPI", "Python"):
        versions = {host: _version(found, name) for host, found in facts.items()}
        counts = Counter(v for v in versions.values() if v)
        most = counts.most_common(1)[0][0] if counts else ""
        for host, found in versions.items():
            if found and found != most:
                alike = ", ".join(h for h, v in versions.items() if v == most)
                odd.setdefault(host, {})[name] = (
                    f"has {name} {found}, but {alike} {'has' if counts[most] == 1 else 'have'} {most}: "
                    + ("that works, but times differ" if name == "Python" else f"they must agree; {PREPARE} on all")
                )
    return odd


def clock(ahead_s: float) -> list[str]:
    """A word about a clock that is wrong."""
    if abs(ahead_s) < CLOCK_S:
        return []
    way = "ahead" if ahead_s > 0 else "behind"
    return [f"its clock is {abs(ahead_s):.0f} s {way}: set it (timedatectl set-ntp true)"]


def shown(facts: Mapping[str, Any]) -> dict[str, str]:
    """The facts that a person wants to see."""
    packages = facts["packages"]
    return {
        "arch": facts["arch"],
        "python": packages.get("python", facts["base python"]),
        "numpy": packages.get("numpy") or "-",
        "mpi4py": packages.get("mpi4py") or "-",
        "onnxruntime": packages.get("onnxruntime") or "-",
        "open mpi": facts["open mpi"] or "-",
        "disk": mb(facts["free disk"]),
        "memory": "-" if facts["free memory"] is None else mb(facts["free memory"]),
        "clock": f"{facts['clock']:+.2f} s" if facts["clock"] else "right",
    }


def same_arch(asked: str, found: str) -> bool:
    """Whether the platform file's word fits; ``arm`` stands for all of them, as AutoDiCE writes it."""
    first, second = FAMILIES.get(asked.lower(), asked.lower()), FAMILIES.get(found.lower(), found.lower())
    return not first or first == second or (first == "arm" and second.startswith(("arm", "aarch")))


def older(python: str) -> bool:
    """Than what programs need."""
    return two(python) < OLDEST


def two(version: str) -> tuple[int, int]:
    """The first two numbers of ``3.11.7``."""
    numbers = [int(word) for word in re.findall("[0-9]+", str(version))]
    return (*numbers, 0, 0)[0], (*numbers, 0, 0)[1]


def mb(size_bytes: float) -> str:
    """For a person."""
    return f"{size_bytes / 1e6:,.0f} MB"


def _version(facts: Mapping[str, Any], name: str) -> str | None:
    """Of Python the first two numbers."""
    packages = facts["packages"]
    if name == "Python":
        return ".".join(map(str, two(packages["python"]))) if "python" in packages else None
    found: str | None = facts["open mpi"] if name == "Open MPI" else packages.get(name)
    return found
