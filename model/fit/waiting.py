"""From runs on several devices to what messages cost a rank that waits for them, besides what they cost alone.

A rank that waits polls briefly and then sleeps (``runtime.communicator.wait``), so it notices a message after it has
come; and what it computes then takes longer than it would if the rank had computed all the time: its caches are cold,
its processor has slept. Or it takes less, where the processor has a share left over from its rest, or is a cooler one:
a part of the time, up to some seconds. What it computes while a message of its own leaves for another host takes
longer, too: kernel and MPI take the processor. So does what others read the same memory for
meanwhile (``model.cost.crowding``). All are fitted apart from computing, as seconds a message and seconds a byte; they
are what is left between measured times and those that are predicted without them. A processor's pace differs from run
to run by more than messages cost; it is fitted beside them. ``model.fit.stream`` goes on from here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from model.cluster.coefficients import UnitCost
from model.cost.crowding import crowded_bytes
from model.cost.rest import WARM_S, unrested_s
from model.cost.samples import Run, Sample, means_s, scatter_s
from model.cost.segment_time import Clock, Network
from model.fit.links import one_way_s
from model.fit.robust import FAR, LOST, loss, robust
from model.fit.sharing import Wires
from model.mappings.arrays import Floats
from model.network.graph import Graph

LEAST = 8
"""Messages, or segments, from which something is told."""
FAR_S = 2e-5
"""What is further off than usual counts less; so far off is usual in any case."""
COSTS = {
    "wake_s": "waits",
    "wake_s_per_byte": "came_bytes",
    "attend_s_per_byte": "leaving_bytes",
    "crowded_s_per_byte": "crowded_bytes",
}
"""What messages cost, and what of ``Longer`` that goes by."""
SCALE = np.array([1.0, 1e-9, 1e-9, 1e-9])
"""Near what is usual of each."""
PACE, OFF = 0.03, 0.05
"""A processor is at one time so much faster than at another; so far are long segments off in any case."""
KNEES = (0.0, 2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 16e-3)
"""Seconds of a segment from which on rest saves no more. The least of these is taken that leaves only ``LITTLE`` more
off than the best does: 0 where that explains little."""
LITTLE = 0.03
SAVED = 0.95
"""Of a segment's time, rest saves less than this part."""


@dataclass(frozen=True)
class Waiting:
    """Fields of ``coefficients.UnitCost``."""

    late_s: float = 0.0
    late_s_per_byte: float = 0.0
    wake_s: float = 0.0
    wake_s_per_byte: float = 0.0
    attend_s_per_byte: float = 0.0
    take_s_per_byte: float = 0.0
    turn_per_message_s: float = 0.0
    turn_s_per_byte: float = 0.0
    rested_part: float = 0.0
    rested_s: float = 0.0
    wake_busy_s: float = 0.0
    cold_s: float = 0.0
    cold_part: float = 0.0
    crowded_s_per_byte: float = 0.0

    def rest_saves(self, time_s: float) -> float:
        """Seconds, of a segment that began rested and took so long."""
        return unrested_s(time_s, self.rested_part, self.rested_s) - time_s


def fit_waiting(
    runs: Sequence[Run],
    networks: Mapping[str, Network],
    units: Mapping[str, UnitCost],
    wires: Wires,
    types: Mapping[str, str],
    slowdowns: Mapping[str, float] = {},
) -> dict[str, Waiting]:
    """By type of device, but for what only streams tell.

    units: device → what it computes at; types: device → its type, as the links of ``wires`` have them
    slowdowns: device → how many times as long it takes to compute, where that is not 1
    """
    late = by_type(_late(runs, wires, types), types)
    every = [Asked(run, run, frozenset(units)) for run in runs]
    asked = partial(_longer, networks=networks, units=units, slowdowns=slowdowns, wires=wires)
    longer = by_type(asked(every, begin=begin_rested), types)
    busier = by_type(asked(_of_processors(runs, units), begin=begin_cold), types)
    parts = parts_of(units, types)
    found = {
        name: Waiting(**_lateness(late[name]) | _more(longer[name]) | _busier(busier[name], parts[name]))
        for name in dict.fromkeys(types.values())
    }
    likely = attending(found, parts)
    return {name: _attending(each, longer[name], likely[name]) for name, each in found.items()}


