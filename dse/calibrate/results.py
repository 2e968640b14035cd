"""What becomes of measurements: a coefficient file for each type of device, and a platform file that names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dse.calibrate.command import SAMPLES, Lab, Measured, Type, alike_devices
from dse.calibrate.fits import Fitting, declared, labels
from dse.calibrate.link_keys import host_keys
from model.cluster.coefficients import Coefficients, UnitCost
from model.cluster.origin import Origin
from model.cluster.platform_edit import edited
from model.cluster.platform_file import SLOWDOWN, Sheet
from model.cost.samples import Run
from model.fit import links as link_fit
from model.fit.fitting import Report
from model.fit.link_costs import LinkCosts
from runtime.frames import save_text


@dataclass(frozen=True)
class Result:
    """What was found. reports: device → what its fit says of itself; links: None where there is one device"""

    sets: tuple[Coefficients, ...]
    reports: dict[str, Report]
    links: LinkCosts | None
    platform: str


def result(lab: Lab, measured: Measured) -> Result:
    """Fit all that was measured."""
    alike = alike_devices(lab.platform, measured.types)
    links = link_fit.fit(measured.links, labels(alike), lab.seed) if measured.links else None
    fits = Fitting(lab, measured, alike, links).fits()
    reports = {device: report for of in fits.values() for device, (_, report) in of.items()}
    sets = tuple(_set(lab, type_, measured.runs[type_.name], fits[type_.name]) for type_ in measured.types)
    return Result(sets, reports, links, edited(lab.text, _changes(lab, measured, links)))


def write(out: Path, platform: str, found: Result) -> None:
    """The files, each all or nothing, the one that names the others last. platform: name of that file"""
    for each in found.sets:
        save_text(str(out / f"{each.name}.json"), each.to_json())
    save_text(str(out / platform), found.platform)


def _set(
    lab: Lab,
    type_: Type,
    runs: Sequence[Run],
    fits: Mapping[str, tuple[UnitCost, Report]],
) -> Coefficients:
    devices = [lab.platform.devices[device] for device in type_.devices]
    dates = sorted(run.date for run in runs)
    origin = Origin(
        date=(dates[0], dates[-1]),
        hosts=tuple(sorted({run.host for run in runs})),
        devices=tuple(alike_devices(lab.platform, [type_])),
        commands=tuple(sorted({run.command for run in runs})),
        samples=SAMPLES,
        declared=declared(devices[0].coefficients),
        networks={run.network: run.model for run in runs},
        conditions=runs[0].conditions,
        providers={device.unit: device.provider for device in devices},
        residuals={device: report.to_json() for device, (_, report) in fits.items()},
    )
    names = ", ".join(sorted({run.network for run in runs}))
    provenance = f"measured by dse calibrate with {names} on {', '.join(d.name for d in devices)}, {dates[0][:10]}"
    units = {device.unit: fits[device.name][0] for device in devices}
    return Coefficients(type_.name, True, provenance, units, origin)


def _changes(lab: Lab, measured: Measured, links: LinkCosts | None) -> dict[int, dict[str, str]]:
    """What the platform file is to say, by line. A slowdown of earlier coefficients is none of these."""
    keys = host_keys(lab.platform, links) if links else {}
    lines = Sheet(lab.text).lines
    found = {line.number: dict(keys.get(line.host, {})) for line in lines}
    for line in lines:
        found[line.number] |= {key: "1" for key in SLOWDOWN.values() if key in line.fields}
    for type_ in measured.types:
        for board in type_.boards:
            found[board.number]["coefficients"] = f"{type_.name}.json"
            for device in (lab.platform.devices[number] for number in board.devices):
                if device.name in measured.slowdowns:
                    found[board.number][SLOWDOWN[device.unit]] = f"{measured.slowdowns[device.name]:g}"
    return found
