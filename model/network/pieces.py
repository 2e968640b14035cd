"""Pieces: parts of tensors, as ranks hold and exchange them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from model.network import boxes
from model.network.graph import Graph
from runtime.plan import Box

BRACKET = re.compile(r"[\[{]")
"""What a box and terms begin with in the name of a piece."""


@dataclass(frozen=True, order=True)
class Piece:
    """A box of a tensor.

    box:   half-open interval along each of its first axes (``boxes.AXES`` of them at most)
    terms: of a partial sum, the interval of input channels that it sums over; None where the values are final
    """

    tensor: str
    box: Box
    terms: tuple[int, int] | None = None


def whole(graph: Graph, tensor: str) -> Piece:
    """All of a tensor."""
    return Piece(tensor, tuple((0, n) for n in graph.tensors[tensor].shape[: boxes.AXES]))


def made(graph: Graph, tensor: str, kind: int, start: int, stop: int) -> Piece:
    """What a shard makes of its layer's output."""
    piece = whole(graph, tensor)
    if kind == boxes.PARTIAL:
        return Piece(tensor, piece.box, (start, stop))
    return within(piece, kind, start, stop)


def within(piece: Piece, axis: int, start: int, stop: int) -> Piece:
    """The part of a piece inside an interval along ``axis``."""
    low, high = piece.box[axis]
    inside = (max(low, start), min(high, stop))
    return Piece(piece.tensor, (*piece.box[:axis], inside, *piece.box[axis + 1 :]), piece.terms)


def needed(graph: Graph, tensor: str, need: boxes.Need, start: int, stop: int) -> Piece:
    """The piece of ``tensor`` that an output interval needs; its box may be empty."""
    piece = whole(graph, tensor)
    if need.axis < 0:
        return piece
    low, high = need.interval(start, stop, piece.box[need.axis][1])
    return within(piece, need.axis, low, high)


def intersection(piece: Piece, wanted: Piece) -> Piece:
    """The part of ``piece`` inside the box of ``wanted``; its box may be empty."""
    box = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(piece.box, wanted.box, strict=True))
    return Piece(piece.tensor, box, piece.terms)


def contains(piece: Piece, other: Piece) -> bool:
    """Whether ``other`` is a part of ``piece``, and not all of it. Partial sums are no part of one another."""
    of_piece = piece.tensor == other.tensor and piece.terms is None and intersection(other, piece) == other
    return of_piece and piece != other


def is_empty(piece: Piece) -> bool:
    """Whether the box has no element."""
    return any(start >= stop for start, stop in piece.box)


def parts_of(wanted: Piece, held: Iterable[Piece]) -> list[tuple[Piece, Piece]]:
    """Those of ``held`` that ``wanted`` is made of, each with its part inside, in the order in which they join."""
    found = [(intersection(piece, wanted), piece) for piece in held]
    return [(piece, part) for part, piece in sorted(found) if not is_empty(part)]


def is_stack(parts: Sequence[Piece]) -> bool:
    """Whether pieces that make up a larger one lie one after the other in its memory: in C order, no axis before the
    one along which they are parts has more than one element. Partial sums do not: they are added.
    """
    if parts[0].terms is not None:
        return False
    first, second = parts[0].box, parts[1].box
    axis = next(k for k, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
    return all(stop - start == 1 for start, stop in first[:axis])


def inside(graph: Graph, part: Piece, of: Piece) -> Box:
    """Where ``part`` is in the memory of the larger piece ``of``, all dimensions."""
    box = [(c - a, d - a) for (a, _), (c, d) in zip(of.box, part.box, strict=True)]
    return (*box, *[(0, n) for n in shape(graph, of)[len(box) :]])


def name(graph: Graph, piece: Piece) -> str:
    """The tensor's own name for the whole of it; a part carries its box, ``conv1[:,0:48]``.

    A partial sum carries its terms too: ``conv1{+0:32}`` sums over input channels 0 to 31. Brackets of the tensor's
    name are doubled: no two parts share a name, even where a tensor is called as a part of another one would be.
    """
    found = box_text(piece.box, whole(graph, piece.tensor).box)
    if piece.terms:
        found += "{{+{}:{}}}".format(*piece.terms)
    return unlike_others(graph, BRACKET.sub(r"\g<0>\g<0>", piece.tensor) + found) if found else piece.tensor


def unlike_others(graph: Graph, name: str) -> str:
    """A name for what the file does not have, which no tensor and no layer of the file has."""
    while name in graph.tensors or name in graph.by_name:
        name += "'"
    return name


def box_text(box: Box, all_of_it: Box) -> str:
    """``[:,0:48]``; nothing for the whole."""
    words = [":" if a == b else f"{a[0]}:{a[1]}" for a, b in zip(box, all_of_it, strict=True)]
    while words and words[-1] == ":":
        words.pop()
    return f"[{','.join(words)}]" if words else ""


def shape(graph: Graph, piece: Piece) -> tuple[int, ...]:
    """Shape of a piece, in elements."""
    rest = graph.tensors[piece.tensor].shape[boxes.AXES :]
    return (*[stop - start for start, stop in piece.box], *rest)
