"""What ranks hand in when their frames are done, and the files that rank 0 makes of it."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, List, Sequence

import numpy as np

from runtime.clock import Clock
from runtime.communicator import Request, wait
from runtime.frames import Stack, save_stacks
from runtime.memory import peak_bytes
from runtime.options import Options
from runtime.rank import Rank, Record
from runtime.trace import INPUT, MEASURED, Span, Trace, Usage

RESULTS = 0
"""Tag of outputs, which are sent after all frames."""
GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
"""How processors are clocked; not on every machine, and not for everybody to read."""


Outputs = Dict[str, List[np.ndarray]]
"""Of the CNN, of each frame."""


@dataclass(frozen=True)
class Account:
    """What one rank hands in. frames: by its own clock; kept: of each output of the CNN that it has, if they are
    wanted: the shape of all its frames, and their type"""

    usage: Usage
    frames: list[list[Record]]
    kept: dict[str, tuple[tuple[int, ...], str]]


def hand_in(rank: Rank, options: Options, account: Account, outputs: Outputs, clock: dict[int, Clock]) -> str:
    """Gather everything on rank 0, which writes the outputs and returns the trace as a line, if they are wanted.

    outputs: those that ``account`` tells of; clock: on rank 0, of each other host's first rank
    """
    rank.shared.activity = "gathering the results"
    accounts = rank.communicator.gather(account)
    if accounts is None:
        _hand_over(rank, outputs)
        return ""
    if options.output:
        save_stacks(options.output, dict(_stacks(rank, accounts, outputs)))
    if not options.report:
        return ""
    clocks = [clock.get(first, Clock()) for first in rank.communicator.hosts]
    return merge(accounts, clocks, options.barrier).to_json()


def described(outputs: Outputs) -> dict[str, tuple[tuple[int, ...], str]]:
    """What an account says of them."""
    return {name: ((len(each), *each[0].shape), each[0].dtype.str) for name, each in outputs.items() if each}


def _hand_over(rank: Rank, outputs: Outputs) -> None:
    """Send rank 0 one frame after the other, as ``_stacks`` takes them: there is not room for all twice everywhere."""
    for arrays in filter(None, outputs.values()):
        array = np.empty_like(arrays[0])
        request = rank.communicator.sender(array, 0, RESULTS)
        for frame in arrays:
            array[...] = frame
            _done(request)


def _stacks(rank: Rank, accounts: Sequence[Account], own: Outputs) -> Iterator[tuple[str, Stack]]:
    """All ranks' outputs, by name; those of others come when they are asked for."""
    for source, account in enumerate(accounts):
        for name, (shape, dtype) in account.kept.items():
            parts = own[name] if source == rank.communicator.rank else _coming(rank, source, shape, dtype)
            yield name, (shape, np.dtype(dtype), parts)


def _coming(rank: Rank, source: int, shape: tuple[int, ...], dtype: str) -> Iterator[np.ndarray]:
    """An output of another rank, each frame in the same place."""
    array = np.empty(shape[1:], dtype)
    request = rank.communicator.receiver(array, source, RESULTS)
    for _ in range(shape[0]):
        _done(request)
        yield array


def _done(request: Request) -> None:
    request.start()
    wait(request.test)


def merge(accounts: Sequence[Account], clocks: Sequence[Clock], barrier: bool) -> Trace:
    """The ranks' frames side by side, by the clock of rank 0."""
    usages = [
        replace(account.usage, clock_offset_s=clock.offset_s, clock_uncertainty_s=clock.uncertainty_s)
        for account, clock in zip(accounts, clocks)
    ]
    spans = [
        [[_span(usage.rank, record, clock) for record in records] for records in account.frames]
        for usage, account, clock in zip(usages, accounts, clocks)
    ]
    frames = [[span for rank in ranks for span in rank] for ranks in zip(*spans)]
    begins = [_begin(frame) for frame in frames]
    since = begins if barrier else begins[:1] * len(frames)
    return Trace(MEASURED, barrier, tuple(usages), tuple(_later(frame, -t) for frame, t in zip(frames, since)))


def _span(rank: int, record: Record, clock: Clock) -> Span:
    kind, name, start_s, stop_s, *more = record
    return Span(rank, kind, name, clock.aligned(start_s), clock.aligned(stop_s), *more)


def _begin(frame: Sequence[Span]) -> float:
    """When the first input was there; of a CNN without one, when the first rank began."""
    return min((s.stop_s for s in frame if s.kind == INPUT), default=min((s.start_s for s in frame), default=0.0))


def _later(frame: Sequence[Span], time_s: float) -> tuple[Span, ...]:
    return tuple(replace(s, start_s=s.start_s + time_s, stop_s=s.stop_s + time_s) for s in frame)


def usage(rank: Rank, processor_s: float, stolen: float | None, energy: dict[str, Any]) -> Usage:
    """What a rank took. stolen: from its cores; energy: the fields that its meter gives"""
    return Usage(
        rank=rank.place.rank,
        device=rank.place.device,
        provider=rank.provider,
        threads=rank.threads,
        peak_bytes=peak_bytes(),
        processor_s=processor_s,
        memory=rank.shared.footprint.memory(),
        reads=bool(rank.inputs),
        writes=bool(rank.outputs),
        conditions=conditions(),
        stolen=stolen,
        **energy,
    )


def conditions() -> dict[str, str]:
    """What a measurement depends on: versions, cores that this process may use, how they are clocked."""
    found = {"python": platform.python_version(), "numpy": np.__version__, "machine": platform.machine()}
    if "onnxruntime" in sys.modules:
        found["onnxruntime"] = sys.modules["onnxruntime"].__version__
    if hasattr(os, "sched_getaffinity"):
        found["cores"] = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    with suppress(OSError), open(GOVERNOR, encoding="ascii", errors="replace") as file:
        found["governor"] = file.read().strip()
    return found
