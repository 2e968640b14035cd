"""``dse calibrate`` for a person and for machines."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rich.console import Console

from dse import show
from dse.calibrate.boards import DRIFT
from dse.calibrate.check import ALLOWED, DRIFT_S, Drift, LinkDrift
from dse.calibrate.command import Lab, Measured, Type
from dse.calibrate.design import WHOLE
from dse.calibrate.results import Result
from dse.calibrate.tried import Tried
from model.cluster.coefficients import FrameError, UnitCost
from model.cluster.platform import Platform
from model.cost.samples import Run
from model.fit.link_costs import BOTH, FASTEST_BYTES_PER_S, Estimate, LinkCosts
from runtime.bench import STOLEN, TRIES

SHARED = 0.5
"""Messages that hold each other up by more, of what the shorter takes, do not go both ways at once."""


def body(lab: Lab, found: Measured, made: Result, tests: Sequence[Tried] = ()) -> dict[str, Any]:
    """For ``--json``."""
    return {
        "platform": lab.platform.name,
        "samples": str(lab.store.path),
        "types": [_type(lab, found, made, type_) for type_ in found.types],
        "links": made.links and asdict(made.links),
        "together": [_together(each) for each in tests],
        "apart": found.apart,
    }


def _type(lab: Lab, found: Measured, made: Result, type_: Type) -> dict[str, Any]:
    runs = found.runs[type_.name]
    (units,) = (each.units for each in made.sets if each.name == type_.name)
    names = [lab.platform.devices[d].name for board in type_.boards for d in board.devices]
    unit_of = {lab.platform.devices[d].name: units[lab.platform.devices[d].unit] for d in type_.devices}
    return {
        "type": type_.name,
        "devices": names,
        "slowdowns": {name: found.slowdowns[name] for name in names if name in found.slowdowns},
        "runs": len(runs),
        "stolen": max(run.stolen for run in runs),
        "disturbed": len(disturbed(runs)),
        "networks": [_network(run, unit_of[run.device]) for run in runs if run.what == WHOLE],
        "residuals": {lab.platform.devices[d].name: made.reports[lab.platform.devices[d].name].to_json()
                      for d in type_.devices},
    }  # fmt: skip


def _together(test: Tried) -> dict[str, Any]:
    figures = [{**figure._asdict(), "error": figure.error} for figure in test.figures]
    return {"network": test.network, "devices": test.devices, "messages": test.messages, "figures": figures}


def _network(run: Run, unit: UnitCost) -> dict[str, Any]:
    error = asdict(unit.frame_errors[run.network])
    return {"network": run.network, "device": run.device, "latency_s": run.time_s, "expected_error": error}


def calibrated(
    console: Console, lab: Lab, found: Measured, made: Result, tests: Sequence[Tried], platform: Path
) -> None:
    """A line for each network on each device that was measured, for each way between devices, and for each run on
    several devices; and for which others it was measured, and which types of devices were disturbed.

    Errors: of segments, as fitted and held out (found by a fit that has not seen their runs), of frames of such runs,
    what predictions are expected to be off by, here and minutes later, and of the memory.
    """
    types, figures = body(lab, found, made)["types"], [field.name for field in fields(FrameError)]
    expected = [f"expected\n{figure}" for figure in figures]
    headers = ["device", "network", "alone\nms", "fitted", "held\nout", "frame", *expected, "memory"]
    rows = [
        [row["device"], row["network"], f"{row['latency_s'] * 1e3:.2f}", *map(_percent, _errors(type_, row, figures))]
        for type_ in types
        for row in type_["networks"]
    ]
    console.print(show.table(headers, rows, text=2), markup=False)
    for type_ in found.types:
        _alike(console, lab.platform, type_)
    _slower(console, found.slowdowns)
    if made.links:
        _links(console, made.links)
        for sentence in held_up(lab.platform, made.links):
            show.line(console, sentence)
    if tests:
        _tests(console, tests)
    for name, runs in (*found.runs.items(), ("several devices", found.together)):
        if there := disturbed(runs):
            show.line(console, _plaint(name, there, len(runs)))
    show.line(
        console, f"measured again minutes later, times were others by {found.apart:.1%} in the mean{_judged(found)}"
    )
    show.line(console, f"use it: {shlex.join(['--platform', str(platform)])}")


def _alike(console: Console, platform: Platform, type_: Type) -> None:
    """For which devices each of a type was measured, too."""
    for measured, *others in zip(*(board.devices for board in type_.boards), strict=True):
        if others:
            names = ", ".join(platform.devices[device].name for device in others)
            show.line(console, f"{platform.devices[measured].name} was measured for {names}, too")


def _slower(console: Console, slowdowns: Mapping[str, float]) -> None:
    """Which of these are not as fast."""
    for name, times in slowdowns.items():
        show.line(console, f"{name} took {times:.2f} times as long as the device that was measured for it, and "
                           "predictions count that")  # fmt: skip


def _judged(found: Measured) -> str:
    return ": something else runs there, or clocks change; no prediction can be nearer" * (found.apart > DRIFT)


def disturbed(runs: Sequence[Run]) -> list[Run]:
    """Those that other virtual machines slowed down each time that they were made."""
    return [run for run in runs if run.stolen > STOLEN]


def _plaint(name: str, there: Sequence[Run], count: int) -> str:
    return (
        f"disturbed: in {len(there)} of {count} runs of {name}, made {TRIES} times each, other virtual machines had "
        f"up to {max(run.stolen for run in there):.0%} of a processor; calibrate again, in another folder"
    )


def _errors(type_: dict[str, Any], row: dict[str, Any], figures: Sequence[str]) -> list[float | None]:
    """Of a network on a device: of its segments and frame, expected of each figure, and of memory."""
    report = type_["residuals"][row["device"]]
    score, expected = report["networks"][row["network"]], row["expected_error"]
    return [score["fitted"], score["held_out"], score["frame"], *(expected[f] for f in figures), report["memory"]]


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{error:.1%}"


def _links(console: Console, links: LinkCosts) -> None:
    show.line(console, "")
    console.print(show.table(["way", "MB/s", "95 %", "latency us", "95 %"], link_rows(links)), markup=False)


def link_rows(links: LinkCosts) -> list[list[str]]:
    """Of each way its rate and latency, with their intervals, as text."""
    return [
        [f"{path.source} to {path.target}", *_with_interval(path.bandwidth_bytes_per_s, _megabytes),
         *_with_interval(path.latency_s, _microseconds)]
        for path in links.paths
    ]  # fmt: skip


def held_up(platform: Platform, links: LinkCosts) -> list[str]:
    """What a platform file may say, and does not, of hosts whose messages to each other go one after the other."""
    hosts = {host.name: host for host in platform.hosts}
    found = []
    for each in (each for each in links.sharing if each.kind == BOTH and each.share.low > SHARED):
        one, other = (hosts[platform.host_names[device]] for device in (each.source, each.target))
        if one != other and not one.half_duplex and not other.half_duplex:
            found.append(
                f"{one.name} and {other.name} hold each other up when both send at once, by {each.share.value:.0%}; "
                "predictions take it that they do not. If theirs is a link that sends or receives, say duplex=half, or "
                "which medium= it is"
            )
    return found


def _with_interval(found: Estimate, text: Callable[[float], str]) -> list[str]:
    return [text(found.value), f"{text(found.low)} to {text(found.high)}"]


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"


def _megabytes(bytes_per_s: float) -> str:
    return "no limit" if bytes_per_s >= FASTEST_BYTES_PER_S else f"{bytes_per_s / 1e6:.1f}"


def _tests(console: Console, tests: Sequence[Tried]) -> None:
    rows = [
        [t.network, t.devices, t.messages, figure.what,
         f"{figure.predicted_s * 1e3:.2f}", f"{figure.measured_s * 1e3:.2f}", f"{figure.error:+.1%}"]
        for t in tests
        for figure in t.figures
    ]  # fmt: skip
    show.line(console, "")
    headers = ["network", "on devices", "messages", "time", "predicted ms", "measured ms", "off by"]
    console.print(show.table(headers, rows), markup=False)


def drift_rows(found: Sequence[Drift], slowdowns: Mapping[str, float]) -> list[dict[str, Any]]:
    """For ``--json``. slowdowns: of devices, as a platform file says now; of others None"""
    return [
        {**asdict(each), "change": each.change, "drifted": each.drifted, "slowdown": slowdowns.get(each.device)}
        for each in found
    ]


def _held(each: Drift) -> bool:
    """Whether it is a message that takes as long as it did."""
    return isinstance(each, LinkDrift) and not each.drifted


def drifts(console: Console, found: Sequence[Drift], slowdowns: Mapping[str, float], platform: Path) -> None:
    """A line for each network that was measured again, and each message that takes another time now; what hosts say of
    themselves now, and what the platform file does: ``slowdowns``, if anything.
    """
    held = [(each.now_s - each.before_s) * 1e3 for each in found if _held(each)]
    rows = [
        [d.device, d.network, f"{d.before_s * 1e3:.2f}", f"{d.now_s * 1e3:.2f}", f"{d.change:+.1%}",
         "drifted" if d.drifted else "holds"]
        for d in found
        if not _held(d)
    ]  # fmt: skip
    headers = ["device", "network", "before ms", "now ms", "change", "verdict"]
    console.print(show.table(headers, rows, text=2), markup=False)
    if held:
        show.line(console, f"messages that hold: {len(held)}, changed by {min(held):+.2f} to {max(held):+.2f} ms")
    show.line(console, f"drifted: changed by more than {DRIFT:.0%} and {DRIFT_S * 1e3:g} ms, messages by {ALLOWED:.0%}")
    for device, changed in dict.fromkeys((d.device, d.changed) for d in found if d.changed):
        show.line(console, f"{device} is not as it was: {'; '.join(changed)}")
    for device, times in slowdowns.items():
        show.line(console, f"{device} takes {times:g} times as long to compute as its coefficients say")
    if slowdowns:
        show.line(console, f"{platform} says so now, and predictions by it are for devices of that speed. Those of a "
                  f"type stay alike, unless one differs by more than {DRIFT:.0%}; a type that was not measured stays "
                  "as it was.")  # fmt: skip
    if any(each.beyond(slowdowns) for each in found):
        what = "Also for devices of that speed the calibration" if slowdowns else "The calibration"
        show.line(console, f"{what} does not hold any more, unless something else is running there. "
                  "Calibrate again, in another folder.")  # fmt: skip
        if not slowdowns:
            show.line(console, "Where devices are faster or slower, and nothing else has changed, --adjust will do.")
