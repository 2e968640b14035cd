"""How many times as long devices take as the one that is measured for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from dse.calibrate.boards import DRIFT, Board
from model.cluster.platform import Platform
from model.cost.samples import Run


def times_as_long(platform: Platform, boards: Sequence[Board], looks: Iterable[Run]) -> dict[str, float]:
    """Device that another is measured for → how many times as long it takes for whole networks, median. Each by the
    quickest of its looks: who is disturbed takes longer, nobody less.

    boards: of one type, of which the first is measured; looks: at whole networks, at these devices and others
    """
    times_s: dict[str, dict[str, float]] = {}
    for look in looks:
        of = times_s.setdefault(look.device, {})
        of[look.network] = min(look.time_s, of.get(look.network, look.time_s))
    found = {}
    for measured, *others in zip(*(board.devices for board in boards), strict=True):
        mine = times_s.get(platform.devices[measured].name, {})
        for name in (platform.devices[device].name for device in others):
            its = times_s.get(name, {})
            if both := its.keys() & mine.keys():
                found[name] = median(its[network] / mine[network] for network in both)
    return found


def far(platform: Platform, types: Iterable[Sequence[Board]], looks: Sequence[Run]) -> dict[str, float]:
    """The same of all types, of those that seem to be another than that one: hotter, say, or at another clock."""
    found: dict[str, float] = {}
    for boards in types:
        found |= times_as_long(platform, boards, looks)
    return {name: times for name, times in found.items() if abs(times - 1) > DRIFT}


def confirmed(first: Mapping[str, float], last: Mapping[str, float]) -> dict[str, float]:
    """Those that are so twice, minutes apart, each as far as it is both times. first, last: as ``far`` has them"""
    both = {name: sorted([first[name], last[name]]) for name in first if name in last}
    return {name: round(low if low > 1 else high, 3) for name, (low, high) in both.items() if low > 1 or high < 1}
