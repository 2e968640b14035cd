"""Quantities as people write them, ``8GB`` or ``0.1ms``, turned into SI numbers once, where they are read.

A quantity is a plain decimal number and a unit, with or without a space between. Units are case-sensitive and exact:
``k M G`` are powers of 1000, ``Ki Mi Gi`` powers of 1024, ``B`` is a byte, and a bit is only ever written ``bit``.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Literal

from runtime.errors import CleaveError

Dimension = Literal["bandwidth", "size", "time", "power"]

UNITS: dict[Dimension, dict[str, str]] = {
    "bandwidth": {
        "kbit/s": "125",
        "Mbit/s": "125e3",
        "Gbit/s": "125e6",
        "kB/s": "1e3",
        "MB/s": "1e6",
        "GB/s": "1e9",
    },
    "size": {
        "B": "1",
        "kB": "1e3",
        "MB": "1e6",
        "GB": "1e9",
        "KiB": "1024",
        "MiB": "1048576",
        "GiB": "1073741824",
    },
    "time": {"s": "1", "ms": "1e-3", "us": "1e-6"},
    "power": {"W": "1", "mW": "1e-3"},
}
"""Unit → its exact worth in bytes/s, bytes, seconds or watts, as a decimal number."""

EXAMPLES: dict[Dimension, str] = {"bandwidth": "1Gbit/s", "size": "8GB", "time": "0.1ms", "power": "10W"}
LARGEST = 1e18
"""Nothing real is larger in SI units; and it fits 64-bit integers."""

_QUANTITY = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*(.*)", re.DOTALL)
_AMBIGUOUS = re.compile(r"([kKMG])b(?:ps|/s)?")


def parse(text: str, dimension: Dimension) -> float:
    """The value of ``text`` in SI: bytes/s, bytes, seconds or watts; zero or more, and finite.

    ``parse("1Gbit/s", "bandwidth") == 125e6``. Raises CleaveError when ``text`` is anything but a number and a unit.
    """
    text = text.strip()
    match = _QUANTITY.fullmatch(text)
    if match is None:
        wrong = "is negative" if re.match("- *[0-9]", text) else "is not a number with a unit"
        raise CleaveError(f"{text!r} {wrong}; write e.g. {EXAMPLES[dimension]}")
    number, unit = match.groups()
    if unit not in UNITS[dimension]:
        raise CleaveError(f"{text!r} {_wrong_unit(unit, dimension)}")
    value = float(Decimal(number) * Decimal(UNITS[dimension][unit]))
    if value > LARGEST:
        raise CleaveError(f"{text!r} is too large")
    return value


def positive(text: str, dimension: Dimension) -> float:
    """As `parse`, and more than zero."""
    value = parse(text, dimension)
    if value == 0:
        raise CleaveError(f"{text.strip()!r} must be more than zero")
    return value


def _wrong_unit(unit: str, dimension: Dimension) -> str:
    """What is wrong with a unit that the dimension does not know."""
    ambiguous = _AMBIGUOUS.fullmatch(unit)
    if ambiguous and dimension in ("bandwidth", "size"):
        prefix = ambiguous[1].replace("K", "k")
        right = (
            f"{prefix}bit/s for bits or {prefix}B/s for bytes" if dimension == "bandwidth" else f"{prefix}B for bytes"
        )
        return f"has the ambiguous unit {unit!r}: write {right}"
    known = ", ".join(UNITS[dimension])
    return f"has the unknown unit {unit!r}; known: {known}" if unit else f"has no unit; known: {known}"
