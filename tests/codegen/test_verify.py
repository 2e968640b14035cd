"""Verification finds what is wrong, and only that."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from codegen.bundle import source, write_bundle
from codegen.verify import HALF_TOLERANCE, STEPS_TOLERANCE, TOLERANCE, Verification, compare, verify
from model.mappings.mapping import Mapping
from model.network.load import load
from runtime.errors import CleaveError
from runtime.launch import read_plan
from tests.tiny import channels, rows, types
from tests.tiny_cnn import NEWEST, network, node, platform, save, weight

ONE = np.array([[1.0, -2.0], [0.5, 4.0]], np.float32)
"""Two frames of an output with two elements; the largest are 2 and 4."""


def tamper(file: Path, weight: str, by: float) -> None:
    """Change one element of a weight, as a bad cut would."""
    model = onnx.load(file)
    tensor = next(t for t in model.graph.initializer if t.name == weight)
    array = numpy_helper.to_array(tensor).copy()
    array.flat[0] += by
    tensor.CopyFrom(numpy_helper.from_array(array, weight))
    onnx.save(model, file)


@pytest.mark.parametrize("communicator", ["inprocess", pytest.param("mpi", marks=pytest.mark.mpi)])
@pytest.mark.parametrize("make", [channels, rows])
def test_a_right_bundle_passes(make, communicator, tmp_path: Path) -> None:
    tiny = make(tmp_path)
    found = verify(tiny.bundle, tiny.model, communicator=communicator)
    assert found.passed
    assert found.error is not None
    assert found.error < 1e-5
    assert found.frames == 3


@pytest.mark.parametrize("communicator", ["inprocess", pytest.param("mpi", marks=pytest.mark.mpi)])
def test_a_wrong_weight_is_found(communicator, tmp_path: Path) -> None:
    tiny = channels(tmp_path)
    tamper(tiny.bundle / "rank02/segment000.onnx", "w1", 1.0)  # channel 4, which rank 2 does not send
    assert verify(tiny.bundle, tiny.model, communicator=communicator).passed
    tamper(tiny.bundle / "rank01/segment000.onnx", "w1", 0.01)
    found = verify(tiny.bundle, tiny.model, communicator=communicator)
    assert not found.passed
    assert 1e-4 < found.outputs[0].error < 0.1
    assert str(found.outputs[0]).startswith("output 'out.0': WRONG, worst error 0.0")


def test_of_many_frames_so_many_are_compared_as_are_asked_for(tmp_path: Path) -> None:
    tiny = channels(tmp_path)
    (buffer,) = read_plan(tiny.bundle).inputs
    np.save(tmp_path / "in.npy", np.random.default_rng(0).standard_normal((9, *buffer.shape)).astype(buffer.dtype))
    for frames, most, compared in ((None, None, 9), (None, 4, 4), (None, 20, 9), (6, 4, 6)):
        found = verify(tiny.bundle, tiny.model, frames=frames, most=most, input=str(tmp_path / "in.npy"),
                       communicator="inprocess")  # fmt: skip
        assert (found.passed, found.frames) == (True, compared)


def test_a_message_with_the_wrong_box_is_found(tmp_path: Path) -> None:
    tiny = channels(tmp_path)
    program = tiny.bundle / "rank_02.py"
    program.write_text(program.read_text().replace("[0:1, 1:4]", "[0:1, 0:3]"))
    assert not verify(tiny.bundle, tiny.model, communicator="inprocess").passed


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("dtype", "operator"), [("float16", "Neg"), ("int64", "Neg"), ("bool", "Not"), ("uint8", "Identity")]
)
def test_types_over_mpi(dtype: str, operator: str, tmp_path: Path) -> None:
    tiny = types(tmp_path, dtype, operator)
    assert verify(tiny.bundle, tiny.model, frames=2).error == 0


def cut(folder: Path, model: onnx.ModelProto, devices: list[int], **shapes: tuple[int, ...]) -> tuple[Path, Path]:
    """A bundle whose layers lie whole on these devices, and the file that it was made from."""
    path = save(folder, model)
    graph = load(path, shapes)
    mapping, place = Mapping.whole(graph, devices), folder / "bundle"
    write_bundle(graph, platform(max(devices) + 1), mapping, source(graph, False, shapes), place, force=True)
    return place, path


def test_inputs_that_nothing_reads_and_outputs_in_the_middle(tmp_path: Path) -> None:
    """Two inputs, one of them integer, a third that nothing reads; outputs of both ranks, one of them used further."""
    nodes = [
        node("Cast", ["i"], ["f"], to=onnx.TensorProto.FLOAT),
        node("Add", ["x", "f"], ["sum"]),
        node("Relu", ["sum"], ["y"]),
    ]
    model = network(nodes, {"x": (1, 4), "unread": ("n", 2)}, ["sum", "y"])
    model.graph.input.append(onnx.helper.make_tensor_value_info("i", onnx.TensorProto.INT64, (1, 4)))
    found = verify(*cut(tmp_path, model, [0, 1, 0]), communicator="inprocess")
    assert [(check.name, check.passed) for check in found.outputs] == [("sum", True), ("y", True)]


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("size", [8, 11])
@pytest.mark.parametrize("declared", [(1, 3, 8, 8), (1, 3, "h", "w"), ("n", 3, 8, "w")])
def test_sizes_other_than_the_file_says(declared: tuple, size: int, external: bool, tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["y"])]
    model = network(nodes, {"x": declared}, ["y"], {"w": weight(64, 3, 3, 3)})
    bundle, path = cut(tmp_path, model, [0, 1], x=(2, 3, size, size))
    if external:
        onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    assert verify(bundle, path, communicator="inprocess").passed


def test_an_input_without_any_shape(tmp_path: Path) -> None:
    model = network([node("Relu", ["x"], ["r"]), node("Neg", ["r"], ["y"])], {"x": (1,)}, ["y"])
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert verify(*cut(tmp_path, model, [0, 1], x=(1, 4)), communicator="inprocess").passed


def test_float16_is_measured_with_another_measure(tmp_path: Path) -> None:
    tiny = types(tmp_path, "float16", "Neg")
    assert verify(tiny.bundle, tiny.model, communicator="inprocess").tolerance == HALF_TOLERANCE
    assert verify(tiny.bundle, tiny.model, communicator="inprocess", tolerance=0.5).tolerance == 0.5
    single = types(tmp_path / "single", "float32", "Neg")
    assert verify(single.bundle, single.model, communicator="inprocess").tolerance == TOLERANCE


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("uint16", STEPS_TOLERANCE), ("int16", STEPS_TOLERANCE), ("uint8", TOLERANCE)]
)
def test_steps_of_16_bits_are_counted_in_some_of_them(dtype: str, tolerance: float, tmp_path: Path) -> None:
    scale = {"s": np.array(0.01, np.float32), "z": np.array(7, dtype)}
    nodes = [node("QuantizeLinear", ["x", *scale], ["q"]), node("DequantizeLinear", ["q", *scale], ["d"])]
    model = network([*nodes, node("Relu", ["d"], ["y"])], {"x": (1, 3, 4, 4)}, ["y"], scale, NEWEST)
    bundle, path = cut(tmp_path, model, [0, 1])
    assert verify(bundle, path, communicator="inprocess").tolerance == tolerance


def test_seeds_may_be_of_any_size(tmp_path: Path) -> None:
    tiny = rows(tmp_path)
    assert verify(tiny.bundle, tiny.model, seed=2**40 + 1, communicator="inprocess").passed


def test_seeds_give_other_frames_and_the_same_seed_the_same(tmp_path: Path) -> None:
    tiny = channels(tmp_path)
    tamper(tiny.bundle / "rank01/segment000.onnx", "w1", 0.01)
    errors = [verify(tiny.bundle, tiny.model, seed=s, communicator="inprocess").error for s in (1, 1, 2)]
    assert errors[0] == errors[1] != errors[2]


def test_error_is_of_the_worst_frame_relative_to_its_largest() -> None:
    (check,) = compare({"o": ONE + np.float32([[0.5, 0], [0, 0.5]])}, {"o": ONE})
    assert check.error == 0.25
    (check,) = compare({"o": ONE + np.float32([[1e-4, 0], [0, 0]])}, {"o": ONE})
    assert (check.error, check.passed) == (pytest.approx(5e-5, rel=1e-3), True)


@pytest.mark.parametrize("axes", [(0, 1, 2), (0, 2, 1)])
def test_wrong_classes_are_found_beside_boxes_in_pixels(axes: tuple[int, ...]) -> None:
    """As detectors give them: four channels of hundreds, others of scores, channels or places first."""
    random = np.random.default_rng(0)
    boxes, scores = random.uniform(0, 640, (1, 4, 300)), random.uniform(0, 0.05, (1, 20, 300))
    wanted = np.concatenate([boxes, scores], axis=1).astype(np.float32)
    swapped = np.concatenate([boxes, scores[:, ::-1]], axis=1).astype(np.float32)
    rounded = wanted * (1 + random.uniform(-1e-6, 1e-6, wanted.shape)).astype(np.float32)
    for got, passed in ((swapped, False), (rounded, True)):
        (check,) = compare({"o": got.transpose(axes)[None]}, {"o": wanted.transpose(axes)[None]})
        assert check.passed == passed, check


def test_few_values_that_are_near_zero_are_compared_with_the_largest() -> None:
    wanted = np.float32([[[1000.0, 1e-6, -800.0]]])
    (check,) = compare({"o": wanted + np.float32(5e-3)}, {"o": wanted})
    assert (check.error, check.passed) == (pytest.approx(5e-6, rel=0.01), True)


@pytest.mark.parametrize(
    ("got", "reason"),
    [
        ({}, "the bundle does not give it"),
        ({"o": ONE[:, :1]}, "shape (1,), not (2,)"),
        ({"o": ONE.astype(np.float64)}, "float64, not float32"),
        ({"o": ONE * np.float32("nan")}, "NaN or infinities"),
        ({"o": np.where(ONE == 4, np.float32("inf"), ONE)}, "NaN or infinities"),
    ],
)
def test_what_cannot_be_compared_fails(got: dict, reason: str) -> None:
    (check,) = compare(got, {"o": ONE})
    assert (check.passed, check.error, check.reason) == (False, None, reason)
    assert Verification(2, 1e-4, (check,)).error is None


def test_a_model_that_gives_nan_says_so() -> None:
    (check,) = compare({"o": ONE * np.float32("nan")}, {"o": ONE * np.float32("nan")})
    assert not check.passed
    assert check.reason.startswith("the CNN itself gives NaN")


def test_infinities_are_compared_too_and_hide_nothing_beside_them() -> None:
    """What masks give: logits of minus infinity."""
    wanted = np.float32([[1, -np.inf, 2, np.inf]])
    assert compare({"o": wanted.copy()}, {"o": wanted})[0].error == 0
    assert compare({"o": wanted * np.float32([1, 1, 1.5, 1])}, {"o": wanted})[0].error == 0.5
    for other in ([1, -np.inf, 2, -np.inf], [1, 0, 2, np.inf], [1, -np.inf, np.inf, np.inf], [1, np.nan, 2, np.inf]):
        (check,) = compare({"o": np.float32([other])}, {"o": wanted})
        assert (check.passed, check.error, check.reason) == (False, None, "not the infinities of the CNN")


def test_zeros_and_nothing() -> None:
    zero = np.zeros((1, 2), np.float32)
    assert compare({"o": zero}, {"o": zero})[0].error == 0
    (check,) = compare({"o": zero + 1}, {"o": zero})
    assert (check.passed, check.error, check.reason) == (False, None, "the CNN gives only zeros, the bundle does not")
    assert compare({"o": zero[:, :0]}, {"o": zero[:, :0]})[0].passed
    assert not Verification(1, 1e-4, ()).passed


def test_integers_and_booleans_are_compared_too() -> None:
    wanted = np.array([[250, 3]], np.uint8)
    assert compare({"o": np.array([[3, 250]], np.uint8)}, {"o": wanted})[0].error == 247 / 250
    flags = np.array([[True, False]])
    assert not compare({"o": ~flags}, {"o": flags})[0].passed


def test_a_place_beside_is_another_one() -> None:
    """Which of many is largest, counted through all."""
    wanted = np.array([[16000, 3]], np.int64)
    (check,) = compare({"o": wanted + np.array([1, 0])}, {"o": wanted})
    assert (check.passed, check.error) == (False, 1 / 16000)
    assert compare({"o": wanted}, {"o": wanted})[0].passed
    large = wanted + 2**60  # which doubles do not tell from the next one
    assert not compare({"o": large + 1}, {"o": large})[0].passed


def test_narrow_integers_are_quantised_and_compared_as_such() -> None:
    for kind in (np.dtype(np.int8), np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)):
        wanted = np.array([[7, 3, 0]]).astype(kind)
        assert compare({"o": wanted}, {"o": wanted})[0].error == 0
        (check,) = compare({"o": np.array([[7, 2, 0]]).astype(kind)}, {"o": wanted})
        assert (check.passed, check.error) == (False, pytest.approx(1 / 7))


def test_json(tmp_path: Path) -> None:
    tiny = rows(tmp_path)
    body = json.loads(verify(tiny.bundle, tiny.model, frames=1, communicator="inprocess").to_json())
    assert (body["passed"], body["frames"], body["outputs"][0]["name"]) == (True, 1, "out")


def test_what_is_no_bundle_or_no_model(tmp_path: Path) -> None:
    with pytest.raises(CleaveError, match=r"is no bundle, it has no plan\.json"):
        verify(tmp_path, tmp_path / "model.onnx")
    tiny = rows(tmp_path)
    tiny.model.write_bytes(b"nonsense")
    with pytest.raises(CleaveError, match=r"model\.onnx: ONNX Runtime cannot run it: "):
        verify(tiny.bundle, tiny.model, communicator="inprocess")
