"""Models read and written piece by piece: the same as onnx reads and writes them, whatever they hold, however large."""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from model.network import wire
from model.network.load import load
from runtime.errors import CleaveError
from tests.tiny_cnn import examples, network, node, weight

DTYPES = [np.float32, np.float16, np.float64, np.int8, np.uint8, np.int64, np.bool_, ml_dtypes.bfloat16]


def array(draw: random.Random, dtype: type) -> np.ndarray:
    """Random values of a random shape: no axes, none in one, few elements, or more than stay in the message."""
    shape = draw.choice([(), (0,), (3,), (2, 3), (40, 7, 9), (1, 5000), (3, 0, 2)])
    values = np.random.default_rng(draw.randrange(1000)).integers(-100, 100, shape)
    return np.asarray(values).astype(dtype)


def typed(draw: random.Random, name: str) -> TensorProto:
    """A tensor whose values are in a field of their type, not in raw bytes."""
    return helper.make_tensor(name, TensorProto.FLOAT, [600], [draw.random() for _ in range(600)])


def random_model(draw: random.Random) -> ModelProto:
    """Initializers of all types, and fields of every kind around them."""
    tensors = [numpy_helper.from_array(array(draw, draw.choice(DTYPES)), f"w{i}") for i in range(draw.randint(0, 5))]
    tensors += [typed(draw, "typed")] if draw.random() < 0.3 else []
    tensors += [helper.make_tensor("text", TensorProto.STRING, [2], [b"a", b"b" * 2000])] if draw.random() < 0.3 else []
    for tensor in tensors:
        tensor.doc_string = "d" * draw.choice([0, 10, 3000])
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])]
    value = numpy_helper.from_array(weight(30, 30), "inside")
    nodes = [node("Relu", ["x"], ["y"]), node("Constant", [], ["c"], value=value)]
    graph = helper.make_graph(nodes, "g" * draw.choice([1, 300]), infos, infos, tensors, doc_string="graph")
    model = helper.make_model(graph, producer_name="someone", doc_string="e" * draw.choice([0, 2000]))
    helper.set_model_props(model, {"key": "value" * draw.choice([1, 500])})
    return model


def inlined(model: ModelProto, folder: Path) -> ModelProto:
    """The model with the weights that it refers to in it."""
    found = ModelProto()
    found.CopyFrom(model)
    onnx.load_external_data_for_model(found, str(folder))
    for tensor in found.graph.initializer:
        tensor.ClearField("data_location")
    return found


def same(a: ModelProto, b: ModelProto) -> bool:
    return a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True)


@given(draw=st.randoms(use_true_random=False))
@examples(25)
def test_a_scanned_model_is_what_onnx_loads(draw: random.Random) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "m.onnx"
        onnx.save(random_model(draw), path)
        found = wire.scan(path)
        assert all(len(t.raw_data) <= wire.LARGE_BYTES for t in found.graph.initializer)
        assert same(inlined(found, path.parent), onnx.load(path))


@given(draw=st.randoms(use_true_random=False))
@examples(25)
def test_values_are_mapped_from_where_they_lie(draw: random.Random) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "m.onnx"
        model = random_model(draw)
        onnx.save(model, path)
        for tensor, original in zip(wire.scan(path).graph.initializer, model.graph.initializer, strict=True):
            if tensor.external_data:
                mapped = wire.in_place(tensor, path.parent)
                wanted = numpy_helper.to_array(original)
                assert mapped is not None
                assert mapped.dtype == wanted.dtype
                assert np.array_equal(mapped, wanted)


@given(draw=st.randoms(use_true_random=False))
@examples(60)
def test_a_torn_or_changed_file_is_refused_with_a_sentence(draw: random.Random) -> None:
    """Or it is still a model: most bytes are weights."""
    layers = [node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["y"])]
    data = bytearray(network(layers, {"x": (1, 3, 4, 4)}, ["y"], {"w": weight(8, 3, 4, 4)}).SerializeToString())
    if draw.random() < 0.4:
        data = data[: draw.randrange(len(data))]
    for _ in range(draw.randint(0, 4)):
        at = draw.choice([draw.randrange(len(data) + 1), len(data) - draw.randint(0, min(120, len(data)))])
        data[at : at + draw.randint(0, 2)] = bytes(draw.randrange(256) for _ in range(draw.randint(0, 2)))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "m.onnx"
        path.write_bytes(data)
        with contextlib.suppress(DecodeError):
            wire.scan(path)
        with contextlib.suppress(CleaveError):
            load(path)


