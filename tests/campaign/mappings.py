"""Random mappings of real networks, cut in all ways at once, through real bundles.

    python -m tests.campaign.mappings [--networks squeezenet …] [--mappings 100] [--ranks 2 16] [--seed 0]

For each network so many valid mappings on a random number of ranks: every layer is cut along a random axis that its
rule allows (samples, channels, rows, input channels), at random places, among random devices; boxes of rows may
overlap. Each bundle runs in this process, every twentieth under ``mpirun`` with one process a rank, and is compared
with the whole model. Prints a line a mapping and a table; exit code 1 if ``codegen.verify`` says of any output that it
is not the same, or a bundle does not run.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping as Dict
from pathlib import Path
from typing import Literal, NamedTuple

from codegen import zoo
from codegen.bundle import source, write_bundle
from codegen.verify import verify
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping
from model.network import boxes
from model.network.graph import Graph
from model.network.load import load
from tests.tiny_cnn import random_mapping

MPI_EVERY = 20
SMALL = ("squeezenet", "shufflenet", "inception_v1")


class Result(NamedTuple):
    """What became of one mapping; ``error`` is None where it cannot be told, and ``reason`` says why."""

    network: str
    ranks: int
    communicator: str
    ways: str
    passed: bool
    error: float | None
    reason: str
    time_s: float

    def __str__(self) -> str:
        verdict = "ok" if self.passed else f"WRONG {self.reason}"
        said = f"{self.error:.1e}" if self.error is not None else "-"
        begin = f"{self.network:13} {self.ranks:3} ranks {self.communicator:9} {said:>8} {self.time_s:6.1f} s"
        return f"{begin}  {self.ways}  {verdict}"


def platform(ranks: int) -> Platform:
    """So many hosts of one core."""
    return Platform.parse("".join(f"h{i}, slots=0\n" for i in range(ranks)), f"h{ranks}.txt")


def splits(mapping: Mapping) -> str:
    """How many layers are cut in each way."""
    parts = Counter((s.layer, s.axis) for s in mapping.shards)
    ways = Counter(axis for (_, axis), count in parts.items() if count > 1)
    return " ".join(f"{boxes.KIND_NAMES[axis]} {ways[axis]}" for axis in sorted(ways)) or "whole"


def run(
    graph: Graph, ranks: int, draw: random.Random, communicator: Literal["mpi", "inprocess"], folded: bool = False
) -> Result:
    """Cut one mapping, run it, compare it. folded: so was the graph loaded"""
    begin = time.monotonic()
    ways, passed, error, reason = "", False, None, ""
    with tempfile.TemporaryDirectory(prefix="cleave-") as folder:
        try:
            mapping = random_mapping(draw, graph, ranks, most=min(4, ranks), tiles=True)
            ways = splits(mapping)
            write_bundle(graph, platform(ranks), mapping, source(graph, folded, {}), Path(folder) / "b", force=False)
            found = verify(Path(folder) / "b", graph.path, frames=1, communicator=communicator)
            passed, error = found.passed, found.error
            reason = "; ".join(str(output) for output in found.outputs if not output.passed)
        except Exception as failure:  # whatever it is, the campaign goes on and says so
            reason = f"{type(failure).__name__}: {failure}"
    return Result(graph.name, ranks, communicator, ways, passed, error, reason, time.monotonic() - begin)


def table(results: list[Result], more: Dict[str, str] | None = None) -> str:
    """A line a network: mappings, misses, worst error, time. ``more``: columns before these, and "" their names."""
    more = more or {}
    lines = [f"{'network':13}{more.get('', '')} {'mappings':>8} {'wrong':>6} {'worst error':>12} {'time':>8}"]
    for name in dict.fromkeys([*filter(None, more), *(r.network for r in results)]):
        mine = [r for r in results if r.network == name]
        worst = max((r.error for r in mine if r.error is not None), default=float("nan"))
        wrong = sum(not r.passed for r in mine)
        begin = f"{name:13}{more.get(name, '')} {len(mine):8} {wrong:6}"
        lines.append(f"{begin} {worst:12.1e} {sum(r.time_s for r in mine):6.0f} s")
    return "\n".join(lines)


def main() -> int:
    """Exit code 1 on any miss."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--networks", nargs="+", default=list(SMALL), choices=zoo.NAMES)
    parser.add_argument("--mappings", type=int, default=100)
    parser.add_argument("--ranks", nargs=2, type=int, default=[2, 16], metavar=("LEAST", "MOST"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    results = []
    for network in arguments.networks:
        graph = load(zoo.cached(network))
        for number in range(arguments.mappings):
            draw = random.Random(f"{network}/{arguments.seed}/{number}")
            ranks = draw.randint(*arguments.ranks)
            results.append(run(graph, ranks, draw, "inprocess" if (number + 1) % MPI_EVERY else "mpi"))
            print(results[-1], flush=True)
    print(table(results))
    return 0 if all(r.passed for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
