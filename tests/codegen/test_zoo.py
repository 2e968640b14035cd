from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, numpy_helper

from codegen import operators, zoo
from model.cost.segment_time import Network
from model.network.load import load
from runtime.errors import CleaveError

BIG = {"alexnet", "vgg16", "vgg19", "zfnet512"}  # 0.2 to 0.6 GB of weights
SMALL = [n for n in zoo.NAMES if n not in BIG]


Outputs = dict[str, np.ndarray]


def run_twice(model: ModelProto) -> tuple[Outputs, Outputs]:
    """All declared outputs for two standard-normal images."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_prepacking", "1")  # for two runs a second copy does not pay
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    images = [np.random.default_rng(seed).standard_normal((1, 3, 224, 224), dtype=np.float32) for seed in (1, 2)]
    first, second = (session.run(names, {session.get_inputs()[0].name: image}) for image in images)
    return dict(zip(names, first, strict=True)), dict(zip(names, second, strict=True))


def expose(model: ModelProto) -> None:
    """Declare every activation as an output (not what is made of weights alone)."""
    outputs, fixed = {o.name for o in model.graph.output}, set(weights(model))
    inner = [n.output[0] for n in model.graph.node if n.input[0] not in fixed and n.output[0] not in outputs]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)


def assert_lively(first: Outputs, second: Outputs) -> None:
    """Nothing constant, nothing blown up, everything depends on the image."""
    for name, values in first.items():
        assert np.isfinite(values).all(), name
        assert np.ptp(values) > 1e-3, name
        assert np.abs(values).max() < 1e4, name
        assert np.abs(values - second[name]).max() > 5e-3 * np.abs(values).max(), name


def assert_plain(model: ModelProto, name: str) -> None:
    """One input, weights as initializers that are not inputs, no ConstantOfShape, IR 8 and opset 9."""
    graph = model.graph
    assert (model.ir_version, [o.version for o in model.opset_import]) == (8, [9])
    assert graph.name == name
    assert "random weights" in model.doc_string
    assert [[d.dim_value for d in i.type.tensor_type.shape.dim] for i in graph.input] == [[1, 3, 224, 224]]
    assert "ConstantOfShape" not in {n.op_type for n in graph.node}
    made = {o for n in graph.node for o in n.output} | {i.name for i in graph.initializer} | {graph.input[0].name}
    read = {x for n in graph.node for x in n.input}
    assert read <= made
    assert {i.name for i in graph.initializer} <= read


def weights(model: ModelProto) -> Outputs:
    return {i.name: numpy_helper.to_array(i) for i in model.graph.initializer if i.data_type == onnx.TensorProto.FLOAT}


@pytest.mark.parametrize("name", SMALL)
def test_a_small_network_is_valid_and_alive(name: str) -> None:
    model = zoo.build(name)
    assert_plain(model, name)
    onnx.checker.check_model(model)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    output = model.graph.output[0].name
    expose(model)
    first, second = run_twice(model)
    assert_lively(first, second)
    if model.graph.node[-1].op_type == "Softmax":
        assert 0.005 < first[output].max() < 0.9


@pytest.mark.parametrize("name", sorted(BIG))
def test_a_big_network_is_valid_and_alive(name: str) -> None:
    model = zoo.build(name)
    assert_plain(model, name)
    first, second = run_twice(model)
    assert_lively(first, second)
    assert 0.005 < first[model.graph.output[0].name].max() < 0.9


def test_what_one_calibrates_with_has_all_neighbours_of_real_networks() -> None:
    """What two layers save in one segment is only known of kinds that were seen side by side."""
    pairs = {name: {e.pair for of in Network(load(zoo.cached(name))).edges for e in of} for name in SMALL}
    seen = set().union(*(pairs.pop(name) for name in operators.NETWORKS))
    assert set().union(*pairs.values()) - seen <= {"pool>softmax"}  # of a thousand numbers


def original(stem: str) -> list[onnx.NodeProto]:
    path = Path(onnx.__file__).parent / "backend/test/data/light" / f"light_{stem}.onnx"
    return [n for n in onnx.load(path).graph.node if n.op_type != "ConstantOfShape"]


def test_vgg16_is_vgg19_without_three_convolutions() -> None:
    nodes = list(zoo.build("vgg16").graph.node)
    ops = Counter(n.op_type for n in nodes)
    assert (ops["Conv"], ops["Gemm"], ops["Relu"]) == (13, 3, 15)
    gone = [n.name for n in original("vgg19") if n.name not in {m.name for m in nodes}]
    assert gone == ["n16", "n17", "n25", "n26", "n34", "n35"]  # conv3_4, conv4_4, conv5_4, a Relu after each
    pooled = [(n.input[0], n.output[0]) for n in nodes if n.op_type == "MaxPool"]
    assert pooled == [("r3", "r4"), ("r8", "r9"), ("r15", "r18"), ("r24", "r27"), ("r33", "r36")]


@pytest.mark.parametrize("name", ["inception_v1", "densenet121", "resnet50"])
def test_nodes_and_names_are_those_of_the_original(name: str) -> None:
    assert list(zoo.build(name).graph.node) == original(name)


def test_weights_have_the_spread_of_their_role() -> None:
    w = weights(zoo.build("resnet50"))
    assert np.std(w["gpu_0/res5_2_branch2b_w_0"]) == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.01)
    assert np.std(w["gpu_0/pred_w_0"]) == pytest.approx(4 * (2 / 2048) ** 0.5, rel=0.01)
    plain, damped = w["gpu_0/res5_2_branch2b_bn_s_0"], w["gpu_0/res5_2_branch2c_bn_s_0"]
    assert 0.8 <= plain.min() < plain.max() <= 1.2
    assert 0.2 <= damped.min() < damped.max() <= 0.4
    assert np.std(w["gpu_0/res5_2_branch2b_bn_rm_0"]) == pytest.approx(0.1, rel=0.15)
    assert w["gpu_0/res5_2_branch2b_bn_riv_0"].min() >= 0.8


def test_a_weight_behind_a_reshape_gets_the_fan_in_of_its_gemm() -> None:
    w = weights(zoo.build("inception_v1"))["loss3/classifier_w_0"]
    assert w.shape == (1, 1, 1000, 1024)
    assert np.std(w) == pytest.approx(0.5 * (2 / 1024) ** 0.5, rel=0.01)


def test_a_weight_behind_an_unsqueeze_gets_the_spread_of_its_mul_or_add() -> None:
    w = weights(zoo.build("densenet121"))
    scale, shift = w["conv5_blk/bn_w_0"], w["conv5_blk/bn_b_0"]
    assert 0.8 <= scale.min() < scale.max() <= 1.2
    assert np.std(shift) == pytest.approx(0.1, rel=0.15)


def test_the_seed_decides_the_weights() -> None:
    model = zoo.build("squeezenet", seed=3)
    assert model.SerializeToString() == zoo.build("squeezenet", seed=3).SerializeToString()
    other = weights(zoo.build("squeezenet", seed=4))
    assert all(not np.array_equal(values, other[name]) for name, values in weights(model).items())


def test_values_are_pinned() -> None:
    """If this fails, NumPy draws other numbers than it did, and cached networks differ from built ones."""
    w = weights(zoo.build("squeezenet"))
    assert w["conv1_b_0"][:3].tolist() == [0.016018874943256378, 0.03195170313119888, -0.0703209936618805]


@pytest.mark.parametrize("make", [zoo.build, zoo.cached, lambda name: zoo.write(name, Path("never"))])
def test_an_unknown_name_is_refused_with_the_known_ones(
    make: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(CleaveError, match=r"no network 'lenet' \(it has alexnet, densenet121, .*, zfnet512\)"):
        make("lenet")  # type: ignore[operator]
    assert list(tmp_path.iterdir()) == []


def test_an_onnx_package_without_graphs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(CleaveError, match=r"lacks .*light_vgg19\.onnx"):
        zoo.build("vgg16")


def test_write_leaves_one_whole_file(tmp_path: Path) -> None:
    path = zoo.write("squeezenet", tmp_path / "a" / "b", seed=1)
    assert path == tmp_path / "a" / "b" / "squeezenet.onnx"
    assert path.read_bytes() == zoo.build("squeezenet", seed=1).SerializeToString()
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        zoo.write("squeezenet", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_cache_builds_once_for_each_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = zoo.cached("squeezenet")
    assert path.is_relative_to(tmp_path / "cleave" / "zoo")
    stamp = path.stat().st_mtime_ns
    assert (zoo.cached("squeezenet"), path.stat().st_mtime_ns) == (path, stamp)
    assert zoo.cached("squeezenet", seed=1).read_bytes() != path.read_bytes()


def test_the_cache_falls_back_to_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert zoo.cached("squeezenet").is_relative_to(tmp_path / ".cache" / "cleave" / "zoo")


def test_a_cache_that_cannot_be_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(
        CleaveError, match="seed0: cannot be written: Not a directory; networks of the zoo are kept there"
    ):
        zoo.cached("squeezenet")
