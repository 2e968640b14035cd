"""Reading ONNX files: what is understood, what vanishes, and what is refused with which sentence."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from codegen import zoo
from codegen.bundle import source, write_bundle
from codegen.verify import verify
from model.mappings.mapping import Mapping
from model.network.graph import Graph
from model.network.load import load
from runtime.errors import CleaveError
from tests.tiny_cnn import (
    NEWEST,
    assert_cut_exactly,
    assert_same,
    branches,
    frame,
    graph_of,
    network,
    node,
    platform,
    random_mapping,
    run_mapping,
    run_whole,
    save,
    weight,
)

SMALL_ZOO = ["densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet"]


def assert_whole_is_right(graph: Graph) -> None:
    """Every layer whole on one device gives what the file gives."""
    feeds = frame(graph)
    assert_same(
        run_mapping(graph, Mapping.whole(graph, [0] * len(graph.layers)), 1, feeds), run_whole(graph.path, feeds)
    )


def refused(path: Path, **how: object) -> list[str]:
    """The sentences with which a file is refused, without its path."""
    with pytest.raises(CleaveError) as error:
        load(path, **how)  # type: ignore[arg-type]
    lines = str(error.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    return [line.removeprefix(f"{path}: ") for line in lines]


def refused_model(folder: Path, model: ModelProto, **how: object) -> list[str]:
    return refused(save(folder, model), **how)


def relu(shape: tuple = (1, 3, 4, 4)) -> ModelProto:
    return network([node("Relu", ["x"], ["y"], "relu")], {"x": shape}, ["y"])


# --- weights ---


@pytest.mark.parametrize("opset", range(7, NEWEST + 1))
def test_every_opset_is_read_and_computes_the_same(opset: int, tmp_path: Path) -> None:
    graph = graph_of(tmp_path, branches(opset))
    assert graph.opsets == (("", opset),)
    assert_whole_is_right(graph)


@pytest.mark.parametrize("ir", [3, 4, 8, 10])
def test_weights_are_constants_whether_they_are_also_inputs_or_not(ir: int, tmp_path: Path) -> None:
    model = branches(9, ir)
    assert len(model.graph.input) == (12 if ir == 3 else 1)
    graph = graph_of(tmp_path, model)
    assert graph.inputs == ("x",)
    assert len(graph.constants) == 11
    assert all(graph.is_constant(name) for name in ("stem", "shared", "bias"))
    assert graph.ir_version == ir
    np.testing.assert_array_equal(graph.constant("shared"), weight(8, 8, 1, 1) / 3)
    assert_whole_is_right(graph)


def external(folder: Path, location: str) -> Path:
    """A convolution whose weights lie in ``location``."""
    model = network([node("Conv", ["x", "w"], ["y"])], {"x": (1, 64, 4, 4)}, ["y"], {"w": weight(128, 64, 1, 1)})
    path = folder / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    stored = onnx.load(path, load_external_data=False)
    for entry in stored.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    path.write_bytes(stored.SerializeToString())
    return path


def test_weights_may_lie_in_a_file_beside(tmp_path: Path) -> None:
    graph = load(external(tmp_path, "weights.bin"))
    assert graph.constants["w"].external_data
    np.testing.assert_array_equal(graph.constant("w"), weight(128, 64, 1, 1))
    assert_whole_is_right(graph)


def test_external_weights_are_found_from_any_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    external(tmp_path, "weights.bin")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert load("../m.onnx").constant("w").shape == (128, 64, 1, 1)
    assert load("../m.onnx", folded=True).constant("w").shape == (128, 64, 1, 1)


def test_a_shape_that_another_input_does_not_have_is_refused(tmp_path: Path) -> None:
    """AlexNet's: the file says 1x9216 for ever."""
    nodes = [node("Relu", ["x"], ["r"], "relu"), node("Reshape", ["r", "s"], ["y"], "flat")]
    path = save(tmp_path, network(nodes, {"x": (1, 4, 3)}, ["y"], {"s": np.array([1, 12])}))
    assert [layer.name for layer in load(path).layers] == ["relu", "flat"]
    with pytest.raises(CleaveError, match="layer 'flat': 2x4x3 cannot become 1x12, of other elements"):
        load(path, {"x": (2, 4, 3)})


def test_a_mode_may_lie_in_a_file_beside(tmp_path: Path) -> None:
    nodes = [node("Dropout", ["x", "r", "mode"], ["d"], "drop"), node("Relu", ["d"], ["y"], "relu")]
    weights = {"r": np.array(np.float32(0.5)), "mode": np.array(False)}
    model = network(nodes, {"x": (1, 4)}, ["y"], weights)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert [layer.name for layer in load(tmp_path / "m.onnx").layers] == ["relu"]


def test_the_number_of_elements_is_known_before_the_first_frame(tmp_path: Path) -> None:
    nodes = [node("Size", ["x"], ["n"]), node("Unsqueeze", ["n", "k"], ["m"]), node("Reshape", ["x", "m"], ["y"])]
    graph = graph_of(tmp_path, network(nodes, {"x": (2, 3)}, ["y"], {"k": np.array([0])}))
    assert [layer.op for layer in graph.layers] == ["Reshape"]
    assert_whole_is_right(graph)


@pytest.mark.parametrize(("size", "right"), [(4, True), (8, False)])
def test_what_folding_computes_with_the_file_s_shape_is_not_taken_for_another(
    size: int, right: bool, tmp_path: Path
) -> None:
    nodes = [
        node("Shape", ["x"], ["s"], start=2, end=3),
        node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        node("Div", ["x", "f"], ["y"]),
    ]
    path, shapes = save(tmp_path, network(nodes, {"x": (1, 2, 4, 4)}, ["y"])), {"x": (1, 2, size, size)}
    assert load(path, shapes).constant("f") == size
    if right:
        assert load(path, shapes, folded=True).constant("f") == size
    else:
        (sentence,) = refused(path, shapes=shapes, folded=True)
        assert sentence.startswith("input 'x' is 1,2,4,4 in the file, and is folded so: leave --shape x or --fold out")


@pytest.mark.parametrize("op", ["Reshape", "ConstantOfShape"])
@pytest.mark.parametrize("types", [(TensorProto.BOOL,), (TensorProto.INT8,), (TensorProto.FLOAT, TensorProto.BOOL)])
def test_shapes_of_shapes_that_onnx_and_onnxruntime_reckon_differently_are_refused(
    types: tuple[int, ...], op: str, tmp_path: Path
) -> None:
    """Shape inference that follows values takes a Cast for nothing: 260 of a byte is no 260, 4 of a bool no 4."""
    made = [f"s{k}" for k in range(len(types) + 1)]
    shaped = [node("ConstantOfShape", ["n"], ["z"]), node("Add", ["z", "one"], ["r"])]
    if op == "Reshape":
        shaped = [node("Concat", ["n", "rest"], ["to"], axis=0), node("Reshape", ["x", "to"], ["r"])]
    nodes = [
        node("Shape", ["x"], [made[0]]),
        *(node("Cast", [a], [b], to=t) for a, b, t in zip(made, made[1:], types, strict=False)),
        node("Cast", [made[-1]], ["n"], to=TensorProto.INT64),
        node("ReduceSum", ["x"], ["one"], keepdims=0),
        *shaped,
        node("Relu", ["r"], ["a"], "relu"),
        node("Shape", ["a"], ["of"]),
        node("Cast", ["of"], ["f"], to=TensorProto.FLOAT),
        node("ReduceSum", ["f"], ["sum"], keepdims=0),
        node("Add", ["a", "sum"], ["y"], "add"),
    ]
    (sentence,) = refused_model(tmp_path, network(nodes, {"x": (4, 260)}, ["y"], {"rest": np.array([-1])}))
    assert re.match(r"the shape of 'a' is computed of other shapes, and comes out as \(4, 260.*\) or \(", sentence)


