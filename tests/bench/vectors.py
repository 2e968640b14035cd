"""What cuts within a vector of channels cost: the reason for ``model.cost.vectors``.

    python -m tests.bench.vectors [--cnn zoo:densenet121] [--parts 3] [--frames 30] [--repeat 5]

First a convolution by its output channels, on one thread: how many times as long as with 16; and a depthwise one by its
channels, as with 64. Then a network whose convolutions and fully connected layers are split by channels into so many
parts, all on one device: at equal parts of their channels, and at the nearest cuts between vectors of 16. They take
turns in the same run, beside the whole network; computing is that of a frame alone, ratios are medians over the turns.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np

from codegen.bundle import write_bundle
from dse.inputs import Cnn, read_cnn
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping, Shard, extent
from model.network import boxes
from model.network.graph import Graph, Layer
from runtime.pages import Pages
from runtime.segment import CPU, Segment, open_session
from tests.bench.caches import frame_s
from tests.bench.waiting import cluster, measure
from tests.tiny_cnn import network, node, save, weight

VECTOR = 16
CHANNELS = (1, 8, 15, 16, 17, 24, 32, 33, 48, 64)
SINGLE, SINGLES = 64, (30, 32, 60, 62, 64, 66, 68, 124, 126, 128)
WAYS = {"equal parts": 1, "between vectors": VECTOR}
"""What cuts are multiples of."""


def convolution_s(folder: Path, channels: int, frames: int, depthwise: bool = False) -> float:
    """Seconds of a 3x3 convolution of 14 x 14 that makes so many channels: of 128, or each of one."""
    read, groups = (channels, channels) if depthwise else (128, 1)
    nodes = [node("Conv", ["x", "w"], ["y"], pads=[1] * 4, group=groups)]
    shape, weights = (1, read, 14, 14), {"w": weight(channels, read // groups, 3, 3)}
    file = save(folder, network(nodes, {"x": shape}, ["y"], weights), f"{channels}-{groups}.onnx")
    pages = Pages()
    x, y = pages.zeros(shape, "float32"), pages.zeros((1, channels, 14, 14), "float32")
    x[:] = np.random.default_rng(0).normal(size=shape)
    segment = Segment(open_session(str(file), CPU, 1), {"x": x}, {"y": y})
    return median(frame_s([segment], 0.0) for _ in range(frames))


def split(graph: Graph, parts: int, grain: int) -> Mapping:
    """Every layer that can be in so many parts, on one device."""
    return Mapping.of(shard for layer in graph.layers for shard in _shards(graph, layer, parts, grain))


def _shards(graph: Graph, layer: Layer, parts: int, grain: int) -> Iterator[Shard]:
    rule, size = boxes.rule(graph, layer, boxes.CHANNELS), extent(graph, layer)
    cuts = {0, size}
    if boxes.is_heavy(graph, layer) and rule and size >= parts * VECTOR:
        step = int(np.lcm(grain, rule.grain))
        cuts |= {round(size * k / parts / step) * step for k in range(1, parts)}
    for start, stop in pairwise(sorted(cuts)):
        yield Shard(layer.index, start, stop, 0)


def bundle(cnn: Cnn, on: Platform, mapping: Mapping, place: Path) -> Path:
    """What is run."""
    write_bundle(cnn.graph, on, mapping, cnn.source, place, force=False)
    return place


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cnn", default="zoo:densenet121")
    parser.add_argument("--parts", type=int, default=3)
    parser.add_argument("--frames", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args()
    cnn, on = read_cnn(asked.cnn, [], False), cluster(1)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        for name, channels, one in (("convolution", CHANNELS, VECTOR), ("depthwise convolution", SINGLES, SINGLE)):
            print(f"a {name} that makes so many channels, times as long as with {one}:")
            how = asked.frames, channels is SINGLES
            turns = [{k: convolution_s(folder, k, *how) for k in channels} for _ in range(asked.repeat)]
            print("  ".join(f"{k}: {median(turn[k] / turn[one] for turn in turns):.2f}" for k in channels))
        mappings = {"whole": Mapping.whole(cnn.graph, [0] * len(cnn.graph.layers))}
        mappings |= {name: split(cnn.graph, asked.parts, grain) for name, grain in WAYS.items()}
        bundles = {name: bundle(cnn, on, mapping, folder / name) for name, mapping in mappings.items()}
        found: dict[str, list[float]] = {name: [] for name in bundles}
        for _ in range(asked.repeat):
            for name, made in bundles.items():
                found[name].append(sum(rank.compute_s for rank in measure(made, asked.frames).ranks))
    print(f"{cnn.graph.name}, layers in {asked.parts} parts, {asked.repeat} turns of {asked.frames} frames")
    for name, times in found.items():
        ratio = median(a / b for a, b in zip(times, found["whole"], strict=True))
        print(f"{name:16} computing {median(times) * 1e3:7.2f} ms (x {ratio:.3f})")


if __name__ == "__main__":
    main()
