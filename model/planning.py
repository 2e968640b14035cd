"""From a lowered mapping to the ``Plan`` that ranks execute: segments, steps and buffers.

A segment is a maximal run of shards on one rank between communications. It ends before a shard that waits for a
message, and after a shard whose output is sent, so that a tensor leaves as soon as it exists.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from model import boxes
from model.arrays import GraphArrays, arrays, tensor_names
from model.graph import Graph
from model.lowering import Messages, Shards, lowered, needed, shards_of
from model.mapping import Mapping
from model.platform import Platform
from runtime.plan import Buffer, Part, Plan, RankPlan, Recv, Run, Send, Step


@dataclass(frozen=True)
class Piece:
    """A part of a tensor: ``start <= i < stop`` along the channel axis; the whole of a tensor that has no such axis."""

    tensor: str
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class Planned:
    """A plan, and what piece of which tensor every buffer name stands for."""

    plan: Plan
    pieces: dict[str, Piece]


def plan(graph: Graph, platform: Platform, mapping: Mapping) -> Planned:
    """Lower a checked mapping to a plan. Ranks are the devices that take part, in platform order."""
    return _Planner(graph, platform, mapping).planned()


def needed_pieces(
    graph: Graph, tensor: str, need: boxes.Need, start: int, stop: int, held: list[Piece]
) -> tuple[Piece, list[Piece]]:
    """The piece of ``tensor`` that output box ``start..stop`` needs, and which of ``held`` it is made of, in order."""
    size = channel_size(graph, tensor)
    low, high = need.interval(start, stop, size)
    parts = sorted((p for p in held if min(high, p.stop) > max(low, p.start)), key=lambda p: p.start)
    return Piece(tensor, low, high), parts


def channel_size(graph: Graph, tensor: str) -> int:
    """Elements along the channel axis; 1 for a tensor without one."""
    shape = graph.tensors[tensor].shape
    return shape[boxes.CHANNELS] if len(shape) > boxes.CHANNELS else 1


def piece_name(graph: Graph, piece: Piece) -> str:
    """The tensor's own name for the whole of it; a part carries its box, ``conv1[:,0:48]``."""
    if (piece.start, piece.stop) == (0, channel_size(graph, piece.tensor)):
        return piece.tensor
    name = f"{piece.tensor}[:,{piece.start}:{piece.stop}]"
    while name in graph.tensors:
        name += "'"
    return name


def piece_shape(graph: Graph, piece: Piece) -> tuple[int, ...]:
    """Shape of a piece, in elements."""
    shape = graph.tensors[piece.tensor].shape
    if len(shape) <= boxes.CHANNELS:
        return shape
    return (*shape[: boxes.CHANNELS], piece.stop - piece.start, *shape[boxes.CHANNELS + 1 :])


@dataclass(eq=False)
class _Segment:
    """A segment that is being built; inputs and outputs are ordered sets of pieces."""

    parts: list[Part] = field(default_factory=list)
    made: set[Piece] = field(default_factory=set)
    inputs: dict[Piece, None] = field(default_factory=dict)
    outputs: dict[Piece, None] = field(default_factory=dict)


@dataclass(eq=False)
class _Rank:
    """A rank that is being built."""

    device: int
    steps: list[_Segment | Recv | Send] = field(default_factory=list)
    open: _Segment | None = None
    held: dict[str, list[Piece]] = field(default_factory=dict)
    home: dict[Piece, _Segment] = field(default_factory=dict)
    buffers: dict[Piece, None] = field(default_factory=dict)
    received: set[int] = field(default_factory=set)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    def segment(self) -> _Segment:
        """The open segment; a new one where there is none."""
        if self.open is None:
            self.open = _Segment()
            self.steps.append(self.open)
        return self.open

    def hold(self, piece: Piece) -> None:
        self.held.setdefault(piece.tensor, []).append(piece)

    def use(self, piece: Piece, segment: _Segment) -> None:
        """Note that ``segment`` reads a piece: what it did not make itself comes from a buffer."""
        if piece in segment.made:
            return
        segment.inputs[piece] = None
        self.export(piece)

    def export(self, piece: Piece) -> None:
        """Give a piece a buffer; the segment that makes it, if one does, writes it there."""
        self.buffers[piece] = None
        if piece in self.home:
            self.home[piece].outputs[piece] = None


