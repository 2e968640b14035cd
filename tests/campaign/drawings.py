"""Mappings to try predictions with: random, vertical, hybrid, from a front, and on one device."""

from __future__ import annotations

import random
from dataclasses import replace

from dse.inputs import Cnn
from dse.run import Coding, prepare
from dse.search import search
from dse.settings import Settings
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping, Shard
from model.network import boxes
from model.network.graph import Graph

WAYS = ("random", "vertical", "hybrid", "front")
ALONE = "alone"
"""Way of a mapping of which no part is of the others' tables; its number is ``-1 - device``."""


class Drawing:
    """Mappings of a network on a platform."""

    def __init__(self, cnn: Cnn, platform: Platform, ranks: tuple[int, int], seed: int) -> None:
        self.cnn, self.platform, self.ranks, self.seed = cnn, platform, ranks, seed
        self.front: list[Mapping] = []

    def mapping(self, number: int) -> tuple[str, Mapping]:
        """The way of a mapping, and the mapping."""
        if number < 0:
            return ALONE, Mapping.whole(self.cnn.graph, [-1 - number] * len(self.cnn.graph.layers))
        way, draw = WAYS[number % len(WAYS)], random.Random(f"{self.cnn.graph.name}/{self.seed}/{number}")
        most = min(self.ranks[1], len(self.platform.devices))
        devices = draw.sample(range(len(self.platform.devices)), draw.randint(min(self.ranks[0], most), most))
        if way == "front":
            return way, draw.choice(self._front())
        if way == "random":
            return way, Mapping.whole(self.cnn.graph, [draw.choice(devices) for _ in self.cnn.graph.layers])
        shards = stretches(self.cnn.graph, devices, draw)
        return way, shards if way == "vertical" else split(self.cnn.graph, shards, devices, draw)

    def _front(self) -> list[Mapping]:
        """Points of a short search that use two devices or more."""
        if not self.front:
            coding = Coding("hybrid", min(2, len(self.platform.devices)))
            chromosome, costs = prepare(self.cnn, self.platform, coding)
            found = search(chromosome, costs, Settings(population=100, generations=20, seed=self.seed))
            mappings = [chromosome.decode(genes) for genes in found.genes]
            self.front = [m for m in mappings if len(m.devices) > 1] or mappings
        return self.front


def stretches(graph: Graph, devices: list[int], draw: random.Random) -> Mapping:
    """A stretch of layers for each device."""
    cuts = sorted(draw.sample(range(1, len(graph.layers)), len(devices) - 1))
    bounds = [0, *cuts, len(graph.layers)]
    on = [device for k, device in enumerate(devices) for _ in range(bounds[k + 1] - bounds[k])]
    return Mapping.whole(graph, on)


def split(graph: Graph, mapping: Mapping, devices: list[int], draw: random.Random) -> Mapping:
    """Half of the layers that LOP can split are split in two somewhere."""
    return Mapping.of(shard for whole in mapping.shards for shard in _parts(graph, whole, devices, draw))


def _parts(graph: Graph, whole: Shard, devices: list[int], draw: random.Random) -> list[Shard]:
    layer = graph.layers[whole.layer]
    rule = boxes.rule(graph, layer, boxes.CHANNELS)
    inner = range(rule.grain, rule.size, rule.grain) if rule else range(0)
    if not boxes.is_heavy(graph, layer) or not inner or draw.random() < 0.5:
        return [whole]
    cut, other = draw.choice(inner), draw.choice([d for d in devices if d != whole.device])
    return [replace(whole, stop=cut), replace(whole, start=cut, device=other)]


def alone(platform: Platform) -> list[int]:
    """Numbers of the mappings on one device, the first of each type."""
    types = [(device.coefficients, device.unit, device.threads) for device in platform.devices]
    return [-1 - types.index(of) for of in dict.fromkeys(types)]
