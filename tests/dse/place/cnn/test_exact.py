"""The best mapping of whole layers, and what limits do to it: against all mappings there are."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluation import ANALYTICAL, OBJECTIVES, evaluate
from dse.inputs import read_cnn
from dse.place.cnn.exact import exact
from dse.place.cnn.limits import FREE, Limits
from dse.run import Coding, prepare
from model.cluster.platform import Platform
from runtime.errors import CleaveError
from tests.dse.place.cnn.drawn import drawn
from tests.tiny_cnn import examples, network, node, save, weight

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


def test_what_fits_in_many_parts_only_is_found(tmp_path: Path) -> None:
    """17 MB of weights: two devices have no room for half of them each, three have for a third."""
    gemm = network([node("Gemm", ["x", "w"], ["y"], transB=1)], {"x": (1, 2048)}, ["y"], {"w": weight(2048, 2048)})
    cnn = read_cnn(str(save(tmp_path, gemm)), [], False)
    for memory, parts in ((90, 1), (72, 3)):
        hosts = "".join(f"h{k}, slots=0, memory={memory}MB\n" for k in range(4))
        code, costs = prepare(cnn, Platform.parse(hosts, "p.txt"), Coding("hybrid", 4))
        found = exact(code, costs, "period_s", ANALYTICAL)
        assert found.scores[2] <= memory * 1e6
        assert len(found.mapping.devices) >= parts
