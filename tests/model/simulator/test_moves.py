"""Moves of single layers against lowering and simulating all of the mapping that comes of them.

As Python also an index beyond an array is an error, which compiled kernels do not look for.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto

from model.cost.costs import JOIN, QUARTER, VECTOR, CostArrays, costs
from model.cost.ledger import ledger
from model.mappings.arrays import Floats, GraphArrays, arrays
from model.mappings.lowering import Shards, lowered, room, shards_of
from model.mappings.mapping import Mapping, Shard
from model.network.boxes import KINDS
from model.network.graph import Graph
from model.simulator import moves, simulation
from runtime.errors import CleaveError
from tests.tiny_cnn import (
    branches,
    by_blocks,
    examples,
    graph_of,
    network,
    node,
    platform,
    random_mapping,
    six_layers,
    weight,
)

pytestmark = pytest.mark.interpreted

DEVICES = 4


def vectors(rng: np.random.Generator, work: Floats) -> Floats:
    """With some number of channels that each device computes at a time, and some that it computes singly."""
    work[..., VECTOR] = rng.choice([1, 4, 16], work.shape[:2])
    work[..., QUARTER] = rng.choice([1, 4], work.shape[:2])
    return work


def some_costs(draw: random.Random, graph: Graph, g: GraphArrays) -> CostArrays:
    """Costs of hosts of all sorts: some where everything takes a whole number of microseconds, so much at once."""
    links = draw.choice(["", ", duplex=half", ", duplex=half, medium=wifi", ", medium=wifi"])
    c = costs(graph, g, platform(DEVICES, f", bandwidth=1Mbit/s{links}"))
    rng = np.random.default_rng(draw.randrange(2**32))
    edges = draw.choice([0, len(g.edge_tensor)])
    stages = draw.choice([3, 4])
    c = c._replace(memory_of=rng.integers(0, 3, DEVICES, np.int32))
    if draw.random() < 0.5:
        return c._replace(
            work=vectors(rng, c.work * rng.uniform(0.1, 10, c.work.shape)),
            beside=rng.uniform(0, 1e-5, (edges, DEVICES, JOIN + KINDS)),
            send=rng.uniform(0, 1e-5, (DEVICES, 2)),
            receive=rng.uniform(0, 1e-5, (DEVICES, 2)),
            wake=rng.uniform(0, 1e-4, (DEVICES, 2)),
            step=rng.uniform(0, 1e-5, DEVICES) * draw.choice([0, 1]),
            gap=rng.uniform(0, 1e-4, DEVICES),
            overlap=rng.uniform(0, 1, DEVICES) * draw.choice([0, 1]),
            latency=rng.uniform(0, 1e-3, (DEVICES, DEVICES)),
            attend=rng.uniform(0, 1e-5, (DEVICES, DEVICES)) * (stages > 3),
            stages=stages,
            rested=rng.uniform(0, [0.9, 1e-3], (DEVICES, 2)) * draw.choice([0, 1]),
            busy=rng.uniform(0.1, 1, (DEVICES, 3)) * draw.choice([0, 1]),
            cold=rng.uniform(0, [1e-2, 1e-2], (DEVICES, 2)),
            turn=rng.uniform(0, [1e-3, 1e-3, 1e-6], (DEVICES, 3)) * draw.choice([0, 1]),
            crowded=rng.uniform(0, 1e-7, DEVICES) * draw.choice([0, 1]),
        )
    return c._replace(
        work=vectors(rng, 1e-6 * rng.integers(0, 3, c.work.shape)),
        beside=1e-6 * rng.integers(0, 2, (edges, DEVICES, JOIN + KINDS)),
        send=1e-6 * np.array([[1, 0]] * DEVICES) * rng.integers(0, 2),
        receive=1e-6 * np.array([[1, 0]] * DEVICES) * rng.integers(0, 2),
        wake=1e-6 * np.array([[1, 0]] * DEVICES) * rng.integers(0, 2),
        step=1e-6 * rng.integers(0, 2, DEVICES),
        gap=1e-6 * rng.integers(0, 3, DEVICES),
        latency=1e-6 * rng.integers(0, 3, (DEVICES, DEVICES)),
        attend=1e-12 * rng.integers(0, 3, (DEVICES, DEVICES)) * (stages > 3),
        stages=stages,
        rested=np.array([[0.5, 1e-6]] * DEVICES) * rng.integers(0, 2),
        busy=np.array([[0.5, 0, 0]] * DEVICES) * rng.integers(0, 2),
        cold=np.array([[5e-7, 0]] * DEVICES) * rng.integers(0, 2),
        turn=1e-6 * rng.integers(0, 3, (DEVICES, 3)) * [1, 1, 1e-3],
        rate=np.full((DEVICES, DEVICES), 1e12),
        bandwidth=np.full((DEVICES, DEVICES), 1e12),
    )


def latency(g: GraphArrays, c: CostArrays, s: Shards) -> float:
    """All of it: lowered, made tasks of, simulated."""
    r = room(g, np.diff(s.ptr).astype(np.int64), DEVICES)
    m = lowered(g, s, DEVICES)
    return float(simulation.simulate(g, s, m, c, ledger(r), simulation.stage(r, c, 1)))


def rows_of(s: Shards, task: int) -> tuple[np.ndarray, ...]:
    rows = slice(s.ptr[task], s.ptr[task + 1])
    return s.device[rows], s.start[rows], s.stop[rows]


class Searching:
    """A local search that takes layers of random mappings, one at a time."""

    def __init__(self, seed: int, graph: Graph) -> None:
        self.draw, self.graph, self.g = random.Random(seed), graph, arrays(graph)
        self.c = some_costs(self.draw, graph, self.g)
        self.ends = {"reader": self.draw.randrange(-1, DEVICES), "writer": self.draw.randrange(-1, DEVICES)}
        self.layers: list[list[Shard]] = self.other()
        most = np.full(len(self.g.size), 8, dtype=np.int64)
        self.b = moves.board(self.g, self.c, most, self.shards(self.layers), *self.ends.values())

    def other(self) -> list[list[Shard]]:
        return random_mapping(self.draw, self.graph, DEVICES, tiles=True).by_layer(self.g.n_layers)

    def shards(self, layers: list[list[Shard]]) -> Shards:
        return shards_of(self.g, Mapping.of([s for row in layers for s in row], *self.ends.values()))

    def step(self) -> None:
        """Propose a move, compare, accept or reject it."""
        layer = self.draw.randrange(self.g.n_layers)
        layers = [*self.layers]
        layers[layer] = self.other()[layer]
        s, task = self.shards(layers), self.g.n_inputs + layer
        device, start, stop = rows_of(s, task)
        got = moves.propose(self.g, self.c, self.b, task, s.kind[task], len(device), device, start, stop)
        assert got == latency(self.g, self.c, s)
        if self.draw.random() < 0.5:
            moves.accept(self.b)
            self.layers = layers
        else:
            moves.reject(self.g, self.c, self.b)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> list[Graph]:
    folder: Path = tmp_path_factory.mktemp("moves")
    return [graph_of(folder, model) for model in (six_layers(), branches(), two_inputs(), by_blocks())]


def two_inputs() -> ModelProto:
    """Both are read by two layers each, and the last layer is not the only one that may be the last of its device."""
    nodes = [
        node("Conv", ["x", "u"], ["a"], "first"),
        node("Conv", ["z", "w"], ["b"], "other"),
        node("Add", ["a", "b"], ["c"], "sum"),
        node("Concat", ["x", "z"], ["d"], "join", axis=1),
        node("Conv", ["d", "v"], ["e"], "third"),
        node("Mul", ["c", "e"], ["f"], "product"),
        node("Relu", ["f"], ["y"], "last"),
    ]
    weights = {name: weight(4, channels, 1, 1) for name, channels in (("u", 3), ("w", 2), ("v", 5))}
    return network(nodes, {"x": (1, 3, 4, 4), "z": (1, 2, 4, 4)}, ["y"], weights)


@examples(60)
@given(seed=st.integers(0, 2**32), which=st.integers(0, 3))
def test_any_move_of_a_layer_gives_the_latency_of_a_full_simulation(graphs: list[Graph], seed: int, which: int) -> None:
    search = Searching(seed, graphs[which])
    for _ in range(40):
        search.step()


overflows = pytest.mark.filterwarnings("ignore:.*(overflow|invalid value).*:RuntimeWarning")
"""What takes too long to be counted may be any number, and nobody reads it."""


def a_move(search: Searching, devices: list[int]) -> list[float]:
    """Latencies with the first layer on each of some devices, every one rejected."""
    s = search.shards(search.layers)
    task = search.g.n_inputs
    whole = (np.zeros(1, np.int32), np.full(1, s.stop[s.ptr[task + 1] - 1], np.int32))
    found = []
    for device in devices:
        found.append(
            moves.propose(search.g, search.c, search.b, task, 1, 1, np.full(1, device, np.int32), *whole),
        )
        moves.reject(search.g, search.c, search.b)
    return found


def test_a_rejected_move_leaves_nothing_behind(graphs: list[Graph]) -> None:
    search = Searching(5, graphs[1])
    first = a_move(search, [0, 1, 2, 3])
    assert a_move(search, [3, 2, 1, 0]) == first[::-1]
    assert len({*first}) > 1


@overflows
def test_a_move_that_takes_too_long_to_be_counted_is_not_simulated_and_can_be_rejected(graphs: list[Graph]) -> None:
    search = Searching(5, graphs[1])
    usual = a_move(search, [0, 1])
    search.c.work[search.g.n_inputs, 3] = 1e18
    assert a_move(search, [0, 3, 1]) == [usual[0], simulation.UNCOUNTABLE, usual[1]]


@overflows
def test_a_mapping_that_takes_too_long_to_be_counted_is_refused(graphs: list[Graph]) -> None:
    search = Searching(5, graphs[0])
    search.c.work[:], search.c.rested[:] = 1e18, 0.0
    with pytest.raises(CleaveError, match="not simulated"):
        moves.board(search.g, search.c, np.full(len(search.g.size), 4), search.shards(search.layers))
