"""Signatures: equal where layers cost the same, different where they may not."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import NodeProto

from codegen.zoo import cached
from model.network.graph import Graph
from model.network.load import load
from model.network.signature import signature, signatures
from tests.tiny_cnn import graph_of, network, node, weight


def conv(tmp_path: Path, name: str = "c", channels: int = 4, out: int = 6, seed: int = 0, **attributes: object) -> str:
    """Signature of a convolution of a small image."""
    shape = (1, channels, 9, 9)
    layer = node("Conv", [f"{name}/x", f"{name}/w"], [f"{name}/y"], name=name, **attributes)
    weights = {f"{name}/w": weight(out, channels // attributes.get("group", 1), 3, 3, seed=seed)}  # type: ignore[operator]
    graph = graph_of(tmp_path, network([layer], {f"{name}/x": shape}, [f"{name}/y"], weights))
    return signature(graph, graph.layers[0])


def test_a_signature_names_the_operator(tmp_path: Path) -> None:
    op, _, rest = conv(tmp_path).partition("-")
    assert op == "Conv"
    assert len(rest) == 12
    assert set(rest) <= set("0123456789abcdef")


def test_it_is_the_same_in_every_process_and_version(tmp_path: Path) -> None:
    """It stands in files, so it must not change unnoticed."""
    assert conv(tmp_path) == "Conv-935a1dc547d0"


def test_names_and_values_do_not_count(tmp_path: Path) -> None:
    assert conv(tmp_path, name="one", seed=1) == conv(tmp_path, name="two", seed=2)


def test_the_order_of_attributes_does_not_count(tmp_path: Path) -> None:
    assert conv(tmp_path, strides=[1, 1], pads=[1] * 4) == conv(tmp_path, pads=[1] * 4, strides=[1, 1])


def test_shapes_and_attributes_count(tmp_path: Path) -> None:
    found = [conv(tmp_path), conv(tmp_path, channels=8), conv(tmp_path, out=7), conv(tmp_path, group=2)]
    found += [conv(tmp_path, strides=[2, 2]), conv(tmp_path, strides=[2, 1]), conv(tmp_path, pads=[1] * 4)]
    assert len(set(found)) == len(found)


def one(tmp_path: Path, layer: NodeProto, weights: dict) -> Graph:
    return graph_of(tmp_path, network([layer], {"x": (1, 4, 9, 9)}, ["y"], weights))


def test_whether_an_operand_is_a_constant_counts(tmp_path: Path) -> None:
    both = one(tmp_path, node("Add", ["x", "x"], ["y"]), {})
    fixed = one(tmp_path, node("Add", ["x", "w"], ["y"]), {"w": weight(1, 4, 9, 9)})
    assert signature(both, both.layers[0]) != signature(fixed, fixed.layers[0])


@pytest.mark.parametrize("name", ["squeezenet", "densenet121"])
def test_a_network_repeats_itself(name: str) -> None:
    graph = load(cached(name))
    found = signatures(graph)
    assert len(found) == len(graph.layers)
    assert 10 < len(set(found)) < len(found)
