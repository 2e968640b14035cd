"""Bundles that measure links: plans with messages alone, and what their traces say.

One rank a host, and hosts in a ring: each has two neighbours, with whom it exchanges messages when its turn comes,
so that no link is held up by what is measured of another. What is found of a link between two devices of one host is
measured on one host of each kind. The programs are those of every bundle: large messages ask before they go, sending
does not block, waits poll and then sleep, a second thread looks after messages while a segment runs.

A probe is what is done with messages of one size between two devices, as ``model.fit.link_costs`` lists them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from codegen.probes import AFTER, BEFORE, busy, write_probe
from model.cluster.platform import Device, Platform
from model.fit.link_costs import BOTH, BURST, LATE, TWO, WAY, LinkSample
from model.mappings.planning import seat
from runtime.options import Options
from runtime.plan import Box, Buffer, Plan, RankPlan, Recv, Send, Step
from runtime.trace import Span, Trace
from runtime.transfers import Transfer, transfers

SMALL = (4, 16, 64, 1024, 4096, 16384, 65536, 262144, 917504, 1179648)
"""Bytes of messages that are tried often: to the largest that goes unasked (``EAGER_BYTES``), and past."""
ALONE = 4
"""So many of them are tried before there are several at once."""
LARGE = (2**20, 2**22, 2**25)
"""Bytes of messages that are tried a few times: 32 MB is the largest tensor of the networks that people spread."""
LATE_BYTES = (64, 4096, 65536, 2**20)
"""Of messages that come while their receiver computes: sizes that are tried alone, too, for they must be there. On slow
links some are not, and these tell nothing."""
BURST_BYTES, BURST_COUNT = (64, 4096), 16
STREAM_BYTES = 2**22
"""Of messages whose way crosses that of others, at most."""
MOST_S = 1.0
"""The longest that a message may take by what the platform file says of the link; larger ones are left out."""
OFTEN = 8
"""The longest of those that are tried often takes so much less."""
MEMORY_SHARE = 1 / 32
"""The largest part of a host's memory that a message may be."""
TURN = "turn"
"""Name of messages that are no probe."""


@dataclass(frozen=True)
class LinkBundle:
    """A bundle to run: its plan, and how many frames, each started together.

    name: for a person and for files
    """

    name: str
    plan: Plan
    warmup: int
    frames: int

    def write(self, out: Path) -> None:
        """Make the bundle in a folder."""
        write_probe(self.plan, self.plan.cnn, out)

    @property
    def options(self) -> Options:
        """How to run it."""
        return Options(self.frames, self.warmup, barrier=True)


def link_bundles(platform: Platform) -> list[LinkBundle]:
    """What to run to know the links of a platform; nothing where there is one device."""
    return [bundle for group in _groups(platform) for bundle in _bundles(platform, group)]


def read(plan: Plan, trace: Trace) -> list[LinkSample]:
    """What the run of a link bundle says, a sample for each probe."""
    frames = [_by_probe(frame) for frame in trace.frames]
    return [_sample(plan, probe, [frame[probe] for frame in frames]) for probe in frames[0]]


@dataclass
class _Rank:
    """A rank that is being written."""

    plan: RankPlan
    buffers: dict[str, Buffer] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def done(self) -> RankPlan:
        return replace(self.plan, buffers=tuple(self.buffers.values()), steps=tuple(self.steps))


