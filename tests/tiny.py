"""Tiny bundles, cut by hand: what the slicer would make, small enough to read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from codegen.render import render, write
from runtime.plan import Buffer, Part, Plan, RankPlan, Recv, Run, Send, Step
from runtime.trace import Trace

CPU = "CPUExecutionProvider"
DATA = 'in/put.0 "x" [1] \N{GREEK SMALL LETTER ALPHA}'
"""A name with all that a name can have."""


@dataclass(frozen=True)
class Tiny:
    """A bundle in a folder and the model that it is a mapping of."""

    plan: Plan
    bundle: Path
    model: Path


def rank(number: int, buffers: list[Buffer], steps: list[Step], **more: object) -> RankPlan:
    """A rank of a plan with the usual rest."""
    rest: dict = {
        "device": f"edge{number:02d}_cpu01",
        "host": f"edge{number:02d}",
        "address": f"edge{number:02d}",
        "cores": (0, 1),
        "threads": 1,
        "provider": CPU,
        "inputs": (),
        "outputs": (),
        **more,
    }
    return RankPlan(rank=number, buffers=tuple(buffers), steps=tuple(steps), **rest)


def save(path: Path, nodes: list, inputs: list[Buffer], outputs: list[Buffer], weights: dict | None = None) -> None:
    """An ONNX file; weights are name to array."""
    graph = helper.make_graph(
        nodes,
        "tiny",
        [_value(b) for b in inputs],
        [_value(b) for b in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7), path)


def _value(b: Buffer) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(b.name, helper.np_dtype_to_tensor_dtype(np.dtype(b.dtype)), b.shape)


def finish(plan: Plan, folder: Path) -> Tiny:
    """Add the text files."""
    write(render(plan), folder / "bundle")
    return Tiny(plan, folder / "bundle", folder / "model.onnx")


def channels(folder: Path) -> Tiny:
    """Three ranks. 0 holds the input and computes nothing; 1 and 2 share conv1's channels; 1 joins them for conv2.

    Rank 2 computes channels 4..8, rank 1 channels 0..5 (a slicer would not, but may): so rank 2 sends only 5..8.
    """
    random = np.random.default_rng(0)
    w1, w2 = (random.standard_normal(s).astype(np.float32) for s in ((8, 3, 3, 3), (4, 8, 1, 1)))
    data = Buffer(DATA, (1, 3, 8, 8), "float32")
    relu, out = Buffer("relu/1", (1, 8, 6, 6), "float32"), Buffer("out.0", (1, 4, 6, 6), "float32")
    low, high = Buffer("relu/1[:,0:5]", (1, 5, 6, 6), "float32"), Buffer("relu/1[:,4:8]", (1, 4, 6, 6), "float32")
    rest = Buffer("relu/1[:,5:8]", (1, 3, 6, 6), "float32")

    def conv1(end: str) -> list:
        return [helper.make_node("Conv", [data.name, "w1"], ["c"]), helper.make_node("Relu", ["c"], [end])]

    conv2 = helper.make_node("Conv", [relu.name, "w2"], [out.name])
    save(folder / "model.onnx", [*conv1(relu.name), conv2], [data], [out], {"w1": w1, "w2": w2})
    parts = folder / "bundle"
    save(parts / "rank01/segment000.onnx", conv1(low.name), [data], [low], {"w1": w1[:5]})
    join = helper.make_node("Concat", [low.name, rest.name], [relu.name], axis=1)
    save(parts / "rank01/segment001.onnx", [join, conv2], [low, rest], [out], {"w2": w2})
    save(parts / "rank02/segment000.onnx", conv1(high.name), [data], [high], {"w1": w1[4:]})
    whole = tuple((0, n) for n in data.shape)
    first, second = (tuple(Part(layer, 1, a, b) for layer in ("conv1", "relu/1")) for a, b in ((0, 5), (4, 8)))
    steps1: list[Step] = [
        Recv(data.name, 0, 0),
        Run("rank01/segment000.onnx", first, (data.name,), (low.name,)),
        Recv(rest.name, 2, 2),
        Run("rank01/segment001.onnx", (Part("conv2", 1, 0, 4),), (low.name, rest.name), (out.name,)),
    ]
    steps2: list[Step] = [
        Recv(data.name, 0, 1),
        Run("rank02/segment000.onnx", second, (data.name,), (high.name,)),
        Send(high.name, 1, 2, ((0, 1), (1, 4), (0, 6), (0, 6))),
    ]
    ranks = (
        rank(0, [data], [Send(data.name, 1, 0, whole), Send(data.name, 2, 1, whole)], inputs=(data.name,)),
        rank(1, [data, low, rest, out], steps1, outputs=(out.name,)),
        rank(2, [data, high], steps2, cores=()),
    )
    return finish(Plan("tiny", (data,), (out,), ranks), folder)


def rows(folder: Path) -> Tiny:
    """Two ranks share conv1's rows: rank 0 holds the input and sends rows 3..8, which do not lie in one piece."""
    w = np.random.default_rng(1).standard_normal((2, 3, 3, 3)).astype(np.float32)
    data, out = Buffer("data", (1, 3, 8, 8), "float32"), Buffer("out", (1, 2, 6, 6), "float32")
    bottom = Buffer("data[:,:,3:8]", (1, 3, 5, 8), "float32")
    below = Buffer("out[:,:,3:6]", (1, 2, 3, 6), "float32")
    conv = helper.make_node("Conv", ["data", "w"], ["out"])
    save(folder / "model.onnx", [conv], [data], [out], {"w": w})
    bounds = {name: np.array([n], np.int64) for name, n in (("from", 0), ("to", 5), ("axis", 2))}
    above = [
        helper.make_node("Slice", ["data", "from", "to", "axis"], ["top"]),
        helper.make_node("Conv", ["top", "w"], ["above"]),
        helper.make_node("Concat", ["above", below.name], ["out"], axis=2),
    ]
    save(folder / "bundle/rank00/segment000.onnx", above, [data, below], [out], {"w": w, **bounds})
    conv_below = helper.make_node("Conv", [bottom.name, "w"], [below.name])
    save(folder / "bundle/rank01/segment000.onnx", [conv_below], [bottom], [below], {"w": w})
    box = ((0, 1), (0, 3), (3, 8), (0, 8))
    steps0: list[Step] = [
        Send("data", 1, 0, box),
        Recv(below.name, 1, 0),
        Run("rank00/segment000.onnx", (Part("conv", 2, 0, 3),), ("data", below.name), ("out",)),
    ]
    steps1: list[Step] = [
        Recv(bottom.name, 0, 0),
        Run("rank01/segment000.onnx", (Part("conv", 2, 3, 6),), (bottom.name,), (below.name,)),
        Send(below.name, 0, 0, tuple((0, n) for n in below.shape)),
    ]
    ranks = (
        rank(0, [data, below, out], steps0, inputs=("data",), outputs=("out",)),
        rank(1, [bottom, below], steps1),
    )
    return finish(Plan("rows", (data,), (out,), ranks), folder)