def test_a_weight_that_is_an_output_too_is_refused(tmp_path: Path) -> None:
    model = network([node("Add", ["x", "c"], ["y"])], {"x": (1, 4)}, ["y", "c"], {"c": weight(4)})
    assert refused_model(tmp_path, model) == ["output 'c' does not depend on any input"]


def test_types_that_numpy_lacks_are_not_passed_on(tmp_path: Path) -> None:
    nodes = [node("Cast", ["x"], ["b"], "cast", to=TensorProto.BFLOAT16), node("Relu", ["b"], ["r"], "relu")]
    nodes.append(node("Cast", ["r"], ["y"], to=TensorProto.FLOAT))
    first, second = refused_model(tmp_path, network(nodes, {"x": (1, 4)}, ["y"]))
    assert first.startswith("layer 'cast': 'b' is of type bfloat16, which is not passed on between devices")
    assert second.startswith("layer 'relu': 'r' is of type bfloat16")


def test_strings_are_not_passed_on_and_no_input_of_a_type_that_numpy_lacks(tmp_path: Path) -> None:
    text = [node("Cast", ["x"], ["s"], "text", to=TensorProto.STRING), node("Cast", ["s"], ["y"], to=TensorProto.FLOAT)]
    (sentence,) = refused_model(tmp_path, network(text, {"x": (1, 4)}, ["y"]))
    assert sentence.startswith("layer 'text': 's' is of type string, which is not passed on between devices")
    model = network([node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], {"x": (1, 4)}, ["y"])
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
    (sentence,) = refused_model(tmp_path, model)
    assert sentence.startswith("input 'x' is of type bfloat16, which is not passed on")


@pytest.mark.parametrize("name", ["int4", "uint4", "float8_e4m3fn", "float8_e5m2"])
def test_constants_of_types_that_numpy_lacks_are_what_the_file_says(name: str, tmp_path: Path) -> None:
    """ONNX Runtime would give the bits of some as if they were integers, and nothing of others."""
    value = numpy_helper.from_array(np.random.default_rng(0).integers(0, 7, (6, 5)).astype(getattr(ml_dtypes, name)))
    nodes = [
        node("Constant", [], ["q"], value=value),
        node("DequantizeLinear", ["q", "s"], ["w"]),
        node("MatMul", ["x", "w"], ["m"]),
        node("Relu", ["m"], ["y"]),
    ]
    model = network(nodes, {"x": (4, 6)}, ["y"], {"s": np.array(0.1, np.float32)}, 21, 11)
    graph = load(save(tmp_path, model))
    assert graph.tensors["q"].dtype == name
    assert_whole_is_right(graph)


def test_constants_that_cannot_be_folded_for_their_type_are_refused(tmp_path: Path) -> None:
    nodes = [
        node("Cast", ["c"], ["q"], to=TensorProto.FLOAT8E4M3FN),
        node("DequantizeLinear", ["q", "s"], ["w"]),
        node("MatMul", ["x", "w"], ["y"]),
    ]
    model = network(nodes, {"x": (4, 6)}, ["y"], {"c": weight(6, 5), "s": np.array(0.1, np.float32)}, 21)
    assert refused_model(tmp_path, model) == ["constants cannot be folded: 'q' is a tensor(float8e4m3fn)"]


def test_a_missing_file_of_weights_is_named(tmp_path: Path) -> None:
    path = external(tmp_path, "weights.bin")
    (tmp_path / "weights.bin").unlink()
    assert refused(path) == ["the external data of weight 'w' is missing: weights.bin"]


def test_a_file_of_weights_that_was_not_copied_to_its_end_is_told(tmp_path: Path) -> None:
    path = external(tmp_path, "weights.bin")
    size = 128 * 64 * 4
    (tmp_path / "weights.bin").write_bytes((tmp_path / "weights.bin").read_bytes()[:-1])
    assert refused(path) == [
        f"the external data of weight 'w' ends at {size} bytes, but weights.bin has {size - 1}: copy or fetch it again"
    ]


def test_a_shortened_file_of_weights_is_told_when_they_are_read(tmp_path: Path) -> None:
    graph = load(external(tmp_path, "weights.bin"))
    (tmp_path / "weights.bin").write_bytes(b"1234")
    with pytest.raises(CleaveError, match="the data of weight 'w' cannot be read"):
        graph.constant("w")


def test_a_file_of_weights_that_vanishes_is_told_when_they_are_read(tmp_path: Path) -> None:
    graph = load(external(tmp_path, "weights.bin"))
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(CleaveError, match="the data of weight 'w' cannot be read"):
        graph.constant("w")


def test_a_shortened_file_of_weights_is_told_when_they_are_folded(tmp_path: Path) -> None:
    nodes = [node("Neg", ["w"], ["n"]), node("Add", ["x", "n"], ["y"])]
    model = network(nodes, {"x": (1, 64)}, ["y"], {"w": weight(64)})
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert load(tmp_path / "m.onnx").constant("n").shape == (64,)
    (tmp_path / "w.bin").write_bytes(b"1234")
    (sentence,) = refused(tmp_path / "m.onnx")
    assert sentence.startswith("the external data of weight 'w' ends at 256 bytes, but w.bin has 4")


def test_a_constant_of_a_layer_that_lies_in_another_file_is_refused(tmp_path: Path) -> None:
    """ONNX Runtime would look for it where the command runs."""
    value = helper.make_tensor("v", TensorProto.FLOAT, [4], np.zeros(4, np.float32).tobytes(), raw=True)
    onnx.external_data_helper.set_external_data(value, ".env")
    nodes = [node("Constant", [], ["c"], "secret", value=value), node("Add", ["x", "c"], ["y"])]
    path = save(tmp_path, network(nodes, {"x": (1, 4)}, ["y"]))
    assert refused(path) == [
        "layer 'secret': its constant lies in another file; save the model without convert_attribute"
    ]


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/passwd", "link.bin", "a/../../weights.bin"])
def test_weights_outside_the_folder_are_refused(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    path = external(folder, location)
    (folder / "weights.bin").rename(tmp_path / "weights.bin")
    (folder / "link.bin").symlink_to(tmp_path / "weights.bin")
    assert refused(path) == [f"weight 'w' lies outside the model's folder: {location}"]


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int4"])
def test_a_model_may_be_a_link_to_elsewhere_with_its_weights_inside(dtype: str, folded: bool, tmp_path: Path) -> None:
    """As caches of downloads have it."""
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    model = network(nodes, {"x": (4, 60)}, ["y"], {"w": weight(60, 80)}, 21, 10)
    if dtype == "int4":
        values = np.random.default_rng(0).integers(-7, 8, (60, 80))
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(values.astype(ml_dtypes.int4), "q"))
        model.graph.initializer.append(numpy_helper.from_array(np.array(0.1, np.float32), "s"))
        model.graph.node.insert(0, node("DequantizeLinear", ["q", "s"], ["w"]))
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot/m.onnx").symlink_to(save(tmp_path / "blobs", model))
    graph = load(tmp_path / "snapshot/m.onnx", folded=folded)
    assert graph.name == "m"
    assert_whole_is_right(graph)


def test_a_weight_used_twice_is_one_constant(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, branches())
    first, second = graph.by_name["first"], graph.by_name["second"]
    assert first.inputs[1] == second.inputs[1] == "shared"
    assert graph.weight_bytes(first) == graph.weight_bytes(second) == 8 * 8 * 4


# --- what is known before the first frame ---


