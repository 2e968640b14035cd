"""What it costs to have buffers in small pages of memory instead of huge ones, in latency, processor time and memory.

    python -m tests.bench.pages [--cnn zoo:densenet121] [--ranks 2] [--stretches] [--frames 30] [--repeat 5]

Layers are on ranks at random, one thread each, so that there are many messages; with ``--stretches`` on one rank after
the other. Both take turns in the same run; ratios are medians over the turns.
"""

from __future__ import annotations

import argparse
from statistics import median

from dse.inputs import read_cnn
from tests.bench.waiting import in_turn, report, scattered, stretched

SMALL = """
LARGEST_BYTES = 0
"""
PAGES = {"huge": "", "small": SMALL}
"""What is added at the end of a bundle's ``runtime/pages.py``."""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cnn", default="zoo:densenet121")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--stretches", action="store_true", help="layers on one rank after the other")
    parser.add_argument("--frames", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args()
    cnn = read_cnn(asked.cnn, [], False)
    mapping = (stretched if asked.stretches else scattered)(cnn, asked.ranks)
    found = in_turn(cnn, asked.ranks, mapping, "runtime/pages.py", PAGES, asked.frames, asked.repeat)
    print(f"{cnn.graph.name} on {asked.ranks} ranks, {asked.repeat} turns of {asked.frames} frames")
    report(found, "small")
    for name, turns in found.items():
        peaks = [median(turn.ranks[rank].peak_bytes for turn in turns) / 1e6 for rank in range(asked.ranks)]
        print(f"{name:11} memory at most {', '.join(f'{peak:.1f}' for peak in peaks)} MB")


if __name__ == "__main__":
    main()
