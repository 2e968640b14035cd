"""The platform: which hosts there are, which devices they carry, and how they are linked.

`model.cluster.platform_file` describes the file that a platform is read from.

A device is named as AutoDiCE's mappings name it: host, unit, one digit a core (``nx01_cpu012345``, ``nx01_gpu``).
With a core over 9 the digits would be ambiguous, and ranges stand instead: ``pc_cpu0-11``, ``pc_cpu0-2+12``,
``pc_cpu12-12``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.cluster import platform_file as form
from model.cluster import quantity
from model.cluster.coefficients import PAPER
from model.cluster.platform_file import Fields, Line, Sheet
from model.cluster.shipped import Shipped
from runtime.errors import CleaveError

PLATFORMS = Shipped("platforms", ".txt")
"""Those that come with the distribution."""


@dataclass(frozen=True)
class Host:
    """One computer of the cluster.

    name:      as in the file, unique; letters, digits, ``.``, ``-`` and ``_``, so it is safe in paths and commands
    address:   host name or IP address to connect to
    arch:      architecture as in the file (``arm``, ``x86_64``); empty when not stated
    bandwidth_bytes_per_s:      of its network link, each direction; more than 0
    latency_s:                  that its network link adds to one message; 0 or more
    copy_bandwidth_bytes_per_s: between two of its devices; more than 0
    interface: network interface that MPI is to use; None: any
    user:      to log in as over SSH; None: SSH's own default
    port:      of the SSH server, 1..65535; None: SSH's own default
    idle_power_w: what it draws when nothing runs; None when not stated
    meter: of its energy, as `runtime.meter` names them: ``ina3221:VDD_IN``; None: none
    half_duplex: its link sends or receives, but not both at once; the same of all hosts of a medium
    medium: name of the link that it shares with all hosts that name it; None: it has one of its own
    """

    name: str
    address: str
    arch: str
    bandwidth_bytes_per_s: float
    latency_s: float
    copy_bandwidth_bytes_per_s: float
    interface: str | None
    user: str | None
    port: int | None
    idle_power_w: float | None
    meter: str | None = None
    half_duplex: bool = False
    medium: str | None = None

    @property
    def link(self) -> str:
        """What links it to other hosts, by name: the medium, or else the host's own."""
        return self.medium or self.name


@dataclass(frozen=True)
class Device:
    """One CPU or GPU of one host; a rank runs on it.

    name:     host, unit and cores as AutoDiCE writes them, unique: ``nx01_cpu012345``, ``nx01_gpu``
    host:     index into Platform.hosts
    unit:     ``cpu`` or ``gpu``
    cores:    core numbers of a CPU device, rising, no other device of the host has them; empty for a GPU
    threads:  inference threads, 1 or more; 1 for a GPU
    provider: ONNX Runtime execution provider
    coefficients: name of the coefficient set that prices it, or path of its file
    power_w:  what it draws when busy, in place of the coefficients' figure; None: the coefficients'
    pool:     index into Platform.pools: the memory it computes in
    arena:    whether ONNX Runtime keeps the memory of a segment for the next one
    slowdown: how many times as long it takes to compute as its coefficients say; more than 0
    """

    name: str
    host: int
    unit: str
    cores: tuple[int, ...]
    threads: int
    provider: str
    coefficients: str
    power_w: float | None
    pool: int
    arena: bool = True
    slowdown: float = 1.0


@dataclass(frozen=True)
class Pool:
    """One memory, shared by all devices that name it.

    name: of the host, or of the GPU device whose own memory it is
    capacity_bytes: more than 0; None when not stated, which sets no limit
    """

    name: str
    capacity_bytes: int | None


