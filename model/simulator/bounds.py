"""What bounds the latency and the period of a simulated mapping, and what a little more of each resource would buy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from model.cluster.platform import Platform
from model.cost.costs import WATTS, CostArrays
from model.cost.links import links, own_rate
from model.cost.message_time import slower_s
from model.simulator.critical import Stretch
from model.simulator.script import Script
from model.simulator.simulated import END, SEGMENT, Events, play
from model.simulator.simulation import ATTEND, ENTER, LEAVE, SEND, longest_claim
from model.simulator.ticks import TICK_S
from model.simulator.ticks import ticks as ticks_of

COMPUTE, RECEIVE, HAND_OVER, TRANSFER, LATENCY = "compute", "receive", "hand over", "transfer", "latency"
REST, TURN = "rest", "turn"
"""Categories of what is on a critical path: three that take a device, two of messages on links; what the busiest device
rests before a frame alone, and what a device has to do between two frames of a stream."""
SPEED, BANDWIDTH, COPIES = "speed", "bandwidth", "copies"
"""What there can be more of, besides less ``LATENCY``."""
MORE = 0.01
ALL = "all"
FLOPS_PER_MAC = 2

Better = tuple[str, str, float | None, CostArrays]
"""What, where and how much more of a resource there is, and what things then cost."""


@dataclass(frozen=True)
class Held:
    """A part of a critical path. where: name of the device or link; what: segment or message; ticks: how long"""

    category: str
    where: str
    what: str
    frame: int
    start: int
    ticks: int

    @property
    def time_s(self) -> float:
        """How long, in seconds."""
        return self.ticks * TICK_S


def held(script: Script, platform: Platform, events: Events, path: list[Stretch]) -> list[Held]:
    """A critical path in the words of plan and platform; together as long as the frames, to the tick."""
    names = links(platform)[2]
    parts = [part for stretch in path for part in _parts(script, platform, names, events, stretch) if part.ticks]
    if events.frames == 1 and parts and parts[0].start:
        parts.insert(0, Held(REST, platform.devices[_busiest(script)].name, "", 0, 0, parts[0].start))
    return parts


def _busiest(script: Script) -> int:
    """The device that claims most of its processor."""
    case = script.case
    busy = np.zeros(len(case.costs.pool), np.int64)
    longest_claim(case.shards, case.messages, case.costs, case.ledger, len(case.shards.device), busy)
    return int(busy.argmax())


def _parts(script: Script, platform: Platform, names: list[str], e: Events, stretch: Stretch) -> Iterator[Held]:
    frame, task = divmod(stretch.row, e.n)
    kind, ticks = int(e.kind[task]), stretch.stop - stretch.start
    if kind in (SEGMENT, SEND, ATTEND):
        where = platform.devices[int(e.device[task])].name
        received = int(e.start[frame, task] + e.receive[task])
        first = min(max(received - stretch.start, 0), ticks)
        what = _segment(script, task) if kind == SEGMENT else _message(script, e, task)
        yield Held(RECEIVE, where, what, frame, stretch.start, first)
        category = COMPUTE if kind == SEGMENT else HAND_OVER
        yield Held(category, where, what, frame, stretch.start + first, ticks - first)
    elif kind == END:
        yield Held(TURN, platform.devices[int(e.device[task])].name, "", frame, stretch.start, ticks)
    elif ticks:
        where, what = names[_link(e, task)], _message(script, e, task)
        late = min(ticks, _late(script, e, task)) if stretch.lag else 0
        yield Held(LATENCY, where, what, frame, stretch.start, late)
        yield Held(TRANSFER, where, what, frame, stretch.start + late, ticks - late)


def _late(script: Script, e: Events, task: int) -> int:
    """Ticks of a message's lag that are not its bytes on a link slower than its receiver's."""
    case, message = script.case, e.message[task]
    source, target = case.shards.device[case.messages.shard[message]], case.messages.device[message]
    slower = slower_s(case.costs, source, target, case.ledger.size[message])
    return int(e.stage.tasks.lag[task] - ticks_of(slower))


def _link(e: Events, task: int) -> int:
    """The link that a message is on: where it enters by the one that it left by, the task that enters names none."""
    resource = e.stage.tasks.resource
    return int(resource[task] if resource[task] >= 0 else resource[task + LEAVE - ENTER])


def _segment(script: Script, task: int) -> str:
    """File and layers of a segment; nothing is known of one that computes nothing."""
    if task not in script.runs:
        return ""
    run = script.runs[task]
    first, last = run.parts[0].layer, run.parts[-1].layer
    return f"{run.file}: {first}" + (f" to {last}" if last != first else "")


def _message(script: Script, e: Events, task: int) -> str:
    """What is sent, and from where to where."""
    rank, step = script.sends[int(e.message[task])]
    return f"{step.buffer}, rank {rank} to {step.dest}"


def shares(parts: list[Held]) -> list[tuple[str, str, int]]:
    """Category, place, and ticks on a path, most first."""
    sums: dict[tuple[str, str], int] = {}
    for part in parts:
        key = (part.category, part.where)
        sums[key] = sums.get(key, 0) + part.ticks
    return sorted(((*key, ticks) for key, ticks in sums.items()), key=lambda row: (-row[2], row[:2]))


@dataclass(frozen=True)
class Gain:
    """What 1 % more of something buys.

    what: SPEED of a device, BANDWIDTH or LATENCY (less of it) of a host's link or a medium, COPIES within a host
    where: the device, host or medium, or ``ALL`` that take part
    amount: 1 % of it: FLOP/s, bytes/s or seconds; None: of several that have not the same
    latency_s, period_s: by how much they change; less than 0 is faster
    """

    what: str
    where: str
    amount: float | None
    latency_s: float
    period_s: float


def gains(script: Script, platform: Platform) -> list[Gain]:
    """Of everything that the mapping uses, simulated again; what buys most of the latency first.

    A message between two hosts goes at the rate of the slower link: where both are the same, either alone buys little.
    """
    found, rows = script.found, []
    frames = found.stream.frames - found.warmup if found.stream else 1
    for what, where, amount, costs in [*_devices(script, platform), *_links(script, platform)]:
        times = play(found.case.at(costs), frames, found.warmup)
        changes = (times.latency_s - found.price.latency_s, times.period_s - found.price.period_s)
        rows.append(Gain(what, where, amount, *map(float, changes)))
    return sorted(rows, key=lambda gain: (gain.latency_s, gain.period_s))


def _devices(script: Script, platform: Platform) -> Iterator[Better]:
    """Each device with 1 % more speed."""
    rates = {device: rate for device in script.devices if (rate := _flops(script, device)) is not None}
    for device, rate in rates.items():
        yield SPEED, platform.devices[device].name, rate * MORE or None, _faster(script.case.costs, [device])
    if len(rates) > 1:
        yield SPEED, ALL, None, _faster(script.case.costs, list(rates))


def _links(script: Script, platform: Platform) -> Iterator[Better]:
    """Each link between hosts, and each host's own devices, with 1 % more of what messages take."""
    cards, copiers = _talking(script, platform)
    for what, field, factor, groups in (
        (BANDWIDTH, "bandwidth_bytes_per_s", 1 + MORE, cards),
        (LATENCY, "latency_s", 1 / (1 + MORE), cards),
        (COPIES, "copy_bandwidth_bytes_per_s", 1 + MORE, copiers),
    ):
        for where, of in groups.items():
            more = {abs(value * factor - value) for value in (getattr(platform.hosts[h], field) for h in of)}
            amount = more.pop() if len(more) == 1 else None
            yield what, where, amount, _with(script.case.costs, platform, of, field, factor)
        if len(groups) > 1:
            everywhere = [h for of in groups.values() for h in of]
            yield what, ALL, None, _with(script.case.costs, platform, everywhere, field, factor)


