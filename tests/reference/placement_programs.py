"""Splits that need not be contiguous, and splits for latency, of the workloads of Tarnawski et al. (2020).

    python tests/reference/placement_programs.py [--time-limit S] [--period | --latency] [NAME ...]

Workloads and values are those of ``$DSE_REFERENCE/dnn-partitioning``; a name is part of a file's. Prints for each
our value and bound, how far they are apart, seconds, the best known value, and the authors' (an hour with Gurobi).
Fails where a value is below our bound, or a bound above the best known value.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[2]))

from dse.place.methods import LATENCY, METHODS, PERIOD, usual
from dse.place.placed import Options, Placed
from dse.place.workload import Workload
from tests.reference.folder import reference

KNOWN = {PERIOD: ("best_noncontiguous", "ip_noncontig"), LATENCY: ("best_known", "ip")}
"""For each objective: what is best known, and the authors' result."""
SECTIONS = {PERIOD: ("throughput", "latency"), LATENCY: ("latency",)}
"""Where the reference has workloads; those for latency have accelerators with little memory."""
SMALLEST = "bert24_inference"
"""A workload for compiling."""


def reference_rows(objective: str, names: list[str]) -> list[dict[str, Any]]:
    """Each workload's ``path``, ``known`` and ``theirs``; none where there is no reference."""
    values = reference("dnn-partitioning", "values.json")
    if not values.is_file():
        return []
    body, (known, theirs) = json.loads(values.read_text(encoding="utf-8")), KNOWN[objective]
    rows = [row for section in SECTIONS[objective] for row in body[section]]
    return [
        row | {"path": values.parent / row["file"], "known": row.get(known), "theirs": row["paper"].get(theirs)}
        for row in rows
        if not names or any(name.lower() in row["file"].lower() for name in names)
    ]


def result(row: dict[str, Any], objective: str, limit_s: float) -> tuple[Placed, float]:
    """Our split of a workload, and seconds that it took."""
    contiguous, on = objective != PERIOD, Workload.from_file(row["path"])
    begin = time.perf_counter()
    options = Options(contiguous=contiguous, limit_s=limit_s)
    return METHODS[objective][usual(objective, contiguous)](on, options), time.perf_counter() - begin


def line(row: dict[str, Any], found: Placed, seconds: float) -> str:
    """Of the table."""
    gap, known = found.value / found.bound - 1, "" if row["known"] is None else f"{row['known']:.4f}"
    theirs, name = "" if row["theirs"] is None else f"{row['theirs']:.2f}", Path(row["file"]).with_suffix("")
    wrong = row["known"] is not None and found.bound > row["known"] * (1 + 1e-4)
    return (
        f"{name!s:54} {row['nodes']:5} {found.value:12.4f} {found.bound:12.4f} {gap:7.2%} {seconds:6.1f} {known:>10}"
        f" {theirs:>9}{'  WRONG' if wrong or found.bound > found.value else ''}"
    )


def main() -> int:
    """Print a line a workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--time-limit", type=float, default=120.0, metavar="S", help="for each (120)")
    only = parser.add_mutually_exclusive_group()
    for objective in KNOWN:
        only.add_argument(f"--{objective}", dest="objectives", action="store_const", const=[objective])
    arguments = parser.parse_args()
    bad = 0
    for objective in arguments.objectives or KNOWN:
        rows = reference_rows(objective, arguments.names)
        if not rows:
            parser.error("no workloads: set DSE_REFERENCE to the folder with dnn-partitioning/, and name some there")
        for row in reference_rows(objective, [SMALLEST]):
            result(row, objective, 5.0)
        print(
            f"{objective:54} nodes {'value ms':>12} {'bound':>12} {'gap':>7} {'s':>6} {'best known':>10} {'theirs':>9}"
        )
        for row in rows:
            text = line(row, *result(row, objective, arguments.time_limit))
            bad += text.endswith("WRONG")
            print(text, flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main())
