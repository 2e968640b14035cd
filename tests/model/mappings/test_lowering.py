"""Who sends what to whom: a network checked by hand, and properties of random mappings."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto

from model.mappings.arrays import arrays, tensor_names
from model.mappings.lowering import Messages, Shards, lowered, shards_of
from model.mappings.mapping import Mapping, Shard
from model.mappings.planning import plan
from model.network import boxes, pieces
from model.network.graph import Graph
from model.network.pieces import Piece
from runtime.plan import Plan, Recv, Send
from tests.tiny_cnn import branches, examples, graph_of, network, node, platform, random_mapping, six_layers, weight

DEVICES = 4


class Sent(NamedTuple):
    """A message between devices."""

    source: int
    dest: int
    piece: Piece


def channels(source: int, dest: int, tensor: str, start: int, stop: int) -> Sent:
    """A message of channels ``start..stop`` of a tensor of the network made by hand."""
    return Sent(source, dest, Piece(tensor, ((0, 1), (start, stop), (0, 2))))


def lower(graph: Graph, mapping: Mapping) -> tuple[Shards, Messages]:
    g = arrays(graph)
    shards = shards_of(g, mapping)
    return shards, lowered(g, shards, DEVICES)


def sent(graph: Graph, mapping: Mapping) -> list[Sent]:
    """All messages of a mapping, in order."""
    g = arrays(graph)
    shards, m = lower(graph, mapping)
    names, found = tensor_names(graph), []
    for k in range(m.out_ptr[-1]):
        name, shard = names[m.tensor[k]], m.shard[k]
        task = g.tensor_task[m.tensor[k]]
        divided = shards.ptr[task + 1] - shards.ptr[task] > 1 and shards.kind[task] == boxes.PARTIAL
        terms = (int(shards.start[shard]), int(shards.stop[shard])) if divided else None
        axes = range(len(graph.tensors[name].shape[: boxes.AXES]))
        box = tuple((int(m.start[k, axis]), int(m.stop[k, axis])) for axis in axes)
        found.append(Sent(int(shards.device[shard]), int(m.device[k]), Piece(name, box, terms)))
    return found


def fan() -> ModelProto:
    """A convolution that three layers read, which are summed up; a grouped convolution beside them."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], "conv"),
        node("Relu", ["c"], ["r"], "relu"),
        node("Tanh", ["c"], ["t"], "tanh"),
        node("Sigmoid", ["c"], ["s"], "sigmoid"),
        node("Conv", ["c", "v"], ["g"], "grouped", group=2),
        node("Sum", ["r", "t", "s"], ["y"], "sum"),
    ]
    weights = {"w": weight(8, 3, 1, 1), "v": weight(8, 4, 1, 1)}
    return network(nodes, {"x": (1, 3, 2, 2)}, ["y", "g"], weights)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return graph_of(tmp_path, fan())


def layers(*rows: list[tuple[int, int, int]]) -> Mapping:
    """A mapping from rows of ``device, start, stop``."""
    return Mapping.of(Shard(i, start, stop, d) for i, row in enumerate(rows) for d, start, stop in row)


def test_messages_of_a_network_by_hand(graph: Graph) -> None:
    mapping = layers(
        [(1, 0, 4), (2, 4, 8)],  # conv: the input is where its first shard is
        [(1, 0, 2), (3, 2, 8)],  # relu
        [(3, 0, 8)],  # tanh
        [(3, 0, 8)],  # sigmoid
        [(2, 0, 4), (3, 4, 8)],  # grouped: channels 0..4 of the input, then 4..8
        [(3, 0, 8)],  # sum
    )
    assert sent(graph, mapping) == [
        channels(1, 2, "x", 0, 3),
        channels(1, 2, "c", 0, 4),  # for grouped
        channels(1, 3, "c", 0, 4),  # once, for relu, tanh and sigmoid
        channels(2, 3, "c", 4, 8),  # once, for these and grouped
        channels(1, 3, "r", 0, 2),
        channels(3, 2, "g", 4, 8),  # the output is where its first shard is
    ]


