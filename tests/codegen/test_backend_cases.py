"""The onnx package's own cases for every operator with a rule, cut in every way that is allowed.

Inputs that are weights to the rule (all but the first of a convolution, say) are made constants; the values are the
case's own.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

from model.mappings.mapping import Mapping, Shard, extent
from model.network import boxes
from model.network.graph import Graph, Layer
from model.network.load import load
from runtime.errors import CleaveError
from tests.cuts import EVERY_KIND, LETTERS
from tests.tiny_cnn import MORE, NEWEST, Arrays, assert_same, run_mapping, run_whole, save

DEVICES = 2
CUTS = 3 * MORE
"""Cuts tried of each case and kind of split; all of them where there are no more."""
ACTIVATIONS = frozenset(
    {"Concat", "Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "Mean", "Pow", "PRelu", "Where"}
    | {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor"}
)
"""Operators whose inputs are all activations."""
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
TYPES = frozenset(["bool", "float16", "float32", "float64", *INTEGERS])

Case = tuple[ModelProto, Arrays]


@cache
def cases() -> dict[str, Case]:
    """Cases of one operator that has a rule, with their inputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        every = collect_testcases()
    found = {}
    for case in every:
        if case.model is None or len(case.model.graph.node) != 1 or not case.data_sets:
            continue
        if case.model.graph.node[0].op_type not in boxes.RULES:
            continue
        values = dict(zip([i.name for i in case.model.graph.input], case.data_sets[0][0], strict=False))
        if all(isinstance(v, np.ndarray) and v.dtype.name in TYPES for v in values.values()):
            found[case.name] = (case.model, values)
    return found


def with_weights(model: ModelProto, values: Arrays) -> Case:
    """Constants for all inputs but the first, unless the operator takes several activations."""
    found = ModelProto()
    found.CopyFrom(model)
    found.opset_import[0].version = min(found.opset_import[0].version, NEWEST)
    (node,) = found.graph.node
    fixed = [] if node.op_type in ACTIVATIONS else [name for name in node.input[1:] if name in values]
    kept = [i for i in found.graph.input if i.name not in fixed]
    del found.graph.input[:]
    found.graph.input.extend(kept)
    found.graph.initializer.extend(numpy_helper.from_array(values[name], name) for name in fixed)
    return found, {name: value for name, value in values.items() if name not in fixed}


def single_cuts(graph: Graph, layer: Layer, draw: random.Random) -> list[tuple[int, int]]:
    """Some pairs of a kind of split and a place to cut at."""
    found = []
    for kind in EVERY_KIND:
        rule = boxes.rule(graph, layer, kind)
        if rule is not None:
            inner = range(rule.grain, rule.size, rule.grain)
            found += [(kind, at) for at in draw.sample(inner, min(CUTS, len(inner)))]
    return found


def check(model: ModelProto, values: Arrays, folder: Path, name: str) -> str:
    """Every kind of split that was found exact, a letter each, or why the case does not count."""
    model, feeds = with_weights(model, values)
    try:
        graph = load(save(folder, model), {n: v.shape for n, v in feeds.items()})
    except CleaveError:
        return "refused"
    feeds = {n: v for n, v in feeds.items() if n in graph.inputs}
    try:
        wanted = run_whole(graph.path, feeds)
    except Exception:  # ONNX Runtime's errors have no common class
        return "does not run"
    (layer,) = graph.layers
    kinds = ""
    for kind, at in single_cuts(graph, layer, random.Random(name)):
        shards = [Shard(0, 0, at, 0, kind), Shard(0, at, extent(graph, layer, kind), 1, kind)]
        got = run_mapping(graph, Mapping.of(shards), DEVICES, feeds)
        finite = {n: np.nan_to_num(v.astype(np.float64)) for n, v in wanted.items()}
        assert {n: v.dtype for n, v in got.items()} == {n: v.dtype for n, v in wanted.items()}
        half = any(v.dtype == np.float16 for v in wanted.values())
        same = {n: np.nan_to_num(v.astype(np.float64)) for n, v in got.items()}
        assert_same(same, finite, 1e-2 if half else 1e-4)
        kinds += LETTERS[kind]
    return "".join(sorted(set(kinds))) or "whole"


GROUPS = [sorted(boxes.RULES)[i::8] for i in range(8)]


@pytest.mark.parametrize("operators", GROUPS, ids=lambda operators: operators[0])
def test_the_cases_of_an_operator_are_exact_however_they_are_cut(operators: list[str], tmp_path: Path) -> None:
    mine = {n: case for n, case in cases().items() if case[0].graph.node[0].op_type in operators}
    wrong, seen = [], Counter[str]()
    for name, (model, values) in mine.items():
        try:
            seen[check(model, values, tmp_path, name)] += 1
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__} {str(error)[:300]}")
    assert not wrong, "\n".join(wrong)
    assert sum(n for what, n in seen.items() if what not in ("refused", "does not run", "whole")) >= 20
