"""``dse calibrate`` for a person and for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from dse import show
from dse.calibrate.command import Drift, Lab, Measured
from dse.calibrate.design import WHOLE


def body(lab: Lab, found: Measured) -> dict[str, Any]:
    """For ``--json``."""
    types = [
        {
            "type": type_.name,
            "devices": [lab.platform.devices[d].name for board in type_.boards for d in board.devices],
            "networks": [
                {"network": run.network, "device": run.device, "latency_s": run.time_s}
                for run in found.runs[type_.name]
                if run.what == WHOLE
            ],
            "runs": len(found.runs[type_.name]),
        }
        for type_ in found.types
    ]
    return {"platform": lab.platform.name, "samples": str(lab.store.path), "types": types}


def calibrated(console: Console, lab: Lab, found: Measured) -> None:
    """A line for each network on each device that was measured."""
    rows = [
        [type_["type"], len(type_["devices"]), row["device"], row["network"], f"{row['latency_s'] * 1e3:.2f}"]
        for type_ in body(lab, found)["types"]
        for row in type_["networks"]
    ]
    console.print(show.table(["type", "devices", "measured", "network", "alone ms"], rows), markup=False)


def drift_rows(found: Sequence[Drift]) -> list[dict[str, Any]]:
    """For ``--json``."""
    return [{**asdict(each), "change": each.change, "drifted": each.drifted} for each in found]


def drifts(console: Console, found: Sequence[Drift]) -> None:
    """A line for each network that was measured again."""
    rows = [
        [d.type, d.device, d.network, f"{d.before_s * 1e3:.2f}", f"{d.now_s * 1e3:.2f}", f"{d.change:+.1%}",
         "drifted" if d.drifted else "holds"]
        for d in found
    ]  # fmt: skip
    headers = ["type", "device", "network", "before ms", "now ms", "change", "verdict"]
    console.print(show.table(headers, rows, text=3), markup=False)
    if any(each.drifted for each in found):
        show.line(console, "The calibration does not hold any more, unless something else is running there. "
                  "Calibrate again, in another folder.")  # fmt: skip
