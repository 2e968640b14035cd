"""What a calibration runs: a network on a device, again and again, cut into segments in other places.

The kernels of a segment are not those of its layers run apart: ONNX Runtime fuses neighbours and keeps the layout that
one prefers for the next. So a network is run as one segment, layer by layer, and in random pieces between these, which
tells what layers cost alone and what neighbours save. Heavy layers are also cut as the search cuts them, into equal
parts and uneven ones, by output channels, by rows, and by input channels; each part is a segment. All parts are on the
one device, so it has every weight once, and every run computes what the network computes. In the end several devices
share it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle, pairwise

from model.mappings.mapping import Mapping, Shard, extent
from model.network import boxes
from model.network.graph import Graph, Layer

WHOLE, STRETCHES, IN_PARTS = "whole", "stretches", "in parts"
"""What designs are called: the network as one segment; as one on each of several devices; with a part of each heavy
layer on each of several."""
BORDERED = (1 / 2, 1 / 4, 1 / 2, 1 / 8)
"""Share of layers that begin a segment, of each random partition."""
CUTS: tuple[tuple[int, tuple[float, ...]], ...] = (
    (boxes.CHANNELS, (1 / 2,)),
    (boxes.CHANNELS, (1 / 4,)),
    (boxes.ROWS, (1 / 2,)),
    (boxes.PARTIAL, (1 / 2,)),
    (boxes.CHANNELS, (1 / 3, 2 / 3)),
    (boxes.CHANNELS, (1 / 4, 2 / 4, 3 / 4)),
    (boxes.CHANNELS, (1 / 8,)),
    (boxes.ROWS, (1 / 4,)),
    (boxes.PARTIAL, (1 / 4,)),
)
"""Kind of split, and where it cuts, as parts of the whole; what tells most first."""


SWITCHES = (64, 32, 16, 8, 4, 2)
"""How often the work goes from one device to another in a mapping of several, if that does not take too long."""


PROBES = {"Conv": "convolution", "Gemm": "fully connected", "MatMul": "fully connected", "Relu": "activation"}
"""Operators of layers that are put on a device alone."""


@dataclass(frozen=True)
class Design:
    """One bundle to be measured.

    what:    for a person, no two of a network's are alike
    borders: indices of layers whose shards begin a segment each, rising
    stream:  whether a stream of frames is measured besides
    """

    what: str
    mapping: Mapping
    borders: tuple[int, ...] = ()
    stream: bool = False


def whole(graph: Graph, device: int) -> Design:
    """The whole network as one segment."""
    return Design(WHOLE, Mapping.whole(graph, [device] * len(graph.layers)))


def designs(graph: Graph, device: int, seed: int) -> list[Design]:
    """All that is run of a network on a device, what tells most first. The same for one seed."""
    found: dict[tuple[Mapping, tuple[int, ...]], Design] = {}
    pieces, splits = list(_partitions(graph, device, seed)), list(_splits(graph, device))
    for each in (whole(graph, device), *pieces[:3], *splits[:4], *pieces[3:], *splits[4:]):
        found.setdefault((each.mapping, each.borders), each)
    return list(found.values())


def together(graph: Graph, devices: Sequence[int], seed: int) -> Iterator[Design]:
    """A network on several devices, which hand it to and fro, ever less often.

    What messages cost a rank is seen here, besides what they cost alone: it notices them late, and its caches are cold.
    """
    for switches in dict.fromkeys(min(often, len(graph.layers) - 1) for often in SWITCHES):
        draw = random.Random(f"{graph.name}/{seed}/{switches}")
        borders = set(draw.sample(range(1, len(graph.layers)), switches))
        on, row = devices[0], []
        for layer in graph.layers:
            if layer.index in borders:
                on = draw.choice([device for device in devices if device != on])
            row.append(on)
        yield Design(f"together, {len(borders)} switches", Mapping.whole(graph, row))


def stretches(graph: Graph, devices: Sequence[int]) -> Design:
    """A stretch of layers for each device, about as many MACs each: what a stream of frames is spread for."""
    macs, count = [layer.macs for layer in graph.layers], len(devices)
    twice = [2 * end - each for end, each in zip(accumulate(macs), macs, strict=True)]
    on = [devices[count * middle // (2 * sum(macs) + 1)] for middle in twice]
    return Design(STRETCHES, Mapping.whole(graph, on), stream=True)


def in_parts(graph: Graph, devices: Sequence[int]) -> Design:
    """Heavy layers in a part for each device, about as many channels each: what these share slows them down."""
    cuts = [part / len(devices) for part in range(1, len(devices))]
    rows = (_shards(graph, layer, devices, boxes.CHANNELS, cuts) for layer in graph.layers)
    return Design(IN_PARTS, Mapping.of(shard for row in rows for shard in row))


def probes(graph: Graph, devices: Sequence[int]) -> Iterator[Design]:
    """The probe mappings of the thesis: a convolution, a fully connected layer, an activation, each alone on a device.

    They tell the memory of a rank that has next to nothing. All else is on the first device; where there are too few
    others for all three at a time, in several designs.
    """
    first = {PROBES[layer.op]: layer.index for layer in reversed(graph.layers) if layer.op in PROBES}
    found, others = [first[what] for what in sorted(first)], devices[1:]
    for begin in range(0, len(found) if others else 0, max(len(others), 1)):
        row = [devices[0]] * len(graph.layers)
        for layer, device in zip(found[begin : begin + len(others)], others, strict=False):
            row[layer] = device
        names = ", ".join(graph.layers[layer].op for layer in found[begin : begin + len(others)])
        yield Design(f"alone: {names}", Mapping.whole(graph, row))


def _partitions(graph: Graph, device: int, seed: int) -> Iterator[Design]:
    """Whole layers, in segments of one and of several."""
    mapping, layers = whole(graph, device).mapping, range(1, len(graph.layers))
    yield Design("layer by layer", mapping, tuple(layers))
    for number, share in enumerate(BORDERED, 1):
        draw = random.Random(f"{graph.name}/{seed}/{number}")
        yield Design(f"random {number}", mapping, tuple(layer for layer in layers if draw.random() < share))


def _splits(graph: Graph, device: int) -> Iterator[Design]:
    """Heavy layers in parts, each part a segment; the layers between two of them in one."""
    for kind, cuts in CUTS:
        rows = [_shards(graph, layer, [device], kind, cuts) for layer in graph.layers]
        split = {row[0].layer for row in rows if len(row) > 1}
        if split:
            borders = sorted((split | {layer + 1 for layer in split}) - {len(graph.layers)})
            parts = " + ".join(f"{b - a:.3g}" for a, b in zip((0, *cuts), (*cuts, 1), strict=True))
            what = f"{boxes.KIND_NAMES[kind]} {parts}"
            yield Design(what, Mapping.of(shard for row in rows for shard in row), tuple(borders))


def _shards(graph: Graph, layer: Layer, devices: Sequence[int], kind: int, cuts: Sequence[float]) -> list[Shard]:
    """A layer as a kind of split has it: in parts where it is heavy and can be split, on devices in turn; else whole,
    on the first."""
    rule = boxes.rule(graph, layer, kind) if boxes.is_heavy(graph, layer) else None
    units = rule.size // rule.grain if rule else 0
    edges = sorted({0, rule.size, *(round(cut * units) * rule.grain for cut in cuts)}) if rule else []
    if len(edges) <= 2:
        return [Shard(layer.index, 0, extent(graph, layer), devices[0])]
    return [
        Shard(layer.index, a, b, device, kind) for (a, b), device in zip(pairwise(edges), cycle(devices), strict=False)
    ]