class _Script:
    """A plan that is being written, message by message. A frame does what is written first first."""

    def __init__(self, platform: Platform, devices: Sequence[int]) -> None:
        self._ranks = [_Rank(seat(platform, device, number)) for number, device in enumerate(devices)]
        self._platform, self._tags = platform.name, defaultdict[tuple[int, int], int](int)
        self._count = defaultdict[str, int](int)

    def message(self, source: int, target: int, size: int, probe: str) -> None:
        """A message that its receiver waits for at once."""
        self.receive(self.send(source, target, size, probe))

    def send(self, source: int, target: int, size: int, probe: str) -> tuple[int, Recv]:
        """A message is handed over. Returns the rank and the step that waits for it."""
        name = f"{probe}/{self._count[probe]}"
        tag, self._count[probe] = self._tags[source, target], self._count[probe] + 1
        self._tags[source, target] += 1
        box: Box = ((0, size),)
        for rank in (source, target):
            self._ranks[rank].buffers[name] = Buffer(name, (size,), "uint8")
        self._ranks[source].steps.append(Send(name, target, tag, box))
        return target, Recv(name, source, tag)

    def receive(self, *coming: tuple[int, Recv]) -> None:
        """Messages are waited for."""
        for rank, step in coming:
            self._ranks[rank].steps.append(step)

    def turn(self, source: int, target: int) -> None:
        """A message that only says whose turn it is."""
        self.message(source, target, 4, TURN)

    def wake(self, first: int, second: int) -> None:
        """Both have nothing more under way between them, and wait no longer: a rank that waits long sleeps."""
        for source, target in ((first, second), (second, first), (first, second), (second, first)):
            self.turn(source, target)

    def compute(self, rank: int) -> None:
        """A rank is busy for a while."""
        self._ranks[rank].buffers |= {buffer.name: buffer for buffer in (BEFORE, AFTER)}
        self._ranks[rank].steps.append(busy(rank))

    def plan(self) -> Plan:
        return Plan(f"links of {self._platform}", (), (), tuple(rank.done() for rank in self._ranks))


def host_kind(platform: Platform, host: int) -> tuple[object, ...]:
    """What hosts whose devices exchange messages alike have in common."""
    return (platform.hosts[host].arch, *(_device_kind(d) for d in platform.devices if d.host == host))


def _device_kind(device: Device) -> tuple[object, ...]:
    return device.coefficients, device.unit, device.provider, device.threads


def _groups(platform: Platform) -> Iterator[tuple[str, list[int]]]:
    """Devices that are measured together: one of each host, and on one host of each kind one device of each kind."""
    hosts = [[d for d, on in enumerate(platform.devices) if on.host == h] for h in range(len(platform.hosts))]
    if len(platform.hosts) > 1:
        yield "network", [devices[0] for devices in hosts]
    first = {host_kind(platform, h): h for h in reversed(range(len(hosts)))}
    for h in sorted(first.values()):
        kinds = {_device_kind(platform.devices[d]): d for d in reversed(hosts[h])}
        if len(hosts[h]) > 1:
            yield platform.hosts[h].name, sorted(kinds.values()) if len(kinds) > 1 else hosts[h][:2]


def _bundles(platform: Platform, group: tuple[str, list[int]]) -> Iterator[LinkBundle]:
    name, devices = group
    small, large = _Script(platform, devices), _Script(platform, devices)
    ranks = range(len(devices))
    pairs = [(k, (k + 1) % len(devices)) for k in (ranks if len(devices) > 2 else ranks[:1])]
    most = [_fitting(platform, devices[first], devices[second]) for first, second in pairs]
    for (first, second), size in zip(pairs, most, strict=True):
        _often(small, first, second, size / OFTEN)
        _seldom(large, first, second, size)
    for target in ranks if len(devices) > 2 else ():
        _two(
            large, (target - 1) % len(devices), (target + 1) % len(devices), target, min(most[target - 1], most[target])
        )
    yield LinkBundle(f"links-{name}-small", small.plan(), warmup=4, frames=40)
    yield LinkBundle(f"links-{name}-large", large.plan(), warmup=1, frames=6)


def _fitting(platform: Platform, first: int, second: int) -> float:
    """The largest message that neither link nor memory is too small for."""
    rate = platform.bandwidth()[first, second]
    pools = [platform.pools[platform.devices[d].pool].capacity_bytes or 2**63 for d in (first, second)]
    return float(min(rate * MOST_S, min(pools) * MEMORY_SHARE))


