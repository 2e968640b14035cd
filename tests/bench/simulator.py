"""What a simulation costs, on one thread.

    python -m tests.bench.simulator [--repeat 15] [--plot FILE]

Medians of processor time a placement, over batches in which no placement comes twice (a processor learns one that does
by heart). ResNet-50 (74 operators, 89 edges) as in the reference files of exprimo, which ``DSE_REFERENCE`` has; random
placements on its four GPUs. exprimo itself takes 5.0 ms forward, 12.9 ms for a training step with memory, and 96 to
170 ms for ten batches. DenseNet-121 is scored as a search does it: random chromosomes of its first population, decoded,
lowered and simulated. ``--plot`` draws the cost of a task from 1,000 to 100,000 tasks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import numba
import numpy as np

from dse.evaluation import SIMULATOR, Judge
from dse.evaluation import evaluate as score
from dse.inputs import read_cnn
from dse.nsga2 import MappingProblem
from dse.operators import RandomGenes
from dse.run import Coding, prepare
from dse.settings import Settings
from model.cluster.platform import Platform
from model.simulator.events import Rules
from model.simulator.placed import CHUNK, admitting, evaluate
from model.simulator.placement import Work, lower, room, work
from tests.reference.exprimo import Network, reference_files

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
"""Tasks of the simulations whose cost a task is compared."""
SPREAD = 0.2


class Line(NamedTuple):
    """A line of the table: what, microseconds, how many are wanted at most (0: no such wish)."""

    what: str
    us: float
    wanted: float = 0.0


def resnet50(passes: int) -> Work:
    """On the computer with a CPU (which gets nothing here) and four GPUs."""
    files = [file for file in reference_files() if file.stem == "resnet50"]
    if not files:
        raise SystemExit("no resnet50.json: DSE_REFERENCE names no folder that has exprimo/resnet50.json")
    return Network(files[0]).work("4gpu", 0.9, 0.25, passes)


def placements(on: Work, count: int, seed: int) -> np.ndarray:
    """(count, n) random devices but the first."""
    _, n, devices = on.time.shape
    return np.random.default_rng(seed).integers(1, devices, (count, n), dtype=np.int32)


def microseconds(run: Callable[[np.ndarray], object], on: Work, batch: int, repeat: int) -> float:
    """Median over batches of processor time a placement."""
    run(placements(on, 2, 0))
    times = []
    for seed in range(1, repeat + 1):
        rows = placements(on, batch, seed)
        start = process_time()
        run(rows)
        times.append((process_time() - start) / batch * 1e6)
    return median(times)


def _line(what: str, passes: int, wanted: float, repeat: int, frames: int = 1, memory: bool = False) -> Line:
    """A line for ResNet-50 under the simulator's own rules, and in brackets its time under exprimo's."""
    on = resnet50(passes)
    own, exprimo = (admitting(on, 4 * (frames > 1), *2 * [peculiar]) for peculiar in (False, True))

    def time(rules: Rules) -> float:
        run = partial(evaluate, on, rules=rules, frames=frames, memory=memory)
        return microseconds(run, on, 5_000 // frames, repeat)

    return Line(f"{what} ({time(exprimo):.1f} with exprimo's rules)", time(own), wanted)


def forward(repeat: int) -> Line:
    return _line("ResNet-50, forward", 1, 4, repeat)


def forward_and_memory(repeat: int) -> Line:
    return _line("ResNet-50, forward, with peak memory", 1, 8, repeat, memory=True)


def training(repeat: int) -> Line:
    return _line("ResNet-50, training step, with peak memory", 2, 0, repeat, memory=True)


def ten_batches(repeat: int) -> Line:
    return _line("ResNet-50, training, ten batches, four in flight", 2, 100, repeat, frames=10)


def ten_forward(repeat: int) -> Line:
    return _line("ResNet-50, forward, ten batches, four in flight", 1, 0, repeat, frames=10)


def chromosomes(repeat: int) -> Line:
    """DenseNet-121, hybrid on eight devices: to latency, energy and memory."""
    cluster = Platform.from_file(Path("jetson8-cpu"))
    chromosome, costs = prepare(read_cnn("zoo:densenet121", [], False), cluster, Coding("hybrid", 2))
    times = []
    for seed in range(repeat + 1):
        first = RandomGenes(np.empty((0, chromosome.n_genes), dtype=np.int64), sparse=True)
        genes = first.do(
            MappingProblem(Judge(chromosome, costs, SIMULATOR), Settings().columns),
            1000,
            random_state=np.random.default_rng(seed),
        ).get("X")
        start = process_time()
        score(chromosome, costs, genes, SIMULATOR, period=False)
        times.append((process_time() - start) / len(genes) * 1e6)
    return Line("DenseNet-121, hybrid 2 on 8 devices, from chromosome to objectives", median(times[1:]), 50)


LINES = (forward, forward_and_memory, training, ten_batches, ten_forward, chromosomes)


def scaling(repeat: int) -> Iterator[tuple[str, list[int], list[float]]]:
    """Nanoseconds a task: of ever longer networks (ResNet-50 again and again), and of ever more batches of one.

    The tasks of one batch are built once for all batches, so the more of them the less a task costs.
    """
    one, batches = resnet50(1), resnet50(2)
    long = [_again(one, round(size / _tasks(one))) for size in SIZES]
    yield "a longer network", *_costs([(on, admitting(on, 0), 1) for on in long], repeat)
    counts = [round(size / _tasks(batches)) for size in SIZES]
    yield "more batches, four in flight", *_costs([(batches, admitting(batches, 4), k) for k in counts], repeat)


def _costs(cases: list[tuple[Work, Rules, int]], repeat: int) -> tuple[list[int], list[float]]:
    """Tasks, and nanoseconds each. Sizes take turns, so that a busy minute hits all of them."""
    tasks = [_tasks(on) * frames for on, _, frames in cases]
    times: list[list[float]] = [[] for _ in cases]
    for _ in range(repeat):
        for (on, rules, frames), size, row in zip(cases, tasks, times, strict=True):
            run = partial(evaluate, on, rules=rules, frames=frames, memory=False)
            row.append(microseconds(run, on, max(CHUNK, SIZES[-1] // size), 1) / size * 1e3)
    return tasks, [median(row) for row in times]


def _again(on: Work, times: int) -> Work:
    """A network many times, its end the beginning of the next."""
    _, n, _ = on.time.shape
    rows = [[*_shifted(on.child_ptr, on.child, i, k * n)] for k in range(times) for i in range(n)]
    for end in range(n - 1, times * n - 1, n):
        rows[end] = [end + 1]
    before: list[list[int]] = [[] for _ in rows]
    for op, children in enumerate(rows):
        for child in children:
            before[child].append(op)
    size, output, weights = (np.tile(values, times) for values in (on.size, on.output, on.weights))
    time = np.tile(on.time, (1, times, 1))
    return work(rows, before, time, size, on.pace, on.least, on.channel, output, weights)


def _shifted(ptr: np.ndarray, values: np.ndarray, row: int, by: int) -> list[int]:
    return [int(value) + by for value in values[ptr[row] : ptr[row + 1]]]


def _tasks(on: Work) -> int:
    """Tasks of a placement in the mean."""
    tasks, moves = room(on)
    return round(np.mean([lower(on, place, tasks, moves) for place in placements(on, 20, 0)]))


def show_scaling(repeat: int, plot: Path | None) -> None:
    """Print the cost of a task, and draw it."""
    mpl.use("Agg")
    figure, axes = plt.subplots(figsize=(7, 4))
    for label, tasks, costs in scaling(repeat):
        print(f"{label:30} " + "  ".join(f"{n:7,} tasks {ns:5.1f} ns" for n, ns in zip(tasks, costs, strict=True)))
        print(f"{'':30} largest / first {max(costs) / costs[0]:.2f}, wanted at most {1 + SPREAD}")
        axes.semilogx(tasks, costs, "o-", label=label)
    axes.set(xlabel="tasks", ylabel="ns a task", title="Cost of a task: build and simulate, one thread", ylim=(0, None))
    axes.legend()
    axes.grid(alpha=0.3)
    if plot:
        figure.savefig(plot, bbox_inches="tight", dpi=150)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--plot", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    numba.set_num_threads(1)
    for line in (make(arguments.repeat) for make in LINES):
        wanted = f"wanted at most {line.wanted:5.1f}" if line.wanted else ""
        print(f"{line.what:78} {line.us:7.2f} us  {wanted}", flush=True)
    show_scaling(arguments.repeat, arguments.plot)


if __name__ == "__main__":
    main()
