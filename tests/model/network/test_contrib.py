"""Networks in QOperator form, of ONNX Runtime's own operators: shapes, splits, and the same integers."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper
from onnxruntime.quantization import QuantFormat, QuantType

from model.network import boxes, contrib, layer_kinds
from model.network.graph import Graph
from model.network.load import load
from model.network.quantised import QUANTIZE
from runtime.errors import CleaveError
from tests.cuts import DEVICES, assert_equal, ways
from tests.tiny_cnn import graph_of, network, node, random_mapping, weight
from tests.tiny_qdq import by_onnxruntime


def source(opset: int = 13) -> ModelProto:
    """A float network of all that the tool has an operator of its own for."""
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        node("LeakyRelu", ["c"], ["l"], "leaky"),
        node("Sigmoid", ["c"], ["s"], "sigmoid"),
        node("Mul", ["l", "s"], ["m"], "mul"),
        node("Conv", ["m", "v"], ["d"], "second"),
        node("Concat", ["d", "m", "l"], ["j"], "concat", axis=1),
        node("AveragePool", ["j"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["p"], ["g"], "global"),
        node("Add", ["p", "g"], ["a"], "add"),
        node("Flatten", ["a"], ["f"], "flatten"),
        node("Gemm", ["f", "u", "e"], ["h"], "gemm", transB=1),
        node("Softmax", ["h"], ["y"], "softmax", axis=1),
    ]
    weights = {"w": weight(8, 3, 3, 3) / 3, "b": weight(8), "v": weight(6, 8, 1, 1), "u": weight(7, 22 * 16) / 9}
    return network(nodes, {"x": (2, 3, 8, 8)}, ["y", "a"], {**weights, "e": weight(7)}, opset)


@pytest.fixture(scope="module", params=[(False, QuantType.QUInt8), (True, QuantType.QInt8)])
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """One scale a tensor, or of weights one a channel."""
    per_channel, activations = request.param
    folder, how = tmp_path_factory.mktemp("contrib"), {"activation_type": activations, "per_channel": per_channel}
    return load(by_onnxruntime(folder, source(), quant_format=QuantFormat.QOperator, **how))


def test_every_operator_has_the_shape_the_work_and_the_kind_of_that_of_onnx(graph: Graph, tmp_path: Path) -> None:
    floats = graph_of(tmp_path, source())
    own = {layer.name.removesuffix("_quant"): layer for layer in graph.layers}
    made = {layer.node.op_type for layer in graph.layers if layer.node.domain == contrib.DOMAIN}
    assert made == {op.removeprefix(f"{contrib.DOMAIN}.") for op in contrib.LIKE}
    for layer in floats.layers:
        assert graph.tensors[own[layer.name].outputs[0]].shape == floats.tensors[layer.outputs[0]].shape
        if layer.op != "Conv":
            assert (own[layer.name].macs, layer_kinds.kind(graph, own[layer.name])) == (
                layer.macs, layer_kinds.kind(floats, layer)
            ), layer.name  # fmt: skip


def test_what_can_be_split_of_an_operator_can_be_of_its_like(graph: Graph) -> None:
    found = {layer.node.op_type: ways(graph, layer) for layer in graph.layers if layer.node.domain == contrib.DOMAIN}
    assert found == {
        **dict.fromkeys(("QLinearAdd", "QLinearMul", "QLinearConcat", "QLinearSigmoid", "QLinearLeakyRelu"), "nch"),
        **dict.fromkeys(("QLinearAveragePool", "QLinearGlobalAveragePool", "QGemm"), "nc"),
        "QLinearSoftmax": "",
    }
    assert [layer.name for layer in graph.layers if boxes.is_heavy(graph, layer)] == [
        "conv_quant", "second_quant", "gemm_quant",
    ]  # fmt: skip


def test_integers_are_the_same_however_it_is_cut(graph: Graph) -> None:
    for seed in range(12):
        assert_equal(graph, random_mapping(random.Random(seed), graph, DEVICES), positive=False)


@pytest.mark.parametrize(
    ("op", "name"), [("QLinearGlobalAveragePool", "channels_last"), ("QLinearAveragePool", "ceil_mode")]
)
def test_what_is_not_like_an_operator_of_onnx_has_no_known_shape(op: str, name: str, tmp_path: Path) -> None:
    file = by_onnxruntime(tmp_path, source(), quant_format=QuantFormat.QOperator)
    model = onnx.load(file)
    (own,) = [own for own in model.graph.node if own.op_type == op]
    kept = [a for a in own.attribute if a.name != name]
    del own.attribute[:], model.graph.value_info[:]
    own.attribute.extend([*kept, helper.make_attribute(name, 1)])
    with pytest.raises(CleaveError, match=rf"layer '{own.name}': .*; export quantised networks in QDQ form"):
        graph_of(tmp_path, model)


@pytest.mark.parametrize("shape", [(4, 6), (1, 6), (4, 1), (6,), (1,)])
def test_a_bias_of_a_matrix_is_cut_where_the_matrix_is(shape: tuple[int, ...], tmp_path: Path) -> None:
    model = network(
        [node("Gemm", ["x", "w", "b"], ["y"], "m")], {"x": (4, 5)}, ["y"], {"w": weight(5, 6), "b": weight(6)}
    )
    file = by_onnxruntime(tmp_path, model, quant_format=QuantFormat.QOperator)
    model = onnx.load(file)
    (bias,) = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.INT32]
    values = np.random.default_rng(0).integers(-900, 900, shape, np.int32)
    bias.CopyFrom(onnx.numpy_helper.from_array(values, bias.name))
    graph = graph_of(tmp_path, model)
    for kind in (boxes.SAMPLES, boxes.CHANNELS):
        for seed in range(4):
            assert_equal(graph, random_mapping(random.Random(seed), graph, DEVICES, kinds=[kind]), positive=False)


def test_an_output_that_moves_on_to_a_quantisation_is_settled_first(tmp_path: Path) -> None:
    """ONNX Runtime quantises the output, too, where what follows computes with integers."""
    parameters = ["s", "z"]
    add = helper.make_node(
        "QLinearAdd", ["q", *parameters, "q", *parameters, *parameters], ["e"], domain=contrib.DOMAIN
    )
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Transpose", ["r"], ["t"], "moves", perm=[0, 2, 1, 3]),
        node("QuantizeLinear", ["t", *parameters], ["q"]),
        add,
        node("DequantizeLinear", ["e", *parameters], ["y"]),
    ]
    model = network(nodes, {"x": (1, 8, 6, 8)}, ["r", "y"], {"s": np.float32(0.05), "z": np.uint8(3)})
    model.opset_import.append(helper.make_opsetid(contrib.DOMAIN, 1))
    with pytest.raises(CleaveError, match=r"layer 'moves' is between an output and a quantisation, .* with --fold"):
        graph_of(tmp_path, model)
    graph = load(tmp_path / "tiny.onnx", folded=True)
    assert_equal(graph, random_mapping(random.Random(1), graph, DEVICES), positive=False)


def quantised_by_its_own(folder: Path, **how: object) -> Path:
    """By the tool, which uses operators of ONNX Runtime to quantise."""
    model = source()
    del model.graph.output[1:]
    own = {"UseQDQContribOps": True}
    return by_onnxruntime(folder, model, quant_format=QuantFormat.QDQ, extra_options=own, **how)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
def test_what_quantises_by_onnxruntimes_own_is_as_if_it_were_onnxs(
    per_channel: bool, folded: bool, tmp_path: Path
) -> None:
    path = quantised_by_its_own(tmp_path, per_channel=per_channel)
    assert {n.domain for n in onnx.load(path).graph.node if n.op_type == QUANTIZE} == {contrib.DOMAIN}
    graph = load(path, folded=folded)
    assert [layer.op for layer in graph.layers].count("Conv") == 2
    assert contrib.DOMAIN not in {domain for domain, _ in graph.opsets}
    for seed in range(8):
        assert_equal(graph, random_mapping(random.Random(seed), graph, DEVICES))


def test_16_bits_are_refused_where_onnx_has_none(tmp_path: Path) -> None:
    path = quantised_by_its_own(tmp_path, activation_type=QuantType.QUInt16)
    model = onnx.load(path)
    (opset,) = (each for each in model.opset_import if not each.domain)
    opset.version = 20
    onnx.save(model, path)
    with pytest.raises(CleaveError) as refused:
        load(path)
    assert refused.value.sentences[0] == (
        f"{path}: layer 'x_QuantizeLinear': QuantizeLinear of ONNX Runtime's own cannot be cut; export it as ONNX's, "
        "which is for 16 bits from opset 21 on"
    )
