"""Operators that move elements: random attributes, both forms of saying them, cut in every way that is allowed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from onnx import ModelProto, NodeProto

from model.mappings.mapping import Mapping, Shard
from model.network import boxes
from model.network.boxes import CHANNELS, ROWS, SAMPLES
from tests.cuts import DEVICES, Draw, assert_every_cut_is_exact, chain, randoms, ways
from tests.tiny_cnn import NEWEST, assert_cut_exactly, examples, graph_of, network, node, weight

SHAPE = (3, 6, 7, 4)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def kinds(folder: Path, model: ModelProto, tensor: str = "m") -> str:
    graph = graph_of(folder, model)
    return ways(graph, graph.layers[graph.producer[tensor]])


@given(draw=randoms)
@examples(25)
def test_a_pad_in_every_form(draw: Draw) -> None:
    """Parts may lie in the padding alone, and negative pads cut off."""
    form = draw.choice(["attribute", "input", "axes"])
    axes = draw.sample(range(4), draw.randint(1, 4)) if form == "axes" else list(range(4))
    mode = draw.choice(["constant", "constant", "constant", "reflect", "edge"])
    low = -1 if mode == "constant" else 0
    pads = [draw.randint(low, 2) for _ in range(2 * len(axes))]
    value = np.float32(draw.choice([0, 1.5]))
    if form == "attribute":
        middle = node("Pad", ["h"], ["m"], pads=pads, value=float(value), mode=mode)
        model = chain(middle, SHAPE, opset=10)
    else:
        named = [a - 4 * draw.randint(0, 1) for a in axes]
        weights = {"p": ints(*pads), "v": np.array(value), "a": ints(*named)}
        inputs = ["h", "p", draw.choice(["v", ""]), *(["a"] if form == "axes" else [])]
        used = {k: v for k, v in weights.items() if k in inputs}
        model = chain(node("Pad", inputs, ["m"], mode=mode), SHAPE, used, NEWEST if form == "axes" else 13)
    assert_every_cut_is_exact(model, draw)


def test_a_part_in_the_padding_alone_is_a_constant(tmp_path: Path) -> None:
    middle = node("Pad", ["h", "p", "v"], ["m"])
    weights = {"p": ints(0, 0, 2, 0, 0, 0, 1, 0), "v": np.array(7, np.float32)}
    graph = graph_of(tmp_path, chain(middle, (1, 2, 3, 2), weights))
    shards = [Shard(1, start, stop, device, ROWS) for device, (start, stop) in enumerate([(0, 2), (2, 5), (5, 6)])]
    whole = [Shard(0, 0, 2, 0), Shard(2, 0, 2, 1)]
    assert_cut_exactly(graph, Mapping.of([*shards, *whole]), DEVICES)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_padding_that_repeats_the_input_stays_whole_along_its_axes(mode: str, tmp_path: Path) -> None:
    weights = {"p": ints(0, 0, 1, 0, 0, 0, 1, 0)}
    assert kinds(tmp_path, chain(node("Pad", ["h", "p"], ["m"], mode=mode), SHAPE, weights)) == "nc"


@given(draw=randoms)
@examples(25)
def test_a_slice_in_every_form(draw: Draw) -> None:
    axes = sorted(draw.sample(range(4), draw.randint(1, 4)))
    starts = [draw.choice([0, 1, -3, -2]) for _ in axes]
    ends = [draw.choice([3, 1000, 2**31 - 1, SHAPE[a]]) for a in axes]
    steps = [draw.choice([1, 1, 2, 3]) for _ in axes]
    if draw.random() < 0.3:
        bounds = {"starts": starts, "ends": ends} | ({"axes": axes} if len(axes) < 4 else {})
        axes, steps = axes if len(axes) < 4 else list(range(4)), [1] * len(axes)
        model = chain(node("Slice", ["h"], ["m"], **bounds), SHAPE, opset=9)
    else:
        if draw.random() < 0.3:
            starts[0], ends[0], steps[0] = -1, -1000, draw.choice([-1, -2])
        named = [a - 4 * draw.randint(0, 1) for a in axes]
        weights = {"s": ints(*starts), "e": ints(*ends), "a": ints(*named), "t": ints(*steps)}
        model = chain(node("Slice", ["h", "s", "e", "a", "t"], ["m"]), SHAPE, weights)
    empty = any(len(range(SHAPE[a])[s:e:t]) == 0 for a, s, e, t in zip(axes, starts, ends, steps, strict=True))
    if not empty:
        assert_every_cut_is_exact(model, draw)


def test_a_slice_backwards_stays_whole_along_its_axis(tmp_path: Path) -> None:
    weights = {"s": ints(-1, 1), "e": ints(-99, 6), "a": ints(1, 2), "t": ints(-1, 2)}
    assert kinds(tmp_path, chain(node("Slice", ["h", "s", "e", "a", "t"], ["m"]), SHAPE, weights)) == "nh"


def test_a_slice_without_axes_begins_at_the_first(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, chain(node("Slice", ["h", "s", "e"], ["m"]), SHAPE, {"s": ints(1, 2), "e": ints(3, 6)}))
    rules = [boxes.rule(graph, graph.by_name["m"], kind) for kind in (SAMPLES, CHANNELS, ROWS)]
    assert [rule and rule.needs[0] for rule in rules] == [
        boxes.Need(0, lo=1, hi=1),
        boxes.Need(1, lo=2, hi=2),
        boxes.Need(2),
    ]


def resized(shape: tuple[int, ...] = (2, 4, 5, 4), opset: int = NEWEST, **how: object) -> ModelProto:
    """A Resize; ``scales``, ``sizes`` and ``roi`` are inputs, everything else attributes."""
    given = {name: how.pop(name) for name in ("roi", "scales", "sizes") if name in how}
    weights = {k: np.array(v, np.int64 if k == "sizes" else np.float32) for k, v in given.items()}
    inputs = ["h", *[name if name in weights else "" for name in ("roi", "scales", "sizes")]]
    while not inputs[-1]:
        inputs.pop()
    return chain(node("Resize", inputs, ["m"], **how), shape, weights, opset)


@pytest.mark.parametrize(
    ("model", "allowed"),
    [
        (resized(scales=[1, 1, 2, 2]), "nc"),
        (resized(scales=[1, 1, 1, 2], mode="linear"), "nch"),
        (resized(scales=[1, 2, 1, 1]), "nh"),
        (resized(scales=[1, 1.05, 1, 1]), "nh"),
        (resized(sizes=[2, 4, 9, 7], mode="linear"), "nc"),
        (resized(sizes=[2, 4, 5, 9]), "nch"),
        (resized(sizes=[9, 7], axes=[2, 3]), "nc"),
        (resized(scales=[2, 3], axes=[-2, -1]), "nc"),
        (resized(sizes=[2, 4, 9, 9], mode="cubic", coordinate_transformation_mode="align_corners"), "nc"),
        (resized(roi=[0, 0, 0, 0, 1, 1, 1, 1], scales=[1, 1, 2, 2], opset=11), "nc"),
        (
            resized(
                roi=[0, 0.5, 0, 0, 1, 1, 1, 1],
                sizes=[2, 4, 9, 9],
                mode="linear",
                coordinate_transformation_mode="tf_crop_and_resize",
            ),
            "",
        ),
        (resized(sizes=[9, 9], axes=[2, 3], keep_aspect_ratio_policy="not_larger"), ""),
        (chain(node("Resize", ["h", "s"], ["m"]), (2, 4, 5, 4), {"s": np.array([1, 1, 2, 2], np.float32)}, 10), "nc"),
        (chain(node("Upsample", ["h"], ["m"], scales=[1.0, 1.0, 2.0, 2.0]), (2, 4, 5, 4), opset=7), "nc"),
    ],
)
@given(draw=randoms)
@examples(3)
def test_a_resize_is_cut_along_axes_that_keep_their_size(model: ModelProto, allowed: str, draw: Draw) -> None:
    assert assert_every_cut_is_exact(model, draw) == allowed


@pytest.mark.parametrize("opset", [11, NEWEST])
@pytest.mark.parametrize("keepdims", [0, 1])
@given(draw=randoms)
@examples(6)
def test_a_reduction(keepdims: int, opset: int, draw: Draw) -> None:
    axes = sorted(draw.sample(range(4), draw.randint(1, 3)))
    named = [a - 4 * draw.randint(0, 1) for a in axes]
    op = draw.choice(["ReduceMean", "ReduceMax", "ReduceL2"])
    if opset == 11:
        model = chain(node(op, ["h"], ["m"], axes=named, keepdims=keepdims), SHAPE, opset=opset)
    else:
        model = chain(node(op, ["h", "a"], ["m"], keepdims=keepdims), SHAPE, {"a": ints(*named)})
    left = [a for a in range(4) if a not in axes]
    free = [a if keepdims else k for k, a in enumerate(left) if a < 3]
    assert assert_every_cut_is_exact(model, draw) == "".join("nch"[a] for a in free)


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("form", ["attribute", "input", "equal"])
@given(draw=randoms)
@examples(3)
def test_a_split_along_another_axis_than_it_divides(axis: int, form: str, draw: Draw) -> None:
    shape = [4, 4, 4, 4]
    parts = [2, 2] if form == "equal" else [1, 3]
    how = {"attribute": {"split": parts}, "input": {}, "equal": {"num_outputs": 2}}[form]
    inputs = ["h", "k"] if form == "input" else ["h"]
    split = node("Split", inputs, ["m", "n"], axis=axis - 4 * draw.randint(0, 1), **how)
    nodes = [node("Abs", ["x"], ["h"]), split, node("Neg", ["m"], ["a"]), node("Concat", ["n", "a"], ["y"], axis=axis)]
    opset = 11 if form == "attribute" else NEWEST
    weights = {"k": ints(*parts)} if form == "input" else {}
    model = network(nodes, {"x": shape}, ["y", "n"], weights, opset)
    assert assert_every_cut_is_exact(model, draw) == "nch".replace("nch#"[axis], "")


@pytest.mark.parametrize("op", ["DepthToSpace", "SpaceToDepth"])
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@given(draw=randoms)
@examples(4)
def test_blocks_become_depth_and_back(op: str, mode: str, draw: Draw) -> None:
    how = {"mode": mode} if op == "DepthToSpace" else {}
    model = chain(node(op, ["h"], ["m"], blocksize=2, **how), (2, 8, 6, 4))
    assert assert_every_cut_is_exact(model, draw) == "nh"


VIEWS: list[tuple[str, NodeProto, tuple[int, ...], dict[str, np.ndarray]]] = [
    ("nc", node("Reshape", ["h", "k"], ["m"]), (2, 6, 4), {"k": ints(0, -1)}),
    ("nc", node("Reshape", ["h", "k"], ["m"]), (2, 6, 4), {"k": ints(2, 12, 2)}),
    ("nc", node("Reshape", ["h", "k"], ["m"]), (2, 6, 4), {"k": ints(2, 3, 2, 4)}),
    ("n", node("Reshape", ["h", "k"], ["m"]), (2, 6, 4), {"k": ints(2, 4, 6)}),
    ("", node("Reshape", ["h", "k"], ["m"]), (2, 6, 4), {"k": ints(4, 3, 4)}),
    ("nc", node("Flatten", ["h"], ["m"]), (2, 6, 2, 2), {}),
    ("c", node("Flatten", ["h"], ["m"], axis=0), (1, 6, 2), {}),
    ("", node("Flatten", ["h"], ["m"], axis=2), (2, 6, 2), {}),
    ("nc", node("Squeeze", ["h", "k"], ["m"]), (2, 6, 1), {"k": ints(-1)}),
    ("n", node("Squeeze", ["h", "k"], ["m"]), (2, 1, 6), {"k": ints(1)}),
    ("", node("Squeeze", ["h"], ["m"]), (2, 6, 1), {}),
    ("nc", node("Unsqueeze", ["h", "k"], ["m"]), (2, 6), {"k": ints(2, 3)}),
    ("", node("Unsqueeze", ["h", "k"], ["m"]), (2, 6), {"k": ints(0)}),
    ("nch", node("Transpose", ["h"], ["m"], perm=[0, 2, 1, 3]), (2, 6, 3, 2), {}),
    ("ch", node("Transpose", ["h"], ["m"]), (2, 6, 3, 2), {}),
    ("h", node("Transpose", ["h"], ["m"], perm=[3, 4, 2, 0, 1]), (1, 2, 6, 3, 2), {}),
    ("nch", node("Softmax", ["h"], ["m"]), (2, 6, 3, 2), {}),
    ("nh", node("Softmax", ["h"], ["m"], axis=-3), (2, 6, 3, 2), {}),
    ("nch", node("LogSoftmax", ["h"], ["m"], axis=3), (2, 6, 3, 2), {}),
]


@pytest.mark.parametrize(("allowed", "layer", "shape", "weights"), VIEWS)
@given(draw=randoms)
@examples(3)
def test_a_view_is_cut_where_whole_channels_stay_whole(
    allowed: str, layer: NodeProto, shape: tuple[int, ...], weights: dict[str, np.ndarray], draw: Draw
) -> None:
    assert assert_every_cut_is_exact(chain(layer, shape, weights), draw) == allowed


@pytest.mark.parametrize(("axis", "allowed"), [(None, "n"), (0, ""), (1, "n"), (2, "nc"), (3, "nch"), (-1, "nch")])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@given(draw=randoms)
@examples(2)
def test_a_softmax_before_opset_13_runs_over_all_axes_from_its_own(
    op: str, axis: int | None, allowed: str, draw: Draw
) -> None:
    how = {} if axis is None else {"axis": axis}
    assert assert_every_cut_is_exact(chain(node(op, ["h"], ["m"], **how), (2, 4, 3, 2), opset=11), draw) == allowed


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@given(draw=randoms)
@examples(6)
def test_a_concat_along_every_axis_of_tensors_of_several_types(axis: int, draw: Draw) -> None:
    shapes = [[2, 3, 3, 2] for _ in range(3)]
    for shape in shapes:
        shape[axis] = draw.randint(1, 4)
    into = draw.choice([1, 3, 7, 9, 10])  # float32, int8, int64, bool, float16
    nodes = [node("Cast", [f"x{i}"], [f"c{i}"], to=into) for i in range(3)]
    nodes += [node("Concat", ["c0", "c1", "c2", "c0"], ["m"], axis=axis), node("Cast", ["m"], ["y"], to=1)]
    model = network(nodes, {f"x{i}": shape for i, shape in enumerate(shapes)}, ["y"])
    assert assert_every_cut_is_exact(model, draw) == "nch"


def test_a_product_of_whole_numbers_has_no_partial_sums(tmp_path: Path) -> None:
    """ONNX adds floats only."""
    nodes = [node("Cast", ["x"], ["h"], to=6), node("MatMul", ["h", "w"], ["m"]), node("Cast", ["m"], ["y"], to=1)]
    w = (10 * weight(6, 5)).astype(np.int32)
    assert kinds(tmp_path, network(nodes, {"x": (4, 6)}, ["y"], {"w": w})) == "nc"