@dataclass(frozen=True)
class Platform:
    """A cluster: hosts, their devices and their memories.

    name:    of the file, without folder and ending
    hosts:   in the order of their first lines
    devices: in the order of the lines, on one line the CPU first; at least one
    pools:   the main memory of each host, in the order of hosts, then the memories that GPUs have of their own
    """

    name: str
    hosts: tuple[Host, ...]
    devices: tuple[Device, ...]
    pools: tuple[Pool, ...]

    @staticmethod
    def from_file(path: str | Path) -> Platform:
        """Read a platform file, or the shipped one when ``path`` is its bare name (``jetson8``)."""
        found = PLATFORMS.find(Path(path))
        return Platform.parse(PLATFORMS.text_of(found), str(found))

    @staticmethod
    def parse(text: str, where: str) -> Platform:
        """Read the text of a platform file. ``where`` is its path: it names the platform, and stands in errors.

        Coefficients that are files are looked for beside it.
        """
        sheet = Sheet(text)
        platform = _build(sheet, Path(where))
        if sheet.problems:
            problems = sorted(dict.fromkeys(sheet.problems), key=lambda problem: problem[0])
            raise CleaveError(*(f"{where}:{line}: {sentence}" for line, sentence in problems))
        if not platform.devices:
            raise CleaveError(f"{where}: no device; write one host a line, e.g. nx01, arm, slots=0-5")
        return platform

    def index(self, device_name: str) -> int:
        """Index of the device of that name."""
        names = [device.name for device in self.devices]
        if device_name not in names:
            raise CleaveError(f"device {device_name!r} is not on the platform (it has {', '.join(names)})")
        return names.index(device_name)

    @property
    def host_names(self) -> dict[str, str]:
        """Device → its host, by name."""
        return {device.name: self.hosts[device.host].name for device in self.devices}

    @property
    def machines(self) -> dict[str, int]:
        """Device → index of the first host of its machine: hosts of one address are one."""
        return {device.name: self._machines[device.host] for device in self.devices}

    @property
    def memories(self) -> dict[str, int]:
        """Device → index of the pool that it reads: of one machine the first."""
        pools = [*self._machines, *range(len(self.hosts), len(self.pools))]
        return {device.name: pools[device.pool] for device in self.devices}

    @property
    def _machines(self) -> list[int]:
        """By host."""
        first = {host.address: number for number, host in reversed([*enumerate(self.hosts)])}
        return [first[host.address] for host in self.hosts]

    def without(self, names: tuple[str, ...]) -> Platform:
        """The platform without some of its hosts; what is left keeps its names and its order."""
        left = [i for i, host in enumerate(self.hosts) if host.name not in names]
        devices = [device for device in self.devices if device.host in left]
        pools = sorted({*left, *(device.pool for device in devices)})
        moved = (replace(d, host=left.index(d.host), pool=pools.index(d.pool)) for d in devices)
        hosts = tuple(self.hosts[i] for i in left)
        return Platform(self.name, hosts, tuple(moved), tuple(self.pools[i] for i in pools))

    def slowed(self, slowdowns: Sequence[float]) -> Platform:
        """The same cluster with other ``slowdown`` of its devices, in their order."""
        each = zip(self.devices, slowdowns, strict=True)
        return replace(self, devices=tuple(replace(device, slowdown=times) for device, times in each))

    def by_paper(self) -> Platform:
        """The same cluster, priced by the thesis' equations alone (see ``coefficients.PAPER``)."""
        return replace(self, devices=tuple(replace(d, coefficients=d.coefficients + PAPER) for d in self.devices))

    def bandwidth(self) -> NDArray[np.float64]:
        """``(D, D)`` bytes/s from device to device.

        A device to itself: inf. Devices of one host: its copy bandwidth. Else the slower link of the two hosts.
        """
        host = self._host_of_device()
        link = np.array([h.bandwidth_bytes_per_s for h in self.hosts])[host]
        copy = np.array([h.copy_bandwidth_bytes_per_s for h in self.hosts])[host]
        rate = np.where(host[:, None] == host, copy, np.minimum(link[:, None], link))
        np.fill_diagonal(rate, np.inf)
        return rate

    def latency(self) -> NDArray[np.float64]:
        """``(D, D)`` seconds that one message takes besides its bytes: 0 on one host, else both links' latencies."""
        host = self._host_of_device()
        link = np.array([h.latency_s for h in self.hosts])[host]
        return np.where(host[:, None] == host, 0.0, link[:, None] + link)

    def _host_of_device(self) -> NDArray[np.intp]:
        return np.array([device.host for device in self.devices], dtype=np.intp)


def _build(sheet: Sheet, where: Path) -> Platform:
    """The platform that a sheet states; where the sheet is wrong, its problems grow."""
    hosts = tuple(_host(sheet, host, fields) for host, fields in sheet.hosts.items())
    pools = [Pool(host, sheet.value(fields, "memory", form.size, None)) for host, fields in sheet.hosts.items()]
    sheet.compare_media()
    sheet.refuse_numbers()
    index = {host: i for i, host in enumerate(sheet.hosts)}
    devices: list[Device] = []
    taken: dict[tuple[int, str, int], tuple[int, str]] = {}
    for line in sheet.lines:
        for device in _devices(sheet, line, index[line.host], pools):
            _claim(sheet, line, device, taken)
            devices.append(replace(device, coefficients=_beside(where, device.coefficients)))
    return Platform(where.stem, hosts, tuple(devices), tuple(pools))


def _beside(where: Path, coefficients: str) -> str:
    """The path of a set that is a file in the folder of the platform file; the name of any other."""
    return str(where.parent / coefficients) if coefficients.endswith(".json") else coefficients


