"""What no device may exceed: energy and memory as constraints, while time is made least."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.evaluation import OBJECTIVES
from model.mappings.arrays import Floats


class Limits(NamedTuple):
    """Of each device: joules a frame, and resident bytes. Epsilon constraints: each point of a front has its own."""

    energy_j: float = np.inf
    memory_bytes: float = np.inf

    def kept(self, scores: Floats) -> NDArray[np.bool_]:
        """(n,) whether mappings with ``(n, 4)`` scores keep to them."""
        columns = [OBJECTIVES.index(name) for name in self._fields]
        return np.all(scores[:, columns] <= np.array(self), axis=1)

    def tightened(self, factor: float) -> Limits:
        """With so much of the memory: a stretch takes more than can be told before all others are known."""
        return self._replace(memory_bytes=self.memory_bytes * factor)


FREE = Limits()
