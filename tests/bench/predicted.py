"""Predicted against measured on this machine: latency and period of random mappings, two ranks on cores of their own.

    python -m tests.bench.predicted [--networks squeezenet …] [--mappings 50] [--frames 20] [--seed 0] [--out FILE]

For each of three networks its share of the mappings: in turn random (a device a layer), vertical (a cut somewhere) and
hybrid (a cut, and some layers split by channels). Each becomes a bundle that ``dse bench`` runs here, one thread a
rank; the platform is ``local2``. Printed per network, for the analytical model and the simulator: the mean error of
latency and period, and Spearman's rank correlation with what was measured. The coefficients of ``local2`` are round
figures, not calibrated for any machine: errors are large, and only the ranking is worth looking at.

Other programs only ever make a run slower, so what is measured is the best: of the frames alone the fastest, of the
stream the fastest stretch of ``STRETCH`` frames. The load of the machine just before each run is printed as well.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from codegen.bundle import source, write_bundle
from codegen.zoo import cached
from model import boxes
from model.graph import Graph
from model.load import load
from model.mapping import Mapping, Shard
from model.platform import Platform
from model.simulated import simulated
from runtime.bench import Bench, bench

NETWORKS = ("squeezenet", "shufflenet", "alexnet")
WAYS = ("random", "vertical", "hybrid")
WARMUP = 2
STRETCH = 5
LEAST = 3
"""Mappings of a group that are worth a correlation."""
DEVICES = 2
MODELS = ("analytical", "simulated")


class Row(NamedTuple):
    """One mapping. Seconds; load: processes that wanted to run just before"""

    network: str
    way: str
    analytical_latency: float
    simulated_latency: float
    measured_latency: float
    analytical_period: float
    simulated_period: float
    measured_period: float
    load: float


def drawn(graph: Graph, way: str, draw: random.Random) -> Mapping:
    """A random mapping on two devices."""
    if way == "random":
        return Mapping.whole(graph, [draw.randrange(DEVICES) for _ in graph.layers])
    first, cut = draw.randrange(DEVICES), draw.randrange(1, len(graph.layers))
    mapping = Mapping.whole(graph, [first if layer.index < cut else 1 - first for layer in graph.layers])
    if way == "vertical":
        return mapping
    return Mapping.of(shard for whole in mapping.shards for shard in _split(graph, whole, draw))


def _split(graph: Graph, whole: Shard, draw: random.Random) -> list[Shard]:
    """Half of the layers that LOP can split are split, somewhere."""
    layer = graph.layers[whole.layer]
    rule = boxes.rule(graph, layer, boxes.CHANNELS)
    inner = range(rule.grain, rule.size, rule.grain) if rule else range(0)
    if not boxes.is_heavy(graph, layer) or not inner or draw.random() < 0.5:
        return [whole]
    cut = draw.choice(inner)
    return [Shard(whole.layer, 0, cut, whole.device), Shard(whole.layer, cut, whole.stop, 1 - whole.device)]


def measured(graph: Graph, mapping: Mapping, way: str, platform: Platform, frames: int) -> Row:
    """Predict a mapping, run it, and put both beside each other."""
    found, load_before = simulated(graph, platform, mapping, frames, WARMUP), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="cleave-") as folder:
        bundle = Path(folder) / "bundle"
        write_bundle(graph, platform, mapping, source(graph, False, {}), bundle, force=False)
        seen = bench(bundle, warmup=WARMUP, frames=frames)
    latencies = (found.analytical.latency_s, found.price.latency_s, seen.min_s)
    periods = (found.analytical.period_s, found.price.period_s, best_period_s(seen))
    return Row(graph.name, way, *latencies, *periods, load_before)


def best_period_s(seen: Bench) -> float:
    """Seconds a frame of the fastest stretch of a stream."""
    ends = np.array(seen.stream.latencies_s if seen.stream else ())
    length = min(STRETCH, len(ends) - 1)
    return float(np.min(ends[length:] - ends[:-length])) / length


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """From 0; those of equal values are their mean."""
    _, which, count = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    means: NDArray[np.float64] = (ends - (count + 1) / 2)[which]
    return means


def spearman(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Correlation of ranks."""
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def table(rows: list[Row]) -> str:
    """A line for each network and model, one for each way of mapping, one for all."""
    lines = [f"{'network':22} {'mappings':>8}  {'model':10} {'latency error':>13} {'Spearman':>8} "
             f"{'period error':>13} {'Spearman':>8}"]  # fmt: skip
    groups = {name: [r for r in rows if r.network == name] for name in dict.fromkeys(r.network for r in rows)}
    groups |= {f"all networks, {way}": [r for r in rows if r.way == way] for way in WAYS}
    for name, mine in groups.items():
        for model in MODELS if len(mine) >= LEAST else ():
            figures = " ".join(_figures(mine, model, of) for of in ("latency", "period"))
            lines.append(f"{name:22} {len(mine):8}  {model:10} {figures}")
    return "\n".join(lines)


def _figures(rows: list[Row], model: str, of: str) -> str:
    predicted, seen = (np.array([getattr(row, f"{who}_{of}") for row in rows]) for who in (model, "measured"))
    error = float(np.mean(np.abs(predicted / seen - 1)))
    return f"{error:13.0%} {spearman(predicted, seen):8.3f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--mappings", type=int, default=50)
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="all figures, as CSV")
    arguments = parser.parse_args()
    platform, rows = Platform.from_file("local2"), []
    graphs = [load(cached(network)) for network in arguments.networks]
    for number in range(arguments.mappings):
        graph, way = graphs[number % len(graphs)], WAYS[number // len(graphs) % len(WAYS)]
        mapping = drawn(graph, way, random.Random(f"{graph.name}/{arguments.seed}/{number}"))
        rows.append(measured(graph, mapping, way, platform, arguments.frames))
        print("{:12} {:9} latency {:7.2f} {:7.2f} {:7.2f}  period {:7.2f} {:7.2f} {:7.2f} ms  load {:.1f}".format(
            *rows[-1][:2], *(value * 1e3 for value in rows[-1][2:8]), rows[-1].load))  # fmt: skip
        sys.stdout.flush()
    print(table(rows))
    if arguments.out:
        with arguments.out.open("w", newline="") as file:
            csv.writer(file).writerows([Row._fields, *rows])


if __name__ == "__main__":
    main()
