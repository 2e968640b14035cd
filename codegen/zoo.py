"""Well-known CNNs to try things on, without a download: real graphs, seeded random weights.

The onnx package carries nine graphs whose weights are ``ConstantOfShape`` nodes. Here each such node becomes
an initializer with values that keep every activation alive: under constant weights a wrong cut would go unseen.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from zlib import crc32

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from codegen import operators
from runtime.cache import cache
from runtime.draft import drafted
from runtime.errors import CleaveError

# What the onnx package calls each graph: light_STEM.onnx.
_STEMS = {
    "alexnet": "bvlc_alexnet",
    "densenet121": "densenet121",
    "inception_v1": "inception_v1",
    "inception_v2": "inception_v2",
    "resnet50": "resnet50",
    "shufflenet": "shufflenet",
    "squeezenet": "squeezenet",
    "vgg16": "vgg19",
    "vgg19": "vgg19",
    "zfnet512": "zfnet512",
}
NAMES: tuple[str, ...] = tuple(sorted((*_STEMS, *operators.NETWORKS)))

# Part of the cache path: another version of this file, or of the graphs, may give another model for a name and seed.
_SOURCES = b"".join(Path(file).read_bytes() for file in (__file__, operators.__file__))
_VERSION = f"onnx{onnx.__version__}-{hashlib.sha256(_SOURCES).hexdigest()[:12]}"

# Weights of the last Conv or Gemm are multiplied by this (1 if not listed), so that the softmax at the end is neither
# flat nor saturated: chosen once by looking at a dozen seeds, powers of two, the same for every seed and machine.
_LAST_SCALE = {
    "alexnet": 1 / 2,
    "inception_v1": 1 / 2,
    "inception_v2": 1 / 2,
    "operators": 1 / 16,
    "operators_small": 1 / 8,
    "resnet50": 4.0,
    "shufflenet": 1 / 16,
    "vgg16": 1 / 2,
    "vgg19": 1 / 2,
}
_VGG19_ONLY = {"conv3_4_w_0", "conv4_4_w_0", "conv5_4_w_0"}
_BLOCK = 1 << 20  # elements drawn at once: bounds the float64 scratch to 8 MiB

Users = dict[str, list[tuple[NodeProto, int]]]
"""Tensor name -> the (node, input index) pairs that read it, in node order."""


def build(name: str, seed: int = 0) -> ModelProto:
    """Network ``name`` (one of NAMES) with its weights inline: IR 8, opset 9, float32, batch 1.

    The one input is ``(1, 3, 224, 224)``, the one output ``(1, 1000)`` or ``(1, 1000, 1, 1)``. Same name and
    seed (an int >= 0) give the same bytes. Nodes, their order and all names are those of the onnx package's graph;
    ``operators`` and ``operators_small`` are our own, to calibrate with.
    CleaveError: unknown name, or an onnx package without its graphs.
    """
    _check(name)
    source = operators.model(name) if name in operators.NETWORKS else _load(_STEMS[name])
    if name == "vgg16":
        _shorten(source.graph)
    model = _skeleton(source, name)
    model.doc_string = f"{name} with seeded random weights (seed {seed}), not trained ones"
    _add_weights(model.graph, source.graph, seed)
    return model


def write(name: str, folder: Path, seed: int = 0) -> Path:
    """Build ``name`` into ``folder/NAME.onnx`` (folder is created) and return that path.

    The file appears whole or not at all, also to other processes. CleaveError as in build; OSError from the disk.
    """
    model = build(name, seed)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}.onnx"
    with drafted(target) as draft:
        Path(draft).write_bytes(model.SerializeToString())
    return target


def cached(name: str, seed: int = 0) -> Path:
    """Path of ``name`` in the user's cache ($XDG_CACHE_HOME or ~/.cache), built on first use.

    ``CleaveError`` as in build, and where it cannot be kept.
    """
    _check(name)
    folder = cache("zoo", _VERSION, f"seed{seed}")
    target = folder / f"{name}.onnx"
    try:
        return target if target.exists() else write(name, folder, seed)
    except OSError as error:
        what = "networks of the zoo are kept there, elsewhere if XDG_CACHE_HOME says so"
        raise CleaveError(f"{folder}: cannot be written: {error.strerror}; {what}") from error


def _check(name: str) -> None:
    if name not in NAMES:
        raise CleaveError(f"the zoo has no network {name!r} (it has {', '.join(NAMES)})")


def _load(stem: str) -> ModelProto:
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{stem}.onnx"
    if not path.is_file():
        raise CleaveError(f"the installed onnx package lacks {path}; install onnx from PyPI")
    return onnx.load(path)


def _shorten(graph: GraphProto) -> None:
    """Turn VGG-19 into VGG-16: bypass the fourth convolution of blocks 3 to 5 and its Relu."""
    users = _users(graph)
    extra: list[NodeProto] = []
    for conv in [n for n in graph.node if _VGG19_ONLY & set(n.input)]:
        ((relu, _),) = users[conv.output[0]]
        for node, slot in users[relu.output[0]]:
            node.input[slot] = conv.input[0]
        extra += [conv, relu]
    for node in extra:
        graph.node.remove(node)


def _skeleton(source: ModelProto, name: str) -> ModelProto:
    """The network without its weights: real nodes, real inputs, and the target shapes of Reshape."""
    graph = source.graph
    nodes = [n for n in graph.node if n.op_type != "ConstantOfShape"]
    read = {x for n in nodes for x in n.input}
    targets = [i for i in graph.initializer if i.data_type == TensorProto.INT64 and i.name in read]
    initial = {i.name for i in graph.initializer}
    inputs = [i for i in graph.input if i.name not in initial]
    bare = helper.make_graph(nodes, name, inputs, list(graph.output), targets)
    return helper.make_model(bare, ir_version=8, opset_imports=source.opset_import, producer_name="cleave")


def _add_weights(graph: GraphProto, source: GraphProto, seed: int) -> None:
    """Draw every weight that ``graph`` reads, in the shape it has in ``source``, and append it inline."""
    shapes, users = _weight_shapes(source), _users(graph)
    last = [n for n in graph.node if n.op_type in ("Conv", "Gemm")][-1].output[0]
    for name in [x for node in graph.node for x in node.input if x in shapes]:
        rng = np.random.default_rng([seed, crc32(name.encode())])
        node, slot = _reader(name, users)
        values = _draw(node, slot, shapes[name], users, rng)
        if node.output[0] == last and slot == 1:
            values *= _LAST_SCALE.get(graph.name, 1.0)
        graph.initializer.add(name=name, dims=shapes[name], data_type=TensorProto.FLOAT, raw_data=values.tobytes())


def _weight_shapes(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    """Name -> shape of what ConstantOfShape makes, and of the few small float initializers beside it."""
    initial = {i.name: i for i in graph.initializer}
    shapes = {n: tuple(i.dims) for n, i in initial.items() if i.data_type == TensorProto.FLOAT}
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shapes[node.output[0]] = tuple(numpy_helper.to_array(initial[node.input[0]]).tolist())
    return shapes


def _users(graph: GraphProto) -> Users:
    users: Users = {}
    for node in graph.node:
        for slot, name in enumerate(node.input):
            users.setdefault(name, []).append((node, slot))
    return users


def _reader(weight: str, users: Users) -> tuple[NodeProto, int]:
    """The node and input index that a weight is for, seen through the Unsqueeze or Reshape before it."""
    node, slot = users[weight][0]
    while node.op_type in ("Unsqueeze", "Reshape"):
        node, slot = users[node.output[0]][0]
    return node, slot


def _draw(node: NodeProto, slot: int, shape: tuple[int, ...], users: Users, rng: np.random.Generator) -> np.ndarray:
    """Values for input ``slot`` of ``node``: float32 of ``shape``."""
    match node.op_type, slot:
        case "Conv" | "Gemm", 1:
            return _normal(rng, shape, math.sqrt(2 / _fan_in(node, shape)))
        case "Conv" | "Gemm", 2:
            return _normal(rng, shape, 0.05)
        case "BatchNormalization", 1:
            residual = any(n.op_type == "Sum" for n, _ in users[node.output[0]])
            return _uniform(rng, shape, *((0.2, 0.4) if residual else (0.8, 1.2)))
        case ("BatchNormalization", 4) | ("Mul", _):
            return _uniform(rng, shape, 0.8, 1.2)
    return _normal(rng, shape, 0.1)  # what shifts: BatchNormalization bias and mean, Add


def _fan_in(node: NodeProto, shape: tuple[int, ...]) -> int:
    if node.op_type == "Conv":
        return math.prod(shape[1:])
    return shape[-1] if any(a.name == "transB" and a.i for a in node.attribute) else shape[-2]


def _normal(rng: np.random.Generator, shape: tuple[int, ...], std: float) -> np.ndarray:
    """Drawn in float64 and rounded once: float32 draws could differ between processors in their last bit."""
    flat = np.empty(math.prod(shape), "<f4")
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        part[:] = std * rng.standard_normal(part.size)
    return flat.reshape(shape)


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    return rng.uniform(low, high, shape).astype("<f4")
