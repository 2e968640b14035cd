"""From a lowered mapping to the ``Plan`` that ranks execute: segments, steps and buffers.

A segment is a maximal run of shards on one rank between communications. It ends before a shard that waits for a
message, and after a shard whose output is sent, so that a tensor leaves as soon as it exists. More borders can be asked
for, to measure parts of a network apart.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from model.cluster.platform import Platform
from model.mappings.arrays import GraphArrays, arrays, tensor_names
from model.mappings.lowering import Messages, Shards, lowered, shards_of
from model.mappings.mapping import Mapping, extent
from model.network import boxes, pieces
from model.network.graph import Graph, Layer
from model.network.pieces import Piece
from runtime.plan import Buffer, Part, Plan, RankPlan, Recv, Run, Send, Step


@dataclass(frozen=True, eq=False)
class Planned:
    """A plan, and what piece of which tensor every buffer name stands for."""

    plan: Plan
    pieces: dict[str, Piece]


def plan(graph: Graph, platform: Platform, mapping: Mapping, borders: Collection[int] = ()) -> Planned:
    """Lower a checked mapping to a plan. Ranks are the devices that take part, in platform order.

    borders: indices of layers whose every shard begins a segment of its own, though it need not
    """
    return _Planner(graph, platform, mapping, frozenset(borders)).planned()


def seat(platform: Platform, device: int, number: int, reads_meter: bool = False) -> RankPlan:
    """A rank on a device that has nothing to do yet. reads_meter: of the host, where there is one"""
    on = platform.devices[device]
    host = platform.hosts[on.host]
    return RankPlan(
        rank=number,
        device=on.name,
        host=host.name,
        address=host.address,
        cores=on.cores,
        threads=on.threads,
        provider=on.provider,
        inputs=(),
        outputs=(),
        buffers=(),
        steps=(),
        arena=on.arena,
        meter=host.meter if reads_meter else None,
        idle_w=host.idle_power_w,
        busy_w=on.power_w,
    )


@dataclass(eq=False)
class _Segment:
    """A segment that is being built; inputs and outputs are ordered sets of pieces."""

    parts: list[Part] = field(default_factory=list)
    made: set[Piece] = field(default_factory=set)
    inputs: dict[Piece, None] = field(default_factory=dict)
    outputs: dict[Piece, None] = field(default_factory=dict)


@dataclass(eq=False)
class _Rank:
    """A rank that is being built.

    held:   pieces that are there, by tensor; home: the segment that makes a piece
    within: pieces that lie in the buffer of a larger one
    """

    device: int
    steps: list[_Segment | Recv | Send] = field(default_factory=list)
    open: _Segment | None = None
    held: dict[str, list[Piece]] = field(default_factory=dict)
    home: dict[Piece, _Segment] = field(default_factory=dict)
    buffers: dict[Piece, None] = field(default_factory=dict)
    within: dict[Piece, Piece] = field(default_factory=dict)
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

    def read(self, wanted: Piece, segment: _Segment) -> None:
        """Note that ``segment`` reads a piece: from one buffer if its parts can lie side by side there, else each."""
        parts = pieces.parts_of(wanted, self.held.get(wanted.tensor, []))
        if not any(piece in segment.made for piece, _ in parts) and self.lay(wanted, parts):
            segment.inputs[wanted] = None
            return
        for piece, _ in parts:
            self.use(piece, segment)

    def lay(self, wanted: Piece, parts: list[tuple[Piece, Piece]]) -> bool:
        """Have pieces lie side by side in one buffer; false where they cannot."""
        side_by_side = [piece for piece, part in parts if piece == part and self.within.get(piece, wanted) == wanted]
        if len(parts) < 2 or len(side_by_side) < len(parts) or not pieces.is_stack(side_by_side):
            return False
        self.buffers[wanted] = None
        for piece in side_by_side:
            self.within[piece] = wanted
            self.export(piece)
        return True

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

    def __init__(self, graph: Graph, platform: Platform, mapping: Mapping, borders: frozenset[int]) -> None:
        self.graph, self.platform, self.borders = graph, platform, borders
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
        named = {self._name(p): p for rank in self.ranks for p in rank.buffers}
        inputs = tuple(self._whole(name) for name in self.graph.inputs)
        outputs = tuple(self._whole(name) for name in self.graph.outputs)
        ranks = tuple(self._rank_plan(number, rank) for number, rank in enumerate(self.ranks))
        return Planned(Plan(self.graph.name, inputs, outputs, ranks), named)

    def _visit(self, task: int, shard: int) -> None:
        rank = self.ranks[self.rank_of[self.shards.device[shard]]]
        self._receive(rank, shard)
        layer = task - self.g.n_inputs
        if layer < 0:
            rank.inputs.append(self.graph.inputs[task])
            rank.buffers[self._piece(task, shard)] = None
        elif layer < self.g.n_layers:
            self._compute(rank, self.graph.layers[layer], task, shard)
        else:
            self._output(rank, self.graph.outputs[layer - self.g.n_layers])
        for tensor in range(self.g.tensor_ptr[task], self.g.tensor_ptr[task + 1]):
            rank.hold(self._piece(tensor, shard))
        self._send(rank, shard)

    def _name(self, piece: Piece) -> str:
        return pieces.name(self.graph, piece)

    def _piece(self, tensor: int, shard: int) -> Piece:
        """The piece of a tensor that a shard makes."""
        task = self.g.tensor_task[tensor]
        name = self.names[tensor]
        if self._alone(task):
            return pieces.whole(self.graph, name)
        s = self.shards
        return pieces.made(self.graph, name, int(s.kind[task]), int(s.start[shard]), int(s.stop[shard]))

    def _alone(self, task: int) -> bool:
        """Whether a task is one shard, whole."""
        return bool(self.shards.ptr[task + 1] - self.shards.ptr[task] == 1)

    def _receive(self, rank: _Rank, shard: int) -> None:
        """Wait for the messages that the shard is the first to need."""
        m = self.messages
        waits = {int(k) for k in m.in_message[m.in_ptr[shard] : m.in_ptr[shard + 1]]} - rank.received
        for message in sorted(waits):
            rank.open = None
            rank.received.add(message)
            piece = self._message_piece(message)
            source = self.rank_of[self.shards.device[m.shard[message]]]
            rank.steps.append(Recv(self._name(piece), source, self.tag_of[message]))
            rank.buffers[piece] = None
            rank.hold(piece)

    def _message_piece(self, message: int) -> Piece:
        m = self.messages
        held = self._piece(int(m.tensor[message]), int(m.shard[message]))
        box = tuple((int(m.start[message, k]), int(m.stop[message, k])) for k in range(len(held.box)))
        return Piece(held.tensor, box, held.terms)

    def _compute(self, rank: _Rank, layer: Layer, task: int, shard: int) -> None:
        if layer.index in self.borders:
            rank.open = None
        segment = rank.segment()
        kind, part = boxes.CHANNELS, (0, extent(self.graph, layer))
        if not self._alone(task):
            kind = int(self.shards.kind[task])
            part = (int(self.shards.start[shard]), int(self.shards.stop[shard]))
        segment.parts.append(Part(layer.name, kind, *part))
        rule = None if self._alone(task) else boxes.rule(self.graph, layer, kind)
        for k, name in enumerate(layer.inputs):
            if not name or self.graph.is_constant(name):
                continue
            rank.read(pieces.needed(self.graph, name, rule.needs[k] if rule else boxes.WHOLE, *part), segment)
        for tensor in range(self.g.tensor_ptr[task], self.g.tensor_ptr[task + 1]):
            made = self._piece(tensor, shard)
            segment.made.add(made)
            rank.home[made] = segment

    def _output(self, rank: _Rank, name: str) -> None:
        """A result of the network: it is there whole, or its pieces lie side by side, or a segment joins them."""
        rank.outputs.append(name)
        whole = pieces.whole(self.graph, name)
        parts = pieces.parts_of(whole, rank.held[name])
        if whole not in rank.held[name] and not rank.lay(whole, parts):
            segment = rank.segment()
            for piece, _ in parts:
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
        return Send(self._name(held), dest, tag, pieces.inside(self.graph, sent, held))

    def _whole(self, name: str) -> Buffer:
        return self._buffer(pieces.whole(self.graph, name))

    def _buffer(self, piece: Piece, within: Piece | None = None) -> Buffer:
        place = (self._name(within), pieces.inside(self.graph, piece, within)) if within else ()
        dtype = self.graph.tensors[piece.tensor].dtype
        return Buffer(self._name(piece), pieces.shape(self.graph, piece), dtype, *place)

    def _buffers(self, rank: _Rank) -> tuple[Buffer, ...]:
        """Those of a rank; buffers within others come last."""
        in_order = sorted(rank.buffers, key=rank.within.__contains__)
        return tuple(self._buffer(piece, rank.within.get(piece)) for piece in in_order)

    def _rank_plan(self, number: int, rank: _Rank) -> RankPlan:
        host = self.platform.devices[rank.device].host
        bare = seat(self.platform, rank.device, number, reads_meter=number == self._first_rank(host))
        return replace(
            bare,
            inputs=tuple(rank.inputs),
            outputs=tuple(rank.outputs),
            buffers=self._buffers(rank),
            steps=self._steps(number, rank),
        )

    def _first_rank(self, host: int) -> int:
        """The lowest rank of a host: one is enough to read its meter."""
        return next(n for n, rank in enumerate(self.ranks) if self.platform.devices[rank.device].host == host)

    def _steps(self, number: int, rank: _Rank) -> tuple[Step, ...]:
        steps: list[Step] = []
        runs = 0
        for step in rank.steps:
            if isinstance(step, _Segment) and not step.outputs:
                continue  # parts that nothing reads, such as rows between the windows of a wide stride
            if isinstance(step, _Segment):
                steps.append(self._run(step, f"rank{number:02d}/segment{runs:03d}.onnx"))
                runs += 1
            else:
                steps.append(step)
        return tuple(steps)

    def _run(self, segment: _Segment, file: str) -> Run:
        inputs = tuple(self._name(p) for p in segment.inputs)
        outputs = tuple(self._name(p) for p in segment.outputs)
        return Run(file, tuple(segment.parts), inputs, outputs)
