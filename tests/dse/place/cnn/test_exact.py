"""The best mapping of whole layers, and what limits do to it: against all mappings there are."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluation import ANALYTICAL, OBJECTIVES, SIMULATOR, evaluate
from dse.inputs import read_cnn
from dse.place.cnn.exact import exact
from dse.place.cnn.limits import FREE, Limits
from dse.run import Coding, prepare
from model.cluster.platform import Platform
from runtime.errors import CleaveError
from tests.dse.place.cnn.drawn import drawn
from tests.tiny_cnn import examples, network, node, save, weight

ENERGY, MEMORY, PERIOD = map(OBJECTIVES.index, ("energy_j", "memory_bytes", "period_s"))
SEEDS = st.integers(0, 2**32 - 1)
MOST = 3000
CLOSE = {"latency_s": 1.5, "period_s": 1.25}
"""What is found for itself takes at most so many times as long as the best of all."""


def keep(limits: Limits, scores: np.ndarray) -> np.ndarray:
    """(n,) whether mappings that fit keep to limits."""
    return limits.beyond(scores, np.zeros(len(scores))) == 0


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
        kept, found = scores[keep(asked, scores)], None
        with suppress(CleaveError) if asked != FREE else nullcontext():
            found = exact(code, costs, objective, ANALYTICAL, asked)  # type: ignore[arg-type]
        if found is None:  # else what is best without limits, which is always tried, would be there
            assert not keep(asked, free[None]).all()
            continue
        free = found.scores if asked == FREE else free
        assert keep(asked, found.scores[None]).all()
        best = kept[:, OBJECTIVES.index(objective)].min()
        assert found.proven.bound <= best * (1 + 1e-9)
        assert found.proven.value >= best * (1 - 1e-9)
        if asked == FREE:
            assert found.proven.value <= best * CLOSE[objective]


@pytest.mark.parametrize(("kind", "seed"), [("naive", 243), ("hybrid", 253)])
def test_what_is_found_keeps_to_limits_as_its_judge_has_it(kind: str, seed: int) -> None:
    """Messages meet, so a rank waits longer at a join than the analytical model has it, which takes energy."""
    code, costs = drawn(seed, kind)
    analytical, simulated = (exact(code, costs, "period_s", judge).scores[ENERGY] for judge in (ANALYTICAL, SIMULATOR))
    assert analytical < simulated
    limits = Limits(energy_j=float(analytical + simulated) / 2)
    with suppress(CleaveError):
        assert keep(limits, exact(code, costs, "period_s", SIMULATOR, limits).scores[None]).all()


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


def limited(limits: Limits, platform: str = "jetson8") -> np.ndarray:
    """Scores of AlexNet, placed for the least period."""
    known = prepare(read_cnn("zoo:alexnet", [], False), Platform.from_file(Path(platform)), Coding("hybrid"))
    return exact(*known, "period_s", ANALYTICAL, limits).scores


def test_what_is_limited_is_no_slower_where_there_are_more_devices() -> None:
    limits = Limits(memory_bytes=90e6)
    more, fewer = (limited(limits, name)[PERIOD] for name in ("jetson8", "jetson8-cpu"))
    assert more <= fewer * (1 + 1e-9)


def test_memory_of_devices_limits_as_a_limit_does() -> None:
    code, costs = prepare(
        read_cnn("zoo:resnet50", [], False), Platform.from_file(Path("jetson8-cpu")), Coding("hybrid")
    )
    room = 0.95 * exact(code, costs, "period_s", ANALYTICAL).scores[MEMORY]
    by_limit = exact(code, costs, "period_s", ANALYTICAL, Limits(memory_bytes=room))
    by_room = exact(code, costs._replace(capacity=np.full_like(costs.capacity, room)), "period_s", ANALYTICAL)
    assert by_room.scores[PERIOD] == pytest.approx(by_limit.scores[PERIOD], rel=1e-9)


def least(limits: Limits) -> str:
    """That an error names."""
    with pytest.raises(CleaveError, match="no mapping was found with at most") as raised:
        limited(limits)
    return str(raised.value).rpartition("the least found is ")[2]


def test_the_least_that_is_found_does_not_depend_on_what_is_asked_for_and_can_be_asked_for() -> None:
    found = least(Limits(memory_bytes=1e6))
    assert found == least(Limits(memory_bytes=50e6))
    assert limited(Limits(memory_bytes=float(found.split()[0]) * 1e6))[MEMORY] > 50e6
    joules = float(least(Limits(energy_j=1e-3)).split()[0])
    assert limited(Limits(energy_j=joules))[ENERGY] <= joules
