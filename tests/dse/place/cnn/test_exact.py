"""The best mapping of whole layers, and what limits do to it: against all mappings there are."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluation import ANALYTICAL, OBJECTIVES, evaluate
from dse.place.cnn.exact import exact
from dse.place.cnn.limits import FREE, Limits
from runtime.errors import CleaveError
from tests.dse.place.cnn.drawn import drawn
from tests.tiny_cnn import examples

SEEDS = st.integers(0, 2**32 - 1)
MOST = 3000
CLOSE = {"latency_s": 1.5, "period_s": 1.25}
"""What is found for itself takes at most so many times as long as the best of all."""


def every(seed: int) -> tuple[object, object, np.ndarray] | None:
    """A vertical chromosome, its costs, and the scores of all mappings that it knows; None: they are too many."""
    code, costs = drawn(seed, "vertical")
    if code.coding.rows > 1 or np.prod(code.upper + 1.0) > MOST:
        return None
    genes = np.array([*product(*(range(most + 1) for most in code.upper))])
    return code, costs, evaluate(code, costs, genes, ANALYTICAL)[0]


@pytest.mark.parametrize("objective", ["latency_s", "period_s"])
@examples(60)
@given(seed=SEEDS, energy=st.floats(0, 1), memory=st.floats(0, 1))
def test_what_is_found_keeps_to_limits_and_lies_between_the_bound_and_nothing(
    objective: str, seed: int, energy: float, memory: float
) -> None:
    all_ = every(seed)
    if all_ is None:
        return
    code, costs, scores = all_
    free = np.full(scores.shape[1], np.inf)
    limits = Limits(float(np.quantile(scores[:, 1], energy)), float(np.quantile(scores[:, 2], memory)))
    for asked in (FREE, limits):
        kept, found = scores[asked.kept(scores)], None
        with suppress(CleaveError) if asked != FREE else nullcontext():
            found = exact(code, costs, objective, ANALYTICAL, asked)  # type: ignore[arg-type]
        if found is None:  # else what is best without limits, which is always tried, would be there
            assert not asked.kept(free[None]).all()
            continue
        free = found.scores if asked == FREE else free
        assert asked.kept(found.scores[None]).all()
        best = kept[:, OBJECTIVES.index(objective)].min()
        assert found.proven.bound <= best * (1 + 1e-9)
        assert found.proven.value >= best * (1 - 1e-9)
        if asked == FREE:
            assert found.proven.value <= best * CLOSE[objective]
