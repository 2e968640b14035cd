"""Running a design, or messages, on its devices, and what of it is kept."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from time import monotonic

from blake3 import blake3

from codegen.bundle import Form, write_bundle
from codegen.folder import scratch
from codegen.render import programs
from dse.calibrate.boards import described
from dse.calibrate.design import Design
from dse.calibrate.links import LinkBundle, read
from dse.inputs import Cnn
from dse.provenance import PROGRAMS
from dse.ready import Place
from model.cluster.platform import Platform
from model.cost.held_weights import Weights
from model.cost.priced import priced, pricer
from model.cost.samples import SEGMENT, Arrival, Footing, PartOf, Run, Sample, means_s
from model.fit.link_costs import LinkSample
from model.network.graph import Graph, Tensor
from runtime import plan as plans
from runtime.bench import TRIES, measured
from runtime.options import Options
from runtime.plan import Plan, RankPlan, Recv
from runtime.steady import counted
from runtime.trace import COMPUTE, INPUT, MEASURED, Span, Trace, Usage
from runtime.transfers import Transfer, transfers

WARMUP = 2
LEAST, MOST = 3, 200
"""Frames of a run that count."""
WATTS = (None,)
"""Stands in keys of runs for what a platform file may say of watts, which are no matter of what was measured."""


@dataclass(frozen=True)
class Subject:
    """What is measured: a network on a device."""

    cnn: Cnn
    platform: Platform
    device: int

    @property
    def name(self) -> str:
        """Of the device."""
        return self.platform.devices[self.device].name

    @property
    def host(self) -> str:
        """Name of the device's host."""
        return self.platform.hosts[self.platform.devices[self.device].host].name


@dataclass(frozen=True)
class Job:
    """One run: which design, on what, and how many frames that count. turn: how often it was run before"""

    subject: Subject
    design: Design
    frames: int
    turn: int = 0

    @cached_property
    def key(self) -> str:
        """What the run is known by: those of equal keys measure the same."""
        cnn, platform, device = self.subject.cnn, self.subject.platform, self.subject.device
        devices = self.design.mapping.devices
        shards = [(s.layer, s.start, s.stop, s.axis, *_which(devices, s.device)) for s in self.design.mapping.shards]
        network = [cnn.source.blake3, cnn.folded, sorted(cnn.shapes.items())]
        place = [[platform.devices[d].name, [*described(platform, d), *WATTS]] for d in devices or [device]]
        where, turn = place[0] if len(place) == 1 else place, [self.turn] if self.turn else []
        of = [where, network, self.design.what, shards, self.design.borders, *turn]
        return blake3(json.dumps(of).encode()).hexdigest(16)

    def __str__(self) -> str:
        devices = len(self.design.mapping.devices)
        where = self.subject.name if devices == 1 else f"{devices} devices"
        return f"{self.subject.cnn.graph.name} on {where}: {self.design.what}"


def _which(devices: Sequence[int], device: int) -> tuple[int, ...]:
    """Its number where there are several."""
    return (devices.index(device),) if len(devices) > 1 else ()


def frames_for(budget_s: float, frame_s: float) -> int:
    """How many frames take about so long; enough of them to be worth it, however long they take."""
    return min(max(round(budget_s / max(frame_s, 1e-9)), LEAST), MOST)


def run(job: Job, place: Place, folder: Path, timeout_s: float) -> Run:
    """Make a bundle, run it, and say what came of it. It is in ``folder`` meanwhile."""
    subject, design, began, begin_s = job.subject, job.design, datetime.now(UTC), monotonic()
    cnn, options = subject.cnn, Options(job.frames, WARMUP, barrier=True, stream=design.stream)
    with scratch(folder, ".bundle-") as draft:
        bundle, form = draft / "calibration", Form(borders=design.borders)
        plan = write_bundle(cnn.graph, subject.platform, design.mapping, cnn.source, bundle, False, form)
        with place(bundle) as ready:
            trace, *streams = measured(ready.runner, options, timeout_s, TRIES)
    return Run(
        key=job.key,
        device=subject.name,
        network=cnn.graph.name,
        target=form.target,
        model=cnn.source.blake3,
        what=design.what,
        date=began.isoformat(timespec="seconds"),
        host=subject.host,
        command=" ".join(["main.py", *options.arguments()]),
        conditions={**ready.facts, **(trace.ranks[0].conditions or {}), PROGRAMS: programs()},
        latencies_s=tuple(round(time_s, 9) for time_s in trace.latencies_s),
        ranks=footings(subject, design, plan, trace, *streams),
        samples=samples(cnn.graph, plan, trace),
        arrivals=arrivals(plan, trace),
        stolen=max(each.stolen for each in (trace, *streams)),
        period_s=streams[0].period_s if streams else None,
        took_s=round(monotonic() - begin_s, 3),
    )


