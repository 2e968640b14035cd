"""What becomes of measurements: a coefficient file for each type of device, and a platform file that names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dse.calibrate.command import SAMPLES, Lab, Measured, Type
from dse.calibrate.link_keys import host_keys, unit_fields
from dse.provenance import PROVIDERS
from model import coefficients, fitting, link_fit
from model.coefficients import Coefficients, UnitCost
from model.fit_waiting import fit_waiting
from model.fitting import Report
from model.link_costs import LinkCosts
from model.platform_edit import edited
from model.platform_file import Sheet
from model.samples import Run
from model.segment_time import Network
from runtime.frames import save_text

DECLARED = "declared"
"""In ``Coefficients.measured``, the set that what was not measured is taken from."""


@dataclass(frozen=True)
class Result:
    """What was found. reports: device → what its fit says of itself; links: None where there is one device"""

    sets: tuple[Coefficients, ...]
    reports: dict[str, Report]
    links: LinkCosts | None
    platform: str


def result(lab: Lab, found: Measured) -> Result:
    """Fit all that was measured."""
    labels = {
        lab.platform.devices[device].name: _label(type_.name, lab.platform.devices[device].unit)
        for type_ in found.types
        for board in type_.boards
        for device in board.devices
    }
    links = link_fit.fit(found.links, labels, lab.seed) if found.links else None
    fits = {type_.name: _fitted(lab, type_, found, links) for type_ in found.types}
    if links:
        fits = _with_waiting(lab, found, fits, links, labels)
    reports = {device: report for of in fits.values() for device, (_, report) in of.items()}
    sets = tuple(_set(lab, type_, found.runs[type_.name], fits[type_.name]) for type_ in found.types)
    return Result(sets, reports, links, edited(lab.text, _changes(lab, found.types, links)))


def write(out: Path, platform: str, found: Result) -> None:
    """The files, each all or nothing, the one that names the others last. platform: name of that file"""
    for each in found.sets:
        save_text(str(out / f"{each.name}.json"), each.to_json())
    save_text(str(out / platform), found.platform)


def _label(type_: str, unit: str) -> str:
    return f"{type_} {unit}"


Fits = dict[str, dict[str, tuple[UnitCost, Report]]]
"""Type → device → its coefficients and their report."""


def _with_waiting(lab: Lab, found: Measured, fits: Fits, links: LinkCosts, labels: Mapping[str, str]) -> Fits:
    """What messages cost besides, as runs on several devices show it."""
    alike = {lab.platform.devices[d].name: (type_, lab.platform.devices[d].unit) for type_ in found.types
             for board in type_.boards for d in board.devices}  # fmt: skip
    of_unit = {
        (type_.name, lab.platform.devices[d].unit): fits[type_.name][lab.platform.devices[d].name][0]
        for type_ in found.types for d in type_.devices
    }  # fmt: skip
    units = {name: of_unit[type_.name, unit] for name, (type_, unit) in alike.items()}
    networks = {cnn.graph.name: Network(cnn.graph) for cnn in lab.cnns}
    waiting = fit_waiting(found.together, networks, units, links, labels)
    return {
        type_: {name: (replace(unit, **vars(waiting[labels[name]])), report) for name, (unit, report) in of.items()}
        for type_, of in fits.items()
    }


def _fitted(lab: Lab, type_: Type, found: Measured, links: LinkCosts | None) -> dict[str, tuple[UnitCost, Report]]:
    """Device → its coefficients and their report."""
    graphs, fits = {cnn.graph.name: cnn.graph for cnn in lab.cnns}, {}
    alike = {
        lab.platform.devices[d].name: lab.platform.devices[d].unit for board in type_.boards for d in board.devices
    }
    for device in (lab.platform.devices[index] for index in type_.devices):
        runs = [replace(run, samples=run.evened) for run in found.runs[type_.name] if run.device == device.name]
        ranks = [rank for run in found.together for rank in run.ranks if alike.get(rank.device) == device.unit]
        unit = coefficients.load(_declared(device.coefficients)).unit(device.unit)
        fit = fitting.fit(graphs, runs, replace(unit, threads=device.threads), others=ranks)
        messages: dict[str, Any] = unit_fields(links, _label(type_.name, device.unit)) if links else {}
        fits[device.name] = (replace(fit.unit, **messages), fit.report)
    return fits


def _declared(name: str) -> str:
    """The set that was there before any calibration."""
    return str(coefficients.load(name).measured.get(DECLARED, name))


def _set(lab: Lab, type_: Type, runs: Sequence[Run], fits: Mapping[str, tuple[UnitCost, Report]]) -> Coefficients:
    devices = [lab.platform.devices[device] for device in type_.devices]
    alike = [lab.platform.devices[device].name for board in type_.boards for device in board.devices]
    dates = sorted(run.date for run in runs)
    measured: dict[str, Any] = {
        "date": [dates[0], dates[-1]],
        "hosts": sorted({run.host for run in runs}),
        "devices": alike,
        "networks": {run.network: run.model for run in runs},
        "conditions": runs[0].conditions,
        PROVIDERS: {device.unit: device.provider for device in devices},
        "commands": sorted({run.command for run in runs}),
        "samples": SAMPLES,
        DECLARED: _declared(devices[0].coefficients),
        "residuals": {device: report.to_json() for device, (_, report) in fits.items()},
    }
    names = ", ".join(sorted({run.network for run in runs}))
    provenance = f"measured by dse calibrate with {names} on {', '.join(d.name for d in devices)}, {dates[0][:10]}"
    units = {device.unit: fits[device.name][0] for device in devices}
    return Coefficients(type_.name, True, provenance, units, measured)


def _changes(lab: Lab, types: Sequence[Type], links: LinkCosts | None) -> dict[int, dict[str, str]]:
    """What the platform file is to say, by line."""
    keys = host_keys(lab.platform, links) if links else {}
    found = {line.number: dict(keys.get(line.host, {})) for line in Sheet(lab.text).lines}
    for type_ in types:
        for board in type_.boards:
            found[board.number]["coefficients"] = f"{type_.name}.json"
    return found
