"""From measurements to the coefficients of each type of device, one concept after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dse.calibrate.command import Lab, Measured, Type
from dse.calibrate.link_keys import unit_fields
from model.cluster import coefficients
from model.cluster.coefficients import UnitCost
from model.cluster.platform import Device
from model.cost.segment_time import Network
from model.fit import fitting
from model.fit.energy import Metered, metered, with_power
from model.fit.fitting import Report
from model.fit.link_costs import LinkCosts
from model.fit.sharing import Wires
from model.fit.stream import fit_stream
from model.fit.turn import fit_fill, fit_turn
from model.fit.waiting import fit_waiting
from runtime.reading import parsed

Alike = Mapping[str, tuple[str, str]]
"""Device → name of its type, and its unit."""
Fits = dict[str, dict[str, tuple[UnitCost, Report]]]
"""Type → device that was measured → its coefficients and their report."""


def declared(name: str) -> str:
    """The set that was there before any calibration, also where the one that a calibration wrote is of another version.

    A file's name is absolute: it is read again from wherever the calibration is gone on with.
    """
    found = name
    if Path(name).is_file():
        with suppress(ValueError, LookupError, TypeError):
            found = str(parsed(Path(name).read_bytes())["measured"]["declared"])
    return str(Path(found).resolve()) if Path(found).is_file() else found


def begun_with(device: Device) -> UnitCost:
    """What is taken where nothing is measured of a device; ``CleaveError`` where its set is none, or lacks the unit."""
    return coefficients.load(declared(device.coefficients)).unit(device.unit)


def labels(alike: Alike) -> dict[str, str]:
    """Devices that are taken together where messages are fitted."""
    return {device: " ".join(key) for device, key in alike.items()}


def stand_in(key: tuple[str, str], measured: Iterable[str]) -> str:
    """A type and unit as ``labels`` has them; where it is not among those that were measured, the first of these of
    the same unit, if there is one: what was measured of nobody would cost nothing."""
    own, like = " ".join(key), [label for label in measured if label.endswith(f" {key[1]}")]
    return like[0] if like and own not in like else own


@dataclass(frozen=True)
class Fitting:
    """What is fitted to. links: None where there is one device"""

    lab: Lab
    found: Measured
    alike: Alike
    links: LinkCosts | None

    def fits(self) -> Fits:
        """Computing and memory, then what messages cost besides, then power."""
        fits = {type_.name: self._of(type_) for type_ in self.found.types}
        if self.links:
            fits = self._with_waiting(fits, self.links)
        return self._with_power(fits)

    @cached_property
    def networks(self) -> dict[str, Network]:
        """By ``Run.network``."""
        return {cnn.graph.name: Network(cnn.graph) for cnn in self.lab.cnns}

    def _of(self, type_: Type) -> dict[str, tuple[UnitCost, Report]]:
        graphs = {name: network.graph for name, network in self.networks.items()}
        found: dict[str, tuple[UnitCost, Report]] = {}
        for device in (self.lab.platform.devices[index] for index in type_.devices):
            key = self.alike[device.name]
            runs = [replace(r, samples=r.evened) for r in self.found.runs[type_.name] if r.device == device.name]
            others = [
                [rank for run in turns for rank in run.ranks if self.alike.get(rank.device) == key]
                for turns in self.found.turns
            ]
            fit = fitting.fit(graphs, runs, replace(begun_with(device), threads=device.threads), others)
            looks = [run for run in self.found.looks if self.alike[run.device] == key]
            messages: dict[str, Any] = self._messages(key)
            part = fit.unit.busy_part
            unit = replace(fit.unit, turn_s=fit_turn(looks, part), fill_s_per_byte=fit_fill(looks, part), **messages)
            found[device.name] = (unit, fit.report)
        return found

    def _messages(self, key: tuple[str, str]) -> dict[str, float]:
        """What messages cost a type of device; nothing where there is one device."""
        return unit_fields(self.links, stand_in(key, self.links.devices)) if self.links else {}

    def _with_waiting(self, fits: Fits, links: LinkCosts) -> Fits:
        names = labels(self.alike)
        runs, units, platform = self.found.together, self._units(fits), self.lab.platform
        wires = Wires(links, platform.host_names, platform.memories)
        waiting = fit_waiting(runs, self.networks, units, wires, names, self.found.slowdowns)
        waiting = fit_stream(runs, self.networks, waiting, units, wires, names)
        seen = dict.fromkeys(names[rank.device] for run in runs for rank in run.ranks)
        like = {name: stand_in(key, seen) for name, key in self.alike.items()}
        return _changed(fits, lambda name, unit: replace(unit, **vars(waiting[like[name]])))

    def _with_power(self, fits: Fits) -> Fits:
        """Of machines with a meter, where all that was busy there is of one type."""
        machines, units = self.lab.platform.machines, self._units(fits)
        read = defaultdict[tuple[str, str], list[Metered]](list)
        for run in (*(run for runs in self.found.runs.values() for run in runs), *self.found.together):
            for device, each in metered(run, self.networks[run.network], units, machines):
                if len({self.alike[r.device] for r in run.ranks if machines[r.device] == machines[device]}) == 1:
                    read[self.alike[device]].append(each)
        return _changed(fits, lambda name, unit: with_power(unit, read[self.alike[name]]))

    def _units(self, fits: Fits) -> dict[str, UnitCost]:
        """Of all devices, by those that were measured."""
        of_key = {self.alike[name]: unit for of in fits.values() for name, (unit, _) in of.items()}
        return {device: of_key[key] for device, key in self.alike.items()}


def _changed(fits: Fits, change: Callable[[str, UnitCost], UnitCost]) -> Fits:
    """change: by the name of a device"""
    return {
        type_: {name: (change(name, unit), report) for name, (unit, report) in of.items()} for type_, of in fits.items()
    }