def least_s(look: Run) -> float:
    """Seconds that such a run of frames alone takes at least, with bringing and starting its bundle.

    look: at it, of frames alone, and of as many in a stream if it has a period
    """
    frame_s = look.time_s + (look.period_s or 0.0)
    start_s = max(look.took_s - (WARMUP + len(look.latencies_s)) * frame_s, 0.0)
    return start_s + (WARMUP + LEAST) * look.time_s


def link_key(bundle: LinkBundle) -> str:
    """What a run of messages is known by."""
    return blake3(bundle.plan.to_json().encode()).hexdigest(16)


def link_samples(bundle: LinkBundle, place: Place, folder: Path, timeout_s: float) -> list[LinkSample]:
    """Make a bundle that measures links, run it, and say what came of it."""
    with scratch(folder, ".bundle-") as draft:
        path = draft / "calibration"
        bundle.write(path)
        with place(path) as ready:
            (trace,) = measured(ready.runner, bundle.options, timeout_s, TRIES)
            return read(bundle.plan, trace)


def samples(graph: Graph, plan: Plan, trace: Trace) -> tuple[Sample, ...]:
    """What each segment took, by rank, in order. Those that only join parts are left out."""
    spans: dict[tuple[int, str], list[Span]] = defaultdict(list)
    for span in (span for frame in trace.frames for span in frame if span.kind == COMPUTE):
        spans[span.rank, span.name].append(span)
    frames = counted(trace.latencies_s)
    return tuple(
        Sample(
            kind=SEGMENT,
            device=rank.device,
            network=graph.name,
            parts=_parts(graph, each),
            times_s=tuple(round(span.time_s, 9) for span in spans[rank.rank, each.file]),
            begin_s=round(median(span.start_s for span in spans[rank.rank, each.file]), 9),
            busy_s=_busy_s([spans[rank.rank, each.file][frame] for frame in frames]),
        )
        for rank in plan.ranks
        for each in rank.runs
        if each.parts
    )


def _busy_s(spans: Sequence[Span]) -> float | None:
    """Of the frames that count, mean; None where one does not tell."""
    told = [span.busy_s for span in spans if span.busy_s is not None]
    return round(fmean(told), 9) if len(told) == len(spans) else None


def _parts(graph: Graph, run: plans.Run) -> tuple[PartOf, ...]:
    return tuple(PartOf(graph.by_name[p.layer].index, p.axis, p.start, p.stop) for p in run.parts)


def footings(
    subject: Subject, design: Design, plan: Plan, trace: Trace, stream: Trace | None = None
) -> tuple[Footing, ...]:
    """What each rank held and took."""
    graph, platform = subject.cnn.graph, _unknown(subject.platform)
    accounts = {row["device"]: row for row in priced(graph, platform, design.mapping).devices(platform)}
    weights = Weights(graph)
    held = {rank.device: weights.held([_parts(graph, run) for run in rank.runs]) for rank in plan.ranks}
    in_stream = defaultdict[str, float](float)
    between = {usage.device: round(_else_s(stream, usage), 9) for usage in stream.ranks} if stream else {}
    seen = samples(graph, plan, stream) if stream else ()
    for sample, time_s in zip(seen, means_s(seen), strict=True):
        in_stream[sample.device] += float(time_s)
    return tuple(
        Footing(
            device=rank.device,
            weights_bytes=float(accounts[rank.device]["weights_bytes"]),
            activations_bytes=float(accounts[rank.device]["activations_bytes"]),
            messages_bytes=float(accounts[rank.device]["buffers_bytes"]),
            buffers_bytes=float(_buffers_bytes(plan, rank.rank)),
            segments=len(rank.runs),
            layers=sum(len(run.parts) for run in rank.runs),
            peak_bytes=usage.peak_bytes,
            memory=usage.memory,
            processor_s=round(_processor_s(trace, usage), 9),
            weights_of=held[rank.device].by_kind,
            opening_bytes=held[rank.device].opening_bytes,
            energy_j=usage.energy_j if usage.energy_source == MEASURED else None,
            energy_time_s=usage.energy_time_s if usage.energy_source == MEASURED else None,
            stream_s=round(in_stream[rank.device], 9) if stream else None,
            between_s=between.get(rank.device),
            input_bytes=float(sum(_bytes(buffer) for buffer in rank.buffers if buffer.name in rank.inputs)),
            fill_s=_fill_s(stream, rank.rank) if stream else None,
        )
        for rank, usage in zip(plan.ranks, trace.ranks, strict=True)
    )


