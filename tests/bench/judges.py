"""How the two judges of a mapping agree, and what a search by each of them finds.

    python -m tests.bench.judges --platform calibrated/local2.txt [--chromosome hybrid] [--population 200]
                                 [--generations 50] [--repeat 3] [--networks alexnet shufflenet]

Two tables. How far latency and period of the analytical model are from the simulator's, and their rank correlation,
over 1,000 random mappings of the chromosome and over the last population of a search by the analytical model. Then,
for each evaluator of ``dse run``, what its fronts are worth as the simulator has them, median of the runs: best latency
and best period beside the best that any found, the hypervolume of the front beside the largest, and seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import moocore
import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from dse.chromosomes import Chromosome
from dse.evaluation import ANALYTICAL, EVALUATORS, OBJECTIVES, SIMULATOR, evaluate
from dse.inputs import read_cnn
from dse.run import Coding, prepare
from dse.search import Front, search
from dse.settings import Settings
from model.cluster.platform import Platform
from model.cost.costs import CostArrays

NETWORKS = ("alexnet", "vgg16", "densenet121", "resnet50", "shufflenet")
WANTED = ("latency_s", "memory_bytes", "period_s")
TIMES = ("latency_s", "period_s")
RANDOM = 1000


def main() -> None:
    """Search, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", type=Path, default=Path("jetson8-cpu"))
    parser.add_argument("--chromosome", default="hybrid")
    parser.add_argument("--population", type=int, default=200)
    parser.add_argument("--generations", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    arguments = parser.parse_args()
    cluster = Platform.from_file(arguments.platform)
    settings = Settings(arguments.population, arguments.generations, objectives=WANTED)
    agreements, findings = [], []
    for network in arguments.networks:
        encoding, costs = prepare(read_cnn(f"zoo:{network}", [], False), cluster, Coding(arguments.chromosome))
        judged = [(name, replace(settings, evaluator=name)) for name in EVALUATORS]
        runs = {name: _runs(encoding, costs, how, arguments.repeat) for name, how in judged}
        of = _random(encoding), runs[ANALYTICAL][0].last
        agreements.append([network, *(cell for genes in of for cell in _agreement(encoding, costs, genes))])
        findings.append([network, *_found(runs)])
    _table(["", *(f"{what} {name[:-2]}" for what in ("random", "searched") for name in TIMES)], agreements)
    _table(["", *EVALUATORS], findings)


def _table(head: list[str], rows: list[list[str]]) -> None:
    for row in [head, *rows]:
        print(f"{row[0]:12}" + "".join(f"  {cell:>30}" for cell in row[1:]))


def _random(encoding: Chromosome) -> NDArray[np.int32]:
    return np.random.default_rng(0).integers(0, encoding.upper, (RANDOM, encoding.n_genes), np.int32, endpoint=True)


def _agreement(encoding: Chromosome, costs: CostArrays, genes: NDArray[np.int32]) -> Iterator[str]:
    """Of each time: mean difference, relative to the simulator's, and rank correlation."""
    one, other = (evaluate(encoding, costs, genes, judge)[0] for judge in (ANALYTICAL, SIMULATOR))
    for column in map(OBJECTIVES.index, TIMES):
        a, b = one[:, column], other[:, column]
        yield f"{np.abs(a / b - 1).mean():.1%}, {spearmanr(a, b).statistic:.3f}"


def _runs(encoding: Chromosome, costs: CostArrays, settings: Settings, repeat: int) -> list[Front]:
    """Fronts of so many seeds as the simulator scores them."""
    fronts = [search(encoding, costs, replace(settings, seed=seed)) for seed in range(repeat)]
    return [replace(front, scores=evaluate(encoding, costs, front.genes, SIMULATOR)[0]) for front in fronts]


def _found(runs: dict[str, list[Front]]) -> list[str]:
    """What each evaluator's searches found beside the best of all."""
    columns = [OBJECTIVES.index(name) for name in WANTED]
    scores = np.vstack([front.scores[:, columns] for fronts in runs.values() for front in fronts])
    least, most = scores.min(axis=0), scores.max(axis=0)
    volumes = {name: median(_volume(f.scores[:, columns], most) for f in fronts) for name, fronts in runs.items()}
    cells = []
    for name, fronts in runs.items():
        best = np.median([front.scores[:, columns].min(axis=0) for front in fronts], axis=0) / least
        seconds = median(front.search_s for front in fronts)
        cells.append(f"{best[0]:.3f}, {best[2]:.3f}, {volumes[name] / max(volumes.values()):.3f} ({seconds:.1f} s)")
    return cells


def _volume(scores: NDArray[np.float64], most: NDArray[np.float64]) -> float:
    return float(moocore.hypervolume(scores / most, ref=np.ones(scores.shape[1])))


if __name__ == "__main__":
    main()
