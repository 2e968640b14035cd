"""The log of an external power meter: a CSV file with a column of time and a column of power, each with its unit.

The first line names the columns, ``time_s,power_W`` or with the units below; columns of other names are left alone.
Time is that of the clock of the host that holds the file, in Unix time (since 1970), and never goes back.
"""

from __future__ import annotations

import math

from runtime.errors import CleaveError
from runtime.meter import Samples

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
WATTS = {"W": 1.0, "mW": 1e-3, "uW": 1e-6}


def read_log(path: str) -> Samples:
    """All samples, (Unix seconds, watts). A last line that is not yet written to its end is left out."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = file.read().splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise CleaveError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}") from None
    if lines and not lines[-1].endswith(("\n", "\r")):
        lines.pop()
    names = [name.strip() for name in lines[0].split(",")] if lines else []
    time, second = _column(path, names, "time", SECONDS)
    power, watt = _column(path, names, "power", WATTS)
    samples: Samples = []
    for line, text in enumerate(lines[1:], start=2):
        if not text.strip():
            continue
        cells = text.split(",")
        if len(cells) != len(names):
            raise CleaveError(f"{path}:{line}: {len(cells)} columns, but the first line names {len(names)}")
        samples.append((_value(path, line, cells[time]) * second, _value(path, line, cells[power]) * watt))
        if len(samples) > 1 and samples[-1][0] < samples[-2][0]:
            raise CleaveError(f"{path}:{line}: time goes back")
    return samples


def within(samples: Samples, start_s: float, stop_s: float) -> Samples:
    """The samples from ``start_s`` to ``stop_s``, with one at each end between its neighbours.

    Raises ``CleaveError`` where the samples do not reach from one to the other.
    """
    if not samples or samples[0][0] > start_s or samples[-1][0] < stop_s:
        span = f"from {samples[0][0]:.3f} to {samples[-1][0]:.3f} s" if samples else "nothing"
        raise CleaveError(f"it has {span}, the frames were from {start_s:.3f} to {stop_s:.3f} s (Unix time)")
    inner = [sample for sample in samples if start_s < sample[0] < stop_s]
    return [(start_s, _at(samples, start_s)), *inner, (stop_s, _at(samples, stop_s))]


def _at(samples: Samples, time_s: float) -> float:
    """Watts at a time, on the straight line between its neighbours."""
    after = next(i for i, sample in enumerate(samples) if sample[0] >= time_s)
    (t1, p1), (t0, p0) = samples[after], samples[max(after - 1, 0)]
    return p1 if t1 == t0 else p0 + (p1 - p0) * (time_s - t0) / (t1 - t0)


def _column(path: str, names: list[str], quantity: str, units: dict[str, float]) -> tuple[int, float]:
    """Where the column of a quantity is, and what its unit is worth."""
    known = {f"{quantity}_{unit}": worth for unit, worth in units.items()}
    found = [name for name in names if name in known]
    if len(found) != 1:
        wrong = f"has {len(found)} columns of {quantity}" if found else f"has no column of {quantity}"
        raise CleaveError(f"{path}:1: {wrong} ({' or '.join(known)}), only: {', '.join(names)[:100] or 'nothing'}")
    return names.index(found[0]), known[found[0]]


def _value(path: str, line: int, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise CleaveError(f"{path}:{line}: {cell.strip()[:40]!r} is not a number")
    return value
