"""Which turns of a run count."""

from __future__ import annotations

from itertools import permutations

import pytest

from dse.calibrate.turns import apart, doubtful, settled
from model.cost.samples import Run


def turn(time_s: float, period_s: float | None = None) -> Run:
    return Run("", "d", "n", "python", "", "", "", "", "", {}, (time_s,), (), (), period_s=period_s)


@pytest.mark.parametrize("order", list(permutations((1.0, 1.1, 1.7))))
def test_of_three_turns_the_two_that_agree_count_whichever_was_disturbed(order: tuple[float, ...]) -> None:
    assert [run.time_s for run in settled([turn(time_s) for time_s in order])] == [t for t in order if t < 1.5]


def test_one_turn_and_two_all_count() -> None:
    for turns in [turn(1.0)], [turn(3.0), turn(1.0)]:
        assert settled(turns) == tuple(turns)


def test_a_stream_that_was_held_up_is_disturbed_like_a_frame() -> None:
    same, other = turn(1.0, 0.5), turn(1.0, 0.7)
    assert apart([same, other]) == pytest.approx(1.4)
    assert doubtful([same, other])
    assert not doubtful([same, turn(1.1, 0.55)])
    assert settled([other, same, turn(1.1, 0.5)]) == (same, turn(1.1, 0.5))
