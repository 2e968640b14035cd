"""What devices claim of their processors after a wait."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.cost.case import Case
from model.cost.costs import UNKNOWN, CostArrays
from model.cost.rest import WARM_S, claimed, most_chilled
from model.mappings.mapping import Mapping
from tests.tiny_cnn import examples, graph_of, platform, six_layers


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> CostArrays:
    graph = graph_of(tmp_path_factory.mktemp("six"), six_layers())
    return Case.of(graph, platform(1), Mapping.whole(graph, [0] * 6)).costs


@examples(100)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.floats(0, 1), st.sampled_from([UNKNOWN, 0.1, 1.0]))
def test_cold_segments_claim_more_but_no_more_than_is_said_of_all_of_them(
    costs: CostArrays, seconds: list[float], cold_s: float, part: float
) -> None:
    c = costs._replace(cold=np.array([[cold_s, 0.0]]), busy=np.array([[part, 0.0, 0.0]]))
    in_all = sum(claimed(c, 0, each, False, True) for each in seconds)
    assert sum(seconds) <= in_all * (1 + 1e-9)
    assert in_all <= most_chilled(c, 0, sum(seconds), len(seconds)) * (1 + 1e-9)
    assert in_all == sum(seconds) or (cold_s and part != UNKNOWN)


def test_caches_that_are_full_cost_no_more(costs: CostArrays) -> None:
    """Counted is what the processor is at: on half of one it takes twice as long."""
    c = costs._replace(cold=np.array([[1e-4, 0.0]]), busy=np.array([[0.5, 0.0, 0.0]]))
    full_s = 2 * WARM_S
    more = [claimed(c, 0, seconds, False, True) - seconds for seconds in (0.9 * full_s, full_s, 2 * full_s)]
    assert more[0] < more[1] == pytest.approx(2 * np.sqrt(1e-4 * WARM_S))
    assert more[2] == pytest.approx(more[1])
