"""Bundles that measure: a plan made for that instead of a mapping, run by the same programs as every other plan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from codegen import render
from codegen.bundle import describe
from codegen.folder import fresh
from runtime.plan import Buffer, Part, Plan, Run

WIDTH, TURNS = 64, 1000
"""Of the matrices that ``busy`` multiplies, and how often: some 10 ms on a processor of today, ten times that on a
small board."""
BUSY = "rank{rank:02d}/busy.onnx"
BEFORE, AFTER = (Buffer(f"busy.{end}", (WIDTH, WIDTH), "float32") for end in ("in", "out"))
"""Buffers of a segment that only takes time."""


def busy(rank: int) -> Run:
    """A segment that computes for a while, with ``BEFORE`` and ``AFTER`` among the buffers of its rank."""
    part = Part("busy", 0, 0, WIDTH)
    return Run(BUSY.format(rank=rank), (part,), (BEFORE.name,), (AFTER.name,))


def write_probe(plan: Plan, platform: str, out: Path) -> None:
    """Make a bundle of a plan whose only segments are ``busy``. platform: its name"""
    with fresh(out, force=False) as folder:
        render.write(render.render(plan), folder)
        for file in {run.file for rank in plan.ranks for run in rank.runs}:
            (folder / file).parent.mkdir(exist_ok=True)
            onnx.save(_busy_model(), folder / file)
        describe(folder, {"cnn": None, "platform": platform, "target": render.PYTHON}, {})


def _busy_model() -> onnx.ModelProto:
    """Matrix times itself, again and again: ``Loop``, so that nothing can be left out or done beforehand."""
    matrix = [helper.make_tensor_value_info(b.name, onnx.TensorProto.FLOAT, b.shape) for b in (BEFORE, AFTER)]
    constants = {"turns": np.int64(TURNS), "on": np.bool_(True)}
    loop = helper.make_node("Loop", ["turns", "on", BEFORE.name], [AFTER.name], body=_turn())
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph([loop], "busy", matrix[:1], matrix[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)


def _turn() -> onnx.GraphProto:
    kind, shape = onnx.TensorProto.FLOAT, (WIDTH, WIDTH)
    nodes = [helper.make_node("Identity", ["go"], ["go on"]), helper.make_node("MatMul", ["m", "m"], ["product"])]
    inputs = [("turn", onnx.TensorProto.INT64, ()), ("go", onnx.TensorProto.BOOL, ()), ("m", kind, shape)]
    outputs = [("go on", onnx.TensorProto.BOOL, ()), ("product", kind, shape)]
    values = [[helper.make_tensor_value_info(*of) for of in each] for each in (inputs, outputs)]
    return helper.make_graph(nodes, "turn", values[0], values[1])
