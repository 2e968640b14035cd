"""Mappings that were tried: what was predicted and expected of them, and what was measured."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from dse.closing.figures import Measurement
from dse.evaluation import OBJECTIVES
from dse.search import Front
from model.mappings.arrays import Floats
from model.mappings.mapping import Mapping


@dataclass(frozen=True, eq=False)
class Attempt:
    """A mapping that was tried. predicted: (4,) by the model; expected: (4,) corrected by what was known before; times:
    how often it was measured, of which ``found`` has the mean"""

    mapping: Mapping
    found: Measurement
    predicted: Floats
    expected: Floats
    times: int = 1

    def again(self, found: Measurement) -> Attempt:
        """Measured once more; what only one of them knows is as it was."""
        before, times = self.found.values, self.times + 1
        mean = (self.times * before + found.values) / times
        return replace(self, found=replace(found, values=np.where(np.isnan(mean), before, mean)), times=times)


@dataclass(frozen=True, eq=False)
class Closed:
    """What came of it. before: how many of the attempts, the first ones, are of another run"""

    front: Front
    attempts: tuple[Attempt, ...]
    before: int = 0

    @property
    def tried(self) -> tuple[Attempt, ...]:
        """Those of this run."""
        return self.attempts[self.before :]

    @property
    def in_vain(self) -> bool:
        """Whether all that was tried failed."""
        return bool(self.tried) and all(a.found.failed for a in self.tried)

    @property
    def measured(self) -> list[Attempt]:
        """Those that did not fail."""
        return [a for a in self.attempts if not a.found.failed]

    def errors(self) -> dict[str, tuple[float, float | None]]:
        """See ``errors_of``."""
        return errors_of(self.attempts)


def errors_of(attempts: Collection[Attempt]) -> dict[str, tuple[float, float | None]]:
    """Mean relative error of the model, by objective that was measured, and of what was expected once others were
    measured; None: all were measured at once. Those that failed have no figures.
    """
    seen, said, expected = (
        np.array([of(a) for a in attempts]).reshape(-1, len(OBJECTIVES))
        for of in (lambda a: a.found.values, lambda a: a.predicted, lambda a: a.expected)
    )
    corrected = np.where(expected != said, expected, np.nan)
    model = {name: _off(said[:, k], seen[:, k]) for k, name in enumerate(OBJECTIVES)}
    return {
        name: (off, _off(corrected[:, k], seen[:, k])) for k, (name, off) in enumerate(model.items()) if off is not None
    }


def _off(said: Floats, seen: Floats) -> float | None:
    """Mean relative error where both are known; None: nowhere."""
    errors = np.abs(said / seen - 1)
    return None if np.isnan(errors).all() else float(np.nanmean(errors))
