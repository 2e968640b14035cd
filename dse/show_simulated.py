"""``dse simulate`` for a person and for machines."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from dse import show, show_price
from dse.evaluation import OBJECTIVES
from dse.units import UNITS, shown
from model.cluster.platform import Platform
from model.cost.confidence import Expected
from model.cost.links import links
from model.simulator.bounds import (
    ALL,
    BANDWIDTH,
    COMPUTE,
    COPIES,
    HAND_OVER,
    LATENCY,
    RECEIVE,
    REST,
    SPEED,
    TRANSFER,
    TURN,
    Gain,
    Held,
    shares,
)
from model.simulator.simulated import Simulated
from model.simulator.ticks import TICK_S
from runtime.bench import Bench

LONGEST = 6
"""Rows of what is long on the critical path."""
GAINS = 12
BUSY = 0.95
"""Part of its time from which on a device or link is what a stream cannot do without."""
FULL = 1.005
"""Shown as more than all of its time."""
LEAST = 1e-5
"""Changes that are less than this part of latency and period are not worth a line."""
WORDS = {
    COMPUTE: ("computing", "on {}"),
    RECEIVE: ("receiving messages", "on {}"),
    HAND_OVER: ("handing over messages", "on {}"),
    TRANSFER: ("bytes", "on the link {}"),
    LATENCY: ("latency", "of the link {}"),
    REST: ("rest before the frame", "of {}"),
    TURN: ("from one frame to the next", "on {}"),
}
MORE = {
    SPEED: ("1 % more speed of {}", "all devices", "+{:.3g} GFLOP/s", 1e-9),
    BANDWIDTH: ("1 % more bandwidth of {}", "all links", "+{:.3g} Mbit/s", 8e-6),
    LATENCY: ("1 % less latency of {}", "all links", "-{:.3g} us", 1e6),
    COPIES: ("1 % faster copies within {}", "every host", "+{:.3g} Mbit/s", 8e-6),
}
"""What there is more of, the words for all of them, how much, and the factor from SI."""


@dataclass(frozen=True)
class Look:
    """All that there is to say of a simulated mapping.

    latency, period: what their critical paths are made of; gains: what more of something would buy
    measured, predicted: the same bundle's figures, where somebody measured them
    expected_error: see ``model.cost.confidence``
    """

    found: Simulated
    platform: Platform
    latency: list[Held]
    period: list[Held]
    gains: list[Gain]
    predicted: Bench
    measured: Bench | None = None
    expected_error: Expected | None = None

    @property
    def links(self) -> list[dict[str, Any]]:
        """A row for each link in use."""
        return self.found.links(links(self.platform)[2])


def body(look: Look) -> dict[str, Any]:
    """``dse simulate --json``."""
    price, analytical = look.found.price, look.found.analytical
    return {
        "latency_s": price.latency_s,
        "period_s": price.period_s if look.found.stream else None,
        "frames": look.found.stream.frames - look.found.warmup if look.found.stream else 1,
        "warmup": look.found.warmup if look.found.stream else 0,
        "energy_j": price.energy_j,
        "memory_bytes": price.memory_bytes,
        "fits": price.fits,
        "calibrated": not show.uncalibrated(look.platform),
        "expected_error": look.expected_error and asdict(look.expected_error),
        "analytical": {"latency_s": analytical.latency_s, "period_s": analytical.period_s},
        "devices": look.found.devices(look.platform),
        "links": look.links,
        "latency_bounds": _rows(look.latency),
        "latency_path": [_part(part) for part in look.latency],
        "period_bounds": _rows(look.period, look.found.counted),
        "gains": [asdict(gain) for gain in look.gains],
        "measured": look.measured and _figures(look.measured),
    }


def _rows(path: list[Held], frames: int = 1) -> list[dict[str, Any]]:
    """What a path of so many frames is made of, a frame."""
    whole = sum(part.ticks for part in path)
    return [
        {"category": category, "where": where, "time_s": ticks * TICK_S / frames, "share": ticks / whole}
        for category, where, ticks in shares(path)
    ]


def _part(part: Held) -> dict[str, Any]:
    """In seconds."""
    about = {name: getattr(part, name) for name in ("category", "where", "what")}
    return about | {"start_s": part.start * TICK_S, "time_s": part.time_s}


def _figures(found: Bench) -> dict[str, Any]:
    return {"latency_s": found.latency_s, "period_s": found.period_s}


def simulated(console: Console, look: Look) -> None:
    """``dse simulate``."""
    _totals(console, look)
    _devices(console, look)
    _links(console, look)
    show_price.device_memory(console, look.found.devices(look.platform))
    _bounds(console, look)
    _gains(console, look)
    if look.measured:
        _compared(console, look, look.measured)
    show.warn_expected(console, look.platform, look.expected_error)


def _totals(console: Console, look: Look) -> None:
    price, stream = look.found.price, look.found.stream
    values = (price.latency_s, price.energy_j, price.memory_bytes, price.period_s)
    for objective, value in zip(OBJECTIVES, values, strict=True):
        text = shown(objective, value)
        if objective == "period_s" and stream:
            text += f", {1 / value:.1f} frames a second" if value else ""
            text += f" ({stream.frames - look.found.warmup} frames after {look.found.warmup})"
        elif objective == "period_s":
            text += " by the analytical model (busiest device, link or circle; more --frames are simulated)"
        show.line(console, f"{UNITS[objective][0]:28} {text}")
    analytical = look.found.analytical
    show.line(console, f"{'by the analytical model':28} latency {shown('latency_s', analytical.latency_s)}, "
              f"period {shown('period_s', analytical.period_s)}")  # fmt: skip
    if not price.fits:
        show.line(console, "does NOT fit the devices' memory")


def _devices(console: Console, look: Look) -> None:
    cells = [
        [
            r["device"],
            *[_ms(r[k]) for k in ("compute_s", "message_s", "wait_s")],
            _share(r["busy"]),
            f"{r['energy_j']:.3g}",
        ]
        for r in look.found.devices(look.platform)
    ]
    headers = ["device", "compute ms", "messages ms", "wait ms", "busy in stream", "energy J"]
    show.line(console, "")
    console.print(show.table(headers, cells))


def _links(console: Console, look: Look) -> None:
    cells = [
        [
            r["link"],
            r["messages"],
            f"{r['bytes'] / 1e6:.3g}",
            *[_ms(r[k]) for k in ("busy_s", "queued_s", "stream_queued_s")],
            _share(r["busy"]),
        ]
        for r in look.links
    ]
    if cells:
        headers = ["link", "messages", "MB", "busy ms", "queued ms", "queued in stream", "busy in stream"]
        show.line(console, "")
        console.print(show.table(headers, cells))


def _bounds(console: Console, look: Look) -> None:
    """What latency and period are made of, and what is longest."""
    for name, path, frames in (("latency", look.latency, 1), ("period", look.period, look.found.counted)):
        rows = _rows(path, frames)
        if not rows:
            continue
        first = rows[0]
        words = _held_by(first["category"], first["where"])
        show.line(console, f"\nthe {name} is bound by {words}: {first['share']:.0%} of its critical path")
        show.line(console, f"in all: {_in_all(rows)}")
        cells = [[_held_by(r["category"], r["where"]), _ms(r["time_s"]), f"{r['share']:.1%}"]
                 for r in rows[:LONGEST]]  # fmt: skip
        console.print(show.table([f"the {name} is", "ms", "of it"], cells), markup=False)
    if look.period:
        show.line(console, _busiest(look))
    longest = sorted(look.latency, key=lambda part: (-part.ticks, part.start))[:LONGEST]
    cells = [[part.what, _held_by(part.category, part.where), _ms(part.time_s)] for part in longest]
    show.line(console, "")
    console.print(show.table(["longest on the latency's path", "", "ms"], cells, text=2), markup=False)


def _held_by(category: str, where: str) -> str:
    what, place = WORDS[category]
    return f"{what} {place.format(where)}"


def _in_all(rows: list[dict[str, Any]]) -> str:
    """The parts of a path by category, wherever they are."""
    sums: dict[str, float] = {}
    for row in rows:
        sums[row["category"]] = sums.get(row["category"], 0.0) + row["share"]
    ordered = sorted(sums.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{WORDS[category][0]} {share:.1%}" for category, share in ordered)


def _busiest(look: Look) -> str:
    """What a stream uses most, and whether more than that is in its way."""
    rows = [(r["busy"], r["device"]) for r in look.found.devices(look.platform)]
    busy, name = max([*rows, *((r["busy"], f"the link {r['link']}") for r in look.links)])
    if busy >= BUSY:
        ahead = ", as some of it was done before the first of the frames that count; more --frames come closer"
        return f"busiest in the stream is {name}: {busy:.0%}{ahead if busy > FULL else ''}"
    return (f"busiest in the stream is {name}, {busy:.0%}: the period is longer because a device "
            "begins a frame only when it is done with the last one")  # fmt: skip


def _gains(console: Console, look: Look) -> None:
    """What 1 % more would buy."""
    price, cells = look.found.price, []
    for gain in look.gains:
        changes = [gain.latency_s / price.latency_s if price.latency_s else 0.0,
                   gain.period_s / price.period_s if price.period_s else 0.0]  # fmt: skip
        if max(map(abs, changes)) >= LEAST:
            cells.append([*_words(gain), *[f"{change:+.3%}" for change in changes]])
    if cells:
        show.line(console, "")
        console.print(show.table(["what it would buy", "", "latency", "period"], cells[:GAINS], text=2), markup=False)


def _words(gain: Gain) -> tuple[str, str]:
    words, everything, amount, factor = MORE[gain.what]
    one = f"the link {gain.where}" if gain.what in (BANDWIDTH, LATENCY) else gain.where
    where = everything if gain.where == ALL else one
    return words.format(where), "" if gain.amount is None else amount.format(gain.amount * factor)


def _compared(console: Console, look: Look, measured: Bench) -> None:
    """Predicted and measured, side by side."""
    predicted, found = look.predicted, look.found
    period_s = found.price.period_s if found.stream else None
    busy = {row["device"]: row["busy_s"] for row in found.devices(look.platform)}
    pairs = [("latency", predicted.latency_s, measured.latency_s), ("period", period_s, measured.period_s)]
    for a, b in zip(predicted.ranks, measured.ranks, strict=True):
        pairs += [
            (f"{a.device}: compute", a.compute_s, b.compute_s),
            (f"{a.device}: of it busy", busy[a.device], b.busy_s),
            (f"{a.device}: wait", a.wait_s, b.wait_s),
        ]
    cells = [
        [name, _ms(a), _ms(b), f"{a / b - 1:+.0%}" if b else ""]
        for name, a, b in pairs
        if a is not None and b is not None
    ]
    show.line(console, "")
    console.print(show.table(["", "predicted ms", "measured ms", "off by"], cells), markup=False)


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.2f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
