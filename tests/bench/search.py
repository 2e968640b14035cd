"""How long NSGA-II takes, and what share of it is decode + lower + price.

    python -m tests.bench.search [--cnn zoo:densenet121] [--platform jetson8-cpu] [--repeat 3]

Population 1000, 100 generations, no local search; compilation is outside the clock. Prints each run, then the medians.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

from dse.inputs import read_cnn
from dse.run import Coding, prepare
from dse.search import search
from dse.settings import Settings
from model.cluster.platform import Platform


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cnn", default="zoo:densenet121")
    parser.add_argument("--platform", type=Path, default=Path("jetson8-cpu"))
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    cnn, cluster = read_cnn(arguments.cnn, [], False), Platform.from_file(arguments.platform)
    print(f"{cnn.graph.name}, {len(cnn.graph.layers)} layers, {len(cluster.devices)} devices, 1000 x 100")
    for coding in (Coding("naive"), Coding("vertical"), *(Coding("hybrid", p) for p in (2, 4, 6))):
        chromosome, costs = prepare(cnn, cluster, coding)
        every = [Settings(seed=seed, local_search=False) for seed in range(arguments.repeat)]
        fronts = [search(chromosome, costs, settings) for settings in every]
        seconds = median(f.search_s for f in fronts)
        share = median(f.scoring_s / f.search_s for f in fronts)
        rate = median(f.evaluated / f.scoring_s for f in fronts)
        name = f"{coding.kind} {coding.splits}" if coding.kind == "hybrid" else coding.kind
        print(f"{name:10} {seconds:6.1f} s, decode + lower + price {share:4.0%} of it, {rate:8,.0f} mappings a second")


if __name__ == "__main__":
    main()
