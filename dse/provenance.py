"""Whether coefficients were measured of what a platform is now: settings, and what hosts say of themselves.

Coefficient files name what their measurements depend on (``model.cluster.origin``). What differs need not make
predictions wrong; whether it does is what ``dse calibrate --check`` measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from codegen.render import programs
from dse.ready import HERE
from model.cluster import coefficients
from model.cluster.coefficients import PAPER
from model.cluster.platform import Device, Platform
from runtime.deploy.far.facts import hardware

PROGRAMS = "programs"
"""A condition: what ranks run, see ``codegen.render.programs``."""
WATCHED = (
    *("board", "processor", "processors", "kernel", "governor", "highest clock kHz", "onnxruntime", "open mpi"),
    PROGRAMS,
)
"""Conditions that are compared."""

Conditions = Mapping[str, str]


def changes(before: Conditions, now: Conditions) -> list[str]:
    """What is known of both and differs: ``kernel 6.6 (was 6.1)``."""
    known = (name for name in WATCHED if name in before and name in now)
    return [f"{name} {now[name]} (was {before[name]})" for name in known if before[name] != now[name]]


def here(platform: Platform) -> dict[str, Conditions]:
    """What can be known without a word to any host, by name: what ranks run there, and conditions of this machine."""
    found = hardware() if any(host.address in HERE for host in platform.hosts) else {}
    with suppress(PackageNotFoundError):
        found["onnxruntime"] = version("onnxruntime")
    asked = {PROGRAMS: programs()}
    return {host.name: asked | (found if host.address in HERE else {}) for host in platform.hosts}


def unlike(platform: Platform, seen: Mapping[str, Conditions]) -> list[str]:
    """Where devices are not what their coefficients were measured of, a clause for each set and difference.

    seen: conditions of hosts, by name, as far as they are known
    """
    found: dict[str, dict[str, list[str]]] = {}
    for device in platform.devices:
        of = found.setdefault(device.coefficients, {})
        for difference in _differences(device, seen.get(platform.hosts[device.host].name, {})):
            of.setdefault(difference, []).append(device.name)
    return [
        f"{Path(name.removesuffix(PAPER)).name}: {difference} at {', '.join(devices)}"
        for name, of in found.items()
        for difference, devices in of.items()
    ]


def warning(clauses: list[str]) -> str | None:
    """In one line."""
    if not clauses:
        return None
    return f"Not as it was calibrated: {'; '.join(clauses)}. dse calibrate --check tells whether times still hold."


def _differences(device: Device, now: Conditions) -> Iterator[str]:
    found = coefficients.load(device.coefficients)
    origin = found.measured
    if origin is None:
        return
    unit = found.unit(device.unit)
    if device.name not in origin.devices:
        yield f"measured on {', '.join(origin.devices)}, and not"
    if unit.threads != device.threads:
        yield _was("threads", device.threads, unit.threads)
    provider = origin.providers.get(device.unit, device.provider)
    if provider != device.provider:
        yield _was("provider", device.provider, provider)
    yield from changes(origin.conditions, now)


def _was(name: str, now: Any, before: Any) -> str:
    return f"{name} {now} (was {before})"
