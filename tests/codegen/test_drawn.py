"""A few networks of ``tests.campaign.networks``, so that it does not rot, and that it sees what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import ModelProto

from model.network import boxes
from model.network.rule import same
from tests.campaign import networks
from tests.drawn.network import KINDS, drawn
from tests.drawn.shrinking import shrunk
from tests.tiny_cnn import network, node


def first(kind: str, folder: Path) -> ModelProto:
    """The first network of a kind that is worth it: some layers, and one to convolve or multiply by."""
    for number in range(200):
        found, model = drawn(0, number, folder)
        operators = [own.op_type for own in model.graph.node] if model else []
        if found == kind and len(operators) > 6 and {"Conv", "MatMul", "Gemm"}.intersection(operators):
            assert model is not None
            return model
    raise AssertionError(f"no {kind} among so many")


@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_a_drawn_network_gives_the_same_answer_however_it_is_cut(kind: str, tmp_path: Path) -> None:
    outcome = networks.tried(first(kind, tmp_path), kind, "drawn", 2, tmp_path)
    assert [result.reason for result in outcome.results] == ["", ""], outcome


def test_a_number_is_always_the_same_network(tmp_path: Path) -> None:
    assert drawn(0, 11, tmp_path) == drawn(0, 11, tmp_path)


def test_a_wrong_rule_is_seen_and_the_network_made_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Softmax that is cut along its own axis."""
    monkeypatch.setitem(boxes.RULES, "Softmax", same)
    nodes = [node("Softmax", ["x"], ["s"], axis=1), node("Add", ["s", "x"], ["y"])]
    model = network(nodes, {"x": (1, 6, 8, 8)}, ["y"])

    def fails(model: ModelProto) -> bool:
        results = networks.tried(model, "float32", "wrong", 8, tmp_path).results
        return any("WRONG" in result.reason for result in results)

    assert fails(model)
    assert [own.op_type for own in shrunk(model, fails).graph.node] == ["Softmax"]
