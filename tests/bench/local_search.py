"""What the local search brings: fronts and seconds with it, without, and of twice as many generations without.

    python -m tests.bench.local_search [--cnn zoo:alexnet …] [--platform jetson8] [--splits 2 4] [--repeat 3]

Hybrid chromosomes, population 1000, 100 generations; compilation is outside the clock. Ratios to the search without,
means over seeds: hypervolume, best latency, energy and memory, seconds.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import moocore
import numpy as np
from numpy.typing import NDArray

from dse.inputs import read_cnn
from dse.run import Coding, prepare
from dse.search import Front, search
from dse.settings import Settings
from model.cluster.platform import Platform

WITHOUT = Settings(local_search=False)
WAYS = {"with": Settings(), "200 generations": replace(WITHOUT, generations=200)}


def row(front: Front, worst: NDArray[np.float64]) -> NDArray[np.float64]:
    """Hypervolume relative to the ``(objectives,)`` worst values, the best ones, seconds."""
    values = front.scores[:, WITHOUT.columns]
    volume = moocore.hypervolume(values / worst, ref=np.ones(len(worst)))
    return np.array([volume, *values.min(axis=0), front.search_s])


def main() -> None:
    """Search, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cnn", nargs="+", default=["zoo:alexnet", "zoo:vgg16", "zoo:resnet50", "zoo:densenet121"])
    parser.add_argument("--platform", type=Path, default=Path("jetson8"))
    parser.add_argument("--splits", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    cluster = Platform.from_file(arguments.platform)
    print(f"{'network':12} splits {'':16}  volume  latency   energy   memory  seconds")
    for name in arguments.cnn:
        cnn = read_cnn(name, [], False)
        for splits in arguments.splits:
            chromosome, costs = prepare(cnn, cluster, Coding("hybrid", splits))
            ratios: dict[str, list[NDArray[np.float64]]] = {way: [] for way in WAYS}
            for seed in range(arguments.repeat):
                base = search(chromosome, costs, replace(WITHOUT, seed=seed))
                others = {way: search(chromosome, costs, replace(how, seed=seed)) for way, how in WAYS.items()}
                every = np.vstack([front.scores[:, WITHOUT.columns] for front in (base, *others.values())])
                for way, front in others.items():
                    ratios[way].append(row(front, every.max(axis=0)) / row(base, every.max(axis=0)))
            for way, rows in ratios.items():
                means = "".join(f"  {mean:7.3f}" for mean in np.mean(rows, axis=0))
                print(f"{cnn.graph.name:12} {splits:6} {way:16}{means}", flush=True)


if __name__ == "__main__":
    main()