def test_only_what_is_needed_is_sent(graph: Graph) -> None:
    whole = [(0, 0, 8)]
    mapping = layers([(0, 0, 8)], [(1, 0, 3), (0, 3, 5), (2, 5, 8)], whole, whole, [(0, 0, 4), (3, 4, 8)], whole)
    assert sent(graph, mapping) == [
        channels(0, 1, "c", 0, 3),
        channels(0, 2, "c", 5, 8),
        channels(0, 3, "c", 4, 8),
        channels(1, 0, "r", 0, 3),
        channels(2, 0, "r", 5, 8),
        channels(3, 0, "g", 4, 8),
    ]


def test_boxes_of_one_device_that_lie_apart_are_sent_with_what_is_between(graph: Graph) -> None:
    whole = [(0, 0, 8)]
    mapping = layers(whole, [(1, 0, 2), (0, 2, 6), (1, 6, 8)], whole, whole, whole, whole)
    assert sent(graph, mapping) == [channels(0, 1, "c", 0, 8), channels(1, 0, "r", 0, 2), channels(1, 0, "r", 6, 8)]


@pytest.mark.parametrize("device", range(DEVICES))
def test_one_device_sends_nothing(graph: Graph, device: int) -> None:
    assert sent(graph, Mapping.whole(graph, [device] * 6)) == []
    split = layers(*[[(device, 0, 4), (device, 4, 8)]] * 6)
    assert sent(graph, split) == []


def test_ends_of_the_network_go_with_their_neighbours(graph: Graph) -> None:
    shards, _ = lower(graph, layers([(2, 0, 4), (1, 4, 8)], *[[(0, 0, 8)]] * 3, [(3, 0, 4), (1, 4, 8)], [(1, 0, 8)]))
    assert shards.device.tolist() == [2, 2, 1, 0, 0, 0, 3, 1, 1, 1, 3]


def test_last_uses_are_those_on_the_same_device(graph: Graph) -> None:
    mapping = layers([(0, 0, 4), (1, 4, 8)], [(0, 0, 8)], [(1, 0, 8)], [(0, 0, 8)], [(2, 0, 4), (2, 4, 8)], [(2, 0, 8)])
    _, m = lower(graph, mapping)
    rows = {name: m.last_use[m.slot_ptr[i] : m.slot_ptr[i + 1]].tolist() for i, name in enumerate(tensor_names(graph))}
    conv, _, tanh, sigmoid, _, total = range(1, 7)  # tasks; the input is task 0
    assert rows == {"x": [conv], "c": [sigmoid, tanh], "r": [-1], "t": [-1], "s": [-1], "g": [8, 8], "y": [total + 1]}


# --- properties ---


def several_ends() -> ModelProto:
    """Two inputs, three outputs, a Split into unequal parts, a Concat that needs little of each."""
    nodes = [
        node("Abs", ["a"], ["p"]),
        node("Split", ["p", "sizes"], ["q", "r", "s"], axis=1),
        node("Concat", ["r", "b", "s"], ["t"], axis=1),
        node("Neg", ["t"], ["u"]),
        node("Concat", ["u", "q", "p"], ["y"], axis=1),
    ]
    weights = {"sizes": np.array([2, 7, 3])}
    return network(nodes, {"a": (1, 12, 2), "b": (1, 5, 2)}, ["y", "u", "q"], weights)


MODELS = {"branches": branches(), "fan": fan(), "six": six_layers(), "ends": several_ends()}


@pytest.fixture(scope="module", params=MODELS)
def any_graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(tmp_path_factory.mktemp("any"), MODELS[request.param])


def reads(graph: Graph, mapping: Mapping) -> list[tuple[Shard, str, Piece]]:
    """Every shard, each activation that it reads, and the piece that it needs: what the rules say, the slow way."""
    found = []
    for layer, row in zip(graph.layers, mapping.by_layer(len(graph.layers)), strict=True):
        rule = boxes.rule(graph, layer, row[0].axis) if len(row) > 1 else None
        for shard in row:
            for i, name in enumerate(layer.inputs):
                if name and not graph.is_constant(name):
                    need = rule.needs[i] if rule else boxes.WHOLE
                    found.append((shard, name, pieces.needed(graph, name, need, shard.start, shard.stop)))
    return found


