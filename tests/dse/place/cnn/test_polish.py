"""Mappings that are made better a gene at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.chromosomes import KINDS
from dse.evaluation import OBJECTIVES, evaluate
from dse.inputs import read_cnn
from dse.place.cnn.limits import Limits
from dse.place.cnn.polish import MOST, neighbours, polished
from dse.run import Coding, prepare
from tests.dse.place.cnn.drawn import drawn, genes
from tests.tiny_cnn import examples, platform


@pytest.mark.parametrize("kind", KINDS)
@examples(20)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_neighbour_that_keeps_to_limits_is_better_than_what_comes_out(kind: str, seed: int) -> None:
    code, costs = drawn(seed, kind)
    column = OBJECTIVES.index("latency_s")
    begin = genes(np.random.default_rng(seed), code, 1)[0]
    before = evaluate(code, costs, begin[None])[0][0]
    limits = Limits(memory_bytes=before[OBJECTIVES.index("memory_bytes")])
    found = polished(code, costs, begin, column, limits)
    assert ((found >= 0) & (found <= code.upper)).all()
    near = neighbours(code, found, np.random.default_rng(0))
    assert ((near >= 0) & (near <= code.upper)).all()
    assert (near != found).any(axis=1).all()
    after, others = evaluate(code, costs, found[None])[0], evaluate(code, costs, near)[0]
    assert limits.beyond(after, np.zeros(1))[0] == 0
    assert after[0, column] <= before[column]
    kept = limits.beyond(others, np.zeros(len(others))) == 0
    assert (others[kept, column] >= after[0, column] * (1 - 1e-6)).all()


@examples(20)
@given(seed=st.integers(0, 2**32 - 1))
def test_what_takes_too_much_is_first_made_to_take_less(seed: int) -> None:
    code, costs = drawn(seed, "hybrid")
    memory, latency = map(OBJECTIVES.index, ("memory_bytes", "latency_s"))
    all_ = genes(np.random.default_rng(seed), code, 30)
    scores, excess = evaluate(code, costs, all_)
    limits = Limits(memory_bytes=scores[:, memory].min())
    before = limits.beyond(scores, excess)
    begin = int(np.argmax(before))
    after, excess = evaluate(code, costs, polished(code, costs, all_[begin], latency, limits)[None])
    assert limits.beyond(after, excess)[0] <= before[begin]
    near, excess = evaluate(code, costs, neighbours(code, all_[begin], np.random.default_rng(0)))
    if limits.beyond(near, excess).min() < before[begin] * (1 - 1e-6):
        assert limits.beyond(after, np.zeros(1))[0] < before[begin]


def test_of_hundreds_of_thousands_of_neighbours_a_few_are_laid_out() -> None:
    code, _ = prepare(read_cnn("zoo:densenet121", [], False), platform(4), Coding("naive"))
    near = neighbours(code, np.random.default_rng(0).integers(0, 4, code.n_genes, np.int32), np.random.default_rng(0))
    assert near.shape == (MOST, code.n_genes)
