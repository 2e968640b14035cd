"""What a layer takes by what its process has touched, and how long ago: the reason for ``model.cluster.caches``.

    python -m tests.bench.caches [--layers 100] [--frames 30]

Layers of one Relu of 401 kB, each a session with buffers of its own, run one after the other: in the first column a
frame of so many follows the last one at once, in the others the process computes for a while in between and touches
nothing more. Microseconds a layer, the middle of the frames, and how many times as long as the quickest of all.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

from runtime.pages import Pages
from runtime.segment import CPU, Segment, open_session
from tests.tiny_cnn import network, node, save

SHAPE = (1, 128, 28, 28)
PAUSES_MS = (0, 5, 20, 40, 100)


def frame_s(segments: list[Segment], pause_s: float) -> float:
    """Seconds of a frame that begins so long after the last one."""
    begin = time.perf_counter() + pause_s
    while time.perf_counter() < begin:
        pass
    begin = time.perf_counter()
    for segment in segments:
        segment.run()
    return time.perf_counter() - begin


def main() -> None:
    """Print a line for each number of layers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=100)
    parser.add_argument("--frames", type=int, default=30)
    asked = parser.parse_args()
    pages = Pages()
    buffers = [pages.zeros(SHAPE, "float32") for _ in range(asked.layers + 1)]
    with tempfile.TemporaryDirectory() as folder:
        path = str(save(Path(folder), network([node("Relu", ["x"], ["y"])], {"x": SHAPE}, ["y"])))
        segments = [
            Segment(open_session(path, CPU, 1), {"x": read}, {"y": written}) for read, written in pairwise(buffers)
        ]
    counts = sorted({max(1, asked.layers // part) for part in (1, 3, 10, 30)})
    times = {(n, ms): median(frame_s(segments[:n], ms / 1e3) for _ in range(asked.frames)) / n
             for n in counts for ms in PAUSES_MS}  # fmt: skip
    print("layers      MB " + "".join(f"{ms:>10} ms ago" for ms in PAUSES_MS))
    for n in counts:
        told = (f"{times[n, ms] * 1e6:8.1f} us {times[n, ms] / min(times.values()):3.1f}x" for ms in PAUSES_MS)
        print(f"{n:6} {(n + 1) * buffers[0].nbytes / 1e6:7.1f} " + "  ".join(told))


if __name__ == "__main__":
    main()
