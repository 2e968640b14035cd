"""What exact seeds bring, and how far a search ends from what could be: best latency and period with their proven gaps.

    python -m tests.bench.seeds [--population 200] [--generations 50] [--repeat 3] [--chromosome hybrid]
                                [--evaluator both] [--platform jetson8-cpu]

AlexNet, ResNet-50, Inception v1 and DenseNet-121 on 4 and 8 devices of the platform; equal settings and equal seeds
of the random generator with and without. Prints the median of the runs, a line each.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import median

from dse.evaluation import EVALUATORS, OBJECTIVES
from dse.inputs import Cnn, read_cnn
from dse.place.cnn.bounds import Proven, bounds
from dse.run import Coding, prepare
from dse.search import search
from dse.settings import Settings
from model.cluster.platform import Platform

NETWORKS = ("alexnet", "resnet50", "inception_v1", "densenet121")
DEVICES = (4, 8)
WANTED = ("latency_s", "period_s")


def main() -> None:
    """Search, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", type=Path, default=Path("jetson8-cpu"))
    parser.add_argument("--chromosome", default="hybrid")
    parser.add_argument("--evaluator", choices=EVALUATORS, default="both")
    parser.add_argument("--population", type=int, default=200)
    parser.add_argument("--generations", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    whole = Platform.from_file(arguments.platform)
    settings = Settings(arguments.population, arguments.generations, objectives=WANTED, evaluator=arguments.evaluator)
    print(f"{arguments.chromosome}, {arguments.population} x {arguments.generations}, median of {arguments.repeat}: "
          "ms (gap proven); latency, then period")  # fmt: skip
    print(f"{'network':13} {'devices':>7}  {'with exact seeds':38}  {'without':38}")
    for network in NETWORKS:
        cnn = read_cnn(f"zoo:{network}", [], False)
        for devices in DEVICES:
            cluster = whole.without(tuple(host.name for host in whole.hosts[devices:]))
            cells = _compare(cnn, cluster, Coding(arguments.chromosome), settings, arguments.repeat)
            print(f"{network:13} {devices:>7}  {cells[0]:38}  {cells[1]:38}", flush=True)


def _compare(cnn: Cnn, cluster: Platform, coding: Coding, settings: Settings, repeat: int) -> list[str]:
    """With and without."""
    encoding, costs = prepare(cnn, cluster, coding)
    below = bounds(encoding, costs)
    found = []
    for exact in (True, False):
        how = replace(settings, exact_seeds=exact)
        fronts = [search(encoding, costs, replace(how, seed=seed)) for seed in range(repeat)]
        best = {o: median(front.scores[:, OBJECTIVES.index(o)].min() for front in fronts) for o in WANTED}
        found.append("  ".join(_cell(Proven(best[o], below[o])) for o in WANTED))
    return found


def _cell(known: Proven) -> str:
    return f"{known.value * 1e3:9.3f} {f'({known.gap:.2%})' if known.gap is not None else '':>9}"


if __name__ == "__main__":
    main()
