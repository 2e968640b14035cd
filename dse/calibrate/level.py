"""What was measured of devices, as if they had been as fast as they usually are all the time.

A device is several percent slower in one minute than in another, heated or beside a neighbour, and so is one of two
that are alike. Whole networks, run again and again among all else, tell how fast it was: of pieces that were measured
in a slow minute and a whole network in a quick one, a fit makes savings that are none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import NamedTuple

import numpy as np

from dse.calibrate.design import WHOLE
from model.cost.samples import Run

AROUND_S = 60.0
"""A whole network that ran so many seconds before or after something on the same device tells how fast it was then;
those further away ever less."""


class Pace(NamedTuple):
    """When a whole network began, and how many times as long as usual it took."""

    when: datetime
    longer: float


def levelled(looks: Sequence[Run], runs: Sequence[Run], alike: Mapping[str, tuple[str, str]]) -> list[Run]:
    """The runs at the usual pace of devices that are alike. Whole networks come first, each once on a device.

    looks: other runs of whole networks; alike: device → its type and unit, as ``command.alike_devices`` has it
    """
    wholes = [run for run in runs if run.what == WHOLE]
    times = defaultdict[tuple[str, ...], list[float]](list)
    for run in (*looks, *wholes):
        times[*alike[run.device], run.network].append(run.time_s)
    usual_s = {of: median(seen) for of, seen in times.items()}
    paces, once = defaultdict[str, list[Pace]](list), dict[tuple[str, str], Run]()
    for run in (*looks, *wholes):
        usual = usual_s[*alike[run.device], run.network]
        paces[run.device].append(Pace(_when(run), run.time_s / usual))
        if run.what == WHOLE:
            once[run.device, run.network] = run.lasting(usual)
    others = [run for run in runs if run.what != WHOLE]
    return [*once.values(), *(run.lasting(run.time_s / _longer(_when(run), paces[run.device])) for run in others)]


def _longer(when: datetime, paces: Sequence[Pace]) -> float:
    """How many times as long as usual everything took at that time: a kernel smoother, the kernel Gaussian."""
    away = np.array([(pace.when - when).total_seconds() / AROUND_S for pace in paces])
    return float(np.average([pace.longer for pace in paces], weights=np.exp((np.min(away**2) - away**2) / 2)))


def _when(run: Run) -> datetime:
    return datetime.fromisoformat(run.date)
