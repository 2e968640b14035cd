"""What a move of one layer costs: delta simulation against lowering and simulating all of the mapping.

    python -m tests.bench.moves [--cnn zoo:densenet121 …] [--platform jetson8] [--moves 200] [--repeat 9]

Random layers of four mappings go to another device, or are split among two to four. Microseconds of processor time on
one thread, medians over batches of moves of which none comes twice, each after a batch of others; a move is proposed
and rejected, or accepted. Each latency is compared with that of the full simulation. FlexFlow (Jia et al., 2019,
table 5) is 2.2 to 6.9 times as fast.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np

from dse.chromosomes import Chromosome
from dse.inputs import read_cnn
from dse.run import Coding, prepare
from model.cluster.platform import Platform
from model.compiled import kernel
from model.cost.costs import CostArrays, whole_s
from model.cost.ledger import Ledger, ledger
from model.mappings.arrays import Floats, GraphArrays, Ints
from model.mappings.lowering import Messages, Room, Shards, lower, messages, place_ends, room, shards_of
from model.mappings.mapping import Mapping, Shard
from model.network.boxes import CHANNELS
from model.simulator import moves, simulation
from model.simulator.board import Board
from model.simulator.simulation import Stage

START = ("vertical", "hybrid 2", "hybrid 4", "contiguous")
"""Mappings that moves begin at: a random device for each layer, random chromosomes, a pipeline."""


@kernel()
def full(
    g: GraphArrays, ptr: Ints, rows: Ints, m: Messages, c: CostArrays, out: Ledger, w: Stage, kind: Ints, found: Floats
) -> None:
    """Latencies of (n, T + 1) mappings, (n, 3, S) device, start, stop of their shards."""
    for k in range(len(ptr)):
        s = Shards(ptr[k], ptr[k][1:], kind, rows[k, 0], rows[k, 1], rows[k, 2])
        lower(g, s, len(c.pool), m)
        found[k] = simulation.simulate(g, s, m, c, out, w)


@kernel()
def delta(g: GraphArrays, c: CostArrays, b: Board, tasks: Ints, counts: Ints, rows: Ints, keep: int, f: Floats) -> None:
    """Latencies of moves from one mapping, or one after the other (keep); (n, 3, most) device, start, stop."""
    for k in range(len(tasks)):
        f[k] = moves.propose(g, c, b, tasks[k], CHANNELS, counts[k], rows[k, 0], rows[k, 1], rows[k, 2])
        if keep:
            moves.accept(b)
        else:
            moves.reject(g, c, b)


def mapping(start: str, chromosomes: dict[str, Chromosome], c: CostArrays, rng: np.random.Generator) -> Mapping:
    """Where moves begin."""
    chosen = chromosomes["vertical" if start in ("vertical", "contiguous") else start]
    if start == "contiguous":
        return chosen.decode(chosen.chain(range(len(c.pool)), whole_s(c)[:, 0]))
    made = chosen.decode(rng.integers(0, chosen.upper + 1))
    if start == "vertical":
        made = Mapping.of(Shard(s.layer, s.start, s.stop, int(rng.integers(len(c.pool)))) for s in made.shards)
    return made


def other(g: GraphArrays, task: int, devices: int, rng: np.random.Generator) -> list[tuple[int, int, int]]:
    """Other shards of a layer's task: device, start, stop."""
    size, grain = int(g.size[task, CHANNELS]), int(g.grain[task, CHANNELS])
    count = int(rng.integers(2, 5)) if g.heavy[task] and rng.random() < 0.5 else 1
    count = min(count, size // grain)
    cuts = [size // grain * k // count * grain for k in range(count)] + [size]
    chosen = rng.choice(devices, count, replace=False)
    return [(int(chosen[k]), cuts[k], cuts[k + 1]) for k in range(count)]


class Case:
    """A mapping and moves of its layers, as arrays for both sides."""

    def __init__(self, g: GraphArrays, c: CostArrays, s: Shards, count: int, rng: np.random.Generator) -> None:
        self.g, self.c, devices = g, c, len(c.pool)
        most = np.where(g.heavy == 1, np.minimum(4, g.size[:, CHANNELS] // g.grain[:, CHANNELS]), 1)
        self.most = np.maximum(most, np.diff(s.ptr)).astype(np.int64)
        self.s, self.tasks = s, rng.integers(g.n_inputs, g.n_inputs + g.n_layers, count).astype(np.int32)
        new = [other(g, task, devices, rng) for task in self.tasks]
        self.counts = np.array([len(row) for row in new], dtype=np.int32)
        self.rows = np.zeros((count, 3, self.most.max()), dtype=np.int32)
        for k, row in enumerate(new):
            self.rows[k, :, : len(row)] = np.array(row).T
        self.r: Room = room(g, self.most, devices)
        self.ptr = np.zeros((count, len(s.ptr)), dtype=np.int32)
        self.all = np.zeros((count, 3, self.r.shards), dtype=np.int32)
        for k in range(count):
            self._moved(k)

    def _moved(self, k: int) -> None:
        """The whole mapping after a move."""
        s, task = self.s, self.tasks[k]
        first, last = s.ptr[task], s.ptr[task + 1]
        self.ptr[k] = s.ptr
        self.ptr[k, task + 1 :] += self.counts[k] - (last - first)
        old = np.array([s.device, s.start, s.stop])
        joined = np.concatenate((old[:, :first], self.rows[k][:, : self.counts[k]], old[:, last:]), axis=1)
        self.all[k, :, : joined.shape[1]] = joined
        place_ends(self.g, Shards(self.ptr[k], self.ptr[k][1:], s.kind, *self.all[k]), -1, -1)

    def full(self, m: Messages, out: Ledger, w: Stage) -> Floats:
        """Latencies after each move."""
        found = np.zeros(len(self.tasks))
        full(self.g, self.ptr, self.all, m, self.c, out, w, self.s.kind, found)
        return found

    def delta(self, b: Board, keep: int = 0) -> Floats:
        """The same."""
        found = np.zeros(len(self.tasks))
        delta(self.g, self.c, b, self.tasks, self.counts, self.rows, keep, found)
        return found


def timed(run: Callable[..., Floats], warm: Case, case: Case, *how: Any) -> tuple[float, Floats]:
    """Microseconds a move, and what is found; other moves of the mapping come first, as in a local search."""
    run(warm, *how)
    begin = process_time()
    found = run(case, *how)
    return (process_time() - begin) / len(found) * 1e6, found


def measure(
    g: GraphArrays, c: CostArrays, start: str, chromosomes: dict[str, Chromosome], count: int, repeat: int
) -> str:
    """A line of the table; the first round compiles."""
    rounds = []
    for seed in range(repeat + 1):
        rng = np.random.default_rng(seed)
        shards = shards_of(g, mapping(start, chromosomes, c, rng))
        warm, case = (Case(g, c, shards, count, rng) for _ in range(2))
        desk = messages(case.r), ledger(case.r), simulation.stage(case.r, c, 1)
        b = moves.board(g, c, case.most, shards)
        all_us, wanted = timed(Case.full, warm, case, *desk)
        us, got = timed(Case.delta, warm, case, b)
        if (wanted != got).any():
            raise SystemExit(f"delta and full simulation differ: seed {seed}, moves {np.flatnonzero(wanted != got)}")
        rounds.append((all_us, us, timed(Case.delta, warm, case, b, 1)[0], all_us / us))
    full_us, rejected, accepted, ratio = (median(column) for column in zip(*rounds[1:], strict=True))
    return f"{start:11} full {full_us:6.1f}, rejected {rejected:5.1f}, accepted {accepted:5.1f} us; {ratio:5.1f} times"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cnn", nargs="+", default=["zoo:densenet121", "zoo:resnet50", "zoo:inception_v1"])
    parser.add_argument("--platform", type=Path, default=Path("jetson8"))
    parser.add_argument("--moves", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=9)
    arguments = parser.parse_args()
    cluster = Platform.from_file(arguments.platform)
    for name in arguments.cnn:
        cnn = read_cnn(name, [], False)
        codings = {"vertical": Coding("vertical"), "hybrid 2": Coding("hybrid", 2), "hybrid 4": Coding("hybrid", 4)}
        prepared = {kind: prepare(cnn, cluster, coding) for kind, coding in codings.items()}
        chromosomes, c = {kind: made for kind, (made, _) in prepared.items()}, prepared["vertical"][1]
        print(f"{cnn.graph.name}, {len(cnn.graph.layers)} layers, {len(cluster.devices)} devices")
        for start in START:
            print(
                measure(chromosomes["vertical"].g, c, start, chromosomes, arguments.moves, arguments.repeat), flush=True
            )


if __name__ == "__main__":
    main()