def _host(sheet: Sheet, name: str, fields: Fields) -> Host:
    return Host(
        name=name,
        address=sheet.value(fields, "address", form.address, name),
        arch=sheet.value(fields, form.ARCH, form.architecture, ""),
        bandwidth_bytes_per_s=sheet.value(fields, "bandwidth", _rate, 125e6),
        latency_s=sheet.value(fields, "latency", partial(quantity.parse, dimension="time"), 1e-4),
        copy_bandwidth_bytes_per_s=sheet.value(fields, "copy_bandwidth", _rate, 4e9),
        interface=sheet.value(fields, "interface", form.word, None),
        user=sheet.value(fields, "user", form.word, None),
        port=sheet.value(fields, "port", partial(form.count, largest=65535), None),
        idle_power_w=sheet.value(fields, "idle_power", _power, None),
        meter=sheet.value(fields, "meter", form.meter, None),
        half_duplex=sheet.value(fields, "duplex", partial(form.switch, words=form.DUPLEX), False),
        medium=sheet.value(fields, "medium", form.word, None),
    )


def _devices(sheet: Sheet, line: Line, host: int, pools: list[Pool]) -> list[Device]:
    """The devices of one line, the CPU first."""
    fields, devices = line.fields, []
    if "cpu" in line.units:
        devices.append(_cpu(sheet, line, host))
    else:
        sheet.refuse(fields, form.CPU_KEYS, "there is no CPU on this line; add slots=")
    if "gpu" in line.units:
        devices.append(_gpu(sheet, line, host, pools))
    else:
        sheet.refuse(fields, form.GPU_KEYS, "there is no GPU on this line; add gpu=")
    return devices


def _cpu(sheet: Sheet, line: Line, host: int) -> Device:
    fields = line.fields
    unstated: tuple[int, ...] = () if "slots" in fields else (0,)
    cores = sheet.value(fields, "slots", form.cores, unstated)
    return Device(
        name=f"{line.host}_cpu{core_text(cores)}",
        host=host,
        unit="cpu",
        cores=cores,
        threads=sheet.value(fields, "threads", partial(form.count, largest=9999), len(cores)),
        provider="CPUExecutionProvider",
        coefficients=sheet.value(fields, "coefficients", form.word, "generic"),
        power_w=sheet.value(fields, "cpu_power", _power, None),
        pool=host,
        arena=sheet.value(fields, "arena", form.switch, True),
        slowdown=sheet.value(fields, form.SLOWDOWN["cpu"], form.times, 1.0),
    )


def _gpu(sheet: Sheet, line: Line, host: int, pools: list[Pool]) -> Device:
    """The GPU device of one line; memory of its own is added to ``pools``."""
    fields, name, pool = line.fields, f"{line.host}_gpu", host
    if "gpu_memory" in fields:
        pool = len(pools)
        pools.append(Pool(name, sheet.value(fields, "gpu_memory", form.size, None)))
    key, convert = ("provider", form.provider) if "provider" in fields else ("gpu", form.gpu_provider)
    return Device(
        name=name,
        host=host,
        unit="gpu",
        cores=(),
        threads=1,
        provider=sheet.value(fields, key, convert, ""),
        coefficients=sheet.value(fields, "coefficients", form.word, "generic"),
        power_w=sheet.value(fields, "gpu_power", _power, None),
        pool=pool,
        arena=sheet.value(fields, "arena", form.switch, True),
        slowdown=sheet.value(fields, form.SLOWDOWN["gpu"], form.times, 1.0),
    )


def _claim(sheet: Sheet, line: Line, device: Device, taken: dict[tuple[int, str, int], tuple[int, str]]) -> None:
    """Give the device its cores, or the host's one GPU, unless an earlier line has them."""
    for core in device.cores if device.unit == "cpu" else (0,):
        number, other = taken.setdefault((device.host, device.unit, core), (line.number, device.name))
        if number != line.number:
            shared = "" if other == device.name else f" as {other!r}, which has core {core} too"
            sheet.problems.append((line.number, f"a device twice: {device.name!r} is on line {number}{shared}"))
            return


def core_text(cores: tuple[int, ...]) -> str:
    """One digit a core, or ranges joined by ``+`` when a core has two digits. No two sets of cores look the same."""
    if all(core <= 9 for core in cores):
        return "".join(map(str, cores))
    runs = [[core for _, core in run] for _, run in groupby(enumerate(cores), lambda pair: pair[1] - pair[0])]
    if len(cores) == 1:
        return f"{cores[0]}-{cores[0]}"
    return "+".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


_rate = partial(quantity.positive, dimension="bandwidth")
_power = partial(quantity.parse, dimension="power")
