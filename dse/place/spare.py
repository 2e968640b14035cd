"""Devices that no split needs: of a kind, those beyond as many as there are nodes that can be apart."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps

import numpy as np

from dse.place.placed import Method, Options, Placed
from dse.place.workload import Workload


def without_spare(method: Method) -> Method:
    """The same method, told of the first devices of each kind alone. What it takes is then a matter of nodes."""

    @wraps(method)
    def on_few(on: Workload, options: Options) -> Placed:
        few = _few(on)
        found = method(few, options)
        after = np.where(found.device < few.accelerators, 0, on.accelerators - few.accelerators)
        return replace(found, device=(found.device + after).astype(np.int32))

    return on_few


def _few(on: Workload) -> Workload:
    apart = len(np.unique(on.color))
    return replace(on, accelerators=min(on.accelerators, apart), cpus=min(on.cpus, apart))