def _fill_s(trace: Trace, rank: int) -> float | None:
    """Seconds of a frame in which a rank fills its inputs, median; None: it has none."""
    told = [s.time_s for frame in trace.frames for s in frame if s.rank == rank and s.kind == INPUT]
    return round(median(told), 9) if told else None


def _processor_s(trace: Trace, usage: Usage) -> float:
    """Of a frame that counts, mean: what a rank computes is known of each frame, what else it does of all together."""
    busy = _computing_s(trace, usage)
    return _else_s(trace, usage) + fmean(busy[frame] for frame in counted(trace.latencies_s))


def _else_s(trace: Trace, usage: Usage) -> float:
    """Processor time of a frame, mean of all, in which a rank does not compute, as far as segments tell theirs."""
    return usage.processor_s / len(trace.frames) - fmean(_computing_s(trace, usage))


def _computing_s(trace: Trace, usage: Usage) -> list[float]:
    """Processor time of a rank's segments, by frame."""
    return [sum(s.busy_s or 0.0 for s in frame if s.rank == usage.rank) for frame in trace.frames]


def arrivals(plan: Plan, trace: Trace) -> tuple[Arrival, ...]:
    """The messages of a frame, by sender and receiver, in the order in which they are handed over."""
    index = {each.file: k for k, each in enumerate(each for rank in plan.ranks for each in rank.runs if each.parts)}
    found: dict[tuple[int, int, int], list[Transfer]] = defaultdict(list)
    for frame in trace.frames:
        for message in transfers(frame):
            found[*message.link, message.wait.tag].append(message)
    after = {key: file for rank in plan.ranks for key, file in _awaited(rank).items()}
    devices = {rank.rank: rank.device for rank in plan.ranks}
    return tuple(
        Arrival(
            devices[source],
            devices[target],
            seen[0].send.size_bytes,
            index.get(after.get((source, target, tag), "")),
            _took_s(seen),
            round(median(message.start_s for message in seen), 9),
        )
        for (source, target, tag), seen in sorted(found.items())
    )


def _awaited(rank: RankPlan) -> dict[tuple[int, int, int], str]:
    """Message → file of the segment that the rank runs next."""
    found: dict[tuple[int, int, int], str] = {}
    waiting: list[tuple[int, int, int]] = []
    for step in rank.steps:
        if isinstance(step, Recv):
            waiting.append((step.source, rank.rank, step.tag))
        elif isinstance(step, plans.Run):
            found |= dict.fromkeys(waiting, step.file)
            waiting = []
    return found


def _took_s(seen: Sequence[Transfer]) -> float | None:
    awaited = [message.stop_s - message.start_s for message in seen if message.wait.start_s < message.start_s]
    return round(median(awaited), 9) if 2 * len(awaited) > len(seen) else None


def guess(cnn: Cnn, platform: Platform) -> Callable[[Design], float]:
    """Tells seconds of a frame by coefficients that are nobody's, often wrong by several times."""
    price = pricer(cnn.graph, _unknown(platform))
    return lambda design: price(design.mapping).latency_s


def _unknown(platform: Platform) -> Platform:
    """What a calibration is to find out need not be there."""
    devices = tuple(replace(device, coefficients="generic", slowdown=1.0) for device in platform.devices)
    return replace(platform, devices=devices)


def _buffers_bytes(plan: Plan, rank: int) -> int:
    """Of all buffers that have memory of their own."""
    return sum(_bytes(buffer) for buffer in plan.ranks[rank].buffers if buffer.within is None)


def _bytes(buffer: plans.Buffer) -> int:
    return Tensor(buffer.name, buffer.shape, buffer.dtype).size_bytes