def made(graph: Graph, mapping: Mapping) -> dict[str, list[tuple[int, Piece]]]:
    """Every tensor's pieces, and the device of each."""
    rows = mapping.by_layer(len(graph.layers))
    found = {}
    for name, index in graph.producer.items():
        whole, row = pieces.whole(graph, name), rows[index]
        parts = [pieces.made(graph, name, s.axis, s.start, s.stop) for s in row] if len(row) > 1 else [whole]
        found[name] = [(s.device, piece) for s, piece in zip(row, parts, strict=True)]
    for name in graph.inputs:
        first = min(shard.layer for shard, tensor, _ in reads(graph, mapping) if tensor == name)
        found[name] = [(rows[first][0].device, pieces.whole(graph, name))]
    return found


def wanted(graph: Graph, mapping: Mapping) -> dict[tuple[int, str], list[Piece]]:
    """What shards of a device need of each tensor, the network's outputs included."""
    rows = mapping.by_layer(len(graph.layers))
    found: dict[tuple[int, str], list[Piece]] = {}
    for shard, name, piece in reads(graph, mapping):
        found.setdefault((shard.device, name), []).append(piece)
    for name in graph.outputs:
        device = rows[graph.producer[name]][0].device
        found.setdefault((device, name), []).append(pieces.whole(graph, name))
    return found


def hull(parts: list[Piece]) -> Piece:
    """The smallest box around some parts of one piece."""
    both = zip(*(part.box for part in parts), strict=True)
    box = tuple((min(a for a, _ in axis), max(b for _, b in axis)) for axis in both)
    return Piece(parts[0].tensor, box, parts[0].terms)


@given(draw=st.randoms(use_true_random=False))
@examples(40)
def test_every_shard_has_all_it_needs_and_nothing_is_sent_in_vain(any_graph: Graph, draw: random.Random) -> None:
    """For each piece and device: one message, the hull of what shards there need of it; none to itself."""
    mapping = random_mapping(draw, any_graph, DEVICES)
    expected = set()
    needs = wanted(any_graph, mapping)
    for name, held in made(any_graph, mapping).items():
        for source, piece in held:
            for dest in set(range(DEVICES)) - {source}:
                parts = [pieces.intersection(piece, box) for box in needs.get((dest, name), [])]
                parts = [part for part in parts if not pieces.is_empty(part)]
                if parts:
                    expected.add(Sent(source, dest, hull(parts)))
    messages = sent(any_graph, mapping)
    assert len(set(messages)) == len(messages)
    assert set(messages) == expected


@given(draw=st.randoms(use_true_random=False))
@examples(25)
def test_a_shard_waits_for_the_pieces_that_others_hold(any_graph: Graph, draw: random.Random) -> None:
    mapping = random_mapping(draw, any_graph, DEVICES)
    _, m = lower(any_graph, mapping)
    messages, held = sent(any_graph, mapping), made(any_graph, mapping)
    needs = reads(any_graph, mapping)
    for row, shard in enumerate(mapping.shards, len(any_graph.inputs)):
        waits = [messages[k] for k in m.in_message[m.in_ptr[row] : m.in_ptr[row + 1]]]
        expected, most = Counter(), 0
        for reader, name, box in needs:
            if reader is shard:
                used = [(d, p) for d, p in held[name] if not pieces.is_empty(pieces.intersection(p, box))]
                most = max(most, len(used))
                expected.update((d, p) for d, p in used if d != shard.device)
        of_piece = {
            (s.source, s.dest, p): s
            for s in messages
            for d, p in held[s.piece.tensor]
            if d == s.source and p.terms == s.piece.terms and pieces.intersection(s.piece, p).box == s.piece.box
        }
        assert Counter(waits) == Counter({of_piece[d, shard.device, p]: c for (d, p), c in expected.items()})
        assert m.pieces[row] == most


