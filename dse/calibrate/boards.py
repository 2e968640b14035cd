"""Which devices of a platform are alike: those that it describes alike, and that take the same time.

A board is what one line of the platform file describes, a CPU device, a GPU device or both, with one set of
coefficients. Of boards that are alike one is measured for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from model.cluster.platform import Platform
from model.cluster.platform_file import Sheet

ALIKE = 1.25
"""Times of two boards that are alike differ by at most this factor."""
DRIFT = 0.1
"""Relative difference of a time from another one of the same that is no chance."""


@dataclass(frozen=True)
class Board:
    """One line of a platform file. number: of the line, from 1; devices: indices into ``Platform.devices``"""

    number: int
    devices: tuple[int, ...]


def boards(text: str, platform: Platform) -> list[Board]:
    """The boards of a platform, in the order of its lines. text: its file"""
    found, device = [], 0
    for line in Sheet(text).lines:
        count = len(line.units)
        found.append(Board(line.number, tuple(range(device, device + count))))
        device += count
    assert device == len(platform.devices)
    return found


def described(platform: Platform, device: int) -> tuple[Any, ...]:
    """What a platform file says of a device that its speed may depend on."""
    d = platform.devices[device]
    arch = platform.hosts[d.host].arch
    return arch, d.unit, len(d.cores), d.threads, d.provider, d.arena


def beside(platform: Platform) -> list[list[int]]:
    """Devices of one memory, where it has several: of memories with devices that are said alike those of the first."""
    of = defaultdict[int, list[int]](list)
    for number, memory in enumerate(platform.memories.values()):
        of[memory].append(number)
    first: dict[Any, list[int]] = {}
    for devices in of.values():
        if len(devices) > 1:
            first.setdefault(tuple(described(platform, device) for device in devices), devices)
    return list(first.values())


def various(platform: Platform, count: int) -> list[int]:
    """At most so many devices, rising: of as many kinds as there are, as they are said to be, and of as many hosts."""
    kind = [described(platform, device) for device in range(len(platform.devices))]
    host = [device.host for device in platform.devices]
    found: list[int] = []
    while len(found) < min(count, len(kind)):
        kinds, hosts = ([of[device] for device in found] for of in (kind, host))
        left = (device for device in range(len(kind)) if device not in found)
        found.append(min(left, key=lambda d: (kinds.count(kind[d]), hosts.count(host[d]), d)))
    return sorted(found)


def twins(platform: Platform, every: Sequence[Board]) -> dict[int, int]:
    """Board → the first that is the very same: of one machine, its cores, and said alike; both by line."""
    first: dict[Any, int] = {}
    return {board.number: first.setdefault(_machine(platform, board), board.number) for board in every}


def types(platform: Platform, every: Sequence[Board], times_s: Mapping[int, Sequence[float]]) -> list[list[Board]]:
    """Boards that are alike, in the order of the first of each type.

    times_s: device → seconds that it took for the same things as all others; twins of earlier ones may have none
    """
    found: list[list[Board]] = []
    first = twins(platform, every)
    for board in every:
        twin = next(other for other in every if other.number == first[board.number])
        same = next((group for group in found if _alike(platform, group[0], twin, times_s)), None)
        if same is None:
            found.append([board])
        else:
            same.append(board)
    return found


def doubtful(
    platform: Platform, every: Sequence[Board], times_s: Mapping[int, Sequence[float]]
) -> set[tuple[int, int]]:
    """What to look at once more: device, and which of its times, where something may have run beside it. Of boards that
    are said alike and differ in some times only both, and of those that are alike the one that took longer by a drift.
    """
    found: set[tuple[int, int]] = set()
    told = [board for board in every if all(device in times_s for device in board.devices)]
    for one, other in combinations(told, 2):
        pairs = zip(one.devices, other.devices, strict=False) if _said(platform, one) == _said(platform, other) else ()
        both = [
            ((a, b), number, times)
            for a, b in pairs
            for number, times in enumerate(zip(times_s[a], times_s[b], strict=True))
        ]
        if any(_near(*times) for _, _, times in both):
            found |= {
                (device, number)
                for pair, number, times in both
                for device, time_s in zip(pair, times, strict=True)
                if not _near(*times) or time_s > (1 + DRIFT) * min(times)
            }
    return found


def names(platform: Platform, groups: Sequence[Sequence[Board]]) -> list[str]:
    """A name for each type: the host of its first board, or that board's first device where the host has several. It is
    a file's name, in a platform file: cores such as ``0-3+8-11`` are written without the plus."""
    firsts = [platform.devices[group[0].devices[0]] for group in groups]
    hosts = [device.host for device in firsts]
    return [platform.hosts[d.host].name if hosts.count(d.host) == 1 else d.name.replace("+", "_") for d in firsts]


def _machine(platform: Platform, board: Board) -> Any:
    """Where a board is, and what is said of it."""
    devices = [platform.devices[d] for d in board.devices]
    return tuple((platform.hosts[d.host].address, d.cores) for d in devices), _said(platform, board)


def _said(platform: Platform, board: Board) -> tuple[Any, ...]:
    """What the platform file says of a board, which is in one file of coefficients."""
    each = [platform.devices[d] for d in board.devices]
    said = zip(each, board.devices, strict=True)
    return tuple((device.coefficients, device.power_w, *described(platform, d)) for device, d in said)


def _alike(platform: Platform, one: Board, other: Board, times_s: Mapping[int, Sequence[float]]) -> bool:
    return _said(platform, one) == _said(platform, other) and all(
        _near(mine, its)
        for a, b in zip(one.devices, other.devices, strict=True)
        for mine, its in zip(times_s[a], times_s[b], strict=True)
    )


def _near(mine: float, its: float) -> bool:
    return max(mine, its) <= ALIKE * min(mine, its)
