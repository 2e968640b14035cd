"""How fast is a bundle: frames one at a time, each timed from its first input to its last output; then in a stream."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from runtime.energy import accounted, check_idle
from runtime.errors import CleaveError
from runtime.images import PLAIN, Pixels
from runtime.infer import asked
from runtime.launch import TIMEOUT_S, Runner, read_plan, run
from runtime.options import Options
from runtime.steady import counted, steady_s
from runtime.trace import COMPUTE, SEND, WAIT, Memory, Trace, Usage
from runtime.transfers import transfers

WARMUP, FRAMES = 4, 20
"""Runs that are thrown away and runs that count, as in the thesis this follows."""
STOLEN, TRIES = 0.02, 4
"""A run is disturbed if other virtual machines had more than this part of a rank's cores. What is to be compared with
other runs is then measured again, so often at most."""


@dataclass(frozen=True)
class RankTimes:
    """Seconds that a rank spent computing, waiting and sending in one frame, in the mean of the frames that count.

    busy_s: of computing, what the processor was at it (``Span.busy_s``)
    wire_s: of the wait, what a message was under way; the rest of the wait its sender was not yet that far
    processor_s: processor time of one frame, mean; peak_bytes: of the whole run; memory: what it is made of
    clock_offset_s, clock_uncertainty_s: as in the trace
    """

    rank: int
    device: str
    compute_s: float
    busy_s: float
    wait_s: float
    wire_s: float
    send_s: float
    processor_s: float
    peak_bytes: int
    memory: Memory | None
    clock_offset_s: float
    clock_uncertainty_s: float

    @property
    def rest_bytes(self) -> int:
        """What no part of the memory holds, see ``Memory.rest_bytes``; all, where no part is known."""
        return self.memory.rest_bytes(self.peak_bytes) if self.memory else self.peak_bytes


@dataclass(frozen=True)
class Bench:
    """What was measured.

    latencies_s: of each frame alone, in order; ranks and trace are of these frames too
    stream:      of the stream, if there was one
    above_idle:  whether energies are without what idle hosts draw
    """

    latencies_s: tuple[float, ...]
    ranks: tuple[RankTimes, ...]
    trace: Trace
    stream: Trace | None = None
    above_idle: bool = False

    @property
    def period_s(self) -> float | None:
        """Time between frames in a steady stream."""
        return self.stream.period_s if self.stream else None

    @property
    def latency_s(self) -> float:
        """What a frame takes, in the mean of those that count: what predictions are of."""
        return steady_s(self.latencies_s)

    @property
    def median_s(self) -> float:
        """The middle latency."""
        return median(self.latencies_s)

    @property
    def min_s(self) -> float:
        """The best latency."""
        return min(self.latencies_s)

    @property
    def max_s(self) -> float:
        """The worst latency."""
        return max(self.latencies_s)

    @staticmethod
    def from_trace(trace: Trace, stream: Trace | None = None) -> Bench:
        """The figures of a measured trace, wherever it was measured, and of a stream of frames."""
        frames = counted(trace.latencies_s)
        sums = {kind: _means([trace.sums_s(k, kind) for k in frames]) for kind in (COMPUTE, WAIT, SEND)}
        busy = _means([trace.busy_s(k) for k in frames])
        wires = _means([_wires_s(trace, k) for k in frames])
        ranks = tuple(
            RankTimes(
                rank=usage.rank,
                device=usage.device,
                compute_s=sums[COMPUTE][i],
                busy_s=busy[i],
                wait_s=sums[WAIT][i],
                wire_s=wires[i],
                send_s=sums[SEND][i],
                processor_s=usage.processor_s / len(trace.frames),
                peak_bytes=usage.peak_bytes,
                memory=usage.memory,
                clock_offset_s=usage.clock_offset_s,
                clock_uncertainty_s=usage.clock_uncertainty_s,
            )
            for i, usage in enumerate(trace.ranks)
        )
        return Bench(trace.latencies_s, ranks, trace, stream)

    @staticmethod
    def from_lines(text: str, where: str) -> Bench:
        """The figures of traces that ``to_lines`` wrote; ``CleaveError`` names ``where``."""
        found = traces(text, where)
        if len(found) not in (1, 2):
            raise CleaveError(f"{where}: is not what a benchmark keeps, one trace a line")
        return Bench.from_trace(*found)

    def to_lines(self) -> str:
        """Its traces as text, one a line."""
        return "".join(trace.to_json() for trace in self.traces)

    @property
    def traces(self) -> tuple[Trace, ...]:
        """All that there are."""
        return (self.trace, self.stream) if self.stream else (self.trace,)

    @property
    def stolen(self) -> float:
        """The largest part of the time of a rank's cores that other virtual machines had."""
        return _stolen(self.traces)

    def energies(self) -> list[dict[str, Any]]:
        """Of each host with an energy or a reason why not: rank, device, then one frame alone and one of the stream."""
        streamed = {usage.rank: usage for usage in self.stream.ranks} if self.stream else {}
        rows = []
        for usage in self.trace.ranks:
            if usage.energy_j is not None or usage.energy_note:
                stream = streamed.get(usage.rank)
                found = {"alone": _energy(usage), "stream": _energy(stream) if stream else None}
                rows.append({"rank": usage.rank, "device": usage.device, **found})
        return rows

    def to_json(self) -> str:
        """For ``--json``, without the trace."""
        body: dict[str, Any] = {
            "latency_s": self.latency_s,
            "median_s": self.median_s,
            "min_s": self.min_s,
            "max_s": self.max_s,
            "period_s": self.period_s,
            "latencies_s": self.latencies_s,
            "ranks": [asdict(rank) for rank in self.ranks],
            "stolen": self.stolen,
            "energy_above_idle": self.above_idle,
            "energies": self.energies(),
        }
        return json.dumps(body, indent=1) + "\n"


