"""Small ONNX networks with seeded random weights, random mappings of them, and a plan run step by step.

``CLEAVE_EXAMPLES=20`` makes property tests try twenty times as many examples, other ones in every run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping as Dict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from hypothesis import HealthCheck, settings
from onnx import ModelProto, NodeProto, helper, numpy_helper

from codegen.slicing import segment
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping, Shard, extent
from model.mappings.planning import Planned, plan
from model.network import boxes
from model.network.graph import Graph
from model.network.load import load
from runtime.frames import random_frame
from runtime.plan import RankPlan, Recv, Run, Send
from runtime.segment import choose_kernels

Arrays = dict[str, np.ndarray]
Shape = tuple[int, ...]

OPSET, IR = 17, 8
MORE = int(os.environ.get("CLEAVE_EXAMPLES", "1"))

node = helper.make_node


def examples(count: int) -> settings:
    """Settings of a property test."""
    return settings(
        max_examples=count * MORE,
        derandomize=MORE == 1,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def weight(*shape: int, seed: int = 0) -> np.ndarray:
    """Random normal weights; another seed gives other ones."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def network(
    nodes: Sequence[NodeProto],
    inputs: Dict[str, Sequence[int | str]],
    outputs: Sequence[str] | Dict[str, str],
    weights: Dict[str, np.ndarray] | None = None,
    opset: int = OPSET,
    ir: int = IR,
    dtype: str = "float32",
) -> ModelProto:
    """An ONNX model. ``outputs``: names, or names to types where these are others than ``dtype``."""
    kinds = outputs if isinstance(outputs, Dict) else dict.fromkeys(outputs, dtype)
    constants = [numpy_helper.from_array(np.asarray(a), name) for name, a in (weights or {}).items()]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [_info(name, dtype, shape) for name, shape in inputs.items()],
        [_info(name, kind, None) for name, kind in kinds.items()],
        constants,
    )
    if ir < 4:
        graph.input.extend(helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def _info(name: str, dtype: str, shape: Sequence[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def six_layers(channels: int = 10, classes: int = 10) -> ModelProto:
    """Figure 8a of the thesis: Conv, ReLU, MaxPool, one layer that cannot be split, FC, Softmax."""
    return network(
        [
            node("Conv", ["x", "w1", "b1"], ["conv"], "l1", kernel_shape=[3, 3]),
            node("Relu", ["conv"], ["relu"], "l2"),
            node("MaxPool", ["relu"], ["pool"], "l3", kernel_shape=[2, 2], strides=[2, 2]),
            node("Flatten", ["pool"], ["flat"], "l4"),
            node("Gemm", ["flat", "w2", "b2"], ["fc"], "l5", transB=1),
            node("Softmax", ["fc"], ["y"], "l6", axis=1),
        ],
        {"x": (1, 3, 8, 8)},
        ["y"],
        {
            "w1": weight(channels, 3, 3, 3),
            "b1": weight(channels),
            "w2": weight(classes, channels * 9) / 10,
            "b2": weight(classes),
        },
    )


def branches(opset: int = OPSET, ir: int = IR) -> ModelProto:
    """A network with most of what there is: groups, a shared weight, a residual, a Concat, two outputs."""
    nodes = [
        node("Conv", ["x", "stem", "stem_bias"], ["s"], "stem", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["s", "scale", "shift", "mean", "variance"], ["n"], "norm"),
        node("Relu", ["n"], ["r"], "relu"),
        node("Conv", ["r", "groups"], ["g"], "grouped", pads=[1, 1, 1, 1], group=4),
        node("Conv", ["r", "shared"], ["a"], "first"),
        node("Conv", ["g", "shared"], ["b"], "second"),
        node("Concat", ["a", "b", "r"], ["c"], "join", axis=1),
        node("Conv", ["c", "depth"], ["d"], "depthwise", group=24, strides=[2, 2]),
        node("Sum", ["a", "b"], ["residual"], "sum"),
        node("GlobalAveragePool", ["d"], ["p"], "pool"),
        node("Flatten", ["p"], ["f"], "flatten"),
        node("Gemm", ["f", "dense", "bias"], ["y"], "dense", transB=1),
    ]
    weights = {
        "stem": weight(8, 3, 3, 3) / 3,
        "stem_bias": weight(8),
        "scale": weight(8, seed=1),
        "shift": weight(8, seed=2),
        "mean": weight(8, seed=3),
        "variance": np.abs(weight(8, seed=4)) + 0.5,
        "groups": weight(8, 2, 3, 3) / 3,
        "shared": weight(8, 8, 1, 1) / 3,
        "depth": weight(24, 1, 3, 3),
        "dense": weight(7, 24),
        "bias": weight(7),
    }
    return network(nodes, {"x": (1, 3, 9, 9)}, ["y", "residual"], weights, opset, ir)


def _runs(opset: int) -> bool:
    """Quantisation is what a release that has begun with an opset knows last."""
    nodes = [node("QuantizeLinear", ["x", "scale"], ["q"]), node("DequantizeLinear", ["q", "scale"], ["y"])]
    model = network(nodes, {"x": (1,)}, ["y"], {"scale": np.ones((), np.float32)}, opset)
    try:
        run_whole(model, {"x": np.ones(1, np.float32)})
    except Exception:  # ONNX Runtime's errors have no common class
        return False
    return True


def save(folder: Path, model: ModelProto, name: str = "tiny.onnx") -> Path:
    """Write a model; returns its path."""
    onnx.save(model, folder / name)
    return folder / name


def by_blocks() -> ModelProto:
    """Convolutions of whole blocks of channels, with what keeps their layout between them, and with what does not."""
    nodes = [
        node("Conv", ["x", "w0"], ["a"], "stem", pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"], "relu"),
        node("Conv", ["b", "w1"], ["c"], "inner", pads=[1, 1, 1, 1]),
        node("MaxPool", ["b"], ["d"], "pool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Add", ["c", "d"], ["e"], "add"),
        node("Relu", ["e"], ["f"], "again"),
        node("Conv", ["f", "w2"], ["g"], "narrow"),
        node("Concat", ["f", "g"], ["h"], "both", axis=1),
        node("Conv", ["h", "w3"], ["i"], "odd", group=2),
        node("Relu", ["i"], ["j"], "last"),
        node("Conv", ["j", "w4"], ["k"], "end"),
        node("Conv", ["h", "w5"], ["l"], "wide"),
        node("Sum", ["k", "l"], ["y"], "sum"),
    ]
    shapes = ((16, 3, 3, 3), (16, 16, 3, 3), (16, 16, 1, 1), (12, 16, 1, 1), (16, 12, 1, 1), (16, 32, 1, 1))
    weights = {f"w{k}": weight(*shape) / 3 for k, shape in enumerate(shapes)}
    return network(nodes, {"x": (1, 3, 9, 9)}, ["y"], weights)


def depthwise() -> ModelProto:
    """Convolutions of single channels, in whole quarters of them and not, between others."""
    nodes = [
        node("Conv", ["x", "w0"], ["a"], "stem"),
        node("Conv", ["a", "w1"], ["b"], "quarters", pads=[1, 1, 1, 1], group=12),
        node("Relu", ["b"], ["c"], "relu"),
        node("Conv", ["c", "w2"], ["d"], "project"),
        node("Conv", ["d", "w3"], ["e"], "odd", pads=[1, 1, 1, 1], group=10),
        node("Conv", ["e", "w4"], ["y"], "last"),
    ]
    shapes = ((12, 3, 1, 1), (12, 1, 3, 3), (10, 12, 1, 1), (10, 1, 3, 3), (8, 10, 1, 1))
    return network(nodes, {"x": (1, 3, 9, 9)}, ["y"], {f"w{k}": weight(*shape) / 3 for k, shape in enumerate(shapes)})


def graph_of(folder: Path, model: ModelProto, **how: object) -> Graph:
    """Write a model and load it."""
    return load(save(folder, model), **how)  # type: ignore[arg-type]


def platform(devices: int, fields: str = "") -> Platform:
    """Hosts of one CPU device each."""
    return Platform.parse("".join(f"h{i}, slots=0{fields}\n" for i in range(devices)), "tiny.txt")


def random_mapping(
    draw: random.Random,
    graph: Graph,
    devices: int,
    most: int = 4,
    kinds: Sequence[int] = range(boxes.KINDS),
    tiles: bool = False,
) -> Mapping:
    """Every layer is cut in one of the ways that it can be, at random places among random devices, maybe one twice.

    tiles: rows may be on several devices
    """
    shards = []
    for layer in graph.layers:
        possible = [(kind, rule) for kind in kinds if (rule := boxes.rule(graph, layer, kind)) is not None]
        kind, rule = draw.choice(possible) if possible else (boxes.CHANNELS, None)
        size = extent(graph, layer, kind)
        inner = range(rule.grain, size, rule.grain) if rule else range(0)
        cuts = sorted(draw.sample(inner, min(draw.randrange(most), len(inner))))
        if not cuts:
            kind, size = boxes.CHANNELS, extent(graph, layer)
        edges = zip([0, *cuts], [*cuts, size], strict=True)
        parts = [Shard(layer.index, *edge, draw.randrange(devices), kind) for edge in edges]
        shards += widened(draw, parts, rule.grain) if tiles and rule else parts
    return Mapping.of(shards)


def widened(draw: random.Random, shards: list[Shard], grain: int) -> list[Shard]:
    """Parts of a layer; where these are rows, some begin earlier, so that several devices have the rows before."""
    found = shards[:1]
    for shard in shards[1:]:
        least = max([found[-1].start + grain, *[s.stop for s in found if s.device == shard.device]])
        earlier = shard.axis == boxes.ROWS and draw.random() < 0.5
        found.append(replace(shard, start=draw.randrange(least, shard.start + 1, grain)) if earlier else shard)
    return found


def frame(graph: Graph, seed: int = 0, positive: bool = False) -> Arrays:
    """Random values for every input of the network."""
    found = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        values = np.random.default_rng(seed).standard_normal(tensor.shape)
        found[name] = np.asarray(np.abs(values) + 0.5 if positive else values, tensor.dtype)
    return found


def frame_of(model: ModelProto) -> Arrays:
    """The frame that ``codegen.verify`` begins with."""
    weights = {tensor.name for tensor in model.graph.initializer}
    found = {}
    for info in model.graph.input:
        if info.name not in weights:
            shape = tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
            dtype = str(helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))
            found[info.name] = random_frame(info.name, shape, dtype, 0, 0)
    return found


def run_whole(model: Path | ModelProto, feeds: Arrays) -> Arrays:
    """All outputs of an ONNX model in ONNX Runtime."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    choose_kernels(options)
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def run_mapping(graph: Graph, mapping: Mapping, devices: int, feeds: Arrays) -> Arrays:
    """Check, lower, cut and run a mapping: the outputs of the network."""
    cluster = platform(devices)
    assert mapping.check(graph, cluster) == []
    return run_plan(graph, plan(graph, cluster, mapping), feeds)


class Memory:
    """The buffers of a rank, those within others included. A value is there once it, or all parts of it, are filled."""

    def __init__(self, rank: RankPlan, feeds: Arrays) -> None:
        self._arrays: Arrays = {}
        self._parts: dict[str, set[str]] = {}
        self._filled: set[str] = set()
        for b in rank.buffers:
            if b.within is None:
                self._arrays[b.name] = np.zeros(b.shape, b.dtype)
            else:
                view = self._arrays[b.within][tuple(slice(*interval) for interval in b.box)]
                assert view.shape == b.shape
                assert view.flags.c_contiguous
                self._arrays[b.name] = view
                self._parts.setdefault(b.within, set()).add(b.name)
        for name in rank.inputs:
            self.fill(name, feeds[name])

    def fill(self, name: str, value: np.ndarray) -> None:
        """Put a value into its buffer, which it must fit."""
        array = self._arrays[name]
        assert (array.shape, array.dtype) == (value.shape, value.dtype)
        array[...] = value
        self._filled.add(name)

    def __getitem__(self, name: str) -> np.ndarray:
        assert name in self._filled or self._parts.get(name, {name}) <= self._filled, f"{name} is not there yet"
        return self._arrays[name]


def run_plan(graph: Graph, planned: Planned, feeds: Arrays) -> Arrays:
    """Run all ranks, each as far as it gets, in turn. Fails where a value is missing or of another shape."""
    ranks = planned.plan.ranks
    held = [Memory(rank, feeds) for rank in ranks]
    mail: dict[tuple[int, int, int], np.ndarray] = {}
    at = [0] * len(ranks)
    while any(at[r.rank] < len(r.steps) for r in ranks):
        before = sum(at)
        for rank in ranks:
            while at[rank.rank] < len(rank.steps):
                step, values = rank.steps[at[rank.rank]], held[rank.rank]
                if isinstance(step, Recv):
                    if (step.source, rank.rank, step.tag) not in mail:
                        break
                    values.fill(step.buffer, mail.pop((step.source, rank.rank, step.tag)))
                elif isinstance(step, Send):
                    box = tuple(slice(start, stop) for start, stop in step.box)
                    assert (rank.rank, step.dest, step.tag) not in mail
                    mail[rank.rank, step.dest, step.tag] = values[step.buffer][box].copy()
                else:
                    made = run_whole(
                        segment(graph, planned, step).model(), {name: values[name] for name in step.inputs}
                    )
                    assert tuple(made) == step.outputs
                    for name, value in made.items():
                        values.fill(name, value)
                at[rank.rank] += 1
        assert sum(at) > before, f"the ranks wait for one another: {at}"
    assert not mail
    return {name: held[rank.rank][name] for rank in ranks for name in rank.outputs}


def runs(planned: Planned) -> list[Run]:
    """All segments of a plan."""
    return [run for rank in planned.plan.ranks for run in rank.runs]


def assert_same(got: Arrays, wanted: Arrays, tolerance: float = 1e-4) -> None:
    """The same outputs, equal up to rounding."""
    assert set(got) == set(wanted)
    for name, value in wanted.items():
        assert (got[name].shape, got[name].dtype) == (value.shape, value.dtype), name
        a, b = got[name].astype(np.float64), value.astype(np.float64)
        assert np.isfinite(b).all(), name
        assert np.max(np.abs(a - b), initial=0.0) <= tolerance * max(1e-6, np.max(np.abs(b), initial=0.0)), name


def assert_cut_exactly(graph: Graph, mapping: Mapping, devices: int, positive: bool = False) -> None:
    """A mapping computes what the file computes."""
    feeds = frame(graph, positive=positive)
    half = any(tensor.dtype == "float16" for tensor in graph.tensors.values())
    assert_same(run_mapping(graph, mapping, devices, feeds), run_whole(graph.path, feeds), 1e-2 if half else 1e-4)


NEWEST = next(opset for opset in range(onnx.defs.onnx_opset_version(), 0, -1) if _runs(opset))
"""The last opset that ONNX Runtime knows all of; onnx itself is some months ahead."""