def test_constant_nodes_and_unsqueezed_weights_fold_away(tmp_path: Path) -> None:
    nodes = [
        node("Constant", [], ["two"], value=numpy_helper.from_array(np.array(2, np.float32))),
        node("Constant", [], ["k"], value_floats=[1.0, 2.0, 3.0]),
        node("Constant", [], ["axes"], value_ints=[1, 2]),
        node("Unsqueeze", ["k", "axes"], ["wide"]),
        node("Mul", ["wide", "two"], ["scale"]),
        node("Mul", ["x", "scale"], ["y"], "mul"),
    ]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 3, 4, 4)}, ["y"]))
    assert [layer.name for layer in graph.layers] == ["mul"]
    assert graph.constant("scale").ravel().tolist() == [2, 4, 6]
    assert set(graph.constants) == {"scale"}
    assert_whole_is_right(graph)


def torch_head(batch: int | str | None = 1) -> ModelProto:
    """What exporters write for ``x.view(x.size(0), -1)``."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], "conv"),
        node("Shape", ["c"], ["shape"], "shape"),
        node("Gather", ["shape", "zero"], ["n"], "gather", axis=0),
        node("Unsqueeze", ["n", "first"], ["n1"], "unsqueeze"),
        node("Concat", ["n1", "rest"], ["target"], "concat", axis=0),
        node("Reshape", ["c", "target"], ["r"], "reshape"),
        node("Gemm", ["r", "d"], ["y"], "fc"),
    ]
    weights = {"w": weight(5, 3, 1, 1), "zero": np.array(0), "first": np.array([0]), "rest": np.array([-1])}
    return network(nodes, {"x": (batch, 3, 2, 4)}, ["y"], {**weights, "d": weight(40, 6)})


@pytest.mark.parametrize("folded", [False, True])
def test_shape_chains_before_a_reshape_fold_away(folded: bool, tmp_path: Path) -> None:
    graph = graph_of(tmp_path, torch_head(), folded=folded)
    assert [layer.name for layer in graph.layers] == ["conv", "reshape", "fc"]
    assert graph.tensors["r"].shape == (1, 40)
    assert_whole_is_right(graph)


def test_a_part_of_a_shape_folds_away(tmp_path: Path) -> None:
    nodes = [node("Shape", ["x"], ["s"], start=-2), node("Resize", ["h", "", "", "t"], ["y"], "up")]
    nodes += [node("Concat", ["nc", "s"], ["t"], axis=0)]
    nodes = [nodes[0], nodes[2], node("MaxPool", ["x"], ["h"], kernel_shape=[2, 2], strides=[2, 2]), nodes[1]]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 3, 6, 8)}, ["y"], {"nc": np.array([1, 3])}))
    assert graph.tensors["y"].shape == (1, 3, 6, 8)
    assert [layer.op for layer in graph.layers] == ["MaxPool", "Resize"]
    assert_whole_is_right(graph)


# --- what vanishes ---


def test_identity_and_dropout_vanish(tmp_path: Path) -> None:
    nodes = [
        node("Identity", ["x"], ["i"], "i"),
        node("Dropout", ["i"], ["d"], "d"),
        node("Identity", ["d"], ["j"], "j"),
        node("Relu", ["j"], ["r"], "relu"),
        node("Dropout", ["r"], ["e"], "e"),
        node("Neg", ["e"], ["y"], "neg"),
    ]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 4)}, ["y"]))
    assert [(layer.name, layer.inputs) for layer in graph.layers] == [("relu", ("x",)), ("neg", ("r",))]
    assert [layer.origins for layer in graph.layers] == [("i", "d", "j", "relu"), ("e", "neg")]
    assert_whole_is_right(graph)


@pytest.mark.parametrize("op", ["Identity", "Dropout"])
def test_what_makes_the_output_stays(op: str, tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["r"], "relu"), node(op, ["r"], ["y"], "last")]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 4)}, ["y"]))
    assert [layer.name for layer in graph.layers] == ["relu", "last"]
    assert graph.outputs == ("y",)
    assert_whole_is_right(graph)


@pytest.mark.parametrize("outputs", [{"y": "float32", "mask": "bool"}, {"y": "float32", "cast": "float32"}])
def test_a_dropout_whose_mask_is_used_stays(outputs: dict[str, str], tmp_path: Path) -> None:
    nodes = [
        node("Dropout", ["x"], ["d", "mask"], "drop"),
        node("Cast", ["mask"], ["cast"], "cast", to=TensorProto.FLOAT),
        node("Relu", ["d"], ["y"], "relu"),
    ]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 4)}, outputs))
    assert "drop" in graph.by_name
    assert graph.tensors["mask"].dtype == "bool"
    assert_whole_is_right(graph)


def test_a_dropout_without_a_mask_vanishes_though_other_inputs_are_left_out(tmp_path: Path) -> None:
    nodes = [node("Dropout", ["x"], ["d", ""]), node("Clip", ["d", "", "most"], ["y"], "clip")]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 6)}, ["y"], {"most": np.array(1, np.float32)}))
    assert [layer.name for layer in graph.layers] == ["clip"]


def test_a_dropout_whose_mask_is_declared_but_unused_vanishes(tmp_path: Path) -> None:
    nodes = [node("Dropout", ["x"], ["d", "mask"]), node("Relu", ["d"], ["y"], "relu")]
    assert [i.name for i in graph_of(tmp_path, network(nodes, {"x": (1, 4)}, ["y"])).layers] == ["relu"]


@pytest.mark.parametrize("by_node", [True, False])
@pytest.mark.parametrize("mode", [True, False, None])
def test_a_dropout_that_drops_is_refused(mode: bool | None, by_node: bool, tmp_path: Path) -> None:
    """None: somebody says when it runs."""
    inputs, constants = {"x": (1, 4)}, {"r": np.float32(0.5)}
    nodes = [node("Dropout", ["x", "r", "mode"], ["d"], "drop"), node("Relu", ["d"], ["y"], "relu")]
    if mode is None:
        inputs["mode"] = ()
    elif by_node:
        nodes.insert(0, node("Constant", [], ["mode"], value=numpy_helper.from_array(np.array(mode))))
    else:
        constants["mode"] = np.bool_(mode)
    model = network(nodes, inputs, ["y"], {name: np.array(value) for name, value in constants.items()})
    if mode is False:
        assert [layer.name for layer in graph_of(tmp_path, model).layers] == ["relu"]
    else:
        with pytest.raises(CleaveError, match="layer 'drop': Dropout is in training mode; export the network for inf"):
            graph_of(tmp_path, model)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("mode", [False, True])
def test_weights_that_drop_are_refused_and_not_drawn_once_for_all(mode: bool, folded: bool, tmp_path: Path) -> None:
    nodes = [node("Dropout", ["w", "r", "mode"], ["d"], "drop", seed=1), node("Conv", ["x", "d"], ["y"], "conv")]
    weights = {"w": weight(4, 3, 1, 1), "r": np.array(np.float32(0.5)), "mode": np.array(mode)}
    path = save(tmp_path, network(nodes, {"x": (1, 3, 4, 4)}, ["y"], weights))
    with pytest.raises(CleaveError, match="layer 'drop': Dropout is in training mode") if mode else nullcontext():
        assert [layer.name for layer in load(path, folded=folded).layers] == ["conv"]


@pytest.mark.parametrize("nameless", [
    node("Split", ["x"], ["", "y"], "fatal", axis=1, num_outputs=2),
    node("BatchNormalization", ["x", *"smvb"], ["y", "", "", "", ""], "fatal"),
])  # fmt: skip
def test_what_ends_the_process_is_refused_before(nameless: NodeProto, tmp_path: Path) -> None:
    """ONNX Runtime runs into a null pointer."""
    weights = {name: np.abs(weight(4)) for name in "smvb"}
    for folded in (False, True):
        path = save(tmp_path, network([nameless], {"x": (1, 4, 4, 4)}, ["y"], weights))
        with pytest.raises(CleaveError, match=r"layer 'fatal': an output of .* has no name, of which ONNX Runtime cra"):
            load(path, folded=folded)


def test_a_normalisation_that_looks_at_all_samples_is_refused(tmp_path: Path) -> None:
    weights = {name: np.abs(weight(3)) for name in ("s", "b", "m", "v")}
    nodes = [node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "n", "w"], "norm", training_mode=1)]
    with pytest.raises(CleaveError, match="layer 'norm': BatchNormalization is in training mode"):
        graph_of(tmp_path, network(nodes, {"x": (2, 3, 4, 4)}, ["y"], weights))


@pytest.mark.parametrize("drawn", [
    node("RandomUniformLike", ["x"], ["r"], "drop"),
    node("RandomUniform", [], ["r"], "drop", shape=[1, 3, 4, 4], seed=1.0),
])  # fmt: skip
def test_what_draws_other_numbers_each_time_is_refused(tmp_path: Path, drawn: NodeProto) -> None:
    """Stochastic depth that is exported in training mode; with a seed only the first frame is the same each time."""
    nodes = [drawn, node("Mul", ["x", "r"], ["y"])]
    with pytest.raises(CleaveError, match=r"layer 'drop': RandomUniform\w* draws other numbers each time; export the"):
        graph_of(tmp_path, network(nodes, {"x": (1, 3, 4, 4)}, ["y"]))


def test_dead_nodes_and_unused_weights_and_inputs_are_dropped(tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["x"], ["y"], "kept"),
        node("Mul", ["x", "w"], ["dead"], "dead"),
        node("Neg", ["dead"], ["deader"], "deader"),
    ]
    model = network(nodes, {"x": (1, 4), "idle": (2, 2)}, ["y"], {"w": weight(4), "unused": weight(3)})
    graph = graph_of(tmp_path, model)
    assert [layer.name for layer in graph.layers] == ["kept"]
    assert graph.inputs == ("x",)
    assert graph.constants == {}
    assert set(graph.tensors) >= {"x", "y"}


def test_the_shape_of_an_input_that_nothing_reads_is_not_asked_for(tmp_path: Path) -> None:
    model = network([node("Relu", ["x"], ["y"])], {"x": (1, 4), "idle": ("N", 2)}, ["y"])
    graph = graph_of(tmp_path, model)
    assert (graph.inputs, set(graph.tensors)) == (("x",), {"x", "y"})


def test_layers_have_unique_names(tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["x"], ["a"], "twice"),
        node("Neg", ["a"], ["b"], "twice"),
        node("Abs", ["b"], ["c"]),
        node("Neg", ["c"], ["d"], "c"),
        node("Relu", ["d"], ["y"], "plain"),
    ]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 4)}, ["y"]))
    names = [layer.name for layer in graph.layers]
    assert names == ["a", "b", "c#2", "c", "plain"]
    assert list(graph.by_name) == names
    assert [layer.origins for layer in graph.layers] == [(name,) for name in names]


# --- outputs ---


def test_an_output_may_be_an_intermediate_too(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["r"], "relu"), node("Neg", ["r"], ["y"], "neg")]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 6, 2, 2)}, ["y", "r"]))
    assert graph.outputs == ("y", "r")
    assert_whole_is_right(graph)


def test_an_output_that_is_an_unread_input_is_refused(tmp_path: Path) -> None:
    model = network([node("Relu", ["x"], ["y"])], {"x": (1, 4), "m": (1, 4)}, ["y", "m"])
    assert refused_model(tmp_path, model) == ["output 'm' is an input that no operator reads; take it out"]


def test_an_output_without_any_input_is_refused(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("Neg", ["w"], ["z"])]
    model = network(nodes, {"x": (1, 4)}, ["y", "z"], {"w": weight(4)})
    assert refused_model(tmp_path, model) == ["output 'z' does not depend on any input"]


# --- shapes ---


def test_a_dynamic_shape_is_asked_for(tmp_path: Path) -> None:
    assert refused_model(tmp_path, relu(("N", 3, "H", 4))) == [
        "input 'x' has a dynamic shape (N, 3, H, 4); say which to use: --shape x=1,3,224,4"
    ]
    graph = load(tmp_path / "tiny.onnx", shapes={"x": (2, 3, 4, 4)})
    assert graph.tensors["y"].shape == (2, 3, 4, 4)
    assert graph.assumed == ()


@pytest.mark.parametrize("open_", ["N", None])
@pytest.mark.parametrize("folded", [False, True])
def test_a_frame_is_one_sample_where_nothing_else_is_open(open_: str | None, folded: bool, tmp_path: Path) -> None:
    graph = graph_of(tmp_path, torch_head(open_), folded=folded)
    assert graph.assumed == ("x",)
    assert graph.tensors["y"].shape == (1, 6)
    assert_whole_is_right(graph)


def test_a_number_of_samples_that_is_given_for_one_input_is_asked_for_of_the_others(tmp_path: Path) -> None:
    model = network([node("Add", ["a", "b"], ["y"])], {"a": ("N", 3), "b": ("N", 3)}, ["y"])  # type: ignore[dict-item]
    assert refused_model(tmp_path, model, shapes={"a": (4, 3)}) == [
        "input 'b' has a dynamic shape (N, 3); say which to use: --shape b=1,3"
    ]
    assert graph_of(tmp_path, model).assumed == ("a", "b")


def test_an_axis_alone_may_be_of_anything_and_is_asked_for(tmp_path: Path) -> None:
    model = network([node("Relu", ["x"], ["y"])], {"x": ("N",)}, ["y"])  # type: ignore[dict-item]
    assert refused_model(tmp_path, model) == ["input 'x' has a dynamic shape (N); say which to use: --shape x=1"]


def test_all_dynamic_inputs_are_asked_for_at_once(tmp_path: Path) -> None:
    shapes = {"a": ("batch", "size"), "b": (None, "size")}
    model = network([node("Add", ["a", "b"], ["y"])], shapes, ["y"])  # type: ignore[arg-type]
    assert refused_model(tmp_path, model) == [
        "input 'a' has a dynamic shape (batch, size); say which to use: --shape a=1,3",
        "input 'b' has a dynamic shape (?, size); say which to use: --shape b=1,3",
    ]


@pytest.mark.parametrize("folded", [False, True])
def test_shape_chains_of_a_dynamic_batch_fold_once_the_shape_is_given(folded: bool, tmp_path: Path) -> None:
    graph = graph_of(tmp_path, torch_head("N"), shapes={"x": (3, 3, 2, 4)}, folded=folded)
    assert [layer.name for layer in graph.layers] == ["conv", "reshape", "fc"]
    assert graph.tensors["y"].shape == (3, 6)
    assert_whole_is_right(graph)


def test_a_fixed_shape_may_be_replaced(tmp_path: Path) -> None:
    model = branches()
    graph = graph_of(tmp_path, model, shapes={"x": (2, 3, 15, 11)})
    assert graph.tensors["residual"].shape == (2, 8, 15, 11)
    for axis, size in enumerate((2, 3, 15, 11)):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = size
    save(tmp_path, model)  # ONNX Runtime insists on the file's shape
    assert_whole_is_right(graph)


def test_a_shape_for_an_unknown_input_is_refused(tmp_path: Path) -> None:
    model = network([node("Add", ["a", "b"], ["y"])], {"b": (1, 3), "a": (1, 3)}, ["y"])
    assert refused_model(tmp_path, model, shapes={"data": (1, 3)}) == ["there is no input 'data' (it has a, b)"]


def test_a_weight_is_no_input_whose_shape_can_be_given(tmp_path: Path) -> None:
    assert refused_model(tmp_path, branches(9, 3), shapes={"stem": (8, 3, 3, 3)}) == [
        "there is no input 'stem' (it has x)"
    ]


@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 1, 9), (1, 3, 9, 9, 9)])
def test_shapes_that_do_not_fit_are_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    (sentence,) = refused_model(tmp_path, torch_head(), shapes={"x": shape})
    assert sentence.startswith("shapes do not fit together: ")


@pytest.mark.parametrize("size", [0, -1])
def test_a_shape_of_nothing_is_refused(size: int, tmp_path: Path) -> None:
    (sentence,) = refused_model(tmp_path, relu(), shapes={"x": (1, size, 4, 4)})
    assert sentence.startswith(f"input 'x' has a dynamic shape (1, {size}, 4, 4)")


@pytest.mark.parametrize(("op", "w"), [("Conv", (4, 2, 1, 1)), ("ConvTranspose", (6, 2, 1, 1))])
def test_channels_that_do_not_fit_the_weights_are_refused(op: str, w: tuple[int, ...], tmp_path: Path) -> None:
    """ONNX's shape inference lets them pass."""
    layer = node(op, ["x", "w"], ["y"], "conv", group=2)
    wanted = {"Conv": 4, "ConvTranspose": 6}[op]
    model = network([layer], {"x": (1, wanted, 4, 4)}, ["y"], {"w": weight(*w)})
    assert graph_of(tmp_path, model).tensors["x"].shape[1] == wanted
    assert refused_model(tmp_path, model, shapes={"x": (1, 8, 4, 4)}) == [
        f"layer 'conv': its weights are for {wanted} channels, its input has 8"
    ]


