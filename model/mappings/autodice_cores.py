"""AutoDiCE chooses cores in its mapping: its platform file has the cores of a host, and a key names some of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

from model.cluster.platform import Device, Platform, core_text
from model.mappings.autodice import is_ours
from model.mappings.autodice_names import cores_of
from runtime.errors import CleaveError
from runtime.reading import parsed


def platform_of(mapping_text: str, platform: Platform, where: str = "mapping.json") -> Platform:
    """The platform that a mapping is for: AutoDiCE's names cores, and so does ours that was made of such a one."""
    ours = is_ours(mapping_text)
    try:
        body = parsed(mapping_text)
        names = list(_devices(body) if ours else body)
    except (ValueError, TypeError, KeyError, AttributeError):
        return platform  # reading it tells what is wrong
    keys = [name for name in names if isinstance(name, str)]
    here = {device.name for device in platform.devices}
    return platform if ours and here.issuperset(keys) else divided(platform, keys, where)


def _devices(body: dict[str, Any]) -> Iterator[Any]:
    """All that a mapping of our form names."""
    for row in body["layers"].values():
        yield from [part.get("device") for part in row] if isinstance(row, list) else [row]
    yield from (body.get(role) for role in ("reader", "writer"))


def divided(platform: Platform, keys: Iterable[str], where: str) -> Platform:
    """The platform with CPUs divided as keys want them: ``pc_cpu0`` and ``pc_cpu12`` of ``pc, slots=0-5``.

    Cores that no key names are left out. A CPU that no key divides, or of which one wants cores that it has not,
    stays as it is. ``CleaveError`` where two keys share a core; ``where`` is the mapping's path.
    """
    names = list(dict.fromkeys(keys))
    devices = (part for device in platform.devices for part in _parts(platform, device, names, where))
    return replace(platform, devices=tuple(devices))


def _parts(platform: Platform, device: Device, keys: list[str], where: str) -> Iterator[Device]:
    """What becomes of a device."""
    host = platform.hosts[device.host].name
    named = {cores for key in keys if (cores := cores_of(key, host))} if device.unit == "cpu" else set()
    wanted = sorted(cores for cores in named if set(cores) <= set(device.cores) and len(set(cores)) == len(cores))
    for one, other in combinations(wanted, 2):
        for core in sorted(set(one) & set(other)):
            raise CleaveError(f"{where}: two keys have core {core} of '{host}', and a core serves one rank")
    if not wanted:
        yield device
    for cores in wanted:
        name, threads = f"{host}_cpu{core_text(cores)}", min(device.threads, len(cores))
        yield replace(device, name=name, cores=cores, threads=threads)