def test_an_empty_file_and_a_text_are_no_models(tmp_path: Path) -> None:
    for content in (b"", b"hello, world", b"\xff" * 100, b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"):
        (tmp_path / "m.onnx").write_bytes(content)
        with pytest.raises(CleaveError, match="is no ONNX model"):
            load(tmp_path / "m.onnx")


def test_fields_that_nobody_knows_are_kept(tmp_path: Path) -> None:
    """A number for the model and bytes for the graph, as a later version of the format may have them."""
    model = network([node("Relu", ["x"], ["y"])], {"x": (1, 3)}, ["y"], {"w": weight(40, 40)})
    graph = model.graph.SerializeToString() + wire._opening(777, 5) + b"later"
    model.ClearField("graph")
    data = model.SerializeToString() + wire._opening(wire.GRAPH_OF_MODEL, len(graph)) + graph
    data += wire._encoded(888 << 3 | wire.VARINT) + wire._encoded(2**40)
    (tmp_path / "m.onnx").write_bytes(data)
    found = wire.scan(tmp_path / "m.onnx")
    assert b"later" in found.graph.SerializeToString()
    assert same(inlined(found, tmp_path), onnx.load(tmp_path / "m.onnx"))


def views() -> dict[str, np.ndarray]:
    """Arrays as cutting leaves them: parts along each axis, reversed, transposed, of no elements, of none at all."""
    base = np.arange(3 * 50 * 70, dtype=np.float32).reshape(3, 50, 70)
    return {
        "whole": base,
        "first": base[1:3],
        "middle": base[:, 3:9],
        "last": base[:, :, 1:2],
        "back": base[::-1, ::2],
        "across": base.transpose(2, 0, 1),
        "empty": base[:, 5:5],
        "one": base[0, 0, 0:1],
        "scalar": np.array(3.5, np.float32),
    }


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_written_onnx_reads_back(dtype: type, tmp_path: Path) -> None:
    model = network([node("Relu", ["x"], ["y"])], {"x": (1, 3)}, ["y"], {"small": weight(2)})
    weights = {name: value.astype(dtype) for name, value in views().items()}
    weights["sliced"] = np.arange(600).reshape(20, 30).astype(dtype)[:, 4:17]
    with (tmp_path / "m.onnx").open("wb") as file:
        written = wire.write(file, model, weights.items())
    assert written == (tmp_path / "m.onnx").stat().st_size
    found = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "m.onnx").graph.initializer}
    assert set(found) == {"small", *weights}
    for name, value in weights.items():
        assert found[name].dtype == value.dtype
        assert np.array_equal(found[name], value), name


def test_what_is_written_is_what_onnx_would_write(tmp_path: Path) -> None:
    weights = {"a": weight(30, 30), "b": weight(7)}
    model = network([node("Relu", ["x"], ["y"])], {"x": (1, 3)}, ["y"])
    file = io.BytesIO()
    wire.write(file, model, weights.items())  # type: ignore[arg-type]
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    assert same(ModelProto.FromString(file.getvalue()), model)


def test_weights_written_apart_are_found_again(tmp_path: Path) -> None:
    with (tmp_path / "m.data").open("wb") as file:
        tensors = wire.write_apart(file, views().items())
    for tensor, value in zip(tensors, views().values(), strict=True):
        if value.size:
            mapped = wire.in_place(tensor, tmp_path)
            assert mapped is not None
            assert np.array_equal(mapped, value)


SIDE = 28672
"""Of a square matrix of floats that takes more than 3 GB."""

LARGE = """
import resource, sys
from pathlib import Path
from codegen.slicing import segment
from model.network.load import load
from model.mappings.mapping import Mapping, Shard
from model.mappings.planning import plan
from tests.tiny_cnn import platform, runs

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

folder = Path(sys.argv[1])
before = peak()
graph = load(folder / "large.onnx")
side = graph.tensors["w"].shape[0]
mapping = Mapping.of([Shard(0, 0, 100, 0), Shard(0, 100, side, 1), Shard(1, 0, side, 1)])
planned = plan(graph, platform(2), mapping)
for run in runs(planned):
    model = segment(graph, planned, run)
    if max((value.nbytes for value in model.weights.values()), default=0) < 1 << 28:
        model.save(folder / "part.onnx")
print(sum(t.size_bytes for t in graph.tensors.values()), peak() - before)
"""


def test_a_model_of_3_gb_is_loaded_and_cut_in_little_memory(tmp_path: Path) -> None:
    """Its weights are a file of zeros that takes no place on the disk; the part that is written is small."""
    if shutil.disk_usage(tmp_path).free < 1 << 30:
        pytest.skip("less than 1 GB of free disk for a sparse file of 3 GB")
    (tmp_path / "w.bin").touch()
    os.truncate(tmp_path / "w.bin", SIDE * SIDE * 4)
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[SIDE, SIDE], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), ("offset", 0), ("length", SIDE * SIDE * 4)):
        w.external_data.add(key=key, value=str(value))
    layers = [node("Gemm", ["x", "w"], ["h"], transB=1), node("Relu", ["h"], ["y"])]
    model = network(layers, {"x": (1, SIDE)}, ["y"])
    model.graph.initializer.append(w)
    (tmp_path / "large.onnx").write_bytes(model.SerializeToString())
    done = subprocess.run([sys.executable, "-c", LARGE, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    weights, growth = map(int, done.stdout.split()[-2:])
    assert weights > 3e9
    assert growth < 400e6