@pytest.mark.parametrize("opset", [7, 9, 10, 13, 18])
def test_a_size_that_onnx_and_onnx_runtime_reckon_differently_is_refused(opset: int, tmp_path: Path) -> None:
    """3 times 5/3 in float32: a little less than 5, and 5."""

    def resized(scale: float) -> ModelProto:
        scales = [1.0, 1.0, scale, 1.0]
        if opset == 7:
            return network(
                [node("Upsample", ["x"], ["y"], "up", scales=scales)], {"x": (1, 1, 3, 4)}, ["y"], opset=opset
            )
        op, names = ("Upsample" if opset == 9 else "Resize"), ["x", "k"] if opset < 11 else ["x", "", "k"]
        names += [""] if opset == 18 else []  # sizes that are left out
        k = np.array(scales, np.float32)
        return network([node(op, names, ["y"], "up")], {"x": (1, 1, 3, 4)}, ["y"], {"k": k}, opset)

    assert_whole_is_right(graph_of(tmp_path, resized(2.5)))
    (sentence,) = refused_model(tmp_path, resized(5 / 3))
    assert sentence.startswith("layer 'up': 3 elements times 1.66666")
    assert "are 4 for ONNX and 5 for ONNX Runtime; export it with sizes" in sentence


ROUND_UP = [(op, opset) for op in ("MaxPool", "AveragePool") for opset in (10, 11, 18, 19, 21, 22)]


