"""Non-negative least squares, against scipy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, sparse

from model.fit.least_squares import nonnegative
from tests.tiny_cnn import examples


@examples(100)
@given(st.integers(1, 12), st.integers(1, 40), st.integers(0, 10**6), st.booleans())
def test_it_is_as_close_as_scipys(columns: int, more: int, seed: int, guess: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(columns + more, columns)) * 10.0 ** rng.integers(-6, 6, columns)
    values = rng.normal(size=len(rows))
    start = rng.normal(size=columns) if guess else None
    _, distance = optimize.nnls(rows, values)
    for known in (rows, sparse.csr_array(rows)):
        found = nonnegative(known, values, start)
        assert (found >= 0).all()
        assert np.linalg.norm(rows @ found - values) == pytest.approx(distance, rel=1e-6)


@pytest.mark.parametrize("kind", [np.array, sparse.csr_array])
def test_what_rows_leave_open_is_small(kind: Callable[[list[list[float]]], Any]) -> None:
    found = nonnegative(kind([[1.0, 1.0, 0.0]]), np.array([2.0]))
    assert found[0] + found[1] == pytest.approx(2.0)
    assert found[2] == 0
