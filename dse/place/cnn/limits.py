"""What no device may exceed: energy and memory as constraints, while time is made least."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dse.evaluation import OBJECTIVES
from model.mappings.arrays import Floats


class Limits(NamedTuple):
    """Of each device: joules a frame, and resident bytes. Epsilon constraints: each point of a front has its own."""

    energy_j: float = np.inf
    memory_bytes: float = np.inf

    def beyond(self, scores: Floats, excess: Floats) -> Floats:
        """(n,) how far mappings are from keeping to them and to the memory there is; 0: they do.

        The sum of what each takes too much, as parts of what it takes. scores, excess: as ``evaluate`` has them
        """
        takes = scores[:, [OBJECTIVES.index(name) for name in self._fields]]
        too_much = np.maximum(takes - np.array(self), 0)
        too_much[:, self._fields.index("memory_bytes")] += np.maximum(excess, 0)
        parts: Floats = np.divide(too_much, takes, out=np.zeros_like(takes), where=takes > 0).sum(axis=1)
        return parts


FREE = Limits()
