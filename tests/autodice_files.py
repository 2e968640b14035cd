"""AutoDiCE's two files for a platform of three devices, and what is said of wrong ones."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from model.cluster.platform import Platform
from model.mappings import autodice
from model.mappings.mapping import Mapping
from model.network.graph import Graph
from runtime.errors import CleaveError
from tests.tiny_cnn import network, node, weight

A, B, C = "edge00_cpu01", "edge00_gpu", "edge01_cpu0"
HAS = f"(it has {A}, {B}, {C})"
PLATFORM = Platform.parse("edge00, arm, slots=0-1, gpu=NVIDIAVolta (CUDA)\nedge01, arm, slots=0\n", "edge.txt")

GOOD: dict[str, Any] = {A: ["l1", "l2", "l3"], B: ["l1", "l4", "l5", "l6"]}
LOP: dict[str, Any] = {"l1": ["lop", [4, 10], [A, B]]}


def read(graph: Graph, mapping: Any, horizontal: Any = None, platform: Platform = PLATFORM) -> Mapping:
    """Read two files, given as text or as what JSON is made of."""
    return autodice.read(as_text(mapping), None if horizontal is None else as_text(horizontal), graph, platform)


def as_text(value: Any) -> str:
    """A value as JSON; text as it is."""
    return value if isinstance(value, str) else json.dumps(value)


def problems(graph: Graph, mapping: Any, horizontal: Any = None, platform: Platform = PLATFORM) -> tuple[str, ...]:
    """What is wrong with two files."""
    with pytest.raises(CleaveError) as caught:
        read(graph, mapping, horizontal, platform)
    return caught.value.sentences


def dropping() -> ModelProto:
    """Layers conv, relu, reshape, fc; a normalisation that can be folded, a Dropout and a Constant that vanish."""
    nodes = [
        node("Conv", ["x", "w"], ["conv_out"], "conv"),
        node("BatchNormalization", ["conv_out", "s", "b", "m", "v"], ["norm_out"], "norm"),
        node("Relu", ["norm_out"], ["relu_out"], "relu"),
        node("Dropout", ["relu_out"], ["drop_out"], "drop"),
        node("Constant", [], ["shape_out"], "shape", value_ints=[1, -1]),
        node("Reshape", ["drop_out", "shape_out"], ["reshape_out"], "reshape"),
        node("Gemm", ["reshape_out", "w2"], ["y"], "fc", transB=1),
    ]
    weights = {"w": weight(8, 3, 1, 1), **{name: np.ones(8, np.float32) for name in "sbmv"}, "w2": weight(6, 8 * 16)}
    return network(nodes, {"x": (1, 3, 4, 4)}, ["y"], weights)
