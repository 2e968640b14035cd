"""From runs on several devices to what messages cost a rank that waits for them, besides what they cost alone.

A rank that waits polls briefly and then sleeps (``runtime.communicator.wait``), so it notices a message after it has
come; and what it computes then takes longer than it would if the rank had computed all the time: its caches are cold,
its processor has slept. Or it takes less, where the processor has a share left over from its rest, or is a cooler one:
a part of the time, up to some seconds. What it computes while a message of its own leaves for another host takes
longer, too: kernel and MPI take the processor. So does what others read the same memory for
meanwhile (``model.crowding``). All are fitted apart from computing, as seconds a message and seconds a byte; they are
what is left between measured times and those that are predicted without them. A processor's pace differs from run to
run by more than messages cost; it is fitted beside them. ``model.fit_stream`` goes on from here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy import sparse

from model.arrays import Floats
from model.coefficients import UnitCost
from model.crowding import crowded_bytes
from model.graph import Graph
from model.least_squares import nonnegative
from model.link_costs import LinkCosts
from model.link_fit import one_way_s
from model.samples import Arrival, Run, means_s, scatter_s
from model.segment_time import Clock, Network, unrested_s

LEAST = 8
"""Messages, or segments, from which something is told."""
ROUNDS = 6
FAR_S = 2e-5
"""What is further off than usual counts less; so far off is usual in any case."""
FAR, LOST = 5.0, 20.0
"""Of segments only what is so many times further off: a short one is held up rarely, but then by more than it takes,
and frames have many of them. What is still further off does not count: something else happened."""
SCALE = np.array([1.0, 1e-9, 1e-9, 1e-9])
PACE, OFF = 0.03, 0.05
"""A processor is at one time so much faster than at another; so far are long segments off in any case."""
KNEES = (0.0, 2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 16e-3)
"""Seconds of a segment from which on rest saves no more, or cold caches cost no more. The least of these is taken that
leaves only ``LITTLE`` more off than the best does: 0 where that explains little."""
IDLE = (0.0, 2.5e-4, 1e-3, 4e-3, 16e-3)
"""Seconds of a wait after which caches are half as cold as after a long one. The least is taken, as of ``KNEES``."""
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
    rested_part: float = 0.0
    rested_s: float = 0.0
    wake_busy_s: float = 0.0
    cold_part: float = 0.0
    cold_s: float = 0.0
    cold_wait_s: float = 0.0
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
) -> dict[str, Waiting]:
    """By type of device, but for what only streams tell.

    units: device → what it computes at; types: device → its type, as the links of ``wires`` have them
    """
    late = by_type(_late(runs, wires.links, types), types)
    longer = by_type(_longer([(run, run) for run in runs], networks, units, wires, begin_rested), types)
    busier = by_type(_longer(_of_processors(runs, units), networks, units, wires, begin_cold), types)
    parts = {types[device]: unit.busy_part or 0.0 for device, unit in units.items()}
    return {
        name: Waiting(**_lateness(late[name]) | _more(longer[name]) | _busier(busier[name], parts[name]))
        for name in dict.fromkeys(types.values())
    }


Row = tuple[str, tuple[float, ...]]
"""Device, then figures, the last of which are seconds."""


def by_type(rows: Sequence[Row], types: Mapping[str, str]) -> dict[str, list[tuple[float, ...]]]:
    found = defaultdict[str, list[tuple[float, ...]]](list)
    for device, figures in rows:
        found[types[device]].append(figures)
    return found


def _late(runs: Sequence[Run], links: LinkCosts, types: Mapping[str, str]) -> list[Row]:
    """Messages: 1, bytes, by how much they are late. Those that nobody waits for are noticed when looked for."""
    found: list[Row] = []
    for message in (message for run in runs for message in run.arrivals):
        alone_s = one_way_s(links, types, message.source, message.target, message.size_bytes)
        late_s = 0.0 if message.took_s is None else message.took_s - alone_s
        found.append((message.target, (1.0, message.size_bytes, late_s)))
    return found


def _longer(
    runs: Sequence[tuple[Run, Run]],
    networks: Mapping[str, Network],
    units: Mapping[str, UnitCost],
    wires: Wires,
    begin: Callable[[Run, Graph], set[int]],
) -> list[Row]:
    """Segments: number of the run, what they take alone, whether they begin in that way, how long their device waits
    before each that does, whether they wait for messages and bytes of these, bytes that leave while they are computed,
    weights beside which others are read, how well they are known, what they take. runs: as they were, and with seconds
    of segments that are asked for
    """
    found: list[Row] = []
    for number, (was, run) in enumerate(runs):
        network, sizes = networks[run.network], defaultdict[int, list[int]](list)
        divided = network.divided(part for sample in run.samples for part in sample.parts)
        for message in run.arrivals:
            if message.sample is not None:
                sizes[message.sample].append(message.size_bytes)
        clocks = {name: Clock(network, units[name]) for name in {sample.device for sample in run.samples}}
        leaving, crowded = wires.leaving(run), crowded_bytes(network.weights, run.samples, wires.memories)
        begun, means = begin(run, network.graph), means_s(run.samples)
        idle = idle_s(was, begun)
        scatter = {name: scatter_s([s for s in run.samples if s.device == name]) for name in clocks}
        for index, sample in enumerate(run.samples):
            alone_s, come = clocks[sample.device].seconds(sample.parts, divided), sizes[index]
            error_s = float(np.hypot(OFF * alone_s + FAR_S, np.sqrt(scatter[sample.device] * alone_s)))
            begins = (index in begun, idle[sample.device])
            row = (
                number,
                alone_s,
                *begins,
                bool(come),
                sum(come),
                leaving[index],
                crowded[index],
                error_s,
                means[index],
            )
            found.append((sample.device, row))
    return found


def idle_s(run: Run, begun: set[int]) -> dict[str, float]:
    """Seconds of a frame in which each device does not compute, for each segment of its that is among the ``begun``."""
    busy, count = defaultdict[str, float](float), defaultdict[str, int](int)
    for index, (sample, time_s) in enumerate(zip(run.samples, means_s(run.samples), strict=True)):
        busy[sample.device] += time_s
        count[sample.device] += index in begun
    return {device: max(run.time_s - busy[device], 0.0) / max(count[device], 1) for device in busy}


def _of_processors(runs: Sequence[Run], units: Mapping[str, UnitCost]) -> list[tuple[Run, Run]]:
    """Runs that tell what processors were at, and the same as if these had never rested: segments take as long as they
    do then."""
    found = []
    for run in runs:
        parts = [units[sample.device].busy_part for sample in run.samples]
        if run.busy_s and all(parts):
            each = zip(run.samples, run.busy_s, parts, strict=True)
            samples = tuple(replace(s, times_s=(busy_s / part,)) for s, busy_s, part in each if part)
            found.append((run, replace(run, samples=samples)))
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


@dataclass(frozen=True)
class Wires:
    """What devices share: links between their hosts, and memories. hosts, memories: by device"""

    links: LinkCosts
    hosts: Mapping[str, str]
    memories: Mapping[str, int]

    def leaving(self, run: Run) -> list[float]:
        """Bytes that leave for other hosts while each segment is computed: one message after the other, at the link's
        rate, from when it is handed over.
        """
        found, free = [0.0] * len(run.samples), defaultdict[str, float](float)
        away = [m for m in run.arrivals if m.sent_s is not None and self.between(m)]
        for message in sorted(away, key=lambda m: m.sent_s or 0.0):
            rate, host = self._rate(message.source, message.target), self.hosts[message.source]
            begin = max(message.sent_s or 0.0, free[host])
            free[host] = begin + message.size_bytes / rate
            for index, sample in enumerate(run.samples):
                if sample.device == message.source and sample.begin_s is not None:
                    together = min(free[host], sample.begin_s + sample.time_s) - max(begin, sample.begin_s)
                    found[index] += rate * max(together, 0.0)
        return found

    def between(self, message: Arrival) -> bool:
        """Whether it goes from host to host."""
        return self.hosts[message.source] != self.hosts[message.target]

    def _rate(self, source: str, target: str) -> float:
        """Bytes a second; of a pair that was not measured the least of those that were."""
        away = [p for p in self.links.paths if self.hosts[p.source] != self.hosts[p.target]]
        paths = [p for p in away if (p.source, p.target) == (source, target)] or away
        return min(path.bandwidth_bytes_per_s.value for path in paths)


def _lateness(rows: Sequence[tuple[float, ...]]) -> dict[str, float]:
    """Seconds a message and seconds a byte by which messages are late, as fields of ``Waiting``; none where too few
    were seen."""
    if len(rows) < LEAST:
        return {}
    table = np.array(rows, dtype=np.float64)
    columns, scale = table[:, :-1], SCALE[: table.shape[1] - 1]
    x, _ = _robust(columns * scale / FAR_S, table[:, -1] / FAR_S)
    return dict(zip(("late_s", "late_s_per_byte"), (scale * x).tolist(), strict=True))


def _busier(rows: Sequence[tuple[float, ...]], part: float) -> dict[str, float]:
    """For how much longer a processor is at segments, as fields of ``Waiting``, by rows of it alone: kernel and MPI
    are at bytes elsewhere. part: of the time that computing takes, in which it is at it
    """
    by_segment = [(*row[:5], 0.0, 0.0, *row[7:]) for row in rows]
    x, cold, knee, wait = _fitted(by_segment, 1.0, IDLE) or ([0.0], 0.0, 0.0, 0.0)
    return {"wake_busy_s": part * x[0], "cold_part": cold, "cold_s": part * cold * knee, "cold_wait_s": wait}


def _more(rows: Sequence[tuple[float, ...]]) -> dict[str, float]:
    """What segments take longer by messages that come, bytes that leave and weights that others read beside, and what
    those save that have waited, as fields of ``Waiting``; none where too few were seen."""
    if not (found := _fitted(rows, -1.0)):
        return {}
    x, part, knee, _ = found
    names = ("wake_s", "wake_s_per_byte", "attend_s_per_byte", "crowded_s_per_byte", "rested_part", "rested_s")
    return dict(zip(names, [*x, part, part * knee], strict=True))


def _fitted(
    rows: Sequence[tuple[float, ...]], sign: float, waits: Sequence[float] = (0.0,)
) -> tuple[list[float], float, float, float] | None:
    """What segments take longer by each figure of their messages; and by how they begin (-1: less), which part of what
    they take alone, of how much of it, and after which wait half of that. None where too few were seen. Beside them the
    pace of each run is fitted, near 1 by ``PACE``.
    """
    table = np.array(rows, dtype=np.float64).reshape(-1, 10)
    (numbers, alone_s, begun, idle), messages = np.split(table[:, :4], 4, axis=1), table[:, 4:8]
    error, time_s = table[:, 8:9], table[:, 9]
    if np.count_nonzero(messages.any(axis=1)) < LEAST:
        return None
    of_run = numbers == np.unique(numbers)
    runs = of_run.shape[1]
    values = np.concatenate([np.full(runs, 1 / PACE), time_s / error[:, 0]])

    @cache
    def fit(knee: float, wait: float) -> tuple[Floats, float, Floats]:
        begin = sign * np.minimum(alone_s, knee) * begun * (idle / (idle + wait) if wait else 1.0)
        seen = np.hstack([of_run * alone_s, messages * SCALE, begin]) / error
        lines = np.vstack([np.eye(runs, seen.shape[1]) / PACE, seen])
        x, usual = _robust(lines, values, runs, FAR, LOST)
        return x, usual, lines @ x - values

    _, scale, _ = fit(KNEES[0], waits[0])

    def simplest(choices: Sequence[tuple[float, float]]) -> tuple[float, float]:
        sound = {choice: fit(*choice)[-1] for choice in choices if sign > 0 or fit(*choice)[0][-1] < SAVED}
        lost = {choice: _loss(np.append(off[:runs], off[runs:] / scale)) for choice, off in sound.items()}
        return next(choice for choice, off in lost.items() if off <= (1 + LITTLE) * min(lost.values()))

    knee, _ = simplest([(knee, waits[0]) for knee in KNEES])
    knee, wait = simplest([(knee, wait) for wait in waits])
    x, *_ = fit(knee, wait)
    return (SCALE * x[runs:-1]).tolist(), float(x[-1]), knee, wait


def _loss(off: Floats) -> float:
    """What is off, squared, and of what is ``FAR`` less, as the numbers themselves are chosen (P. J. Huber, Annals of
    Mathematical Statistics 35, 1964)."""
    near = np.minimum(np.abs(off), FAR)
    return float(np.sum(near * (2 * np.abs(off) - near)))


def _robust(
    rows: Floats, values: Floats, known: int = 0, far: float = 1.0, lost: float = np.inf
) -> tuple[Floats, float]:
    """Least squares in which nothing is negative, and what is ``far`` times further off than usual counts less, what is
    ``lost`` times not at all, but for the first ``known`` rows. All in units of their error, which is larger where most
    are further off: how many times, is returned, too.

    At first what is further off than usual counts less at once, so that a few do not draw what most say; from there it
    is told what is far and what is lost (in the manner of MM-estimates: V. J. Yohai, Annals of Statistics 15, 1987).
    """
    weight, x, usual = np.ones(len(rows)), np.zeros(rows.shape[1]), 1.0
    for further in [1.0] * ROUNDS + [far] * ROUNDS:
        x = nonnegative(sparse.csr_matrix(rows * weight[:, None]), values * weight)
        off = np.abs(rows @ x - values)[known:]
        usual = max(1.0, float(np.median(off)))
        off /= usual
        weight[known:] = np.where(off < lost, 1 / np.sqrt(np.maximum(1.0, off / further)), 0.0) / usual
    return x, usual
