"""Every run in the reference files of exprimo (Andreassen 2020) against the simulator with exprimo's rules.

    python tests/reference/exprimo.py [FILE ...]

Without files: all of ``$DSE_REFERENCE/exprimo``. Prints for each run the largest relative deviation of four results:
the time of a forward pass, of a training step, of ten batches with four in flight, and the peak memory of each device.
Fails above 1e-9.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[2]))

from model.simulator.placed import admitting, evaluate
from model.simulator.placement import Work, work
from tests.reference.folder import reference

WORST = 1e-9
RESULTS = ("forward", "training step", "ten batches", "peak memory")


def reference_files() -> list[Path]:
    """The files there are; none where there is no reference."""
    return sorted(reference("exprimo").glob("*.json"))


class Network:
    """One file: a network, and the computers that it was simulated on."""

    def __init__(self, path: Path) -> None:
        body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        self.name, self.runs = body["net"], body["runs"]
        self._ops, self._graphs = body["ops"], body["device_graphs"]
        self.work = lru_cache(maxsize=None)(self._work)

    def _work(self, graph: str, comp: float, comm: float, passes: int) -> Work:
        """The operators on one of the computers; times in ms."""
        computer = self._graphs[graph]
        return work(
            [op["children"] for op in self._ops],
            [op["parents"] for op in self._ops],
            self._times(computer, comp)[:passes],
            np.array([op["output_bytes"] for op in self._ops], dtype=np.float64),
            _pace(computer, comm),
            _least(computer),
            _channels(computer),
            np.array([op["output_bytes"] for op in self._ops]),
            np.array([op["weight_bytes"] for op in self._ops]),
        )

    def _times(self, computer: dict, comp: float) -> np.ndarray:
        """``(2, n, D)``: device 0 is the CPU, all others are alike."""
        units = ["gpu" if device["id"] else "cpu" for device in computer["devices"]]
        times = [op["time_ms"][f"comp{comp}"] for op in self._ops]
        return np.array([[[row[f"{u}_{way}"] for u in units] for row in times] for way in ("forward", "backward")])


def _pace(computer: dict, comm: float) -> np.ndarray:
    """``(D, D)`` ms a byte: bytes / 2**30 over Gbit/s / 8."""
    rate = np.array([c["bandwidth_gbit"] / 8 for c in computer["channels"]])
    return 1e3 / 2**30 / rate[_channels(computer) - len(computer["devices"])] / comm


def _least(computer: dict) -> np.ndarray:
    """``(D, D)`` ms: a thousandth of the source's MHz."""
    floor = [1 / (device["clock_mhz"] * 1000) for device in computer["devices"]]
    return np.repeat(np.array(floor)[:, None], len(floor), axis=1)


def _channels(computer: dict) -> np.ndarray:
    """``(D, D)`` resource between two devices: the channel that the source has for the target."""
    devices = computer["devices"]
    channel = np.full((len(devices), len(devices)), len(devices), dtype=np.int32)
    for device in devices:
        for target, number in device["channel_to"].items():
            channel[device["id"], int(target)] = len(devices) + number
    return channel


def simulated(network: Network, run: dict) -> tuple[float, float, float, np.ndarray]:
    """``RESULTS`` of a run."""
    on = partial(network.work, run["graph"], run["comp"], run["comm"])
    place = np.array([run["placement"]])

    def result(passes: int, frames: int, in_flight: int) -> tuple[float, np.ndarray]:
        rules = admitting(on(passes), in_flight, heap_ties=True, wakeups=True)
        times, peaks = evaluate(on(passes), place, rules, frames)
        return times[0], peaks[0]

    step, memory = result(2, 1, 1)
    return result(1, 1, 1)[0], step, result(2, 10, 4)[0], memory


def deviations(network: Network, run: dict) -> list[float]:
    """Largest relative deviation of each of ``RESULTS``."""
    keys = ("forward_1batch_ms", "train_1batch_ms", "train_10batches_4inflight_ms", "peak_memory_bytes")
    pairs = zip(map(np.asarray, simulated(network, run)), (np.asarray(run[key]) for key in keys), strict=True)
    return [float(np.max(np.abs(a - b) / np.maximum(np.abs(b), 1e-300))) for a, b in pairs]


def main() -> int:
    """Print a line a run, and the worst."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    files = parser.parse_args().files or reference_files()
    if not files:
        parser.error("no files: name them, or set DSE_REFERENCE to the folder with exprimo/")
    for file in files:
        if not file.is_file():
            parser.error(f"there is no file {file}")
    worst, runs = 0.0, 0
    print(f"{'network':10} {'graph':13} {'placement':46} " + " ".join(f"{name:>13}" for name in RESULTS))
    for network in map(Network, files):
        for run in network.runs:
            found = deviations(network, run)
            name = f"{run['placement_name']} ({run['comp']}, {run['comm']})"
            print(f"{network.name:10} {run['graph']:13} {name:46} " + " ".join(f"{x:13.1e}" for x in found))
            worst, runs = max(worst, *found), runs + 1
    print(f"{runs} runs, worst deviation {worst:.1e} (at most {WORST:.0e} is wanted)")
    return int(worst > WORST)


if __name__ == "__main__":
    raise SystemExit(main())