@pytest.mark.parametrize(("op", "opset"), [*ROUND_UP, ("LpPool", 18), ("LpPool", 22)])
def test_pooling_that_rounds_up_has_the_shape_of_onnx_runtime(op: str, opset: int, tmp_path: Path) -> None:
    """ONNX's own inference counts windows that begin in the padding, until opset 22. Two in a row, then a Flatten."""
    for kernel, stride, pads in itertools.product((2, 3), (1, 2, 3), ((0, 0), (0, 1), (1, 0), (1, 1))):
        how = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "ceil_mode": 1, "pads": [*pads, *pads[::-1]]}
        nodes = [node(op, ["x"], ["p"], **how), node(op, ["p"], ["q"], **how), node("Flatten", ["q"], ["y"])]
        model = network(nodes, {"x": (1, 2, 10, 11)}, ["y", "p", "q"], opset=opset)
        graph = graph_of(tmp_path, model)
        assert graph_of(tmp_path, model, folded=True).tensors == graph.tensors
        assert {n: graph.tensors[n].shape for n in "ypq"} == {
            n: value.shape for n, value in run_whole(graph.path, frame(graph)).items()
        }
        assert_whole_is_right(graph)


@pytest.mark.parametrize("how", ["VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("op", "opset"), [*ROUND_UP, ("LpPool", 18), ("LpPool", 22)])
def test_pooling_that_rounds_up_with_automatic_padding_has_the_shape_of_onnx_runtime(
    op: str, opset: int, how: str, tmp_path: Path
) -> None:
    """Where its stride leaves elements out, a MaxPool runs in ONNX Runtime with VALID alone."""
    for kernel, stride in itertools.product((1, 2, 3), (1, 2, 3, 4)):
        if kernel < stride and how != "VALID":
            continue
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "ceil_mode": 1, "auto_pad": how}
        nodes = [node(op, ["x"], ["p"], **attributes), node("Flatten", ["p"], ["y"])]
        graph = graph_of(tmp_path, network(nodes, {"x": (1, 2, 10, 11)}, ["y", "p"], opset=opset))
        assert {n: graph.tensors[n].shape for n in "yp"} == {
            n: value.shape for n, value in run_whole(graph.path, frame(graph)).items()
        }
        assert_whole_is_right(graph)


def test_an_average_that_leaves_elements_out_and_rounds_up_is_refused(tmp_path: Path) -> None:
    """ONNX Runtime averages it, but nothing like it that rounds down."""
    how: dict = {"kernel_shape": [1, 1], "strides": [3, 3], "ceil_mode": 1, "auto_pad": "SAME_UPPER"}
    model = network([node("AveragePool", ["x"], ["y"], "mean", **how)], {"x": (1, 2, 6, 6)}, ["y"])
    assert refused_model(tmp_path, model) == [
        "layer 'mean': averages that leave elements out cannot round up here; export opset 22"
    ]
    model.opset_import[0].version = 22
    assert_whole_is_right(graph_of(tmp_path, model))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("how", ["SAME_UPPER", "SAME_LOWER"])
def test_a_dilated_pooling_with_automatic_padding_is_refused(how: str, op: str, tmp_path: Path) -> None:
    """ONNX Runtime makes another shape of it than ONNX says; with a window of one element it does not."""
    attributes = {"kernel_shape": [1, 2], "dilations": [2, 2], "auto_pad": how}
    model = network([node(op, ["x"], ["y"], "pool", **attributes)], {"x": (1, 2, 6, 7)}, ["y"], opset=NEWEST)
    assert run_whole(model, {"x": np.ones((1, 2, 6, 7), np.float32)})["y"].shape != (1, 2, 6, 7)
    assert refused_model(tmp_path, model) == [
        f"layer 'pool': ONNX and ONNX Runtime pad a dilated {op} by {how} in different ways; "
        "export it with explicit pads"
    ]
    attributes["kernel_shape"] = [1, 1]
    model = network([node(op, ["x"], ["y"], "pool", **attributes)], {"x": (1, 2, 6, 7)}, ["y"], opset=NEWEST)
    assert_whole_is_right(graph_of(tmp_path, model))


@pytest.mark.parametrize("how", ["SAME_UPPER", "SAME_LOWER"])
def test_a_transposed_convolution_with_automatic_and_output_padding_is_refused(how: str, tmp_path: Path) -> None:
    """ONNX Runtime makes another shape of it than ONNX says; without output padding it does not."""
    attributes: dict = {"strides": [2, 2], "auto_pad": how}

    def model() -> ModelProto:
        nodes = [node("ConvTranspose", ["x", "w"], ["y"], "up", **attributes)]
        return network(nodes, {"x": (1, 2, 6, 7)}, ["y"], {"w": weight(2, 3, 3, 3)})

    assert_whole_is_right(graph_of(tmp_path, model()))
    attributes["output_padding"] = [0, 1]
    assert run_whole(model(), {"x": weight(1, 2, 6, 7)})["y"].shape == (1, 3, 12, 14)
    assert refused_model(tmp_path, model()) == [
        f"layer 'up': ONNX and ONNX Runtime understand output_padding by {how} in different ways; "
        "export it with explicit pads"
    ]


@pytest.mark.parametrize("how", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("op", ["Conv", "MaxPool", "AveragePool"])
def test_what_onnx_runtime_does_not_pad_is_refused(op: str, how: str, tmp_path: Path) -> None:
    """A dilated convolution, and pooling by windows that leave elements out."""

    def model(much: int) -> ModelProto:
        more = {"dilations": [1, much]} if op == "Conv" else {"strides": [1, much]}
        nodes = [
            node(op, ["x", "w"] if op == "Conv" else ["x"], ["y"], "op", kernel_shape=[3, 1], auto_pad=how, **more)
        ]
        return network(nodes, {"x": (1, 2, 6, 8)}, ["y"], {"w": weight(2, 2, 3, 1)} if op == "Conv" else {})

    assert_whole_is_right(graph_of(tmp_path, model(1)))
    with pytest.raises(Exception, match=r"Dilation not supported|padding values must be non-negative"):
        run_whole(model(2), {"x": weight(1, 2, 6, 8)})
    (sentence,) = refused_model(tmp_path, model(2))
    assert sentence.endswith(f"padded by {how}; export it with explicit pads")


@pytest.mark.parametrize("how", ["SAME_UPPER", "SAME_LOWER"])
def test_pooling_that_runs_with_many_channels_only_is_refused(how: str, tmp_path: Path) -> None:
    """ONNX Runtime has another kernel for whole vectors of channels, and not for a part of them."""
    pool = node("AveragePool", ["x"], ["y"], "op", kernel_shape=[1, 1], strides=[1, 2], auto_pad=how)
    model = network([pool], {"x": (1, 16, 6, 8)}, ["y"])
    assert run_whole(model, {"x": weight(1, 16, 6, 8)})["y"].shape == (1, 16, 6, 4)
    (sentence,) = refused_model(tmp_path, model)
    assert sentence.endswith(f"padded by {how}; export it with explicit pads")
    model.opset_import[0].version = 19
    assert_whole_is_right(graph_of(tmp_path, model))


def test_an_input_may_be_an_output_whose_shape_is_not_stated(tmp_path: Path) -> None:
    model = network([node("Conv", ["x", "w"], ["c"])], {"x": (2, 4, 6, 5)}, ["c", "x"], {"w": weight(8, 4, 3, 3)})
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    graph = graph_of(tmp_path, model)
    assert graph.outputs == ("c", "x")
    assert graph.tensors["x"].shape == (2, 4, 6, 5)


def test_a_transposed_convolution_that_makes_less_than_it_gets_is_refused(tmp_path: Path) -> None:
    """ONNX infers a shape of two axes."""

    def model(size: int) -> ModelProto:
        up = node("ConvTranspose", ["x", "w"], ["y"], "up", kernel_shape=[3, 3], output_shape=[size, 8])
        return network([up], {"x": (1, 2, 8, 8)}, ["y"], {"w": weight(2, 3, 3, 3)})

    assert_whole_is_right(graph_of(tmp_path, model(8)))
    assert refused_model(tmp_path, model(6)) == [
        "layer 'up': its output_shape is smaller than its input, of which ONNX infers no shape; "
        "export it with explicit pads"
    ]


def test_a_normalisation_over_an_even_number_of_channels_is_refused(tmp_path: Path) -> None:
    def model(size: int) -> ModelProto:
        return network([node("LRN", ["x"], ["y"], "norm", size=size)], {"x": (1, 8, 3, 3)}, ["y"])

    assert_whole_is_right(graph_of(tmp_path, model(3)))
    with pytest.raises(Exception, match="size"):
        run_whole(model(4), {"x": weight(1, 8, 3, 3)})
    (sentence,) = refused_model(tmp_path, model(4))
    assert sentence == "layer 'norm': ONNX Runtime runs no LRN of an even size (4); export it with an odd one"


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_a_ratio_of_axes_counted_from_the_end_is_refused(policy: str, tmp_path: Path) -> None:
    def model(axes: list[int]) -> ModelProto:
        how = {"axes": axes, "keep_aspect_ratio_policy": policy}
        nodes = [node("Resize", ["x", "", "", "k"], ["y"], "resize", **how)]
        return network(nodes, {"x": (1, 4, 4, 6)}, ["y"], {"k": np.array([8, 14])}, opset=18)

    assert_whole_is_right(graph_of(tmp_path, model([2, 3])))
    (sentence,) = refused_model(tmp_path, model([-2, -1]))
    assert sentence.startswith(f"layer 'resize': ONNX and ONNX Runtime understand '{policy}' of axes")


def test_a_fourier_transform_that_says_nothing_of_its_sides_is_refused(tmp_path: Path) -> None:
    """ONNX infers both, ONNX Runtime makes one."""

    def model(**how: int) -> ModelProto:
        nodes = [node("STFT", ["x", "step", "window"], ["y"], "stft", **how)]
        weights = {"step": np.array(8), "window": np.hanning(16).astype(np.float32)}
        return network(nodes, {"x": (1, 128, 1)}, ["y"], weights, opset=17)

    assert_whole_is_right(graph_of(tmp_path, model(onesided=1)))
    (sentence,) = refused_model(tmp_path, model())
    assert sentence.startswith("layer 'stft': says nothing of onesided")


def test_an_average_that_counts_padding_and_rounds_up_on_one_axis_only_is_refused(tmp_path: Path) -> None:
    """It has no equal that rounds down: one axis has a window too many, the other reaches over the end."""
    how: dict = {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1, "count_include_pad": 1}
    model = network([node("AveragePool", ["x"], ["y"], "mean", **how)], {"x": (1, 2, 6, 7)}, ["y"])
    assert refused_model(tmp_path, model) == [
        "layer 'mean': averages that count padding cannot round up here; export opset 22"
    ]
    model.opset_import[0].version = 22
    assert graph_of(tmp_path, model).tensors["y"].shape == (1, 2, 2, 3)


def test_a_pooling_that_would_need_a_padding_as_large_as_its_kernel_is_refused(tmp_path: Path) -> None:
    """Dilated, its last window reaches so far over the end; one axis has a window too many."""
    how: dict = {"kernel_shape": [1, 4], "strides": [2, 3], "dilations": [2, 2], "pads": [0, 0, 0, 2], "ceil_mode": 1}
    model = network([node("MaxPool", ["x"], ["y"], "pool", **how)], {"x": (1, 2, 22, 3)}, ["y"])
    assert refused_model(tmp_path, model) == [
        "layer 'pool': rounding up here takes a padding as large as the kernel, which ONNX Runtime refuses; "
        "export opset 22"
    ]
    model.opset_import[0].version = 22
    assert_whole_is_right(graph_of(tmp_path, model))


@pytest.mark.parametrize("opset", [21, NEWEST])
def test_what_normalises_groups_has_the_shape_of_its_input(opset: int, tmp_path: Path) -> None:
    """Onnx infers it from the functions that they are, and fails there."""
    nodes = [
        node("GroupNormalization", ["x", "s", "b"], ["g"], num_groups=2),
        node("MeanVarianceNormalization", ["g"], ["m"]),
        node("Relu", ["m"], ["y"]),
    ]
    model = network(nodes, {"x": (1, 4, 6, 6)}, ["y"], {"s": weight(4), "b": weight(4, seed=1)}, opset, 10)
    assert_whole_is_right(graph_of(tmp_path, model))


def test_a_shape_that_depends_on_data_is_refused(tmp_path: Path) -> None:
    model = network([node("NonZero", ["x"], ["y"], "where")], {"x": (1, 4)}, {"y": "int64"})
    assert refused_model(tmp_path, model) == [
        "layer 'where': operator 'NonZero': the shape of 'y' is not known before running; it cannot be cut"
    ]


@pytest.mark.parametrize("op", ["Conv", "MaxPool"])
def test_an_input_smaller_than_what_slides_over_it_is_refused(op: str, tmp_path: Path) -> None:
    how, weights = ({}, ["w"]) if op == "Conv" else ({"kernel_shape": [5, 5]}, [])
    layer = node(op, ["x", *weights], ["h"], "slide", **how)
    model = network([layer, node("Relu", ["h"], ["y"])], {"x": (1, 3, 4, 4)}, ["y"], {"w": weight(8, 3, 5, 5)})
    (sentence,) = refused_model(tmp_path, model)
    assert re.match(rf"layer 'slide': operator '{op}' would make 'h' of shape .*: nothing is left, ", sentence)


# --- what is no network, or none that can be cut ---


def test_of_unknown_shapes_only_the_first_are_told(tmp_path: Path) -> None:
    """What is made of such a tensor says nothing new; another one does."""
    nodes = [node("NonZero", ["x"], ["a"], "one"), node("Cast", ["a"], ["b"], "after", to=1)]
    nodes += [node("NonZero", ["z"], ["c"], "two"), node("Cast", ["c"], ["d"], "behind", to=1)]
    with pytest.raises(CleaveError) as caught:
        graph_of(tmp_path, network(nodes, {"x": (2, 3), "z": (2, 3)}, ["b", "d"]))
    assert [re.findall("layer '(.*?)'", line) for line in str(caught.value).splitlines()] == [["one"], ["two"]]


@pytest.mark.parametrize(
    "content", [b"", b"hello, world\n", np.random.default_rng(0).bytes(2000), b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"]
)
@pytest.mark.parametrize("name", ["m.onnx", "m.json", "m.onnxtxt", "m.pbtxt", "m"])
def test_a_file_of_something_else_is_no_model(content: bytes, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    (sentence,) = refused(path)
    assert sentence.startswith("is no ONNX model")


def test_a_model_without_operators_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(ModelProto(ir_version=8).SerializeToString())
    assert refused(path) == ["is no ONNX model: it has no operators"]


@pytest.mark.parametrize("name", ["missing.onnx", "."])
def test_a_missing_file_is_refused(name: str, tmp_path: Path) -> None:
    assert refused(tmp_path / name) == ["there is no such file; give an ONNX file or zoo:NAME"]


def test_control_flow_is_refused_layer_by_layer(tmp_path: Path) -> None:
    def body(op: str, name: str) -> onnx.GraphProto:
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4])
        return helper.make_graph([node(op, ["x"], [name])], name, [], [info])

    loop = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Relu", ["state"], ["next"])],
        "loop",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [1, 4]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [1, 4]),
        ],
    )
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Cast", ["s"], ["b"], to=TensorProto.BOOL),
        node("If", ["b"], ["a"], "choice", then_branch=body("Relu", "t"), else_branch=body("Neg", "e")),
        node("Loop", ["n", "b", "a"], ["y"], body=loop),
    ]
    assert refused_model(tmp_path, network(nodes, {"x": (1, 4)}, ["y"], {"n": np.array(3)})) == [
        "layer 'choice': operator 'If' is not supported (control flow)",
        "layer 'y': operator 'Loop' is not supported (control flow)",
    ]