def parts_of(units: Mapping[str, UnitCost], types: Mapping[str, str]) -> dict[str, float]:
    """By type of device, the part of a processor that it has, 0: nobody knows."""
    return {types[device]: unit.busy_part or 0.0 for device, unit in units.items()}


def attending(found: Mapping[str, Waiting], parts: Mapping[str, float]) -> dict[str, float]:
    """By type of device, seconds that attending to a byte may take: as much processor time as it takes any of them, on
    the part of a processor that this one has; of whose part nobody knows says for itself. parts: as ``parts_of``"""
    most_s = max((each.attend_s_per_byte * parts[name] for name, each in found.items()), default=0.0)
    return {name: most_s / parts[name] if parts[name] else each.attend_s_per_byte for name, each in found.items()}


def _attending(found: Waiting, rows: Sequence[Longer], likely: float) -> Waiting:
    """Attending to a byte that leaves takes what another type lets expect, where few leave while a device of this one
    computes."""
    of = _columns(rows)
    known = float(np.square(of["leaving_bytes"] * likely / of["error_s"]).sum())
    return replace(found, attend_s_per_byte=(known * found.attend_s_per_byte + likely) / (known + 1.0))


class Late(NamedTuple):
    """A message: 1, its bytes, and by how much it is late."""

    one: float
    size_bytes: float
    late_s: float


class Asked(NamedTuple):
    """A run as it was, the same with seconds of segments that are asked for, and the devices these are known of."""

    was: Run
    run: Run
    devices: frozenset[str]


class Longer(NamedTuple):
    """A segment.

    run: its number; alone_s: what it takes alone; begins: whether it begins in the way that is asked for; idle_s: how
    long its device has not computed before; waits, came_bytes: whether it waits for messages, and bytes of these;
    leaving_bytes: that leave while it is computed; crowded_bytes: of weights beside which others are read; error_s: how
    well it is known; time_s: what it takes
    """

    run: float
    alone_s: float
    begins: float
    idle_s: float
    waits: float
    came_bytes: float
    leaving_bytes: float
    crowded_bytes: float
    error_s: float
    time_s: float


class Fitted(NamedTuple):
    """How segments take longer.

    messages: by field of ``COSTS``; begins: by how they begin, for each of its columns; off, usual: what is left, and
    how far most of that is; runs: how many, the paces of which ``off`` begins with
    """

    messages: dict[str, float]
    begins: list[float]
    off: Floats
    usual: float
    runs: int

    def lost(self, usual: float) -> float:
        """How much is left in all. usual: how far most segments are off"""
        return loss(np.append(self.off[: self.runs], self.off[self.runs :] / usual))


T = TypeVar("T")


def by_type(rows: Sequence[tuple[str, T]], types: Mapping[str, str]) -> dict[str, list[T]]:
    """What there is of each device, by its type."""
    found = defaultdict[str, list[T]](list)
    for device, row in rows:
        found[types[device]].append(row)
    return found


def _late(runs: Sequence[Run], wires: Wires, types: Mapping[str, str]) -> list[tuple[str, Late]]:
    """Messages, by who receives them. Those that nobody waits for are noticed when looked for."""
    found = []
    for message in (message for run in runs for message in run.arrivals):
        way, ends = wires.way(message.source, message.target), (types[message.source], types[message.target])
        alone_s = one_way_s(wires.links, way, *ends, message.size_bytes)
        late_s = 0.0 if message.took_s is None else message.took_s - alone_s
        found.append((message.target, Late(1.0, message.size_bytes, late_s)))
    return found


