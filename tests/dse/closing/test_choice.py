"""Which mappings are worth a measurement."""

from __future__ import annotations

import numpy as np

from dse.closing.choice import choose

SCORES = np.array([[1.0, 9.0, 5.0, 1.0], [1.1, 5.0, 4.0, 1.0], [1.3, 4.0, 3.0, 1.0], [2.0, 1.0, 2.0, 1.0]])
CERTAIN = np.zeros((4, 4))
FREE = np.ones(4, dtype=bool)


def chosen(count: int, deviation: np.ndarray = CERTAIN, dispute: tuple[float, ...] = (0.0,) * 4,
           free: np.ndarray = FREE) -> list[int]:  # fmt: skip
    return choose(SCORES, deviation, np.array(dispute), [0, 1, 2], [0, 2], free, count)


def test_what_would_be_shipped_is_measured_first() -> None:
    assert chosen(2) == [0, 3]
    assert chosen(1) == [0]


def test_what_may_be_the_best_comes_before_what_is_a_little_better_for_sure() -> None:
    unsure = CERTAIN.copy()
    unsure[2, 0] = 0.5
    assert chosen(3) == [0, 3, 1]
    assert chosen(3, unsure) == [0, 3, 2]


def test_what_models_dispute_is_measured_too() -> None:
    free = np.array([False, True, True, False])
    assert chosen(2, dispute=(0, 0, 0, 0), free=free) == [1, 2]
    scores = np.vstack([SCORES, SCORES[2] * 2])
    picks = choose(scores, np.zeros((5, 4)), np.array([0, 0, 0, 0, 3.0]), [0, 1, 2], [0, 2], np.ones(5, dtype=bool), 5)
    assert picks == [0, 3, 1, 2, 4]
    picks = choose(scores, np.zeros((5, 4)), np.array([0, 0, 0, 0, 3.0]), [0, 1], [0], np.ones(5, dtype=bool), 4)
    assert picks == [0, 3, 1, 4]


def test_no_more_than_there_are_and_none_twice() -> None:
    assert sorted(chosen(10)) == [0, 1, 2, 3]
    assert chosen(10, free=~FREE) == []
    assert chosen(3, free=np.array([False, True, False, False])) == [1]