class _Planner:
    """Walks through all shards in topological order, as every rank will."""

    def __init__(self, graph: Graph, platform: Platform, mapping: Mapping) -> None:
        self.graph, self.platform = graph, platform
        self.g: GraphArrays = arrays(graph)
        self.names = tensor_names(graph)
        self.shards: Shards = shards_of(self.g, mapping)
        self.messages: Messages = lowered(self.g, self.shards, len(platform.devices))
        self.rank_of = {device: rank for rank, device in enumerate(mapping.devices)}
        self.ranks = [_Rank(device) for device in mapping.devices]
        self.tags: dict[tuple[int, int], int] = {}
        self.tag_of: dict[int, int] = {}

    def planned(self) -> Planned:
        for task in range(len(self.g.size)):
            for shard in range(self.shards.ptr[task], self.shards.ptr[task + 1]):
                self._visit(task, shard)
        pieces = {piece_name(self.graph, p): p for rank in self.ranks for p in rank.buffers}
        inputs = tuple(self._whole(name) for name in self.graph.inputs)
        outputs = tuple(self._whole(name) for name in self.graph.outputs)
        ranks = tuple(self._rank_plan(number, rank) for number, rank in enumerate(self.ranks))
        return Planned(Plan(self.graph.name, inputs, outputs, ranks), pieces)

    def _visit(self, task: int, shard: int) -> None:
        rank = self.ranks[self.rank_of[self.shards.device[shard]]]
        self._receive(rank, shard)
        layer = task - self.g.n_inputs
        if layer < 0:
            rank.inputs.append(self.graph.inputs[task])
            rank.buffers[self._piece(task, shard)] = None
        elif layer < self.g.n_layers:
            self._compute(rank, layer, task, shard)
        else:
            self._output(rank, self.graph.outputs[layer - self.g.n_layers])
        for tensor in range(self.g.tensor_ptr[task], self.g.tensor_ptr[task + 1]):
            rank.hold(self._piece(tensor, shard))
        self._send(rank, shard)

    def _piece(self, tensor: int, shard: int) -> Piece:
        """The piece of a tensor that a shard makes: its box, or all of a tensor of a layer that stays whole."""
        name = self.names[tensor]
        whole = self.shards.stop[shard] - self.shards.start[shard] == self.g.size[self.g.tensor_task[tensor]]
        if whole:
            return Piece(name, 0, channel_size(self.graph, name))
        return Piece(name, int(self.shards.start[shard]), int(self.shards.stop[shard]))

    def _receive(self, rank: _Rank, shard: int) -> None:
        """Wait for the messages that the shard is the first to need."""
        m = self.messages
        waits = {int(k) for k in m.in_message[m.in_ptr[shard] : m.in_ptr[shard + 1]]} - rank.received
        for message in sorted(waits):
            rank.open = None
            rank.received.add(message)
            piece = self._message_piece(message)
            source = self.rank_of[self.shards.device[m.shard[message]]]
            rank.steps.append(Recv(piece_name(self.graph, piece), source, self.tag_of[message]))
            rank.buffers[piece] = None
            rank.hold(piece)

    def _message_piece(self, message: int) -> Piece:
        m = self.messages
        return Piece(self.names[m.tensor[message]], int(m.start[message]), int(m.stop[message]))

    def _compute(self, rank: _Rank, index: int, task: int, shard: int) -> None:
        segment = rank.segment()
        start, stop = int(self.shards.start[shard]), int(self.shards.stop[shard])
        segment.parts.append(Part(self.graph.layers[index].name, boxes.CHANNELS, start, stop))
        for edge in range(self.g.edge_ptr[task], self.g.edge_ptr[task + 1]):
            tensor = self.g.edge_tensor[edge]
            low, high = needed(self.g.edge_need[edge], start, stop, self.g.tensor_size[tensor])
            for piece in rank.held.get(self.names[tensor], []):
                if min(high, piece.stop) > max(low, piece.start):
                    rank.use(piece, segment)
        for tensor in range(self.g.tensor_ptr[task], self.g.tensor_ptr[task + 1]):
            made = self._piece(tensor, shard)
            segment.made.add(made)
            rank.home[made] = segment

    def _output(self, rank: _Rank, name: str) -> None:
        """A result of the network: it is there whole, or its pieces are joined in a segment."""
        rank.outputs.append(name)
        whole = Piece(name, 0, channel_size(self.graph, name))
        if whole not in rank.held[name]:
            segment = rank.segment()
            for piece in rank.held[name]:
                rank.use(piece, segment)
            rank.home[whole] = segment
        rank.export(whole)

    def _send(self, rank: _Rank, shard: int) -> None:
        m = self.messages
        for message in range(m.out_ptr[shard], m.out_ptr[shard + 1]):
            tensor = int(m.tensor[message])
            held, sent = self._piece(tensor, shard), self._message_piece(message)
            dest = self.rank_of[m.device[message]]
            pair = (self.rank_of[rank.device], dest)
            self.tag_of[message] = self.tags[pair] = self.tags.get(pair, -1) + 1
            rank.export(held)
            rank.open = None
            rank.steps.append(self._send_step(held, sent, dest, self.tag_of[message]))

    def _send_step(self, held: Piece, sent: Piece, dest: int, tag: int) -> Send:
        box = [(0, n) for n in piece_shape(self.graph, held)]
        if len(box) > boxes.CHANNELS:
            box[boxes.CHANNELS] = (sent.start - held.start, sent.stop - held.start)
        return Send(piece_name(self.graph, held), dest, tag, tuple(box))

    def _whole(self, name: str) -> Buffer:
        return self._buffer(Piece(name, 0, channel_size(self.graph, name)))

    def _buffer(self, piece: Piece) -> Buffer:
        dtype = self.graph.tensors[piece.tensor].dtype
        return Buffer(piece_name(self.graph, piece), piece_shape(self.graph, piece), dtype)

    def _rank_plan(self, number: int, rank: _Rank) -> RankPlan:
        device = self.platform.devices[rank.device]
        host = self.platform.hosts[device.host]
        return RankPlan(
            rank=number,
            device=device.name,
            host=host.name,
            address=host.address,
            cores=device.cores,
            threads=device.threads,
            provider=device.provider,
            inputs=tuple(rank.inputs),
            outputs=tuple(rank.outputs),
            buffers=tuple(self._buffer(p) for p in rank.buffers),
            steps=self._steps(number, rank),
        )

    def _steps(self, number: int, rank: _Rank) -> tuple[Step, ...]:
        steps: list[Step] = []
        runs = 0
        for step in rank.steps:
            if isinstance(step, _Segment):
                steps.append(self._run(step, f"rank{number:02d}/segment{runs:03d}.onnx"))
                runs += 1
            else:
                steps.append(step)
        return tuple(steps)

    def _run(self, segment: _Segment, file: str) -> Run:
        inputs = tuple(piece_name(self.graph, p) for p in segment.inputs)
        outputs = tuple(piece_name(self.graph, p) for p in segment.outputs)
        return Run(file, tuple(segment.parts), inputs, outputs)