def _longer(
    runs: Sequence[Asked],
    networks: Mapping[str, Network],
    units: Mapping[str, UnitCost],
    slowdowns: Mapping[str, float],
    wires: Wires,
    begin: Callable[[Run, Graph], set[int]],
) -> list[tuple[str, Longer]]:
    """Segments, by device. begin: which of a run's begin in the way that is asked for"""
    found = []
    for number, (was, run, devices) in enumerate(runs):
        network, sizes = networks[run.network], defaultdict[int, list[int]](list)
        divided = network.divided(part for sample in run.samples for part in sample.parts)
        for message in run.arrivals:
            if message.sample is not None:
                sizes[message.sample].append(message.size_bytes)
        clocks = {name: Clock(network, units[name]) for name in {sample.device for sample in run.samples}}
        leaving, crowded = wires.leaving(run), crowded_bytes(network.weights, run.samples, wires.memories)
        begun, means, idle = begin(run, network.graph), means_s(run.samples), idle_s(was)
        scatter = {name: scatter_s([s for s in run.samples if s.device == name]) for name in clocks}
        for index, sample in ((k, each) for k, each in enumerate(run.samples) if each.device in devices):
            slower, come = slowdowns.get(sample.device, 1.0), sizes[index]
            alone_s = clocks[sample.device].seconds(sample.parts, divided) * slower
            error_s = float(np.hypot(OFF * alone_s + FAR_S, np.sqrt(scatter[sample.device] * alone_s)))
            row = Longer(
                run=number,
                alone_s=alone_s,
                begins=index in begun,
                idle_s=idle[index],
                waits=bool(come),
                came_bytes=sum(come),
                leaving_bytes=leaving[index],
                crowded_bytes=crowded[index],
                error_s=error_s,
                time_s=float(means[index]),
            )
            found.append((sample.device, row))
    return found


def idle_s(run: Run) -> list[float]:
    """Seconds before each segment in which its device has not computed, where frames follow one another; 0: unknown."""
    found, means = [0.0] * len(run.samples), means_s(run.samples)
    ends, firsts = dict[str, float](), dict[str, int]()
    for index, sample in enumerate(run.samples):
        if sample.begin_s is not None:
            firsts.setdefault(sample.device, index)
            found[index] = sample.begin_s - ends.get(sample.device, sample.begin_s)
            ends[sample.device] = sample.begin_s + float(means[index])
    for device, index in firsts.items():
        found[index] = run.time_s - ends[device] + (run.samples[index].begin_s or 0.0)
    return [max(each, 0.0) for each in found]


def _of_processors(runs: Sequence[Run], units: Mapping[str, UnitCost]) -> list[Asked]:
    """Runs as if processors that tell what they were at had never rested: segments take as long as they do then."""
    parts = {device: unit.busy_part for device, unit in units.items() if unit.busy_part}

    def tireless_s(sample: Sample, devices: frozenset[str]) -> float:
        return (sample.busy_s or 0.0) / parts[sample.device] if sample.device in devices else sample.time_s

    found = []
    for run in runs:
        devices = run.telling & parts.keys()
        samples = tuple(replace(sample, times_s=(tireless_s(sample, devices),)) for sample in run.samples)
        found.append(Asked(run, replace(run, samples=samples), devices))
    return found


def begin_rested(run: Run, graph: Graph) -> set[int]:
    """The segments that begin rested, as ``rest.begins_rested`` has it: which of the samples they are."""
    first = {sample.device: index for index, sample in reversed(list(enumerate(run.samples)))}
    last = graph.producer.get(graph.outputs[-1])
    makers = [(part.start, sample.device) for sample in run.samples for part in sample.parts if part.layer == last]
    ends = min(makers, default=(0, ""))[1]
    waited = {message.sample for message in run.arrivals if message.sample is not None}
    return waited | {index for device, index in first.items() if device != ends}


def begin_cold(run: Run, graph: Graph) -> set[int]:
    """The segments before which their device has not computed: all but the first of a device that ended the frame
    before and waits for nothing."""
    first = {sample.device: index for index, sample in reversed(list(enumerate(run.samples)))}
    return begin_rested(run, graph) | set(range(len(run.samples))) - set(first.values())


