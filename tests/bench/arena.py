"""ONNX Runtime's two ways to have memory for a frame, arena and pattern: what each takes, and how long a frame then is.

    python -m tests.bench.arena [--cnn zoo:densenet121] [--segments 4] [--frames 6]

A rank holds several segments; here each is the whole network, once more. Every line is a process of its own: the
network as sessions of one thread, run in turn. ``arena=on`` of a platform file is "shared", one arena for all of them,
``arena=off`` is "pattern".
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from typing import Any

import numpy as np

from dse.inputs import cnn_path
from runtime.memory import peak_bytes
from runtime.segment import CPU, open_session

WAYS = {"both": (True, True), "arena": (True, False), "neither": (False, False)}
"""Arena and pattern of a session."""
OURS = {"shared": True, "pattern": False}
"""``arena`` of ``open_session``."""


def opened(path: str, way: str) -> Any:
    """A session."""
    import onnxruntime as ort

    if way in OURS:
        return open_session(path, CPU, 1, OURS[way])
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.enable_cpu_mem_arena, options.enable_mem_pattern = WAYS[way]
    return ort.InferenceSession(path, options, providers=[CPU])


def measure(path: str, segments: int, frames: int, way: str) -> tuple[int, float]:
    """Peak resident bytes of this process, and seconds of the fastest frame."""
    sessions = [opened(path, way) for _ in range(segments)]
    feeds = {i.name: np.ones(i.shape, np.float32) for i in sessions[0].get_inputs()}
    times_s = []
    for _ in range(frames):
        begin = time.perf_counter()
        for session in sessions:
            session.run(None, feeds)
        times_s.append(time.perf_counter() - begin)
    return peak_bytes(), min(times_s)


def main() -> None:
    """Run the benchmark; with ``--way``, one line of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cnn", default="zoo:densenet121")
    parser.add_argument("--segments", type=int, default=4)
    parser.add_argument("--frames", type=int, default=6)
    parser.add_argument("--way", choices=[*WAYS, *OURS], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way is None:
        for way in (*WAYS, *OURS):
            subprocess.run([sys.executable, "-m", "tests.bench.arena", *sys.argv[1:], f"--way={way}"], check=True)
        return
    path = str(cnn_path(arguments.cnn))
    peak, time_s = measure(path, arguments.segments, arguments.frames, arguments.way)
    print(f"{arguments.way:8} {peak / 1e6:6.0f} MB at most, {time_s * 1e3:6.1f} ms a frame", flush=True)


if __name__ == "__main__":
    main()
