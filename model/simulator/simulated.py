"""One mapping simulated, to look at: one frame alone, then a stream of them as ``dse bench`` makes one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.cluster.platform import Platform
from model.cost import pricing
from model.cost.case import Case
from model.cost.priced import Priced, booked, charged
from model.cost.rest import rest_saves
from model.mappings.mapping import Mapping
from model.network.graph import Graph
from model.simulator import simulation, streaming
from model.simulator.critical import Causes, Stretch
from model.simulator.simulation import ATTEND, ENTER, LEAVE, LONGEST_S, SEND, Stage
from model.simulator.ticks import TICK_S, step_ticks, wake_ticks
from model.simulator.ticks import ticks as ticks_of
from runtime.errors import CleaveError

SEGMENT, END = ATTEND + 1, ATTEND + 2
"""Kinds of tasks besides those of a message: a segment, and the end of a device's frame in a stream."""

Ticks = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Events:
    """When everything happened in some frames: ``F`` frames of ``n`` tasks, ``S`` shards, ``M`` messages. In ticks.

    kind:    (n,) SEGMENT, SEND, LEAVE, ENTER, ATTEND or END
    device:  (n,) whose program has the task; of the two tasks on links, the message's sender
    message: (n,) that a task is about; -1: none
    receive: (n,) of a segment's time, what receiving its messages takes the device, before it computes: slower for a
             while, because it has waited
    begin:   (S,) of a shard since the start of its segment; ticks: (S,) that it takes
    """

    stage: Stage
    n: int
    frames: int
    kind: NDArray[np.int64]
    device: NDArray[np.int64]
    message: NDArray[np.int64]
    receive: Ticks
    begin: Ticks
    ticks: Ticks

    @staticmethod
    def of(case: Case, stage: Stage, frames: int) -> Events:
        """Of a stage on which so many frames have been played; a single one has no ends of frames."""
        shards, sent = len(case.shards.device), case.sent
        segment, handed = stage.segment[:shards].astype(np.int64), stage.handed[:sent].astype(np.int64)
        programs = np.flatnonzero(stage.last >= 0) if frames > 1 else np.zeros(0, dtype=np.int64)
        stages = case.costs.stages
        n = int(max(segment.max(), handed.max(initial=0) + (stages - 1 if sent else 0))) + 1
        kind, device, message = (np.full(n + len(programs), value) for value in (SEGMENT, -1, -1))
        device[segment] = case.shards.device
        for stage_of_message in range(stages):
            kind[handed + stage_of_message] = stage_of_message
            message[handed + stage_of_message] = np.arange(sent)
            device[handed + stage_of_message] = case.shards.device[case.messages.shard[:sent]]
        kind[n:], device[n:] = END, programs
        ticks = np.array([_ticks(case, stage, shard, frames) for shard in range(shards)], dtype=np.int64)
        receive, begin = _within(stage, segment, ticks, n + len(programs), kind)
        receive -= _waking(case, stage, handed, receive < stage.tasks.duration[: len(kind)])
        return Events(stage, n + len(programs), frames, kind, device, message, receive, begin, ticks)

    @property
    def start(self) -> Ticks:
        """(F, n) of every task."""
        return self.stage.state.start[: self.n * self.frames].reshape(self.frames, self.n)

    @property
    def stop(self) -> Ticks:
        """(F, n) of every task."""
        return self.stage.state.stop[: self.n * self.frames].reshape(self.frames, self.n)

    def since(self, frame: int) -> int:
        """When a frame begins. The first one does at 0, whatever devices rest before it."""
        return int(self.start[frame, self.segment[0]]) if frame else 0

    @property
    def segment(self) -> NDArray[np.int32]:
        """(S,) the task that each shard is in."""
        return self.stage.segment[: len(self.ticks)]

    @property
    def handed(self) -> NDArray[np.int64]:
        """(M,) the first task of each message."""
        return np.flatnonzero(self.kind == SEND)[np.argsort(self.message[self.kind == SEND], kind="stable")]

    @property
    def ready(self) -> Ticks:
        """(F, n) when the tasks on links could have begun if nothing had been ahead of them there; else their start."""
        found = self.start.copy()
        leave = self.handed + LEAVE
        found[:, leave] = self.stop[:, self.handed + SEND]
        found[:, self.handed + ENTER] = self.start[:, leave] + self.stage.tasks.lag[leave]
        return found

    @cached_property
    def held_up(self) -> Ticks:
        """(F, n) by how much longer a segment computes because its device attends to what it has sent.

        A message takes a part of its sender's processor for as long as it leaves: a segment that is done by then takes
        longer by that part of its own time only. It is simulated to begin when all has been attended to, which is late,
        but what it sends waits for the link that long anyway.
        """
        tasks, enter, most = self.stage.tasks, self.handed + ENTER, np.zeros(self.n, dtype=np.int64)
        for device in range(len(self.stage.last)):
            attends = leaves = 0
            for task in np.flatnonzero(self.device == device):
                if self.kind[task] == ATTEND:
                    attends += int(tasks.duration[task])
                    leaves += int(tasks.duration[task - ATTEND + LEAVE])
                elif self.kind[task] == SEGMENT:
                    computes = int(tasks.duration[task] - self.receive[task])
                    meanwhile = attends * computes // (leaves - attends) if leaves > attends else attends
                    most[task], attends, leaves = max(0, min(attends, meanwhile)), 0, 0
        came = np.zeros((self.frames, self.n), dtype=np.int64)
        for frame in range(self.frames):
            np.maximum.at(came[frame], tasks.to[2 * enter], self.stop[frame, enter])
        return np.asarray(np.minimum(most, np.maximum(self.start - came, 0)))

    def work_s(self, device: int) -> tuple[float, float]:
        """Seconds of a frame, in a stream the last one, in which a device computes, and in which it hands over and
        receives messages and, in a stream, begins the next frame."""
        duration, mine = self.stage.tasks.duration[: self.n], self.device == device
        segments, receive = duration[mine & (self.kind == SEGMENT)].sum(), self.receive[mine].sum()
        messages = receive + duration[mine & np.isin(self.kind, (SEND, END))].sum()
        return float((segments - receive + self.held_up[-1, mine].sum()) * TICK_S), float(messages * TICK_S)

    def path(self, since: int = 0) -> list[Stretch]:
        """The critical path to the end, from a time on."""
        return Causes(self.stage.tasks, self.n, self.frames, self.stage.state).path(since)


