"""What it saves that ranks which are held to a share of a core spend little of it on looks after messages.

    python -m tests.bench.limited [--cnn zoo:shufflenet] [--shares 0.1125 0.45] [--frames 25] [--repeat 5]

A network in stretches, a host each, with half of its convolutions and fully connected layers split by channels
somewhere, on hosts of a testbed with such shares, over 1 Gbit/s: messages go both ways all the time. Policies take
turns in the same run: ours, and heedless, which looks as often as on a core of its own. Latency is the median of a
frame alone, processor time that of all ranks over a frame. Ratios are medians over the turns.
"""

from __future__ import annotations

import argparse
import random

from dse.inputs import Cnn, read_cnn
from model.mappings.mapping import Mapping
from runtime.bench import Bench
from runtime.launch import Runner
from runtime.options import Options
from runtime.trace import Trace
from tests.bench.clock import measured
from tests.bench.moving import runners
from tests.bench.waiting import report, stretched
from tests.campaign.drawings import split
from tests.cluster import boxed

HEEDLESS = "heedless"
POLICIES = {"ours": "", HEEDLESS: "\n\ncore_share = lambda: 1.0\n"}
"""What is added at the end of a bundle's ``runtime/communicator.py``."""


def hosts(shares: list[float]) -> str:
    """A spec with a host of each share, in turn on either core."""
    lines = [f"pi{k}, cores={k % 2}, share={share}, memory=2GB, bandwidth=1Gbit/s" for k, share in enumerate(shares)]
    return "\n".join([*lines, ""])


def mixed(cnn: Cnn, ranks: int) -> Mapping:
    """Stretches with layers split between them."""
    return split(cnn.graph, stretched(cnn, ranks), list(range(ranks)), random.Random(0))


def turn(run: Runner, frames: int) -> Bench:
    """Frames alone."""
    return Bench.from_trace(Trace.from_json(measured(run, Options(frames, 5, barrier=True))[0]))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cnn", default="zoo:shufflenet")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.1125, 0.45])
    parser.add_argument("--frames", type=int, default=25)
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args()
    cnn, found = read_cnn(asked.cnn, [], False), {name: list[Bench]() for name in POLICIES}
    file, mapping = "runtime/communicator.py", mixed(cnn, len(asked.shares))
    with (
        boxed(hosts(asked.shares), "l") as (folder, box),
        runners(cnn, mapping, box, folder, file, POLICIES) as ready,
    ):
        for _ in range(asked.repeat):
            for name, run in ready.items():
                found[name].append(turn(run, asked.frames))
    print(f"{cnn.graph.name} on shares {asked.shares} of a core, {asked.repeat} turns of {asked.frames} frames")
    report(found, HEEDLESS)


if __name__ == "__main__":
    main()
