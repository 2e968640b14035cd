"""Small random networks, clusters and costs, and chromosomes of them."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from onnx import ModelProto

from dse.chromosomes import Chromosome, chromosome
from dse.evaluation import ANALYTICAL, OBJECTIVES, evaluate
from model.cluster.platform import Platform
from model.cost.costs import GAIN, KEPT, QUARTER, VECTOR, WATTS, CostArrays, costs, in_vectors, whole_s
from model.mappings.arrays import arrays, edges
from model.network.graph import Graph
from model.network.relayout import NONE
from tests.tiny_cnn import graph_of, network, node, weight

CHANNELS = 4


def model(draw: random.Random, layers: int) -> ModelProto:
    """Convolutions, grouped or not, activations, sums and joins, each of whatever was made before."""
    made, nodes, weights = ["x"], [], {}
    for k in range(layers):
        what, source, out = draw.choice(["Conv", "Conv", "Relu", "Add"]), draw.choice(made[-3:]), f"t{k}"
        read = [source]
        if what == "Conv":
            group = draw.choice([1, 1, 2, 4])
            weights[f"w{k}"] = weight(CHANNELS, CHANNELS // group, 1, 1, seed=k)
            nodes.append(node(what, [source, f"w{k}"], [out], f"l{k}", group=group))
        elif what == "Add":
            read = [source, draw.choice(made[-4:])]
            nodes.append(node(what, read, [out], f"l{k}"))
        else:
            nodes.append(node(what, read, [out], f"l{k}"))
        made.append(out)
    unread = [name for name in made[1:] if not any(name in n.input for n in nodes)]
    return network(nodes, {"x": (1, CHANNELS, 16, 16)}, unread, weights)


@cache
def graph(seed: int) -> Graph:
    """A random network of two to nine layers."""
    draw = random.Random(seed)
    with TemporaryDirectory() as folder:
        return graph_of(Path(folder), model(draw, draw.randint(2, 9)))


def cluster(draw: random.Random) -> Platform:
    """Two to four devices; some hosts are alike, some have a GPU, links of different rates, half duplex or shared."""
    lines, alike = [], draw.random() < 0.4
    of = draw.choice(["100Mbit/s", "1Gbit/s"]), draw.choice(["0ms", "0.05ms"])
    for k in range(draw.randint(1, 3)):
        rate, latency = of if alike else (draw.choice(["100Mbit/s", "1Gbit/s"]), draw.choice(["0ms", "0.1ms"]))
        gpu = ", gpu=NVIDIAVolta (CUDA)" if draw.random() < 0.3 else ""
        wire = draw.choice(["", "", ", duplex=half", ", medium=wifi, duplex=half"])
        lines.append(f"h{k}, slots=0{gpu}, bandwidth={rate}, latency={latency}{wire}\n")
    return Platform.parse("".join(lines), "drawn.txt")


def prices(draw: random.Random, network: Graph, platform: Platform, rest: bool = False) -> CostArrays:
    """Random seconds of layers and their parts, some with gains and joins, some of which fill vectors of channels, and
    of handing messages over.

    rest: some devices save time by it
    """
    g = arrays(network)
    c = costs(network, g, platform)
    rng = np.random.default_rng(draw.randrange(2**32))
    layers = slice(g.n_inputs, g.n_inputs + g.n_layers)
    work = c.work.copy()
    shape = work[layers, :, :WATTS].shape
    work[layers, :, :WATTS] = rng.uniform(0, 1e-3, (*shape[:1], 1, *shape[2:])) * (rng.random(shape) < 0.8)
    work[layers, :, :WATTS] *= 1.0 if draw.random() < 0.5 else rng.uniform(0.5, 2, (1, shape[1], 1))
    beside = c.beside[:0]
    if draw.random() < 0.5:
        beside = rng.uniform(0, 3e-4, (len(g.edge_tensor), *beside.shape[1:]))
        beside[..., GAIN] *= rng.random(beside.shape[:2]) < 0.5
        beside[[edge for edge in range(len(beside)) if edge not in {e for e, _, _ in edges(g)}]] = 0
    origin = np.full(len(g.edge_tensor), NONE, dtype=np.int32)
    for edge, maker, _ in edges(g):
        origin[edge] = g.n_inputs + rng.integers(maker + 1) if rng.random() < 0.5 else NONE
    beside[np.flatnonzero(origin[: len(beside)] == NONE), :, KEPT] = 0
    send, receive = (rng.uniform(0, 1e-4, c.send.shape) * draw.choice([0, 1]) * [1.0, 1e-4] for _ in range(2))
    gap = rng.uniform(0, 1e-4, c.gap.shape) * draw.choice([0, 1])
    rested = rng.uniform(0, [0.8, 5e-4], c.rested.shape) * (rest and draw.random() < 0.5)
    busy = rng.uniform([0.1, 0, 0], [1, 1e-4, 0], c.busy.shape) * (rng.random((len(c.busy), 1)) < 0.5)
    cold = rng.uniform(0, [2e-4, 1e-2], c.cold.shape) * draw.choice([0, 1])
    c = c._replace(work=work, beside=beside, origin=origin, send=send, receive=receive, gap=gap)
    overlap = rng.choice([0.0, 0.5, 1.0], c.overlap.shape) * draw.choice([0, 1])
    turn = rng.uniform(0, 1e-4, c.turn[:, :2].shape) * draw.choice([0, 1])
    watts = c.communication_w * rng.choice([1.0, 2.0], c.communication_w.shape) ** draw.choice([0, 1])
    work[layers, :, VECTOR] = rng.choice([1, 2, 4], work[layers, :, VECTOR].shape) ** draw.choice([0, 1])
    work[layers, :, QUARTER] = rng.choice([1, 4], work[layers, :, QUARTER].shape) ** draw.choice([0, 1])
    turn = np.column_stack([turn, turn[:, 1] * rng.uniform(0, 1e-4, len(turn))])
    step = rng.uniform(0, 1e-5, c.step.shape) * draw.choice([0, 1])
    c = c._replace(step=step, communication_w=watts)
    return c._replace(rested=rested, busy=busy, cold=cold, overlap=overlap, turn=turn)


def drawn(seed: int, kind: str, memory: bool = False, rest: bool = False) -> tuple[Chromosome, CostArrays]:
    """A chromosome of a random network on a random cluster, and what things cost there.

    memory: some devices have room for a part of what mappings put on them, or for nothing
    """
    draw = random.Random(seed)
    network, platform = graph(draw.randrange(40)), cluster(draw)
    c, devices, shares = (
        prices(draw, network, platform, rest),
        len(platform.devices),
        draw.choice(["equal", "multiplicity", "speed"]),
    )
    g = in_vectors(arrays(network), c) if draw.random() < 0.5 else arrays(network)
    kind = kind if kind != "hybrid" or g.heavy.any() else "vertical"
    code = chromosome(kind, network, g, devices, draw.randint(1, devices), shares, whole_s(c))
    return code, _limited(np.random.default_rng(seed), code, c) if memory else c


def _limited(rng: np.random.Generator, code: Chromosome, c: CostArrays) -> CostArrays:
    """Room between the least and the most that mappings take, a little less than the least, or without end."""
    taken = evaluate(code, c, genes(rng, code, 30), ANALYTICAL)[0][:, OBJECTIVES.index("memory_bytes")]
    room = taken.min() + rng.uniform(-0.1, 1, len(c.capacity)) * np.ptp(taken)
    return c._replace(capacity=np.where(rng.random(len(room)) < 0.3, np.inf, room))


def genes(rng: np.random.Generator, code: Chromosome, count: int) -> np.ndarray:
    """``(count, n_genes)``, half of them 0 where that means that a device takes no part."""
    found = rng.integers(0, code.upper + 1, (count, code.n_genes))
    return found if code.name == "naive" else found * rng.integers(0, 2, found.shape)