def _ticks(case: Case, stage: Stage, shard: int, frames: int) -> int:
    """What a shard takes. Shards come in order, from the first on. In a stream it rests less than in a frame alone."""
    device = case.shards.device[shard]
    seconds, saves = case.ledger.seconds[shard], rest_saves(case.costs, case.ledger, shard, device)
    tired = ticks_of((1 - stage.rests[device]) * saves) if frames > 1 else 0
    return int(ticks_of(seconds) + tired)


def _within(
    stage: Stage, segment: NDArray[np.int64], ticks: Ticks, n: int, kind: NDArray[np.int64]
) -> tuple[Ticks, Ticks]:
    """How long segments receive before they compute, and when each shard begins in its segment."""
    computing = np.zeros(n, dtype=np.int64)
    np.add.at(computing, segment, ticks)
    receive = np.where(kind == SEGMENT, stage.tasks.duration[:n] - computing, 0)
    in_turn = np.argsort(segment, kind="stable")
    ends = np.cumsum(ticks[in_turn])
    first = np.searchsorted(segment[in_turn], segment[in_turn])
    begin = np.empty_like(ticks)
    begin[in_turn] = ends - ticks[in_turn] - (ends - ticks[in_turn])[first] + receive[segment[in_turn]]
    return receive, begin


def _waking(case: Case, stage: Stage, handed: NDArray[np.int64], computes: NDArray[np.bool_]) -> Ticks:
    """(n,) by how much longer segments that compute take than their layers do, because their device goes on to them, or
    has waited: they are computing then."""
    found, c, target = np.zeros(len(computes), dtype=np.int64), case.costs, case.messages.device[: len(handed)]
    for task, device in dict(zip(stage.segment.tolist(), case.shards.device.tolist(), strict=False)).items():
        found[task] += step_ticks(c, device)
    reader = stage.tasks.to[2 * (handed + ENTER)]
    for task, device, size in zip(reader, target, case.ledger.size, strict=False):
        found[task] += ticks_of(c.wake[device, 1] * size)
    for task, device in dict(zip(reader.tolist(), target.tolist(), strict=True)).items():
        found[task] += wake_ticks(c, device)
    return np.where(computes, found, 0)


