"""Cutting VGG-19 (575 MB) for 8 devices, every convolution and fully connected layer split, against ``cp``.

    python -m tests.bench.cutting [--cnn zoo:vgg19] [--repeat 5]

Each cut runs in a process of its own, from the file to the renamed bundle; imports, and what numba loads with its first
call, are not counted: SqueezeNet is cut before. ``cp`` copies the same file to the same disk between two cuts. Prints
the medians, their ratio taken in the same run, and the peak memory of the process, imports included.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from dse.inputs import cnn_path

CUT = """
import json, sys, time
from pathlib import Path
from codegen import bundle
from model.network import boxes
from model.network.load import load
from model.mappings.mapping import Mapping, Shard, extent
from model.cluster.platform import Platform
from runtime.memory import peak_bytes
cluster = Platform.parse("\\n".join(f"n{i}, slots=0" for i in range(8)), "eight.txt")
def cut(file, out):
    graph = load(Path(file))
    shards = []
    for layer in graph.layers:
        size, parts = extent(graph, layer), 8 if boxes.is_heavy(graph, layer) else 1
        shards += [Shard(layer.index, size * k // parts, size * (k + 1) // parts, k) for k in range(parts)]
    bundle.write_bundle(graph, cluster, Mapping.of(shards), bundle.source(graph, False, {}), Path(out), False)
cut(sys.argv[1], sys.argv[2] + "/first")
begin = time.perf_counter()
cut(sys.argv[3], sys.argv[2] + "/bundle")
print(json.dumps({"time_s": time.perf_counter() - begin, "peak_bytes": peak_bytes()}))
"""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cnn", default="zoo:vgg19")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    file, small = cnn_path(arguments.cnn), cnn_path("zoo:squeezenet")
    cuts, copies = [], []
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        for _ in range(arguments.repeat):
            begin = time.perf_counter()
            subprocess.run(["cp", file, f"{folder}/copy"], check=True)
            copies.append(time.perf_counter() - begin)
            Path(folder, "copy").unlink()
            command = [sys.executable, "-c", CUT, str(small), folder, str(file)]
            cuts.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            for name in ("first", "bundle"):
                shutil.rmtree(f"{folder}/{name}")
    cut, copy = median(c["time_s"] for c in cuts), median(copies)
    peak = max(c["peak_bytes"] for c in cuts)
    print(f"{file.name}: {file.stat().st_size / 1e6:.0f} MB, 8 devices, {arguments.repeat} runs")
    print(f"cut {cut:.2f} s, cp {copy:.2f} s, ratio {cut / copy:.2f}; peak memory {peak / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
