"""Random small networks as exporters write CNNs, each drawn from a number alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import ModelProto
from onnxruntime.quantization import QuantFormat, QuantType

from tests.drawn.blocks import BLOCKS
from tests.drawn.drawing import Drawing, info_of
from tests.tiny_cnn import NEWEST, frame_of, node, run_whole
from tests.tiny_qdq import by_onnxruntime, in_qdq_form

FLOATS = ("float32", "float16", "float64")
KINDS = (
    *["float32"] * 3, "float16", "float64", *["weights"] * 2, *["quantised"] * 2, *["in part"] * 3, *["by tool"] * 2,
)  # fmt: skip
"""Networks of floats, with dequantised weights, quantised in full or in part, and quantised by ONNX Runtime's tool."""

LAST_OPSET = 25
"""Fixed, so that numbers are the same networks with each version of ONNX Runtime that runs them alike."""


class Drawn(NamedTuple):
    """A network and what kind it is of; ``model`` is None where nothing came of it."""

    kind: str
    model: ModelProto | None


def drawn(seed: int, number: int, folder: Path) -> Drawn:
    """The network of a number; ``folder`` is for files on the way."""
    draw = random.Random(f"drawn/{seed}/{number}")
    kind = draw.choice(KINDS)
    grown = _grown(draw, kind)
    model = grown.model(stated=kind == "by tool" or grown.chance(0.3))  # the tool never ends where a shape is not told
    try:
        return Drawn(kind, _finished(draw, model, kind, folder))
    except Exception:  # of ONNX Runtime, its tool, or the checker: they have no common class
        return Drawn(kind, None)


def _grown(draw: random.Random, kind: str) -> Drawing:
    """Block after block, from an image of one to three axes."""
    oldest = {"weights": 13, "quantised": 13, "in part": 13, "by tool": 13}.get(kind, 7)
    found = Drawing(draw, kind if kind in FLOATS else "float32", min(NEWEST, draw.randint(oldest, LAST_OPSET)))
    found.quantised = 0.6 if kind == "weights" else 0.0
    sizes = draw.choice([(16, 10), (9, 9), (12, 8), (12, 8), (7, 11), (20,), (5, 4, 6)])
    found.at = found.input([draw.choice([1, 1, 2, 3]), draw.choice([1, 3, 4, 8]), *sizes])
    wanted, tries = draw.randint(2, 9), 40
    while wanted and tries:
        tries -= 1
        wanted -= found.attempt(draw.choice(BLOCKS))
    return found


def _finished(draw: random.Random, model: ModelProto, kind: str, folder: Path) -> ModelProto:
    """Quantised, with some constants as nodes, and checked."""
    dtype = draw.choice(["uint8", "uint8", "int8", "int16"])
    if kind in ("quantised", "in part"):
        if dtype == "int16":
            model.opset_import[0].version, model.ir_version = max(21, model.opset_import[0].version), 10
        share = 1.0 if kind == "quantised" else draw.choice([0.5, 0.8, 0.95])
        model = _with_outputs(in_qdq_form(model, frame_of(model), draw, dtype, draw.random() < 0.5, share), model)
    elif kind == "by tool":
        model = onnx.load(by_onnxruntime(folder, model, **_how(draw, model)))
    if draw.random() < 0.3:
        _constants_as_nodes(draw, model)
    return checked(model)


def _with_outputs(model: ModelProto, source: ModelProto) -> ModelProto:
    """The quantised network with the outputs of the float one."""
    made = {name for own in model.graph.node for name in own.output}
    names = [f"{o.name}/dq" if f"{o.name}/dq" in made else o.name for o in source.graph.output]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return model


def _how(draw: random.Random, model: ModelProto) -> dict[str, object]:
    """Settings of ONNX Runtime's tool."""
    names = [own.name for own in model.graph.node]
    left = draw.sample(names, len(names) // 4) if draw.random() < 0.5 else []
    activations = draw.choice([QuantType.QUInt8, QuantType.QInt8])
    form = draw.choice(list(QuantFormat))
    per_channel = draw.random() < 0.5
    return {"quant_format": form, "per_channel": per_channel, "activation_type": activations, "nodes_to_exclude": left}


def _constants_as_nodes(draw: random.Random, model: ModelProto) -> None:
    """Some initializers become Constant nodes, as some exporters have them."""
    chosen = [t for t in model.graph.initializer if draw.random() < 0.7]
    nodes = [node("Constant", [], [t.name], value=t) for t in chosen] + list(model.graph.node)
    names = {t.name for t in chosen}
    for held in (model.graph.initializer, model.graph.input):
        kept = [each for each in held if each.name not in names]
        del held[:]
        held.extend(kept)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def checked(model: ModelProto) -> ModelProto:
    """The network with the type and the shape of each output; raises where it is of no use."""
    made = run_whole(model, frame_of(model))
    for name, value in made.items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise ValueError(f"{name} is not finite")
    del model.graph.output[:]
    model.graph.output.extend(info_of(name, value) for name, value in made.items())
    onnx.checker.check_model(model)  # not in full: of pools that round up it infers other shapes than there are
    return model