def _lateness(rows: Sequence[Late]) -> dict[str, float]:
    """Seconds a message and seconds a byte by which messages are late, as fields of ``Waiting``; none where too few
    were seen."""
    if len(rows) < LEAST:
        return {}
    *of_message, late_s = np.array(rows, dtype=np.float64).T
    x, _ = robust(np.column_stack(of_message) * SCALE[:2] / FAR_S, late_s / FAR_S)
    return dict(zip(("late_s", "late_s_per_byte"), (SCALE[:2] * x).tolist(), strict=True))


def _busier(rows: Sequence[Longer], part: float) -> dict[str, float]:
    """For how much longer a processor is at segments, as fields of ``Waiting``, by rows of it alone: kernel and MPI
    are at bytes elsewhere. part: of the time that computing takes, in which it is at it
    """
    of = _columns([row._replace(came_bytes=0.0, leaving_bytes=0.0) for row in rows])
    if _too_few(of):
        return {}
    chilled = np.minimum(of["alone_s"], WARM_S / part) if part else of["alone_s"]
    cold = np.hstack([np.sqrt(chilled * FAR_S), of["idle_s"]]) * of["begins"]
    found = _fitted(of, cold)
    often, waited = found.begins
    wake_s = part * found.messages["wake_s"]
    return {"wake_busy_s": wake_s, "cold_s": part * often**2 * FAR_S, "cold_part": part * waited}


def _more(rows: Sequence[Longer]) -> dict[str, float]:
    """What segments take longer by messages that come, bytes that leave and weights that others read beside, and what
    those save that have waited, as fields of ``Waiting``; none where too few were seen."""
    of = _columns(rows)
    if _too_few(of):
        return {}
    fits = {knee: _fitted(of, -np.minimum(of["alone_s"], knee) * of["begins"]) for knee in KNEES}
    usual = fits[KNEES[0]].usual
    lost = {knee: found.lost(usual) for knee, found in fits.items() if found.begins[0] < SAVED}
    knee = next(knee for knee, off in lost.items() if off <= (1 + LITTLE) * min(lost.values()))
    (saved,) = fits[knee].begins
    return fits[knee].messages | {"rested_part": saved, "rested_s": saved * knee}


def _columns(rows: Sequence[Longer]) -> dict[str, Floats]:
    """By field of ``Longer``, (n, 1) each."""
    table = np.array(rows, dtype=np.float64).reshape(-1, len(Longer._fields))
    return dict(zip(Longer._fields, np.split(table, table.shape[1], axis=1), strict=True))


def _too_few(of: Mapping[str, Floats]) -> bool:
    """Whether fewer segments have messages than tell something."""
    return int(np.count_nonzero(np.hstack([of[name] for name in COSTS.values()]).any(axis=1))) < LEAST


def _fitted(of: Mapping[str, Floats], begin: Floats) -> Fitted:
    """By least squares. Beside them the pace of each run is fitted, near 1 by ``PACE``.

    of: fields of ``Longer``, (n, 1) each; begin: what goes by how they begin, (n, ways)
    """
    of_run = of["run"] == np.unique(of["run"])
    runs, error = of_run.shape[1], of["error_s"]
    messages = np.hstack([of[name] for name in COSTS.values()]) * SCALE
    seen = np.hstack([of_run * of["alone_s"], messages, begin]) / error
    lines = np.vstack([np.eye(runs, seen.shape[1]) / PACE, seen])
    values = np.concatenate([np.full(runs, 1 / PACE), (of["time_s"] / error)[:, 0]])
    x, usual = robust(lines, values, runs, FAR, LOST)
    cost, begins = np.split(x[runs:], [len(SCALE)])
    found = dict(zip(COSTS, (SCALE * cost).tolist(), strict=True))
    return Fitted(found, begins.tolist(), lines @ x - values, usual, runs)