def _talking(script: Script, platform: Platform) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Hosts that have messages for other ones, by what links them, and hosts whose devices have for one another."""
    m, host = script.case.messages, np.array([device.host for device in platform.devices])
    source = host[script.case.shards.device[m.shard[: script.case.sent]]]
    target = host[m.device[: script.case.sent]]
    cards: dict[str, list[int]] = {}
    for h in np.union1d(source[source != target], target[source != target]).tolist():
        cards.setdefault(platform.hosts[h].link, []).append(h)
    return cards, {platform.hosts[h].name: [h] for h in np.unique(source[source == target]).tolist()}


def _flops(script: Script, device: int) -> float | None:
    """FLOP/s that a device reaches in its share of the layers; 0: they have no MACs; None: it computes none."""
    case, macs, time_s = script.case, 0.0, 0.0
    for layer in script.graph.layers:
        task = case.g.n_inputs + layer.index
        for shard in range(case.shards.ptr[task], case.shards.ptr[task + 1]):
            if case.shards.device[shard] == device:
                macs += layer.macs * case.share(task, shard)
                time_s += case.ledger.seconds[shard]
    return FLOPS_PER_MAC * macs / time_s if time_s else None


def _faster(c: CostArrays, devices: list[int]) -> CostArrays:
    """Devices whose layers take less time."""
    work, beside = c.work.copy(), c.beside.copy()
    work[:, devices, :WATTS] /= 1 + MORE
    beside[:, devices] /= 1 + MORE
    return c._replace(work=work, beside=beside)


def _with(c: CostArrays, platform: Platform, which: list[int], field: str, factor: float) -> CostArrays:
    """Hosts that something is better of."""
    hosts = list(platform.hosts)
    for h in which:
        hosts[h] = replace(hosts[h], **{field: getattr(hosts[h], field) * factor})
    other = replace(platform, hosts=tuple(hosts))
    return c._replace(bandwidth=other.bandwidth(), latency=other.latency(), rate=own_rate(other))
