"""Which layers a convolution computes along: told, and by ONNX Runtime's own graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from codegen.zoo import cached
from model.network.fused import fused
from model.network.load import load
from tests.optimized import WITHOUT_LAYOUTS, optimized
from tests.tiny_cnn import network, node, save, weight


def told_and_done(path: str, folder: Path) -> tuple[set[str], set[str]]:
    """Layers, by their first output, that a convolution computes along: as is said, and those that ONNX Runtime has no
    node for or one of a convolution."""
    graph, nodes = load(path), optimized(path, folder, WITHOUT_LAYOUTS)
    made = {name for n in nodes if n.op_type not in ("Conv", "FusedConv") for name in n.output}
    others = [(layer.outputs[0], along) for layer, along in zip(graph.layers, fused(graph), strict=True)
              if layer.op != "Conv"]  # fmt: skip
    return {name for name, along in others if along}, {name for name, _ in others if name not in made}


@pytest.mark.parametrize("name", ["densenet121", "inception_v2", "squeezenet", "shufflenet"])
def test_what_convolutions_of_real_networks_compute_along(tmp_path: Path, name: str) -> None:
    told, done = told_and_done(str(cached(name)), tmp_path)
    assert told == done
    assert told


@pytest.mark.parametrize(
    "after",
    [
        [("Relu",), ("BatchNormalization", "s", "s", "s", "p")],
        [("BatchNormalization", "s", "s", "s", "p"), ("Mul", "each"), ("Add", "each"), ("Relu",), ("Mul", "each")],
        [("Mul", "wide"), ("Relu",)],
        [("Add", "wide"), ("Relu",)],
        [("Mul", "one"), ("Relu",)],
        [("Sub", "each"), ("Relu",)],
        [("Sigmoid",)],
        [("Tanh",)],
        [("LeakyRelu",)],
        [("HardSigmoid",)],
        [("Elu",)],
        [("Clip", "low", "high")],
        [("Softmax",)],
    ],
    ids=lambda after: "-".join(op for op, *_ in after),
)
@pytest.mark.parametrize("read", ["once", "twice", "as an output"])
def test_what_may_follow_a_convolution(tmp_path: Path, after: list[tuple[str, ...]], read: str) -> None:
    """Images are as wide as there are channels: a row of constants is none of them. Where the convolution's own output
    is read twice, or an output of the network, all is computed apart."""
    nodes, at = [node("Conv", ["x", "w"], ["c"], pads=[1] * 4)], "c"
    for number, (op, *constants) in enumerate(after):
        nodes.append(node(op, [at, *constants], [f"t{number}"]))
        at = f"t{number}"
    outputs = [at, *{"once": [], "twice": ["again"], "as an output": ["c"]}[read]]
    nodes += [node("Neg", ["c"], ["again"])] if read == "twice" else []
    weights = {
        "w": weight(16, 3, 3, 3),
        "each": weight(16, 1, 1),
        "wide": weight(16),
        "one": weight(1),
        "s": weight(16),
        "p": np.abs(weight(16)) + 1,
        "low": np.float32(-1),
        "high": np.float32(1),
    }
    used = {name for n in nodes for name in n.input}
    model = network(nodes, {"x": (1, 3, 9, 16)}, outputs, {k: w for k, w in weights.items() if k in used})
    told, done = told_and_done(save(tmp_path, model), tmp_path)
    assert told == done
