"""Two ranks against one: VGG-19 with every layer that can be kept split in two, one thread a rank.

    python -m tests.bench.overhead [--cnn zoo:vgg19] [--repeat 3]

One rank and two ranks take turns in the same run. Prints the median latency of each, their ratio, and for two ranks
the busiest rank's computing, which is the least that the frame can take: the rest is messages, waiting and steps.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

from codegen.bundle import write_bundle
from dse.inputs import Cnn, read_cnn
from model import boxes
from model.mapping import Mapping, Shard, extent
from model.platform import Platform
from runtime.bench import Bench, bench


def mapping(cnn: Cnn, ranks: int) -> Mapping:
    """Every layer that has a rule for channels is split evenly among the ranks; others are on the first."""
    shards = []
    for layer in cnn.graph.layers:
        size, rule = extent(cnn.graph, layer), boxes.rule(cnn.graph, layer)
        parts = min(ranks, size // rule.grain) if rule else 1
        units = size // rule.grain if rule else 1
        ends = [units * k // parts * (rule.grain if rule else size) for k in range(parts + 1)]
        shards += [Shard(layer.index, ends[k], ends[k + 1], k) for k in range(parts)]
    return Mapping.of(shards)


def run(cnn: Cnn, cluster: Platform, ranks: int, folder: Path) -> Path:
    """Make the bundle for so many ranks."""
    out = folder / f"ranks{ranks}"
    write_bundle(cnn.graph, cluster, mapping(cnn, ranks), cnn.source, out, force=False)
    return out


def line(name: str, found: list[Bench]) -> str:
    """Median latency over the repeats, and the busiest rank's computing."""
    busiest = median(max(r.compute_s for r in b.ranks) for b in found)
    latency = median(b.median_s for b in found)
    return f"{name}: {latency * 1e3:.1f} ms a frame, busiest rank computes {busiest * 1e3:.1f} ms"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cnn", default="zoo:vgg19")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    cnn, cluster = read_cnn(arguments.cnn, [], False), Platform.from_file(Path("local2"))
    with tempfile.TemporaryDirectory() as folder:
        bundles = [run(cnn, cluster, ranks, Path(folder)) for ranks in (1, 2)]
        found: list[list[Bench]] = [[], []]
        for _ in range(arguments.repeat):
            for bundle, results in zip(bundles, found, strict=True):
                results.append(bench(bundle, threads=1))
    one, two = (median(b.median_s for b in results) for results in found)
    print(line("1 rank", found[0]))
    print(line("2 ranks", found[1]))
    print(f"{cnn.graph.name}: two ranks are {one / two:.2f} times as fast as one")


if __name__ == "__main__":
    main()
