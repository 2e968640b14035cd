"""What measurements teach about predictions, on mappings whose true times are known."""

from __future__ import annotations

import numpy as np
import pytest

from dse.closing.residuals import LEAST, Better, Correction
from dse.evaluation import ANALYTICAL, BYTES, COMPUTING, MESSAGES, OBJECTIVES, SEGMENTS

DEVICES = 3
UNKNOWN = np.nan


def traits(count: int, seed: int = 0) -> np.ndarray:
    """Of random mappings."""
    draw = np.random.default_rng(seed)
    found = np.zeros((count, COMPUTING + DEVICES))
    found[:, MESSAGES] = draw.integers(0, 30, count)
    found[:, BYTES] = found[:, MESSAGES] * draw.uniform(1e3, 1e6, count)
    found[:, SEGMENTS] = 1 + draw.integers(0, 40, count)
    found[:, COMPUTING:] = draw.dirichlet(np.ones(DEVICES), count) * 1e-2
    return found


def predicted(found: np.ndarray) -> np.ndarray:
    """Seconds by a model."""
    return np.asarray(found[:, COMPUTING:].max(axis=1) + 1e-9 * found[:, BYTES])


def true(found: np.ndarray) -> np.ndarray:
    """All take half as long again, messages cost something fixed, and the second device is slower than thought."""
    return np.asarray(1.5 * predicted(found) + 1e-4 * found[:, MESSAGES] + 2 * found[:, COMPUTING + 1])


def learnt(found: np.ndarray, count: int, noise: float = 0.0) -> Better:
    """From the first mappings."""
    measured = true(found) * np.random.default_rng(3).normal(1, noise, len(found))
    measured[count:] = UNKNOWN
    return Better.of(found, predicted(found), measured)


def off(better: Better, found: np.ndarray) -> np.ndarray:
    """Relative errors."""
    return np.asarray(np.abs(better.factor(found, predicted(found)) * predicted(found) / true(found) - 1))


def test_nothing_measured_corrects_nothing_and_is_most_uncertain() -> None:
    found = traits(50)
    nothing, some = learnt(found, 0), learnt(found, 5)
    assert nothing.factor(found, predicted(found)).tolist() == [1.0] * 50
    assert (some.deviation(found, predicted(found)) < nothing.deviation(found, predicted(found))).all()


def test_a_factor_that_all_share_is_told_from_one_measurement() -> None:
    found = traits(50)
    measured = np.full(50, UNKNOWN)
    measured[0] = 3 * predicted(found)[0]
    factor = Better.of(found, predicted(found), measured).factor(found, predicted(found))
    assert (np.abs(factor / 3 - 1) < 0.5).all()


@pytest.mark.parametrize(("count", "worst"), [(3, 1.0), (12, 0.02), (40, 0.005)])
def test_what_a_model_has_forgotten_is_told_from_a_few_mappings(count: int, worst: float) -> None:
    found = traits(240)
    assert off(learnt(found, 0), found).mean() > 0.4
    assert off(learnt(found, count), found[count:]).max() < worst


def test_measurements_that_repeat_badly_are_not_believed_to_the_letter() -> None:
    found = traits(240)
    better = learnt(found, 40, noise=0.1)
    assert off(better, found[40:]).mean() < 0.1
    assert better.residual.noise >= 0.1


def test_what_is_like_nothing_measured_stays_uncertain() -> None:
    found = traits(60)
    found[:30, COMPUTING + 2] = 0.0
    sure = learnt(found, 30, noise=0.03).deviation(found, predicted(found))
    assert sure[30:].mean() > 2 * sure[:30].mean()


def test_no_prediction_is_corrected_to_nothing_or_less() -> None:
    found = traits(20)
    measured = np.full(20, UNKNOWN)
    measured[:2] = 1e-9
    assert (Better.of(found, predicted(found), measured).factor(found, predicted(found)) > 0).all()


def test_nothing_is_expected_to_gain_much_more_than_what_was_measured() -> None:
    """Of three, two took what was predicted, and one ten times as long."""
    found = traits(200)
    measured = np.full(200, UNKNOWN)
    measured[:3] = predicted(found)[:3] * [1.0, 1.0, 10.0]
    factor = Better.of(found, predicted(found), measured).factor(found, predicted(found))
    assert factor.min() == LEAST


def test_what_is_predicted_to_be_nothing_stays_nothing() -> None:
    """A device of 0 W takes no energy, whatever a meter says."""
    found = traits(20)
    told = np.where(np.arange(20) % 4, predicted(found), 0.0)
    better = Better.of(found, told, true(found))
    assert np.isfinite(better.factor(found, told)).all()
    assert np.isfinite(better.deviation(found, told)).all()
    assert off(better, found)[told > 0].mean() < 0.1
    assert np.isfinite(Better.of(found, np.zeros(20), true(found)).deviation(found, np.zeros(20))).all()


def test_scores_that_nobody_measured_stay_as_they_are() -> None:
    found = traits(60)
    scores = np.repeat(predicted(found)[:, None], len(OBJECTIVES), axis=1)
    measured = np.repeat(true(found)[:, None], len(OBJECTIVES), axis=1)
    measured[:, 1] = measured[20:] = UNKNOWN
    correction = Correction.fitted(found, {ANALYTICAL: scores}, measured)
    better = correction(ANALYTICAL, scores, found)
    assert (better[:, 1] == scores[:, 1]).all()
    assert (correction.deviation(ANALYTICAL, scores, found)[:, 1] == 0).all()
    assert np.allclose(better[:, [0, 2, 3]], true(found)[:, None], rtol=0.02)