def test_functions_of_the_file_are_refused(tmp_path: Path) -> None:
    model = network([node("Twice", ["x"], ["y"], domain="mine")], {"x": (1, 4)}, ["y"])
    body = [node("Add", ["a", "a"], ["b"])]
    model.functions.append(helper.make_function("mine", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    model.opset_import.append(helper.make_opsetid("mine", 1))
    assert refused_model(tmp_path, model) == [
        "model-local functions are not supported ('Twice'); inline them when exporting"
    ]
    inlined = load(tmp_path / "tiny.onnx", folded=True)  # ONNX Runtime inlines them when it folds
    assert [layer.op for layer in inlined.layers] == ["Add"]


def test_sparse_weights_are_refused(tmp_path: Path) -> None:
    model = network([node("Add", ["x", "s"], ["y"])], {"x": (1, 4)}, ["y"])
    values = numpy_helper.from_array(np.array([2.0], np.float32), "s")
    model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1])), [4])
    )
    assert "sparse weights are not supported; export them dense" in refused_model(tmp_path, model)


def test_sparse_constants_are_refused(tmp_path: Path) -> None:
    values, places = (numpy_helper.from_array(np.array(of)) for of in ([1.5, 2.5], [[0, 1], [2, 3]]))
    sparse = helper.make_sparse_tensor(values, places, [3, 4])
    nodes = [node("Constant", [], ["s"], "few", sparse_value=sparse), node("MatMul", ["x", "s"], ["y"])]
    assert refused_model(tmp_path, network(nodes, {"x": (2, 3)}, ["y"])) == [
        "layer 'few': sparse constants are not supported; export them dense"
    ]


