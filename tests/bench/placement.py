"""Time and memory of the best contiguous split of a graph with many ideals, from the file to the answer.

    python -m tests.bench.placement [FILE ...] [--repeat 5]

Without files: the Inception v3 graphs of ``$DSE_REFERENCE/dnn-partitioning``, 36,596 ideals each. Each run is a
process of its own that has the kernels compiled already; its peak memory is printed less that of one that splits a
graph of two nodes in the same way. Times are the median (least to most), reading the file apart from splitting it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.reference.folder import reference

ONE = """
import resource, sys, time
from pathlib import Path
from dse.place.period import dp
from dse.place.placed import Options
from dse.place.workload import Workload

def run(file):
    begin = time.perf_counter()
    on = Workload.from_file(Path(file))
    read = time.perf_counter()
    found = dp(on, Options())
    return read - begin, time.perf_counter() - read, found

run(sys.argv[1])  # loads the kernels
read_s, split_s, found = run(sys.argv[2])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(read_s, split_s, peak, found.value, found.ideals or 0, int(found.optimal))
"""
SMALL = {
    "maxSizePerFPGA": 9,
    "maxFPGAs": 2,
    "maxCPUs": 1,
    "nodes": [{"id": k, "supportedOnFpga": 1, "fpgaLatency": 1, "cpuLatency": 9, "size": 1} for k in range(2)],
    "edges": [{"sourceId": 0, "destId": 1, "cost": 0.1}],
}


def measured(small: Path, file: Path) -> list[float]:
    """Seconds of reading and splitting, peak MiB, value, ideals, whether it is proven."""
    words = [sys.executable, "-c", ONE, str(small), str(file)]
    return [float(word) for word in subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()]


def spread(values: list[float]) -> str:
    """Median (least to most)."""
    return f"{median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def reference_files() -> list[Path]:
    """The graphs with most ideals."""
    return sorted(reference("dnn-partitioning", "throughput-inputs", "LayerGraphs").glob("inceptionv3_*.json"))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    files = arguments.files or reference_files()
    if not files:
        parser.error("no files: name them, or set DSE_REFERENCE to the folder with dnn-partitioning/")
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.json"
        small.write_text(json.dumps(SMALL))
        measured(small, small)  # compiles
        least = min(measured(small, small)[2] for _ in range(arguments.repeat))
        print(f"{'':28} {'read s':>24} {'split s':>24} {'MiB more':>9} {'ideals':>7} {'period':>10}")
        for file in files:
            runs = [measured(small, file) for _ in range(arguments.repeat)]
            read, split, peak, value, ideals, proven = map(list, zip(*runs, strict=True))
            note = "" if all(proven) else "  not proven"
            print(
                f"{file.stem:28} {spread(read):>24} {spread(split):>24} {max(peak) - least:9.1f}"
                f" {ideals[0]:7.0f} {value[0]:10.4f}{note}"
            )


if __name__ == "__main__":
    main()
