"""How long a whole network takes: the middle of all the times that it was measured on devices that are alike.

A device is several percent slower at one time than at another, and so is one of two that are alike. What a whole
network takes says how fast all of it is predicted to be, so that one run is too little to tell it by.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from dse.calibrate.design import WHOLE
from model.samples import Run


def levelled(looks: Sequence[Run], runs: Sequence[Run], alike: Mapping[str, tuple[str, str]]) -> list[Run]:
    """The runs, those of whole networks as if they had taken as long as they usually do.

    looks: other runs of whole networks; alike: device → its type and unit, as ``command.alike_devices`` has it
    """
    times = defaultdict[tuple[str, ...], list[float]](list)
    for each in (*looks, *(run for run in runs if run.what == WHOLE)):
        times[*alike[each.device], each.network].append(each.time_s)
    usual_s = {of: median(seen) for of, seen in times.items()}
    return [run.lasting(usual_s[*alike[run.device], run.network]) if run.what == WHOLE else run for run in runs]
