"""A simulated mapping as traces: spans of the same ranks, kinds and names as those that its bundle measures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from model.cost.ledger import ENERGY, MEMORY
from model.simulator.script import Script
from model.simulator.simulated import END, Events
from model.simulator.simulation import ENTER
from model.simulator.ticks import TICK_S
from runtime.plan import RankPlan, Recv, Run, Send, Step
from runtime.trace import COMPUTE, ESTIMATE, PREDICTED, REST, SEND, WAIT, Span, Trace, Usage


def traces(script: Script) -> list[Trace]:
    """One frame alone, and if there was a stream the frames of it that count."""
    found = [_trace(script, script.found.alone, 0)]
    return [*found, _trace(script, script.found.stream, script.found.warmup)] if script.found.stream else found


def _trace(script: Script, events: Events, warmup: int) -> Trace:
    since = events.since(warmup)
    ranks = [_Rank(script, events, rank, since) for rank in script.plan.ranks]
    usages = tuple(_usage(script, rank, events, events.frames - warmup) for rank in script.plan.ranks)
    frames = [[span for rank in ranks for span in rank.spans(f)] for f in range(warmup, events.frames)]
    return Trace(PREDICTED, events.frames == 1, usages, tuple(map(tuple, frames)))


def _usage(script: Script, rank: RankPlan, events: Events, frames: int) -> Usage:
    device, found = script.devices[rank.rank], script.found
    return Usage(
        rank=rank.rank,
        device=rank.device,
        provider=rank.provider,
        threads=rank.threads,
        peak_bytes=int(found.price.account[device, MEMORY]),
        processor_s=frames * sum(events.work_s(device)),
        energy_j=float(found.price.account[device, ENERGY]),
        energy_time_s=found.price.latency_s,
        energy_source=ESTIMATE,
        reads=bool(rank.inputs),
        writes=bool(rank.outputs),
    )


@dataclass(frozen=True, eq=False)
class _Rank:
    """What one rank did. since: tick that times are given from"""

    script: Script
    events: Events
    rank: RankPlan
    since: int

    def spans(self, frame: int) -> Iterator[Span]:
        """Of one frame: without a gap, and each begins where the last one stopped."""
        now = self._begin(frame)
        if frame > 1 and (left := self._left(frame - 2, now)) > now:
            yield self._span(SEND, REST, now, left)
            now = left
        for step, following in zip(self.rank.steps, [*self.rank.steps[1:], None], strict=True):
            if isinstance(step, Run) and (begin := self._computes(frame, step)) > now:
                yield self._span(SEND, REST, now, begin)
                now = begin
            stop = self._stop(frame, step, following, now)
            yield self._step(step, now, stop)
            now = stop
        if self.events.frames == 1 and (left := self._left(0, now)) > now:
            yield self._span(SEND, REST, now, left)

    def _begin(self, frame: int) -> int:
        """When the rank was done with the frame before."""
        e, device = self.events, self.script.devices[self.rank.rank]
        return int(e.stop[frame - 1, (e.kind == END) & (e.device == device)][0]) if frame else 0

    def _left(self, frame: int, now: int) -> int:
        """When all that it sent in a frame has arrived."""
        return int(self.events.stop[frame, self._enters].max(initial=now))

    @cached_property
    def _enters(self) -> list[int]:
        return [self._handed(step) + ENTER for step in self.rank.steps if isinstance(step, Send)]

    def _handed(self, step: Send | Recv) -> int:
        return int(self.events.handed[self.script.message(self.rank.rank, step)])

    def _computes(self, frame: int, step: Run) -> int:
        """From when on a segment is computed; before that its rank attends to what it has sent."""
        e, task = self.events, self.script.task(self.rank.rank, step)
        return 0 if task is None else int(e.start[frame, task] - e.held_up[frame, task] + e.receive[task])

    def _stop(self, frame: int, step: Step, following: Step | None, now: int) -> int:
        """When a step is done. The last message that a segment waits for is there when all of them are received."""
        e = self.events
        if isinstance(step, Run):
            task = self.script.task(self.rank.rank, step)
            return now if task is None else int(e.stop[frame, task])
        if isinstance(step, Send):
            return int(e.stop[frame, self._handed(step)])
        reader = self._reader(step)
        if isinstance(following, Recv) and self._reader(following) == reader:
            return max(now, int(e.stop[frame, self._handed(step) + ENTER]))
        return int(e.start[frame, reader] - e.held_up[frame, reader] + e.receive[reader])

    def _reader(self, step: Recv) -> int:
        """The task that waits for a message first."""
        tasks = self.events.stage.tasks
        return int(tasks.to[tasks.first[self._handed(step) + ENTER]])

    def _step(self, step: Step, start: int, stop: int) -> Span:
        if isinstance(step, Run):
            return self._span(COMPUTE, step.file, start, stop)
        kind, peer = (SEND, step.dest) if isinstance(step, Send) else (WAIT, step.source)
        size = self.script.case.ledger.size[self.script.message(self.rank.rank, step)]
        return self._span(kind, step.buffer, start, stop, peer, step.tag, round(size))

    def _span(self, kind: str, name: str, start: int, stop: int, *message: int) -> Span:
        return Span(self.rank.rank, kind, name, (start - self.since) * TICK_S, (stop - self.since) * TICK_S, *message)
