"""Runs are divided by how fast their processors were."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import pytest

from dse.calibrate.speeds import ITSELF, as_usual, slower, usual_s
from model.samples import SEGMENT, Footing, PartOf, Run, Sample

PARTS = (PartOf(0, 1, 0, 4),)


def run(*yardsticks: float | None) -> Run:
    """A device each, with so many seconds of the yardstick; its only segment takes as many seconds as its number."""
    ranks = [Footing(f"d{k}", 1.0, 2.0, 0.0, 3.0, 1, 5, None, 0.25, yardstick_s=y) for k, y in enumerate(yardsticks, 1)]
    samples = [Sample(SEGMENT, rank.device, "six", PARTS, (float(k),)) for k, rank in enumerate(ranks, 1)]
    return Run("k", "d1", "six", "python", "hash", "w", "now", "a", "main.py", {}, (9.0,), tuple(ranks), tuple(samples))


def test_usual_is_the_middle_of_what_was_seen_of_each_device() -> None:
    assert usual_s([run(1e-6), run(2e-6), run(9e-6, 4e-6), run(None, None, None)]) == {"d1": 2e-6, "d2": 4e-6}


def test_a_run_is_as_much_faster_as_each_of_its_processors_was_slower() -> None:
    usual = {"d1": 1e-6, "d2": 2e-6}
    seen = run(2e-6, 1e-6, 5e-6, None)
    by = exp(ITSELF)
    assert slower(seen, usual) == pytest.approx({"d1": 2.0 / by, "d2": 0.5 * by})
    (found,) = as_usual([seen], usual)
    assert [sample.times_s[0] for sample in found.samples] == pytest.approx([0.5 * by, 4.0 / by, 3.0, 4.0])
    assert replace(found, samples=seen.samples) == seen


@pytest.mark.parametrize("yardstick_s", [None, 1e-6, 1.02e-6, 0.98e-6])
def test_nothing_changes_where_nothing_is_known_or_all_is_as_usual(yardstick_s: float | None) -> None:
    assert as_usual([run(yardstick_s)], {"d1": 1e-6}) == [run(yardstick_s)]
    assert as_usual([run(1e-6)], {}) == [run(1e-6)]
