"""A few networks of ``tests.campaign.networks``, so that it does not rot, and that it sees what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from model import boxes
from model.rule import same
from tests.campaign import networks
from tests.drawn.network import KINDS, drawn
from tests.drawn.shrinking import shrunk

NUMBERS = {"float32": 50, "float16": 12, "float64": 40, "weights": 22, "quantised": 8, "in part": 11, "by tool": 15}
"""A network of each kind, of seed 0."""
SOFTMAX = 24
"""One with a Softmax over channels."""


@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_a_drawn_network_gives_the_same_answer_however_it_is_cut(kind: str, tmp_path: Path) -> None:
    found, model = drawn(0, NUMBERS[kind], tmp_path)
    assert found == kind
    assert model is not None
    outcome = networks.tried(model, kind, "drawn", 2, tmp_path)
    assert [result.reason for result in outcome.results] == ["", ""]


def test_a_number_is_always_the_same_network(tmp_path: Path) -> None:
    assert drawn(0, 11, tmp_path) == drawn(0, 11, tmp_path)


def test_a_wrong_rule_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Softmax that is cut along its own axis."""
    kind, model = drawn(0, SOFTMAX, tmp_path)
    assert model is not None
    monkeypatch.setitem(boxes.RULES, "Softmax", same)
    results = networks.tried(model, kind, "wrong", 2, tmp_path).results
    assert any("WRONG" in result.reason for result in results)


def test_a_network_is_made_small(tmp_path: Path) -> None:
    _, model = drawn(0, SOFTMAX, tmp_path)
    assert model is not None
    small = shrunk(model, lambda other: any(own.op_type == "Softmax" for own in other.graph.node))
    assert [own.op_type for own in small.graph.node] == ["Softmax"]
    assert not small.graph.initializer
