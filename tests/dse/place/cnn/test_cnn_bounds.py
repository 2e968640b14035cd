"""No mapping scores below a bound: of random networks, clusters and costs, by both judges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.chromosomes import KINDS
from dse.evaluation import ANALYTICAL, OBJECTIVES, SIMULATOR, evaluate
from dse.place.cnn.bounds import Proven, bounds
from dse.place.cnn.limits import Limits
from dse.show import proven_line
from tests.dse.place.cnn.drawn import drawn, genes
from tests.tiny_cnn import examples

SEEDS = st.integers(0, 2**32 - 1)
MAPPINGS = 60
LATENCY, ENERGY, MEMORY, PERIOD = range(len(OBJECTIVES))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("evaluator", [ANALYTICAL, SIMULATOR])
@examples(40)
@given(seed=SEEDS)
def test_no_mapping_that_fits_goes_below(kind: str, evaluator: str, seed: int) -> None:
    code, costs = drawn(seed, kind, memory=True, rest=True)
    below = bounds(code, costs)
    scores, excess = evaluate(code, costs, genes(np.random.default_rng(seed), code, MAPPINGS), evaluator)
    scores = scores[excess <= 0]
    assert (scores[:, LATENCY] >= below["latency_s"]).all()
    assert (scores[:, PERIOD] >= below["period_s"]).all()


@pytest.mark.parametrize("evaluator", [ANALYTICAL, SIMULATOR])
@examples(40)
@given(seed=SEEDS, energy=st.floats(0, 1), memory=st.floats(0, 1))
def test_no_mapping_that_keeps_to_limits_goes_below_the_bound_with_them(
    evaluator: str, seed: int, energy: float, memory: float
) -> None:
    code, costs = drawn(seed, "vertical", rest=True)
    scores, _ = evaluate(code, costs, genes(np.random.default_rng(seed), code, MAPPINGS), evaluator)
    limits = Limits(*(float(np.quantile(scores[:, k], q)) for k, q in ((ENERGY, energy), (MEMORY, memory))))
    free, below = bounds(code, costs), bounds(code, costs, limits)
    assert all(below[objective] >= free[objective] * 0.99 for objective in free)  # latency by halving an interval
    scores = scores[limits.beyond(scores, np.zeros(len(scores))) == 0]
    assert len(scores) or min(energy, memory) < 1
    assert (scores[:, LATENCY] >= below["latency_s"]).all()
    assert (scores[:, PERIOD] >= below["period_s"]).all()


@examples(30)
@given(seed=SEEDS)
def test_a_bound_of_whole_layers_in_a_chain_is_no_lower_than_that_of_any_mapping(seed: int) -> None:
    (chained, costs), (any_, same) = drawn(seed, "vertical"), drawn(seed, "naive")
    assert np.array_equal(costs.work, same.work)
    tight, loose = bounds(chained, costs), bounds(any_, costs)
    assert all(tight[objective] >= loose[objective] * (1 - 1e-6) for objective in tight)


def test_a_gap_is_a_part_of_the_bound_and_never_below_nothing() -> None:
    assert Proven(1.5, 1.0).gap == pytest.approx(0.5)
    assert Proven(0.99, 1.0).gap == 0.0
    assert Proven(1.0, 0.0).gap is None


def test_a_period_of_a_short_stream_below_the_bound_is_told_as_such() -> None:
    assert "the least that any mapping" in proven_line("period_s", Proven(1e-3 + 1e-12, 1e-3))
    assert "at most 50% above" in proven_line("period_s", Proven(1.5e-3, 1e-3))
    assert "in a long stream no mapping takes less than 1 ms" in proven_line("period_s", Proven(0.99e-3, 1e-3))
    assert "nothing is known" in proven_line("period_s", Proven(1.0, 0.0))
