"""The best contiguous splits of the workloads of Tarnawski et al. (2020) for the period, beside known optima.

    python tests/reference/placement.py [--all] [NAME ...]

Workloads and values are those of ``$DSE_REFERENCE/dnn-partitioning``, those for latency, too, where accelerators have
so little memory that it decides (``tight``); a name is part of a workload's. Prints for each its nodes and ideals, our
value and the known one, how far they are apart, seconds from the parsed file to the split, and what the authors'
program took (in their paper, on their machine). ``--all``: the other methods, too, each with what it is above the
optimum and, in brackets, the paper's value for it. Fails where a value is more than 1e-6 off, or is not proven.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[2]))

from dse.place.methods import METHODS, PERIOD
from dse.place.placed import Options, Placed
from dse.place.split import contiguous
from dse.place.workload import Workload
from runtime.errors import CleaveError
from tests.reference.folder import reference

WORST = 1e-6
PAPER = {"dp": "dp", "dpl": "dpl", "local-search": "local_search", "pipedream": "pipedream", "expert": "expert"}
"""What the reference calls the results of our methods."""


def reference_rows(names: list[str]) -> list[dict[str, Any]]:
    """What each workload's file is (``path``) and its optimum (``known``); none where there is no reference."""
    values = reference("dnn-partitioning", "values.json")
    if not values.is_file():
        return []
    body = json.loads(values.read_text(encoding="utf-8"))
    rows = [row | {"known": row["optimal_contiguous"]} for row in body["throughput"]]
    rows += [row | {"known": row["max_load_optimum"], "id": f"{row['id']}, tight"} for row in body["latency"]]
    chosen = [row for row in rows if not names or any(name.lower() in row["id"].lower() for name in names)]
    return [row | {"path": values.parent / row["file"]} for row in chosen]


@dataclass(frozen=True)
class Result:
    """A split of a reference workload."""

    row: dict[str, Any]
    on: Workload
    found: Placed
    seconds: float

    @property
    def deviation(self) -> float:
        """From the known optimum, relative."""
        return self.found.value / self.row["known"] - 1

    @property
    def good(self) -> bool:
        """Whether it is proven, may be run as a pipeline, and has the known value."""
        return self.found.optimal and contiguous(self.on, self.found.device) and abs(self.deviation) <= WORST


def result(row: dict[str, Any], method: str = "dp") -> Result:
    """Of a method."""
    on = Workload.from_file(row["path"])
    begin = time.perf_counter()
    found = METHODS[PERIOD][method](on, Options())
    return Result(row, on, found, time.perf_counter() - begin)


def others(row: dict[str, Any]) -> str:
    """How far the other methods are from the optimum."""
    texts = []
    for method in METHODS[PERIOD]:
        paper = row["paper"].get(PAPER.get(method, "")) if "optimal_contiguous" in row else None
        known = f" ({paper / row['known'] - 1:+.1%})" if paper else ""
        try:
            texts.append(f"{method} {result(row, method).deviation:+.1%}{known}")
        except CleaveError:
            texts.append(f"{method} none{known}")
    return "    " + ", ".join(texts[1:])


def main() -> int:
    """Print a line a workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all", action="store_true", help="the other methods, too")
    arguments = parser.parse_args()
    rows = reference_rows(arguments.names)
    if not rows:
        parser.error(
            "no workloads: set DSE_REFERENCE to the folder with dnn-partitioning/, and name some that are there"
        )
    result(min(rows, key=lambda row: row["nodes"]))  # compiles
    print(
        f"{'workload':41} {'nodes':>5} {'ideals':>7} {'period ms':>12} {'known':>12} {'off':>8} {'s':>6} {'theirs':>6}"
    )
    bad = 0
    for row in rows:
        r = result(row)
        bad += not r.good
        print(
            f"{row['id']:41} {row['nodes']:5} {r.found.ideals or 0:7} {r.found.value:12.6f}"
            f" {row['known']:12.6f} {r.deviation:8.0e} {r.seconds:6.3f} {row['paper'].get('dp_runtime', ''):>6}"
            f"{'' if r.good else '  WRONG'}",
            flush=True,
        )
        if arguments.all:
            print(others(row), flush=True)
    print(f"{len(rows)} workloads, {bad} wrong (off by more than {WORST:.0e}, or not proven)")
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main())
