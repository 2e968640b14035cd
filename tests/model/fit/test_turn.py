"""What is between two frames of a stream."""

from __future__ import annotations

import pytest

from model.cost.samples import Footing, Run
from model.fit.turn import fit_fill, fit_turn


def streamed(
    period_s: float | None, stream_s: float | None, between_s: float | None = None, fill_s: float | None = None
) -> Run:
    """Of inputs of 1000 bytes."""
    told = {"between_s": between_s, "fill_s": fill_s, "input_bytes": 1000.0}
    rank = Footing("a", 0, 0, 0, 0, 1, 0, None, 0, stream_s=stream_s, **told)  # type: ignore[arg-type]
    return Run("key", "a", "six", "python", "hash", "look", "", "a", "", {}, (1.0,), (rank,), (), period_s=period_s)


@pytest.mark.parametrize("part", [None, 0.5])
def test_it_is_what_of_a_period_is_not_computing(part: float | None) -> None:
    assert fit_turn([streamed(0.105, 0.1)], part) == pytest.approx(0.005)


def test_it_is_what_a_processor_is_at_besides_by_its_share_where_that_is_told() -> None:
    assert fit_turn([streamed(0.2, 0.1, 0.002)], 0.1) == pytest.approx(0.02)
    assert fit_turn([streamed(0.2, 0.1, 0.002)], None) == pytest.approx(0.1)


def test_inputs_are_filled_besides_by_their_bytes() -> None:
    runs = [streamed(0.105, 0.1, fill_s=0.003)]
    assert fit_turn(runs, None) == pytest.approx(0.002)
    assert fit_fill(runs, None) == pytest.approx(3e-6)
    assert fit_fill(runs, 0.5) == pytest.approx(6e-6)
    assert fit_fill([streamed(0.105, 0.1), streamed(None, None)], None) == fit_fill([], None) == 0.0


def test_of_several_periods_the_short_ones_tell() -> None:
    runs = [streamed(0.01, 0.008), streamed(10.0, 9.0)]
    found = fit_turn(runs, None)
    assert found == pytest.approx(0.002, rel=0.01)
    off = [abs(0.008 + turn_s - 0.01) / 0.01 + abs(9.0 + turn_s - 10.0) / 10.0 for turn_s in (found, 1.0)]
    assert off[0] < off[1]


def test_without_a_stream_nothing_is_told() -> None:
    assert fit_turn([], 0.5) == fit_turn([streamed(None, None)], 0.5) == 0.0
    assert fit_turn([streamed(0.1, 0.11)], None) == 0.0