OLD_AXES = 10
"""The last opset in which axes of Squeeze and Unsqueeze must not be negative."""


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("axes", [[2, 3], [3, 2]])
def test_axes_are_left_out_in_any_order(axes: list[int], folded: bool, tmp_path: Path) -> None:
    """Up to opset 10 ONNX infers that of rising ones only."""
    nodes = [node("GlobalAveragePool", ["x"], ["g"]), node("Squeeze", ["g"], ["s"], axes=axes)]
    nodes += [node("Unsqueeze", ["s"], ["u"], axes=[axes[1], axes[0]]), node("Relu", ["u"], ["y"])]
    model = network(nodes, {"x": (2, 3, 8, 8)}, ["s", "y"], opset=OLD_AXES)
    graph = graph_of(tmp_path, model, folded=folded)
    assert [graph.tensors[name].shape for name in "sy"] == [(2, 3), (2, 3, 1, 1)]
    assert_whole_is_right(graph)


def test_a_box_may_be_taken_by_axes_in_any_order(tmp_path: Path) -> None:
    """Up to opset 9 ONNX infers that of rising ones only."""
    box = node("Slice", ["x"], ["s"], axes=[3, 1], starts=[1, 0], ends=[4, 2])
    graph = graph_of(tmp_path, network([box, node("Relu", ["s"], ["y"])], {"x": (2, 3, 8, 9)}, ["y"], opset=9))
    assert graph.tensors["y"].shape == (2, 2, 8, 3)
    assert_whole_is_right(graph)


@pytest.mark.parametrize("op", ["Squeeze", "Unsqueeze"])
def test_axes_from_the_end_are_refused_where_onnx_does_not_know_them(op: str, tmp_path: Path) -> None:
    """It infers a shape as if they were not there, and ONNX Runtime makes the right one."""
    nodes = [node(op, ["x"], ["s"], "axes", axes=[-1]), node("Relu", ["s"], ["y"])]
    model = network(nodes, {"x": (2, 3, 1)}, ["y"], opset=OLD_AXES)
    assert refused_model(tmp_path, model) == [
        f"layer 'axes': axes from the end, as it has, are for {op} of opset 11 and later; export that"
    ]
    model.opset_import[0].version = OLD_AXES + 1
    assert_whole_is_right(graph_of(tmp_path, model))


def test_a_network_without_input_is_refused(tmp_path: Path) -> None:
    model = network([node("Relu", ["w"], ["y"])], {}, ["y"], {"w": weight(4)})
    assert refused_model(tmp_path, model) == ["the network has no input"]


