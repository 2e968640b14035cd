"""Peak memory of a rank, in Python and in C++, over 8 ranks here, beside what the paper of AutoDiCE reports.

    python -m tests.bench.memory [--networks alexnet,vgg16,densenet121] [--frames 10]

Two mappings of each network: ``even``, every layer that can be split by channels is split evenly among the 8 ranks; and
``search``, the point of the front that promises least memory. Printed are the largest peak of any rank (VmHWM), the
smallest, the median latency and the processor time of all ranks together, one thread a rank. The 8 ranks share this
machine's cores: latencies compare the targets, they are not those of 8 devices.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from codegen.bundle import Form, write_bundle
from codegen.render import TARGETS
from dse.inputs import Cnn, read_cnn
from dse.run import Coding, prepare
from dse.search import search
from dse.settings import Settings
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping
from runtime.bench import Bench, bench
from tests.bench import overhead

RANKS = 8
PAPER_MB = {"alexnet": 41.8, "vgg16": 149.0, "densenet121": 70.2}
"""Largest peak memory of any of 8 devices, best mapping."""
SETTINGS = Settings(population=400, generations=60)


def mappings(cnn: Cnn, cluster: Platform) -> Iterator[tuple[str, Mapping]]:
    """Name and mapping."""
    yield "even", overhead.mapping(cnn, RANKS)
    encoding, costs = prepare(cnn, cluster, Coding("hybrid", RANKS))
    front = search(encoding, costs, SETTINGS)
    yield "search", encoding.decode(front.genes[front.best_of("memory_bytes")])


def line(name: str, found: Bench) -> str:
    """Memory in MB (10^6 bytes), as the paper has it."""
    peaks = [rank.peak_bytes / 1e6 for rank in found.ranks]
    processor = sum(rank.processor_s for rank in found.ranks) * 1e3
    return f"{name}  {max(peaks):6.1f} {min(peaks):6.1f} {found.latency_s * 1e3:8.1f} {processor:8.1f}"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(PAPER_MB))
    parser.add_argument("--frames", type=int, default=10)
    arguments = parser.parse_args()
    cluster = Platform.from_file(Path("jetson8-cpu"))
    print("network      paper MB  mapping  ranks  target  max MB min MB  latency ms  processor ms")
    for network in arguments.networks.split(","):
        cnn = read_cnn(f"zoo:{network}", [], False)
        for name, mapping in mappings(cnn, cluster):
            for target in TARGETS:
                with tempfile.TemporaryDirectory() as folder:
                    out = Path(folder) / "bundle"
                    write_bundle(cnn.graph, cluster, mapping, cnn.source, out, force=False, form=Form(target=target))
                    found = bench(out, warmup=3, frames=arguments.frames, threads=1)
                paper = PAPER_MB.get(network, float("nan"))
                words = f"{network:12} {paper:8.1f}  {name:7} {len(found.ranks):6}  {target:6}"
                print(line(words, found), flush=True)


if __name__ == "__main__":
    main()
