"""Plans as text: there and back, and what is no plan."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.errors import CleaveError
from runtime.plan import Buffer, Part, Plan, RankPlan, Recv, Run, Send
from tests.damage import damage
from tests.tiny import rank

COUNTS, NAMES = st.integers(0, 9), st.text(max_size=4)
INTERVALS = st.tuples(COUNTS, COUNTS)


def tuples(of: st.SearchStrategy, least: int = 0) -> st.SearchStrategy:
    return st.lists(of, min_size=least, max_size=3).map(tuple)


BUFFERS = st.builds(Buffer, NAMES, tuples(COUNTS), st.sampled_from(["float32", "bool"]))
PARTS = st.builds(Part, NAMES, COUNTS, COUNTS, COUNTS)
STEPS = st.one_of(
    st.builds(Recv, NAMES, COUNTS, COUNTS),
    st.builds(Run, NAMES, tuples(PARTS), tuples(NAMES), tuples(NAMES)),
    st.builds(Send, NAMES, COUNTS, COUNTS, tuples(INTERVALS)),
)
RANKS = st.builds(
    RankPlan,
    *(COUNTS, NAMES, NAMES, NAMES, tuples(COUNTS), st.integers(1, 9), NAMES, tuples(NAMES), tuples(NAMES)),
    buffers=tuples(BUFFERS),
    steps=tuples(STEPS),
    arena=st.booleans(),
    meter=st.none() | NAMES,
    idle_w=st.none() | st.floats(0, 1e3),
    busy_w=st.none() | st.floats(0, 1e3),
)
PLANS = st.builds(Plan, NAMES, tuples(BUFFERS), tuples(BUFFERS), tuples(RANKS, 1))
X, Y = Buffer("x", (1, 4), "float32"), Buffer("y", (1, 4), "float32")
RUN = Run("rank00/segment000.onnx", (Part("conv", 1, 0, 4),), ("x",), ("y",))
PLAN = Plan("tiny", (X,), (Y,), (rank(0, [X, Y], [Recv("x", 1, 0), RUN, Send("y", 1, 0, ((0, 1), (0, 4)))]),))
TEXT = PLAN.to_json()
JUNK = st.sampled_from([None, 1, "x", [], [1], [[]], {}, {"op": "jump"}, True])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(PLANS)
def test_a_plan_survives_its_text(plan: Plan) -> None:
    text = plan.to_json()
    assert text.isascii()
    assert Plan.from_json(text) == plan


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data())
def test_a_damaged_plan_is_read_or_refused_but_never_fails(data: st.DataObject) -> None:
    body = json.loads(TEXT)
    damage(data, body, JUNK)
    assert refusal(json.dumps(body)).startswith(("here.json: is no ", "none"))


def refusal(text: str) -> str:
    try:
        Plan.from_json(text, "here.json")
    except CleaveError as error:
        return str(error)
    return "none"


@pytest.mark.parametrize(
    "text", ["", "[]", "null", '{"format": "cleave-trace", "version": 1}', '{"format": "cleave-plan", "version": 2}']
)
def test_what_is_no_plan_is_refused_by_name(text: str) -> None:
    with pytest.raises(CleaveError, match=r"^here\.json: is no "):
        Plan.from_json(text, "here.json")


@pytest.mark.parametrize("damage", [{"inputs": [1]}, {"ranks": [[]]}, {"ranks": 3}, {"outputs": {"a": 1}}])
def test_what_stands_in_the_wrong_place_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(CleaveError, match="is no plan that this version can read"):
        Plan.from_json(json.dumps({**json.loads(TEXT), **damage}))


@pytest.mark.parametrize("none", [[], {}, "", None])
def test_a_plan_without_ranks_is_refused(none: Any) -> None:
    with pytest.raises(CleaveError, match=r"^here\.json: is no plan that can be run, it has no ranks$"):
        Plan.from_json(json.dumps({**json.loads(TEXT), "ranks": none}), "here.json")


def test_a_rank_computes_with_a_thread_at_least() -> None:
    for count in (0, -3):
        ranks = [{**rank, "threads": count} for rank in json.loads(TEXT)["ranks"]]
        with pytest.raises(CleaveError, match=f"rank 0 has {count} threads"):
            Plan.from_json(json.dumps({**json.loads(TEXT), "ranks": ranks}))


def test_half_a_plan_is_refused() -> None:
    with pytest.raises(CleaveError, match="is no plan that this version can read"):
        Plan.from_json(TEXT[: len(TEXT) // 2])


def test_labels_say_layer_and_box() -> None:
    labels = [Part("conv1", axis, 0, 48).label for axis in range(4)]
    assert labels == ["conv1[0:48]", "conv1[:,0:48]", "conv1[:,:,0:48]", "conv1{+0:48}"]


def test_a_plan_that_knows_nothing_of_arenas_has_them_and_of_meters_has_none() -> None:
    body = json.loads(PLAN.to_json())
    assert body["ranks"][0].pop("arena") is True
    assert [body["ranks"][0].pop(key) for key in ("meter", "idle_w", "busy_w")] == [None, None, None]
    assert Plan.from_json(json.dumps(body)) == PLAN
