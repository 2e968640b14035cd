"""What a testbed is to be: a file with one host a line, fields separated by commas, comments from ``#``::

    pi0, cores=0, share=0.45, memory=2GB, bandwidth=1Gbit/s

The first field is the name of the host, all others are ``key=value`` in any order, and every host states all of them:
``docs/platform.md`` has what they say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from model.cluster import platform_file as form
from model.cluster import quantity
from model.cluster.platform_file import Line, Sheet
from model.cluster.shipped import Shipped
from runtime.errors import CleaveError

SPECS = Shipped("testbeds", ".spec")
"""Those that come with the distribution."""
KEYS = ("cores", "share", "memory", "bandwidth")
MOST_HOSTS = 100
LEAST_SHARE = 0.1
"""The kernel gives no less than 1 ms at a time: with less than this a host stands still for more than 9 ms."""
LEAST_MEMORY_BYTES = 64_000_000
"""What an SSH server and a few sessions need to live."""
TAKEN = ("localhost", "workstation")
"""Names in the host table of every host: itself, and this machine."""
FULL = 1 + 1e-6
"""A core that is given away whole, with room for rounding."""


@dataclass(frozen=True)
class HostSpec:
    """One host of a testbed.

    name:  unique; lower-case letters, digits and dashes, so it is a host name and safe in paths and commands
    cores: of this machine, rising, at least one
    share: of these cores, in cores: LEAST_SHARE..len(cores)
    memory_bytes: LEAST_MEMORY_BYTES or more
    bandwidth_bytes_per_s: each direction; more than 0
    """

    name: str
    cores: tuple[int, ...]
    share: float
    memory_bytes: int
    bandwidth_bytes_per_s: float


def read(path: str | Path) -> tuple[HostSpec, ...]:
    """The hosts that a file asks for, or the shipped file when ``path`` is its bare name (``testbed-4``)."""
    found = SPECS.find(Path(path))
    return parse(SPECS.text_of(found), str(found))


def parse(text: str, where: str) -> tuple[HostSpec, ...]:
    """The hosts that ``text`` asks for, 1 to MOST_HOSTS. ``where`` is its path and stands in errors."""
    sheet = Sheet(text, KEYS)
    hosts = tuple(_host(sheet, line) for line in sheet.lines)
    _check_together(sheet, hosts)
    if sheet.problems:
        problems = sorted(dict.fromkeys(sheet.problems), key=lambda problem: problem[0])
        raise CleaveError(*(f"{where}:{line}: {sentence}" for line, sentence in problems))
    if not hosts:
        raise CleaveError(f"{where}: no host; write one a line, e.g. pi0, cores=0, share=0.45, memory=2GB, …")
    return hosts


def core_load(hosts: tuple[HostSpec, ...]) -> dict[int, float]:
    """Core → how much of it the hosts are promised together; a share is spread over a host's cores evenly."""
    load: dict[int, float] = {}
    for host in hosts:
        for core in host.cores:
            load[core] = load.get(core, 0.0) + host.share / len(host.cores)
    return load


def used(hosts: tuple[HostSpec, ...]) -> list[int]:
    """Cores, rising, that hosts run on."""
    return sorted({core for host in hosts for core in host.cores})


def halted(hosts: tuple[HostSpec, ...]) -> list[int]:
    """Cores, rising, of hosts that may not take all of theirs."""
    return used(tuple(host for host in hosts if host.share < len(host.cores)))


def _host(sheet: Sheet, line: Line) -> HostSpec:
    missing = [key for key in KEYS if key not in line.fields]
    if missing:
        sheet.problems.append((line.number, f"{line.host}: does not state {', '.join(missing)}"))
    sheet.refuse(line.fields, (form.ARCH,), "all hosts are of this machine's; write key=value fields only")
    sheet.value({"host": (line.number, line.host)}, "host", _name, None)
    cores = sheet.value(line.fields, "cores", form.cores, (0,))
    return HostSpec(
        name=line.host,
        cores=cores,
        share=sheet.value(line.fields, "share", partial(_share, cores=len(cores)), LEAST_SHARE),
        memory_bytes=sheet.value(line.fields, "memory", _memory, LEAST_MEMORY_BYTES),
        bandwidth_bytes_per_s=sheet.value(line.fields, "bandwidth", _rate, 125e6),
    )


def _check_together(sheet: Sheet, hosts: tuple[HostSpec, ...]) -> None:
    """What is wrong with the hosts though each alone is right."""
    first: dict[str, int] = {}
    for line in sheet.lines:
        number = first.setdefault(line.host, line.number)
        if number != line.number:
            sheet.problems.append((line.number, f"a host twice: {line.host!r} is on line {number}"))
    if len(hosts) > MOST_HOSTS:
        sheet.problems.append((sheet.lines[-1].number, f"{len(hosts)} hosts; at most {MOST_HOSTS} fit"))
    for core, load in core_load(hosts).items():
        if load > FULL:
            last = max(line.number for line, host in zip(sheet.lines, hosts, strict=True) if core in host.cores)
            sheet.problems.append((last, f"core {core} is promised to its hosts {load:.0%}; lower their shares"))


def _name(text: str) -> str:
    if not re.fullmatch("[a-z]([a-z0-9-]{0,30}[a-z0-9])?", text):
        rule = "lower-case letters, digits and '-', a letter first, at most 32"
        raise CleaveError(f"{text!r} is not a host name ({rule})")
    if text in TAKEN:
        raise CleaveError(f"{text!r} is what every host calls another machine or itself")
    return text


def _share(text: str, cores: int) -> float:
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,9})?", text) or not LEAST_SHARE <= float(text) <= cores:
        raise CleaveError(f"{text!r} is not a number from {LEAST_SHARE:g} to {cores}, the number of the host's cores")
    return float(text)


def _memory(text: str) -> int:
    value = form.size(text)
    if value < LEAST_MEMORY_BYTES:
        least = f"{LEAST_MEMORY_BYTES // 10**6}MB"
        raise CleaveError(f"{text!r} is less than {least}, what an SSH server and a few sessions need")
    return value


_rate = partial(quantity.positive, dimension="bandwidth")
