"""What is told of compiling."""

from __future__ import annotations

import numba
import pytest

from model.compiled import on_compiling


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_the_first_function_that_is_compiled_is_told() -> None:
    said: list[str] = []
    on_compiling(lambda: said.append("compiling"))
    assert not said
    one, other = numba.njit(lambda x: x + 1), numba.njit(lambda x: x + 2)
    assert (one(1), other(1), other(2)) == (2, 3, 4)
    assert said == ["compiling"]
