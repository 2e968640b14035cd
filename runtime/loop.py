"""Frame after frame: fill the inputs, start together, run, keep the outputs, and hand all of it in at the end."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from runtime.frames import Frames, save_npz, save_text
from runtime.metering import Metering
from runtime.options import Options
from runtime.rank import Program, Rank
from runtime.trace import Span, Trace, Usage


def run_frames(program: Program, rank: Rank, options: Options) -> None:
    """Everything one rank does, from opening its segments to the files that rank 0 writes."""
    ranks = [rank, rank.twin()] if options.stream else [rank]
    lanes = [Lane(each, program(each)) for each in ranks]
    rank.shared.activity = "reading its input"
    source = Frames(options, rank.inputs)
    meter = Metering(rank.place.meter if options.report else None)
    frames: list[tuple[Span, ...]] = []
    kept: dict[str, list[np.ndarray]] = {name: [] for name in rank.outputs}
    origin = busy = 0.0
    for index in range(-options.warmup, options.frames):
        lane = lanes[index % len(lanes)]
        lane.rank.records.clear()
        if lane.rank.pending:  # of the frame before the last, in a stream
            lane.rank.finish()
        source.fill(index % options.frames, lane.rank.inputs)
        if index == 0:
            meter.start()
        if _together(index, options):
            rank.shared.activity = "waiting for the other ranks"
            rank.communicator.barrier()
            origin = time.perf_counter()
        began = time.process_time()
        if options.stream:
            _work_ahead(lanes, index, index + 1 == options.frames)
        else:
            lane.frame()
            lane.rank.finish()
        if index >= 0:
            busy += time.process_time() - began
            frames.append(_spans(lane.rank, origin))
            _keep(kept, lane.rank, options)
    for lane in lanes:
        if lane.rank.pending:
            lane.rank.finish()
    if options.report:
        rank.communicator.barrier()  # a host draws power until the last rank is done
    _hand_in(rank, options, _usage(rank, busy, meter.stop(options.frames)), frames, kept)


@dataclass(frozen=True)
class Lane:
    """A set of buffers, and what to do for a frame in it. A stream has two, used in turn."""

    rank: Rank
    frame: Callable[[], None]


def _work_ahead(lanes: list[Lane], index: int, last: bool) -> None:
    """Work on a frame while the next one may come, and leave what it sends on its way."""
    lane, following = lanes[index % 2], lanes[(index + 1) % 2]
    lane.rank.post()
    if not last:
        following.rank.post()
    lane.frame()


def _together(index: int, options: Options) -> bool:
    """Whether all ranks start a frame together. A stream that has begun goes on without."""
    return options.barrier or index == -options.warmup or (index == 0 and not options.stream)


def _spans(rank: Rank, origin: float) -> tuple[Span, ...]:
    number = rank.place.rank
    return tuple(Span(number, kind, name, a - origin, b - origin) for kind, name, a, b in rank.records)


def _keep(kept: dict[str, list[np.ndarray]], rank: Rank, options: Options) -> None:
    """Copy the outputs of a frame, if somebody wants them."""
    if options.output:
        for name, buffer in rank.outputs.items():
            kept[name].append(buffer.copy())


def _hand_in(rank: Rank, options: Options, usage: Usage, frames: Any, kept: Any) -> None:
    """Gather everything on rank 0 and write what was asked for."""
    rank.shared.activity = "gathering the results"
    everything = rank.communicator.gather((usage, frames, kept))
    if everything is None:
        return
    if options.report:
        save_text(options.report, _merge(everything, options.barrier).to_json())
    if options.output:
        outputs: dict[str, list[np.ndarray]] = {}
        for _, _, some in everything:
            outputs.update(some)
        save_npz(options.output, {name: np.stack(arrays) for name, arrays in outputs.items()})


def _merge(everything: list[Any], barrier: bool) -> Trace:
    """The ranks' frames side by side."""
    usages = tuple(usage for usage, _, _ in everything)
    by_frame = zip(*(frames for _, frames, _ in everything))
    frames = tuple(tuple(span for spans in ranks for span in spans) for ranks in by_frame)
    return Trace("measured", barrier, usages, frames)


def _usage(rank: Rank, processor_s: float, energy: dict[str, Any]) -> Usage:
    place = rank.place
    return Usage(
        rank=place.rank,
        device=place.device,
        provider=rank.provider,
        threads=rank.threads,
        peak_bytes=peak_bytes(),
        processor_s=processor_s,
        conditions=_conditions(),
        **energy,
    )


def peak_bytes() -> int:
    """The largest resident memory that this process has had."""
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _conditions() -> dict[str, str]:
    """What a measurement depends on: versions, cores that this process may use, how they are clocked."""
    found = {"python": platform.python_version(), "numpy": np.__version__, "machine": platform.machine()}
    if "onnxruntime" in sys.modules:
        found["onnxruntime"] = sys.modules["onnxruntime"].__version__
    if hasattr(os, "sched_getaffinity"):
        found["cores"] = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    governor = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    if os.path.exists(governor):
        with open(governor, encoding="ascii", errors="replace") as file:
            found["governor"] = file.read().strip()
    return found