def types(folder: Path, dtype: str, operator: str = "Identity", shape: tuple[int, ...] = (2, 3)) -> Tiny:
    """Two ranks: rank 0 applies ``operator`` to a tensor of some type, rank 1 once more."""
    x, y, z = (Buffer(name, shape, dtype) for name in "xyz")
    first, second = helper.make_node(operator, ["x"], ["y"]), helper.make_node(operator, ["y"], ["z"])
    save(folder / "model.onnx", [first, second], [x], [z])
    save(folder / "bundle/rank00/segment000.onnx", [first], [x], [y])
    save(folder / "bundle/rank01/segment000.onnx", [second], [y], [z])
    steps0: list[Step] = [
        Run("rank00/segment000.onnx", (Part("first", 1, 0, 3),), ("x",), ("y",)),
        Send("y", 1, 0, tuple((0, n) for n in shape)),
    ]
    steps1: list[Step] = [
        Recv("y", 0, 0),
        Run("rank01/segment000.onnx", (Part("second", 1, 0, 3),), ("y",), ("z",)),
    ]
    ranks = (rank(0, [x, y], steps0, inputs=("x",)), rank(1, [y, z], steps1, outputs=("z",)))
    return finish(Plan("types", (x,), (z,), ranks), folder)


def timeless(trace: Trace) -> object:
    """All that a trace says but times and memory."""
    spans = [
        [(s.rank, s.kind, s.name, s.peer, s.tag, s.size_bytes, s.busy_s is None) for s in frame]
        for frame in trace.frames
    ]
    return trace.barrier, spans, [(u.rank, u.device, u.provider, u.threads, u.reads, u.writes) for u in trace.ranks]
