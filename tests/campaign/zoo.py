"""Verify what a search ships, for every network of the zoo, under real ``mpirun``.

    python -m tests.campaign.zoo [--networks squeezenet …] [--devices 4 8]

For each network, chromosome (naive, vertical, hybrid with p = 2 and 4) and number of devices: a short search, then
the bundle of the best point of each objective is run with one MPI process a rank on random inputs and compared with
the whole model. Prints a table; exit code 1 if ``codegen.verify`` says of any output that it is not the same. All ten
networks take about half an hour on two cores.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from codegen import zoo
from codegen.bundle import write_bundle
from codegen.verify import verify
from dse.inputs import Cnn, read_cnn
from dse.run import Coding, Shipped, choose, prepare
from dse.search import search
from dse.settings import Settings
from model.cluster.platform import Platform
from runtime.errors import CleaveError

CODINGS = (Coding("naive"), Coding("vertical"), Coding("hybrid", 2), Coding("hybrid", 4))
SETTINGS = Settings(population=100, generations=20, head_start=False)
"""Without a head start, so that best points are spread and split, not one device alone."""


def platform(devices: int) -> Platform:
    """A cluster of so many 6-core CPUs."""
    lines = [f"nx{i:02d}, aarch64, slots=0-5, memory=8GB, coefficients=jetson-xavier-nx" for i in range(1, devices + 1)]
    return Platform.parse("\n".join(lines), f"nx{devices}.txt")


def points(cnn: Cnn, cluster: Platform, coding: Coding) -> list[Shipped]:
    """The best point of each objective that a short search finds."""
    chromosome, costs = prepare(cnn, cluster, coding)
    front = search(chromosome, costs, SETTINGS)
    return choose(front, [chromosome.decode(genes) for genes in front.genes], SETTINGS)


def check(cnn: Cnn, cluster: Platform, point: Shipped) -> tuple[bool, str]:
    """Whether the point's bundle gives the whole model's answer, and the worst error, or what went wrong."""
    with tempfile.TemporaryDirectory(prefix="cleave-") as folder:
        out = Path(folder) / "bundle"
        try:
            write_bundle(cnn.graph, cluster, point.mapping, cnn.source, out, force=False)
            found = verify(out, cnn.graph.path, frames=2)
        except CleaveError as error:
            return False, str(error)
    return found.passed, f"{found.error:.1e}" if found.error is not None else found.outputs[0].reason


def rows(networks: list[str], devices: list[int]) -> Iterator[bool]:
    """Run everything, print a line each, yield whether it passed."""
    for network in networks:
        cnn = read_cnn(f"zoo:{network}", [], False)
        for count in devices:
            cluster = platform(count)
            for coding in CODINGS:
                name = f"{coding.kind}{f' p={coding.splits}' if coding.kind == 'hybrid' else ''}"
                for point in points(cnn, cluster, coding):
                    begin = time.monotonic()
                    passed, error = check(cnn, cluster, point)
                    line = f"{network:13} {count:3} {name:10} {point.name:13} {len(point.mapping.devices):3} ranks"
                    verdict = "ok" if passed else "WRONG"
                    print(f"{line}  {error:>8}  {verdict:5} {time.monotonic() - begin:6.1f} s", flush=True)
                    yield passed


def main() -> int:
    """Exit code 1 on any miss."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--networks", nargs="+", default=list(zoo.NAMES), choices=zoo.NAMES)
    parser.add_argument("--devices", nargs="+", type=int, default=[4, 8])
    arguments = parser.parse_args()
    results = list(rows(arguments.networks, arguments.devices))
    print(f"{sum(results)} of {len(results)} bundles give the whole model's answer")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