def bench(
    bundle: Path,
    *,
    warmup: int = WARMUP,
    frames: int = FRAMES,
    threads: int | None = None,
    provider: str | None = None,
    input: str | None = None,
    pixels: Pixels = PLAIN,
    timeout_s: float = TIMEOUT_S,
    runner: Runner | None = None,
    above_idle: bool = False,
    tries: int = 1,
) -> Bench:
    """Run a bundle, every frame started together, and then as a stream.

    timeout_s: of both together
    tries: how often at most, as ``measured`` says it
    input, pixels: which frames, used round and round; without, random ones
    runner: what runs it, in so many seconds at most; None: this machine
    above_idle: subtract what idle hosts draw from their energies
    """
    both = Options(frames, warmup, True, input, threads=threads, provider=provider, stream=True, pixels=pixels)
    plan = read_plan(bundle)
    asked(plan, both, frames)
    if above_idle:
        check_idle(plan)
    runner = runner or (lambda options, time_s: run(bundle, options, timeout_s=time_s))
    alone, stream = (accounted(trace, plan, above_idle) for trace in measured(runner, both, timeout_s, tries))
    return replace(Bench.from_trace(alone, stream), above_idle=above_idle)


def measured(runner: Runner, options: Options, timeout_s: float, tries: int = 1) -> tuple[Trace, ...]:
    """What a run says of itself, a trace for each pass that ``options`` ask for.

    One that was disturbed (``STOLEN``) is made again until it was not, ``tries`` times at most; the one that was
    disturbed least counts.
    """
    found: list[tuple[Trace, ...]] = []
    while not found or (len(found) < tries and _stolen(found[-1]) > STOLEN):
        found.append(_run(runner, options, timeout_s))
    return min(found, key=_stolen)


def _stolen(passes: tuple[Trace, ...]) -> float:
    return max(trace.stolen for trace in passes)


def _run(runner: Runner, options: Options, timeout_s: float) -> tuple[Trace, ...]:
    with tempfile.TemporaryDirectory(prefix="cleave-") as folder:
        report = Path(folder) / "report.json"
        runner(replace(options, report=str(report)), timeout_s)
        return traces(report.read_text(encoding="utf-8"), str(report))


def traces(text: str, where: str) -> tuple[Trace, ...]:
    """Traces, one a line; ``CleaveError`` names ``where``."""
    return tuple(Trace.from_json(line, f"{where}:{i}") for i, line in enumerate(text.splitlines(), 1))


def _energy(usage: Usage) -> dict[str, Any]:
    """What a trace says of a host's energy, in one frame."""
    return {
        "energy_j": usage.energy_j,
        "time_s": usage.energy_time_s,
        "source": usage.energy_source,
        "samples": usage.energy_samples,
        "note": usage.energy_note,
    }


def _wires_s(trace: Trace, frame: int) -> tuple[float, ...]:
    """By rank, how long it waited for messages under way."""
    sums = {usage.rank: 0.0 for usage in trace.ranks}
    for message in transfers(trace.frames[frame]):
        sums[message.wait.rank] += message.wire_s
    return tuple(sums.values())


def _means(by_frame: list[tuple[float, ...]]) -> list[float]:
    """Of each rank, in the order of ``trace.ranks``."""
    return [fmean(seconds) for seconds in zip(*by_frame, strict=True)]
