"""Gauges of power and energy that a host has: INA3221 and INA238 through sysfs hwmon, RAPL through powercap.

A meter is named ``kind:what``, as in the platform file: ``ina3221:VDD_IN``, ``ina238:VDD_GPU``, ``rapl:package-0``,
``csv:/path``. Rails and domains joined by ``+`` are added up: ``rapl:package-0+dram``. Every failure is a
``CleaveError``.
"""

from __future__ import annotations

import glob
import os
import re
from typing import Callable, List, Tuple

from runtime.errors import CleaveError

SYS = "/sys"
CHIPS = ("ina3221", "ina238")
RAPL, CSV = "rapl", "csv"
KINDS = (*CHIPS, RAPL, CSV)
EXAMPLES = "ina3221:VDD_IN, rapl:package-0 or csv:/home/me/power.csv"

Samples = List[Tuple[float, float]]
"""Seconds of one clock, and watts (``Rails``) or joules since some moment (``Domains``)."""


def split(text: str) -> tuple[str, str]:
    """Kind of a meter, and which one of its kind. ``CleaveError`` where there cannot be such a meter."""
    kind, _, what = text.partition(":")
    if kind not in KINDS or not what:
        raise CleaveError(f"{text!r} is not a meter; write e.g. {EXAMPLES}")
    if kind == CSV and not what.startswith("/"):
        raise CleaveError(f"{text!r}: the path of the file on the host starts with /")
    if kind != CSV and not re.fullmatch(r"[A-Za-z0-9_.-]+(\+[A-Za-z0-9_.-]+)*", what):
        raise CleaveError(f"{what!r} is not a label, or labels joined by +; write e.g. {EXAMPLES}")
    return kind, what


class Rails:
    """Rails of INA chips: the sum of their watts."""

    def __init__(self, chip: str, labels: list[str], sys: str = SYS) -> None:
        rails = [rail for folder in _chips(chip, sys) for rail in _rails(folder)]
        if not rails:
            raise CleaveError(f"no {chip} with rails under {sys}: has the board one, and is its driver loaded?")
        self._reads = [_watts(_only(label, rails)) for label in labels]

    def read(self) -> float:
        """Watts now."""
        return sum(read() for read in self._reads)

    def joules(self, samples: Samples) -> float:
        """Energy between the first sample and the last."""
        return trapezoid(samples)


class Domains:
    """Domains of RAPL: the sum of their counters, which start again at zero every few minutes or hours."""

    def __init__(self, names: list[str], sys: str = SYS) -> None:
        folders = sorted(glob.glob(os.path.join(sys, "class/powercap/intel-rapl:*")))
        domains = [(_text(os.path.join(folder, "name")), folder) for folder in folders]
        if not domains:
            raise CleaveError(f"no RAPL domain under {sys}/class/powercap: has the host intel_rapl_common loaded?")
        self._counters = [Counter(_only(name, domains)) for name in names]

    def read(self) -> float:
        """Joules since this was made. Asked more often than a counter starts again (minutes), it misses nothing."""
        return sum(counter.joules() for counter in self._counters)

    def joules(self, samples: Samples) -> float:
        """Energy between the first sample and the last."""
        return samples[-1][1] - samples[0][1]


class Counter:
    """One ``energy_uj``, which returns to zero after ``max_energy_range_uj``."""

    def __init__(self, folder: str) -> None:
        self._file = os.path.join(folder, "energy_uj")
        self._range_uj = number(os.path.join(folder, "max_energy_range_uj"))
        self._last_uj, self._sum_uj = number(self._file), 0.0

    def joules(self) -> float:
        """Since this was made."""
        now_uj = number(self._file)
        gone_uj = now_uj - self._last_uj
        self._sum_uj += gone_uj + (self._range_uj if gone_uj < 0 else 0.0)
        self._last_uj = now_uj
        return self._sum_uj * 1e-6


def trapezoid(samples: Samples) -> float:
    """Joules under (seconds, watts), straight lines between. Time that goes back is a ``CleaveError``."""
    total = 0.0
    for (start, before), (stop, after) in zip(samples, samples[1:]):
        if stop < start:
            raise CleaveError(f"time goes back, from {start!r} to {stop!r} s: energy cannot be told")
        total += (stop - start) * (before + after) / 2
    return total


def number(path: str) -> float:
    """The number that a file of sysfs holds."""
    text = _text(path)
    if not re.fullmatch("-?[0-9]{1,20}", text):
        raise CleaveError(f"{path}: {text[:40]!r} is not a whole number")
    return float(text)


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except PermissionError:
        raise CleaveError(f"{path}: permission denied; let this user read it (chmod a+r as root)") from None
    except OSError as error:
        raise CleaveError(f"{path}: cannot be read: {error.strerror}") from None


def _chips(chip: str, sys: str) -> list[str]:
    """The hwmon folders of a kind of chip, each once. Under ``drivers`` they are on boards with JetPack."""
    found = glob.glob(os.path.join(sys, "class/hwmon/hwmon*"))
    found += glob.glob(os.path.join(sys, "bus/i2c/drivers", chip, "*/hwmon/hwmon*"))
    folders = sorted({os.path.realpath(folder) for folder in found})
    return [f for f in folders if os.path.exists(os.path.join(f, "name")) and _text(os.path.join(f, "name")) == chip]


def _rails(folder: str) -> list[tuple[str, str]]:
    """Label of each channel that has a current or a power, and the path up to its number.

    A channel without a label goes by that of its chip, or by ``in1``. A chip with one current counts voltages from 0:
    0 is over the shunt and 1 on the bus, so the numbers of voltage, current and power of a rail are the same.
    """
    rails = []
    for channel in range(1, 10):
        files = {kind: os.path.join(folder, f"{kind}{channel}_input") for kind in ("in", "curr", "power")}
        if os.path.exists(files["power"]) or (os.path.exists(files["in"]) and os.path.exists(files["curr"])):
            labels = (os.path.join(folder, name) for name in (f"in{channel}_label", "label"))
            label = next((_text(file) for file in labels if os.path.exists(file)), f"in{channel}")
            rails.append((label, os.path.join(folder, f"%s{channel}_input")))
    return rails


def _watts(pattern: str) -> Callable[[], float]:
    """What reads a rail: its power in uW where the driver has it, else mV times mA, which are uW too."""
    power, volts, amperes = (pattern.replace("%s", kind) for kind in ("power", "in", "curr"))
    if os.path.exists(power):
        return lambda: number(power) * 1e-6
    return lambda: number(volts) * number(amperes) * 1e-6


def _only(name: str, known: list[tuple[str, str]]) -> str:
    """The one path that goes by a name."""
    paths = [path for label, path in known if label == name]
    if len(paths) == 1:
        return paths[0]
    wrong = f"{len(paths)} are called {name!r}" if paths else f"nothing is called {name!r}"
    raise CleaveError(f"{wrong}; there are: {', '.join(label for label, _ in known)}")
