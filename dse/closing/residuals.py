"""What measurements say of a model: the residual ``measured / predicted - 1`` of a mapping, told from its traits.

Of each objective what is missing is taken as a sum: a part of the prediction that all mappings share (a clock that is
lower than thought), so much for each message, byte and segment (what is fixed, or forgotten), and so much for a second
that each device computes (one that is slower than thought). Its weights are a Bayesian ridge regression's: normal,
about 0, so that a few measurements move what they say something of, and a mapping that is like none of them stays
uncertain. How large weights are, and how well a measurement repeats, is what makes the measurements likeliest, of a few
guesses.

Bishop, *Pattern Recognition and Machine Learning* (2006), sections 3.3 and 3.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from dse.evaluation import OBJECTIVES
from model.mappings.arrays import Floats

COMMON = 1.0
"""Standard deviation of the part that all share: models that are not calibrated are off by such factors."""
SIZES, NOISES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0), (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Guesses of the standard deviations of the other weights, and of a measurement."""


LEAST = 0.5
"""Nothing is expected to take less than so much of its prediction as those that were measured took at least: what few
measurements say of mappings unlike theirs may be anything."""


def features(traits: Floats, predicted: Floats, scale: Floats) -> Floats:
    """``(n, F)`` features of ``(n, F - 1)`` traits, a unit of prediction; the first is 1.

    predicted: (n,); scale: (F - 1,) what is 1, of a trait a unit of prediction
    """
    return np.column_stack([np.ones(len(traits)), _a_unit(traits, predicted) / scale])


def _a_unit(traits: Floats, predicted: Floats) -> Floats:
    """Traits a unit of prediction; 0 where nothing is predicted: a device of 0 W takes no energy."""
    return np.divide(traits, predicted[:, None], out=np.zeros_like(traits), where=predicted[:, None] > 0)


@dataclass(frozen=True, eq=False)
class Residual:
    """Of one objective by one evaluator. weights: (F,) mean; spread: (F, F) covariance; noise: of a measurement"""

    weights: Floats
    spread: Floats
    noise: float

    @staticmethod
    def of(x: Floats, y: Floats) -> Residual:
        """``(n, F)`` features and ``(n,)`` residuals that were seen, n may be 0."""
        guesses = list(product(SIZES, NOISES)) if len(y) else [(SIZES[-1], NOISES[-1])]
        size, noise = max(guesses, key=lambda guess: _evidence(x, y, *guess))
        precision = np.diag(1 / _prior(x, size)) + x.T @ x / noise**2
        spread = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        return Residual(np.asarray(spread @ x.T @ y) / noise**2, spread, noise)

    def mean(self, x: Floats) -> Floats:
        """(n,) residuals to expect."""
        return np.asarray(x @ self.weights)

    def deviation(self, x: Floats) -> Floats:
        """(n,) standard deviation of what would be measured."""
        return np.asarray(np.sqrt(np.sum((x @ self.spread) * x, axis=1) + self.noise**2))


def _prior(x: Floats, size: float) -> Floats:
    """(F,) variances of weights."""
    return np.array([COMMON**2, *[size**2] * (x.shape[1] - 1)])


def _evidence(x: Floats, y: Floats, size: float, noise: float) -> float:
    """Logarithm of how likely such residuals are, up to a constant."""
    covariance = (x * _prior(x, size)) @ x.T + noise**2 * np.eye(len(y))
    return float(-0.5 * (np.linalg.slogdet(covariance)[1] + y @ np.linalg.solve(covariance, y)))


@dataclass(frozen=True, eq=False)
class Better:
    """A corrected objective. scale: see ``features``; least: of what is predicted, that a correction leaves"""

    residual: Residual
    scale: Floats
    least: float

    @staticmethod
    def of(traits: Floats, predicted: Floats, measured: Floats) -> Better:
        """Of what is known of mappings, ``(n, ·)``, ``(n,)`` and ``(n,)``; NaN: was not measured."""
        mean = _a_unit(traits, predicted).mean(axis=0)
        scale, known = np.where(mean > 0, mean, 1.0), np.isfinite(measured) & (predicted > 0)
        x = features(traits[known], predicted[known], scale)
        part = measured[known] / predicted[known]
        return Better(Residual.of(x, part - 1), scale, LEAST * float(part.min() if len(part) else 1.0))

    def factor(self, traits: Floats, predicted: Floats) -> Floats:
        """(n,) to expect of what would be measured over what is predicted."""
        return np.maximum(self.least, 1 + self.residual.mean(features(traits, predicted, self.scale)))

    def deviation(self, traits: Floats, predicted: Floats) -> Floats:
        """(n,) relative standard deviation of what would be measured."""
        spread = self.residual.deviation(features(traits, predicted, self.scale))
        return np.asarray(spread / self.factor(traits, predicted))


@dataclass(frozen=True, eq=False)
class Correction:
    """Of all objectives, by evaluator and column; those that nobody has measured stay as they are."""

    of: dict[str, dict[int, Better]]

    @staticmethod
    def fitted(traits: Floats, predicted: dict[str, Floats], measured: Floats) -> Correction:
        """Of mappings that are known: ``(n, ·)`` traits, ``(n, 4)`` predictions by evaluator, ``(n, 4)`` measurements.

        A measurement that there is not is NaN. What was not measured says which traits are usual.
        """
        columns = np.flatnonzero(np.isfinite(measured).any(axis=0)).tolist()
        return Correction(
            {
                evaluator: {k: Better.of(traits, scores[:, k], measured[:, k]) for k in columns}
                for evaluator, scores in predicted.items()
            }
        )

    def __call__(self, evaluator: str, scores: Floats, traits: Floats) -> Floats:
        """``(n, 4)`` scores as they are to be expected."""
        better = scores.copy()
        for k, objective in self.of[evaluator].items():
            better[:, k] *= objective.factor(traits, scores[:, k])
        return better

    def deviation(self, evaluator: str, scores: Floats, traits: Floats) -> Floats:
        """``(n, 4)`` relative standard deviations of these; 0 where nothing was measured."""
        found = np.zeros((len(traits), len(OBJECTIVES)))
        for k, objective in self.of[evaluator].items():
            found[:, k] = objective.deviation(traits, scores[:, k])
        return found
