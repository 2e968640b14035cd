"""What the command line is given, as graphs, sizes and texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen import zoo
from dse.inputs import LARGEST, cnn_path, parse_shape, read_cnn
from runtime.errors import CleaveError
from tests.tiny_cnn import examples, network, node, save, six_layers, weight


@examples(50)
@given(st.text(min_size=1).filter(lambda name: name.isprintable()), st.lists(st.integers(1, LARGEST), min_size=1))
def test_a_shape_reads_back_whatever_the_name(name: str, sizes: list[int]) -> None:
    assert parse_shape(f"{name}={','.join(map(str, sizes))}") == (name, tuple(sizes))


@examples(200)
@given(st.one_of(st.text(), st.from_regex(r"x=[-0-9,. ]*", fullmatch=True)))
def test_no_text_makes_reading_a_shape_fall_over(text: str) -> None:
    try:
        name, sizes = parse_shape(text)
    except CleaveError:
        return
    assert name
    assert all(1 <= size <= LARGEST for size in sizes)


def test_a_size_is_given_once_or_twice_the_same(tmp_path: Path) -> None:
    model = network([node("Conv", ["x", "w"], ["y"])], {"x": ("N", 3, 8, 8)}, ["y"], {"w": weight(4, 3, 3, 3)})
    path = str(save(tmp_path, model))
    cnn = read_cnn(path, ["x=2,3,8,8", "x=2,3,8,8"], False)
    assert cnn.graph.tensors["y"].shape == (2, 4, 6, 6)
    assert cnn.source.shapes == {"x": (2, 3, 8, 8)}
    with pytest.raises(CleaveError, match="--shape x: is given twice"):
        read_cnn(path, ["x=2,3,8,8", "x=1,3,8,8"], False)


def test_a_bundle_remembers_how_its_network_was_read(tmp_path: Path) -> None:
    path = save(tmp_path, six_layers())
    source = read_cnn(str(path), [], True).source
    assert (source.path, source.folded, source.shapes) == (path.resolve(), True, {})


def test_an_empty_name_is_no_folder() -> None:
    with pytest.raises(CleaveError, match="--cnn: is empty"):
        read_cnn("", [], False)


def test_a_name_of_the_zoo_becomes_a_file() -> None:
    assert cnn_path("zoo:squeezenet") == zoo.cached("squeezenet")
    assert cnn_path("squeezenet.onnx") == Path("squeezenet.onnx")
    with pytest.raises(CleaveError, match="no network ''"):
        cnn_path("zoo:")
