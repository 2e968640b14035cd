"""What it costs to have buffers in small pages of memory instead of huge ones, in latency, processor time and memory.

    python -m tests.bench.pages [--cnn zoo:densenet121] [--ranks 2] [--pieces] [--frames 60] [--repeat 5]

As ``tests.bench.waiting``: with ``--pieces`` layers are on ranks at random, so that there are many messages, else on
one rank after the other. Both take turns in the same run; ratios are medians over the turns.
"""

from __future__ import annotations

from statistics import median

from tests.bench.waiting import compared, report

SMALL = """
LARGEST_BYTES = 0
"""
PAGES = {"huge": "", "small": SMALL}
"""What is added at the end of a bundle's ``runtime/pages.py``."""


def main() -> None:
    """Run the benchmark."""
    found = compared(__doc__, "runtime/pages.py", PAGES)
    report(found, "small")
    for name, turns in found.items():
        peaks = [
            median(rank.peak_bytes for rank in ranks) / 1e6 for ranks in zip(*(t.ranks for t in turns), strict=True)
        ]
        print(f"{name:11} memory at most {', '.join(f'{peak:.1f}' for peak in peaks)} MB")


if __name__ == "__main__":
    main()