def _often(script: _Script, first: int, second: int, most: float) -> None:
    """Bursts come before messages that may leave a queue behind them."""
    script.wake(first, second)
    for size in SMALL[:ALONE]:
        _way(script, first, second, size)
    for size in (size for size in BURST_BYTES if size * BURST_COUNT <= OFTEN * most):
        _burst(script, first, second, size)
        _burst(script, second, first, size)
    for size in (size for size in SMALL[ALONE:] if size <= most):
        _way(script, first, second, size)
    script.turn(first, second)


def _seldom(script: _Script, first: int, second: int, most: float) -> None:
    script.wake(first, second)
    for size in (size for size in LARGE if size <= most):
        _way(script, first, second, size)
    for size in (size for size in LATE_BYTES if size <= most):
        _late(script, first, second, size)
        _late(script, second, first, size)
    _both(script, first, second, _crossing(most))
    script.turn(first, second)


def _crossing(most: float) -> int:
    """Size of messages that are under way at once: one that is tried alone, too."""
    return max((size for size in LARGE if size <= min(most, STREAM_BYTES)), default=SMALL[0])


def _way(script: _Script, first: int, second: int, size: int) -> None:
    """There and back."""
    script.message(first, second, size, f"{WAY}/{first}>{second}/{size}")
    script.message(second, first, size, f"{WAY}/{second}>{first}/{size}")


def _burst(script: _Script, source: int, target: int, size: int) -> None:
    """The last one is waited for first: the others are there then."""
    script.wake(target, source)
    coming = [script.send(source, target, size, f"{BURST}/{source}>{target}/{size}") for _ in range(BURST_COUNT)]
    script.receive(*reversed(coming))


def _late(script: _Script, source: int, target: int, size: int) -> None:
    """A receiver computes while the message comes."""
    script.wake(source, target)
    script.turn(source, target)
    coming = script.send(source, target, size, f"{LATE}/{source}>{target}/{size}")
    script.compute(target)
    script.receive(coming)


def _both(script: _Script, first: int, second: int, size: int) -> None:
    """Both send at once."""
    probe = f"{BOTH}/{first}>{second}/{size}"
    script.wake(first, second)
    script.turn(first, second)
    script.receive(*[script.send(first, second, size, probe), script.send(second, first, size, probe)])


def _two(script: _Script, first: int, second: int, target: int, most: float) -> None:
    """Two send to a third one, which has told them to."""
    size = _crossing(most)
    for source in (first, second):
        script.wake(target, source)
    script.receive(*[script.send(target, source, 4, TURN) for source in (first, second)])
    probe = f"{TWO}/{first}+{second}>{target}/{size}"
    script.receive(*[script.send(source, target, size, probe) for source in (first, second)])


def _by_probe(frame: Iterable[Span]) -> dict[str, list[Transfer]]:
    """The messages of a frame by probe."""
    found: dict[str, list[Transfer]] = defaultdict(list)
    for message in transfers(frame):
        if not message.send.name.startswith(TURN):
            found[message.send.name.rpartition("/")[0]].append(message)
    return found


def _sample(plan: Plan, probe: str, frames: Sequence[Sequence[Transfer]]) -> LinkSample:
    """A probe of all frames."""
    kind, ranks, size = probe.split("/")
    sources, _, number = ranks.partition(">")
    source, *also = (plan.ranks[int(rank)] for rank in sources.split("+"))
    target = plan.ranks[int(number)]
    return LinkSample(
        kind,
        source.device,
        target.device,
        source.host == target.host,
        int(size),
        send_s=tuple(fmean(m.send.time_s for m in messages) for messages in frames),
        times_s=tuple(_time_s(kind, messages) for messages in frames),
        there_s=tuple(messages[0].wait.start_s - messages[0].start_s for messages in frames) if kind == LATE else (),
        count=len(frames[0]),
        also="".join(rank.device for rank in also),
    )


def _time_s(kind: str, messages: Sequence[Transfer]) -> float:
    """What a sample says of one frame."""
    if kind == LATE:
        return messages[0].wait.time_s
    return max(m.wait.stop_s for m in messages) - min(m.start_s for m in messages)
