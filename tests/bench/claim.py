"""The thesis' main claim as a figure: split-point chromosomes converge faster than the naive one.

    python -m tests.bench.claim [--out FOLDER] [--platform jetson8-cpu] [--seed 0]

For AlexNet, VGG-16 and DenseNet-121: naive against hybrid with p = 2, 4, 6 (Figures 12, 19 and 25 of the thesis), the
best value of each objective over 100 generations of 1000, from random populations (no head start). Writes
``claim-NETWORK.png`` and prints the last values.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dse.evaluation import OBJECTIVES
from dse.inputs import read_cnn
from dse.results import plot_convergence
from dse.run import Coding, prepare
from dse.search import search
from dse.settings import Settings
from dse.units import shown
from model.cluster.platform import Platform

CODINGS = {"naive": Coding("naive"), **{f"hybrid, p = {p}": Coding("hybrid", p) for p in (2, 4, 6)}}


def main() -> None:
    """Search, plot, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/claim"))
    parser.add_argument("--platform", type=Path, default=Path("jetson8-cpu"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    cluster = Platform.from_file(arguments.platform)
    settings = Settings(seed=arguments.seed, head_start=False, local_search=False)
    for network in ("alexnet", "vgg16", "densenet121"):
        cnn = read_cnn(f"zoo:{network}", [], False)
        curves = {}
        for label, coding in CODINGS.items():
            front = search(*prepare(cnn, cluster, coding), settings)
            curves[label] = front.best
            last = "  ".join(shown(o, front.best[-1, OBJECTIVES.index(o)]) for o in settings.objectives)
            print(f"{network:12} {label:14} {last}   ({front.search_s:.1f} s)", flush=True)
        title = f"{network} on {cluster.name}: best so far, predicted (not calibrated)"
        plot_convergence(arguments.out / f"claim-{network}.png", curves, settings.objectives, title)


if __name__ == "__main__":
    main()