def test_an_input_that_is_made_nowhere_is_named(tmp_path: Path) -> None:
    model = network([node("Add", ["x", "late"], ["y"], "add"), node("Relu", ["x"], ["late"])], {"x": (1, 4)}, ["y"])
    assert refused_model(tmp_path, model) == ["layer 'add': input 'late' is made nowhere before it"]


def test_an_unknown_operator_is_named(tmp_path: Path) -> None:
    model = network([node("Foo", ["x"], ["y"], "foo", domain="mine")], {"x": (1, 4)}, ["y"])
    model.opset_import.append(helper.make_opsetid("mine", 1))
    assert refused_model(tmp_path, model) == [
        "layer 'foo': operator 'Foo' of the domain 'mine' is not supported; "
        "export the network with ONNX's own operators"
    ]
    (sentence,) = refused_model(tmp_path, model, folded=True)
    assert re.match(r"cannot be folded: .*mine:Foo", sentence)


def test_a_standard_domain_that_is_written_out_is_none(tmp_path: Path) -> None:
    model = branches()
    for part in (*model.graph.node, *model.opset_import):
        part.domain = "ai.onnx"
    graph = graph_of(tmp_path, model)
    assert graph.opsets == (("", 17),)
    assert graph.by_name["stem"].op == "Conv"
    assert_whole_is_right(graph)


# --- folding ---


def normalised() -> ModelProto:
    """Convolutions with normalisation, a scale and a shift behind them; one of them cannot be folded."""
    nodes = [
        node("Conv", ["x", "w1"], ["c"], "conv1"),
        node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], "norm1"),
        node("Relu", ["n"], ["r"], "relu"),
        node("Conv", ["r", "w2", "b2"], ["d"], "conv2"),
        node("Mul", ["d", "k"], ["e"], "scale"),
        node("Add", ["e", "k"], ["f"], "shift"),
        node("Dropout", ["f"], ["g"], "drop"),
        node("BatchNormalization", ["r", "s", "b", "m", "v"], ["h"], "norm2"),
        node("Add", ["g", "h"], ["y"], "sum"),
    ]
    weights = {"w1": weight(6, 3, 1, 1), "w2": weight(6, 6, 1, 1), "b2": weight(6), "k": weight(6, 1, 1, seed=1)}
    weights |= {"s": weight(6, seed=2), "b": weight(6, seed=3), "m": weight(6, seed=4)}
    weights |= {"v": np.abs(weight(6, seed=5)) + 0.5}
    return network(nodes, {"x": (1, 3, 4, 4)}, ["y"], weights)


def test_normalisation_folds_into_convolutions_and_is_remembered(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, normalised(), folded=True)
    assert [(layer.op, layer.origins) for layer in graph.layers] == [
        ("Conv", ("conv1", "norm1")),
        ("Relu", ("relu",)),
        ("Conv", ("conv2", "scale", "shift")),
        ("BatchNormalization", ("norm2",)),
        ("Add", ("drop", "sum")),
    ]
    assert_whole_is_right(graph)


def test_unfolded_layers_stand_for_themselves(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, normalised())
    assert [layer.origins for layer in graph.layers] == [
        *[(name,) for name in ("conv1", "norm1", "relu", "conv2", "scale", "shift", "norm2")],
        ("drop", "sum"),
    ]


def test_nodes_that_folding_adds_stand_before_their_readers(tmp_path: Path) -> None:
    """A fully connected layer of three axes becomes one of two, between Reshapes that the file does not have."""
    nodes = [
        node("Relu", ["x"], ["r"], "relu"),
        node("MatMul", ["r", "w"], ["m"], "matmul"),
        node("Add", ["m", "b"], ["a"], "add"),
        node("Neg", ["a"], ["y"], "neg"),
    ]
    model = network(nodes, {"x": (2, 3, 4)}, ["y"], {"w": weight(4, 5), "b": weight(5)})
    graph = graph_of(tmp_path, model, folded=True)
    assert [(layer.op, layer.origins) for layer in graph.layers] == [
        ("Relu", ("relu",)),
        ("Reshape", ()),
        ("Gemm", ()),
        ("Reshape", ("matmul", "add")),
        ("Neg", ("neg",)),
    ]
    assert_cut_exactly(graph, random_mapping(random.Random(0), graph, 3), 3)


def test_of_two_nodes_that_make_the_same_folding_keeps_one_before_the_readers_of_both(tmp_path: Path) -> None:
    """The one that went is work of what reads it, and what came before both is not."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], "conv"),
        node("Relu", ["c"], ["r"], "relu"),
        node("Neg", ["r"], ["n"], "neg"),
        node("Relu", ["c"], ["s"], "again"),
        node("Abs", ["s"], ["a"], "abs"),
        node("Add", ["n", "a"], ["y"], "add"),
    ]
    model = network(nodes, {"x": (1, 3, 4, 4)}, ["y"], {"w": weight(5, 3, 1, 1)})
    graph = graph_of(tmp_path, model, folded=True)
    assert [layer.op for layer in graph.layers] == ["Conv", "Relu", "Neg", "Abs", "Add"]
    assert sorted(name for layer in graph.layers for name in layer.origins) == sorted(n.name for n in nodes)
    assert_whole_is_right(graph)


def test_a_folded_bundle_of_one_rank_equals_the_file(tmp_path: Path) -> None:
    """Through the generated program and ONNX Runtime, end to end."""
    graph = graph_of(tmp_path, normalised(), folded=True)
    mapping = Mapping.whole(graph, [0] * len(graph.layers))
    write_bundle(graph, platform(1), mapping, source(graph, True, {}), tmp_path / "out", force=False)
    assert verify(tmp_path / "out", graph.path, frames=2).passed


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("name", SMALL_ZOO)
def test_zoo_networks_load_and_every_node_that_computes_has_one_layer(name: str, folded: bool) -> None:
    path = zoo.cached(name)
    graph = load(path, folded=folded)
    file = onnx.load(path)
    names = Counter(origin for layer in graph.layers for origin in layer.origins)
    fixed = {tensor.name for tensor in file.graph.initializer}
    computed = []
    for part in file.graph.node:
        if fixed.issuperset(part.input):
            fixed.update(part.output)
        else:
            computed.append(part.name or part.output[0])
    for part in computed:
        assert names[part] == 1, part
    assert set(names) <= {part.name or part.output[0] for part in file.graph.node}
    assert all(layer.macs >= 0 and layer.index == i for i, layer in enumerate(graph.layers))


@pytest.mark.parametrize("name", ["shufflenet", "squeezenet"])
def test_a_folded_zoo_network_equals_the_file(name: str) -> None:
    assert_whole_is_right(load(zoo.cached(name), folded=True))


def test_damage_anywhere_is_said_and_not_thrown(tmp_path: Path) -> None:
    """Single bytes of a network with pooling changed: it loads, or one error says what is wrong."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["m"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("Reshape", ["m", "to"], ["r"]),
        node("Gemm", ["r", "v"], ["y"]),
    ]
    weights = {"w": weight(4, 3, 3, 3), "to": np.array([1, -1]), "v": weight(64, 5)}
    whole = network(nodes, {"x": (1, 3, 7, 7)}, ["y"], weights).SerializeToString()
    draw, said = random.Random(0), []
    for _ in range(600):
        text = bytearray(whole)
        text[draw.randrange(len(text) // 2)] = draw.randrange(256)
        (tmp_path / "torn.onnx").write_bytes(text)
        try:
            load(tmp_path / "torn.onnx")
        except CleaveError as error:
            said.append(str(error))
    assert len(said) > 100
    assert all("torn.onnx" in text for text in said)
