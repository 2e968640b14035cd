"""Pieces: boxes of tensors, their names, and what they join to."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.network import boxes, pieces
from model.network.boxes import CHANNELS, PARTIAL, ROWS, SAMPLES, Need
from model.network.graph import Graph
from model.network.pieces import Piece
from tests.tiny_cnn import examples, graph_of, network, node

SHAPE = (2, 6, 5, 3)
ALL = ((0, 2), (0, 6), (0, 5))


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    nodes = [node("Relu", ["x"], ["y"]), node("Flatten", ["y"], ["f"]), node("Neg", ["y"], ["y[:,0:3]"])]
    model = network(nodes, {"x": SHAPE}, ["f", "y[:,0:3]"])
    return graph_of(tmp_path_factory.mktemp("pieces"), model)


@pytest.mark.parametrize(
    ("kind", "text", "shape"),
    [
        (SAMPLES, "x[1:2]", (1, 6, 5, 3)),
        (CHANNELS, "x[:,1:2]", (2, 1, 5, 3)),
        (ROWS, "x[:,:,1:2]", (2, 6, 1, 3)),
        (PARTIAL, "x{+1:2}", SHAPE),
    ],
)
def test_a_part_is_named_and_shaped_by_how_it_is_cut(
    kind: int, text: str, shape: tuple[int, ...], graph: Graph
) -> None:
    piece = pieces.made(graph, "x", kind, 1, 2)
    assert (pieces.name(graph, piece), pieces.shape(graph, piece)) == (text, shape)


def test_the_whole_has_the_tensors_own_name(graph: Graph) -> None:
    assert pieces.whole(graph, "x") == Piece("x", ALL)
    assert pieces.name(graph, pieces.made(graph, "x", CHANNELS, 0, 6)) == "x"
    assert pieces.whole(graph, "f").box == ((0, 2), (0, 90))


def test_a_box_along_two_axes_is_named_by_both(graph: Graph) -> None:
    piece = pieces.within(pieces.made(graph, "x", CHANNELS, 1, 4), ROWS, 2, 9)
    assert piece.box == ((0, 2), (1, 4), (2, 5))
    assert pieces.name(graph, piece) == "x[:,1:4,2:5]"


def test_a_name_that_the_file_has_is_not_taken(graph: Graph) -> None:
    assert pieces.name(graph, pieces.made(graph, "y", CHANNELS, 0, 3)) == "y[:,0:3]'"


def test_a_part_of_a_tensor_that_is_called_as_a_part_has_a_name_of_its_own(graph: Graph) -> None:
    """Also where it has further terms, of which the file has nothing."""
    parts = [pieces.made(graph, "y[:,0:3]", CHANNELS, 0, 3), pieces.made(graph, "y[:,0:3]", PARTIAL, 0, 2)]
    parts.append(Piece("y", ((0, 2), (0, 3), (0, 5)), (0, 2)))
    assert [pieces.name(graph, piece) for piece in parts] == ["y[[:,0:3][:,0:3]", "y[[:,0:3]{+0:2}", "y[:,0:3]{+0:2}"]


def test_two_pieces_of_one_tensor_never_share_a_name(graph: Graph) -> None:
    cuts = [(0, 1), (0, 2), (1, 2)]
    found = [pieces.made(graph, "x", kind, *cut) for kind in range(boxes.KINDS) for cut in cuts]
    assert len({pieces.name(graph, piece) for piece in found}) == len(set(found))


def test_what_is_needed_is_clipped_and_may_be_nothing(graph: Graph) -> None:
    halo = Need(ROWS, lo=-1, hi=1)
    assert pieces.needed(graph, "x", halo, 0, 2).box == ((0, 2), (0, 6), (0, 3))
    assert pieces.needed(graph, "x", halo, 3, 5).box == ((0, 2), (0, 6), (2, 5))
    assert pieces.is_empty(pieces.needed(graph, "x", Need(CHANNELS, lo=-6, hi=-6), 0, 4))
    assert pieces.needed(graph, "x", boxes.WHOLE, 1, 2) == pieces.whole(graph, "x")


intervals = st.tuples(st.integers(0, 5), st.integers(1, 5)).map(lambda t: (t[0], t[0] + t[1]))


@given(cuts=st.sets(st.integers(1, 5)), wanted=intervals, kind=st.sampled_from([CHANNELS, ROWS]))
@examples(60)
def test_parts_of_a_piece_join_to_it_exactly(cuts: set[int], wanted: tuple[int, int], kind: int, graph: Graph) -> None:
    """Whatever the pieces are, those that meet the box, side by side in their order, are the box."""
    edges = sorted({0, 6, *cuts})
    held = [pieces.made(graph, "x", CHANNELS, a, b) for a, b in pairwise(edges)]
    want = pieces.within(pieces.whole(graph, "x"), kind, *wanted)
    values = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    found = pieces.parts_of(want, reversed(held))
    parts = [values[tuple(slice(*ends) for ends in part.box)] for _, part in found]
    if pieces.is_empty(want):
        assert not parts
    else:
        assert np.array_equal(np.concatenate(parts, CHANNELS), values[tuple(slice(*ends) for ends in want.box)])


def test_terms_of_a_partial_sum_stay_with_its_parts(graph: Graph) -> None:
    """A part of a partial sum is still a partial sum; sums come in the order of their terms."""
    held = [pieces.made(graph, "y", PARTIAL, a, b) for a, b in ((3, 6), (0, 3))]
    want = pieces.within(pieces.whole(graph, "y"), ROWS, 1, 2)
    assert [part.terms for _, part in pieces.parts_of(want, held)] == [(0, 3), (3, 6)]
    assert {part.box for _, part in pieces.parts_of(want, held)} == {want.box}