@given(draw=st.randoms(use_true_random=False))
@examples(40)
def test_sends_and_receives_of_the_plan_are_the_messages(any_graph: Graph, draw: random.Random) -> None:
    mapping = random_mapping(draw, any_graph, DEVICES)
    p = plan(any_graph, platform(DEVICES), mapping)
    sends = {(r.rank, s.dest, s.tag): (r, s) for r in p.plan.ranks for s in r.steps if isinstance(s, Send)}
    receives = {(s.source, r.rank, s.tag): (r, s) for r in p.plan.ranks for s in r.steps if isinstance(s, Recv)}
    assert sends.keys() == receives.keys()
    assert len(sends) == sum(isinstance(s, Send) for r in p.plan.ranks for s in r.steps)
    assert len(receives) == sum(isinstance(s, Recv) for r in p.plan.ranks for s in r.steps)
    found = set()
    for key, (sender, send) in sends.items():
        receiver, receive = receives[key]
        into, piece = receiver.buffer(receive.buffer), p.pieces[receive.buffer]
        assert tuple(stop - start for start, stop in send.box) == into.shape
        assert into.dtype == sender.buffer(send.buffer).dtype
        source, dest = (mapping.devices[rank] for rank in key[:2])
        found.add(Sent(source, dest, piece))
        held = p.pieces[send.buffer]
        moved = tuple((a + c, a + d) for (a, _), (c, d) in zip(held.box, send.box, strict=False))
        assert (held.tensor, moved, held.terms) == (piece.tensor, piece.box, piece.terms)
    assert found == set(sent(any_graph, mapping))
    assert sorted(tag for _, _, tag in sends) == sorted(
        tag for pair in {key[:2] for key in sends} for tag in range(sum(key[:2] == pair for key in sends))
    )


def finish(p: Plan, frames: int, draw: random.Random) -> None:
    """Run only the communication of some frames in a row, one rank after the other at random, for as long as it goes.

    A rank posts all receives when its frame starts; a message is handed over only when its receive is posted
    (rendezvous), and a frame ends when all of its sends have been.
    """
    posted = {(r.rank, s.source, s.tag): -1 for r in p.ranks for s in r.steps if isinstance(s, Recv)}
    given_ = {(s.dest, r.rank, s.tag): -1 for r in p.ranks for s in r.steps if isinstance(s, Send)}
    frame, at = [0] * len(p.ranks), [-1] * len(p.ranks)

    def step(rank: int) -> bool:
        """Take one step if it can be taken."""
        steps = p.ranks[rank].steps
        if frame[rank] == frames:
            return False
        if at[rank] == -1:
            posted.update({key: frame[rank] for key in posted if key[0] == rank})
        elif at[rank] == len(steps):
            if any(posted[key] < frame[rank] for key in given_ if key[1] == rank):
                return False
            frame[rank], at[rank] = frame[rank] + 1, -2
        elif isinstance(now := steps[at[rank]], Recv):
            if given_[rank, now.source, now.tag] < frame[rank]:
                return False
        elif isinstance(now, Send):
            given_[now.dest, rank, now.tag] = frame[rank]
        at[rank] += 1
        return True

    while any(f < frames for f in frame):
        order = draw.sample(range(len(p.ranks)), len(p.ranks))
        assert any(step(rank) for rank in order), f"the ranks wait for one another in frames {frame} at steps {at}"


@given(draw=st.randoms(use_true_random=False))
@examples(20)
def test_ranks_never_wait_for_one_another(any_graph: Graph, draw: random.Random) -> None:
    mapping = random_mapping(draw, any_graph, DEVICES)
    finish(plan(any_graph, platform(DEVICES), mapping).plan, 3, random.Random(draw.randrange(10**6)))


def test_the_simulation_of_ranks_sees_a_deadlock(graph: Graph) -> None:
    """Two ranks that first receive and then send."""
    p = plan(graph, platform(2), layers([(0, 0, 4), (1, 4, 8)], *[[(0, 0, 4), (1, 4, 8)]] * 5)).plan
    turned = [
        type(r)(**{**vars(r), "steps": tuple(sorted(r.steps, key=lambda s: not isinstance(s, Recv)))}) for r in p.ranks
    ]
    with pytest.raises(AssertionError, match="wait for one another"):
        finish(Plan(p.cnn, p.inputs, p.outputs, tuple(turned)), 1, random.Random(0))
