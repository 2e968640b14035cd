"""Weights that are there twice while a session is opened, against what ONNX Runtime really takes."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from onnx import ModelProto

from model.cost.held_weights import Weights
from model.cost.samples import PartOf
from model.mappings.mapping import extent
from model.network import boxes
from model.network.load import load
from tests.tiny_cnn import network, node, save, weight

OPENED = """
import sys
from runtime.memory import SEGMENTS, Footprint, frugal
from runtime.segment import open_session
kept = [open_session(sys.argv[1], "CPUExecutionProvider", 1)]
footprint = Footprint()
with footprint.growing(SEGMENTS), frugal():
    kept.append(open_session(sys.argv[2], "CPUExecutionProvider", 1))
footprint.opened()
print(footprint.memory().opening_bytes - footprint.memory().segments_bytes)
"""

NORM = ("scale", "shift", "mean", "variance")


def convolutions(*channels: int) -> ModelProto:
    """Of 1 x 1, each with a normalisation that becomes part of it."""
    nodes, weights, last = [], {}, "x"
    for k, (before, after) in enumerate(pairwise(channels)):
        weights |= {f"w{k}": weight(after, before, 1, 1)} | {f"{v}{k}": weight(after) ** 2 for v in NORM}
        nodes += [
            node("Conv", [last, f"w{k}"], [f"c{k}"], f"conv{k}"),
            node("BatchNormalization", [f"c{k}", *(f"{v}{k}" for v in NORM)], [f"n{k}"], f"norm{k}"),
        ]
        last = f"n{k}"
    return network(nodes, {"x": (1, channels[0], 4, 4)}, [last], weights)


def connected(*sizes: int) -> ModelProto:
    """Fully connected layers."""
    shapes = list(pairwise(sizes))
    names = ["x", *(f"y{k}" for k in range(len(shapes)))]
    nodes = [node("Gemm", [names[k], f"w{k}"], [names[k + 1]], f"fc{k}") for k in range(len(shapes))]
    return network(nodes, {"x": (1, sizes[0])}, [names[-1]], {f"w{k}": weight(*s) for k, s in enumerate(shapes)})


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells the largest resident memory")
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(convolutions(2048, 2048), id="one"),
        pytest.param(convolutions(*[1024] * 9), id="eight of a size"),
        pytest.param(convolutions(512, 512, 512, 2048, 2048, 256), id="one that is larger than the others"),
        pytest.param(connected(2048, 4096, 1024, 1024), id="fully connected"),
    ],
)
def test_opening_a_session_takes_what_is_told(tmp_path: Path, model: ModelProto) -> None:
    tiny, path = save(tmp_path, convolutions(16, 16), "first.onnx"), save(tmp_path, model)
    words = [sys.executable, "-c", OPENED, str(tiny), str(path)]
    said = subprocess.run(words, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True).stdout
    graph = load(str(path))
    parts = [PartOf(layer.index, boxes.CHANNELS, 0, extent(graph, layer)) for layer in graph.layers]
    assert int(said) == pytest.approx(Weights(graph).held([parts]).opening_bytes, rel=0.1)