@dataclass(frozen=True, eq=False)
class Simulated:
    """A mapping that was simulated.

    price:  what it comes to; the period is that of the busiest device or link where there was no stream
    analytical: what it comes to by the analytical model
    alone:  of one frame; stream: of ``warmup`` frames and those that count after them, None if only one was asked for
    """

    case: Case
    price: Priced
    analytical: Priced
    alone: Events
    stream: Events | None
    warmup: int

    @cached_property
    def latency_path(self) -> list[Stretch]:
        """What the latency is made of."""
        return self.alone.path()

    @cached_property
    def period_path(self) -> list[Stretch]:
        """What the time of all frames that count is made of, from the end of the last one that does not."""
        return self.stream.path(self.counted_from) if self.stream else []

    @property
    def counted_from(self) -> int:
        """When the last frame of the stream that does not count was done, and all before it."""
        return self._counted[0]

    @property
    def counted(self) -> int:
        """Periods that the stream was measured over."""
        return self._counted[1]

    @cached_property
    def _counted(self) -> tuple[int, int]:
        """From when on, and how many: all after the warm-up, or all after the first where these take longer."""
        if self.stream is None:
            return 0, 0
        last, begin = int(self.stream.stop.max()), (self.warmup, 0)
        windows = [(int(self.stream.stop[: k + 1].max()), self.stream.frames - 1 - k) for k in begin]
        return max(windows, key=lambda window: (last - window[0]) / window[1])

    def devices(self, platform: Platform) -> list[dict[str, Any]]:
        """One row for each device that takes part: how it is priced, and what it does in one frame alone.

        compute_s, message_s (handing over and receiving), wait_s: make up the latency; busy: part of the period
        """
        rows, stream = [], self.stream or self.alone
        for row in self.price.devices(platform):
            device = platform.index(row["device"])
            compute_s, message_s = self.alone.work_s(device)
            rest_s = self.price.latency_s - compute_s - message_s
            times = {"compute_s": compute_s, "message_s": message_s, "wait_s": rest_s}
            rows.append(row | times | {"busy": self._share(sum(stream.work_s(device)))})
        return rows

    def links(self, names: list[str]) -> list[dict[str, Any]]:
        """One row for each link that a message takes.

        busy_s: in one frame; queued_s: that messages of a frame alone wait for it; stream_queued_s: of one in a stream
        """
        e, rows = self.alone, []
        resource, duration = e.stage.tasks.resource[: e.n], e.stage.tasks.duration[: e.n]
        for link in used(resource):
            mine = resource == link
            busy_s = float(duration[mine].sum() * TICK_S)
            rows.append(
                {
                    "link": names[link],
                    "messages": int(mine.sum()),
                    "bytes": int(self.case.ledger.size[e.message[mine]].sum()),
                    "busy_s": busy_s,
                    "queued_s": float((e.start - e.ready)[0, mine].sum() * TICK_S),
                    "stream_queued_s": self._stream_queued_s(mine),
                    "busy": self._share(busy_s),
                }
            )
        return rows

    def _stream_queued_s(self, tasks: NDArray[np.bool_]) -> float | None:
        """Seconds a frame that some tasks wait for their link, the frames that do not count left out."""
        if self.stream is None:
            return None
        waited = (self.stream.start - self.stream.ready)[self.warmup :, : len(tasks)][:, tasks]
        return float(waited.sum() * TICK_S / len(waited))

    def _share(self, seconds: float) -> float | None:
        """Of the period, in a stream."""
        return float(seconds / self.price.period_s) if self.stream and self.price.period_s else None


def used(resource: NDArray[np.int32]) -> list[int]:
    """The links that some tasks are on, in the order of ``model.cost.links.links``."""
    return [int(link) for link in np.unique(resource[resource >= 0])]


class Times(NamedTuple):
    """How long a mapping takes, and the stages on which it was played. ``stream`` is None for a single frame."""

    latency_s: float
    period_s: float
    alone: Stage
    stream: Stage | None


def play(case: Case, frames: int, warmup: int) -> Times:
    """Simulate a mapping that is lowered. Its ledger is filled; the period of one frame is the analytical one."""
    on = (case.g, case.shards, case.messages, case.costs, case.ledger)
    size = case.size._replace(messages=case.sent)
    alone = simulation.stage(size, case.costs, 1)
    latency = simulation.simulate(*on, alone)
    busiest = pricing.busiest(*on, pricing.desk(case.size, case.costs))
    if frames == 1:
        return Times(latency, busiest, alone, None)
    stream = simulation.stage(size, case.costs, warmup + frames)
    period = streaming.stream(*on, stream, warmup + frames, warmup)
    return Times(latency, period if period == simulation.UNCOUNTABLE else max(period, busiest), alone, stream)


def simulated(graph: Graph, platform: Platform, mapping: Mapping, frames: int = 20, warmup: int = 4) -> Simulated:
    """Simulate a checked mapping: one frame, and if ``frames`` is more than 1 a stream of so many after a warm-up.

    ``CleaveError`` where it takes longer than can be simulated.
    """
    case = Case.of(graph, platform, mapping)
    analytical = charged(case.at(case.costs))
    times = play(case, frames, warmup)
    if simulation.UNCOUNTABLE in (times.latency_s, times.period_s):
        many, fewer = f"{warmup + frames} of them are", "ask for fewer frames, or "
        if frames == 1:
            many, fewer = "that is", ""
        raise CleaveError(
            f"a frame takes {analytical.latency_s:.3g} s: {many} more than can be simulated ({LONGEST_S:g} s); "
            f"{fewer}have the figures of the platform looked at"
        )
    stream = Events.of(case, times.stream, warmup + frames) if times.stream else None
    price = booked(case, times.latency_s, times.period_s)
    return Simulated(case, price, analytical, Events.of(case, times.alone, 1), stream, warmup)
