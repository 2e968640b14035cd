"""Frame after frame: start together, fill the inputs, run, keep the outputs, and hand all of it in at the end.

First one at a time and then in a stream, where both are asked for: opening the segments is what takes longest.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Callable

import numpy as np

from runtime import memory
from runtime.clock import Clock, Exchange, compare
from runtime.frames import Frames, save_text
from runtime.metering import Metering
from runtime.options import Options
from runtime.rank import Program, Rank, Record
from runtime.report import Account, described, hand_in, usage
from runtime.stolen import Stolen
from runtime.trace import INPUT


def run_frames(program: Program, rank: Rank, options: Options) -> None:
    """Everything one rank does, from opening its segments to the files that rank 0 writes."""
    lanes, traces = [_lane(program, rank)], []
    source: Frames | None = None
    for now in options.passes:
        if now.stream:
            lanes.append(_lane(program, rank.twin()))
        source = source or _source(rank, now)
        traces.append(_pass(lanes, source, now))
    if options.report and rank.communicator.rank == 0:
        save_text(options.report, "".join(traces))


def _lane(program: Program, rank: Rank) -> Lane:
    """Buffers, and the segments that work on them, which are opened if they are not open yet."""
    with memory.frugal():
        lane = Lane(rank, program(rank))
    rank.fetch()
    return lane


def _source(rank: Rank, options: Options) -> Frames:
    rank.shared.activity = "reading its input"
    with rank.shared.footprint.growing(memory.INPUT):
        return Frames(options, rank.inputs)


def _pass(lanes: list[Lane], source: Frames, options: Options) -> str:
    """Frames of one pace, in each of the lanes in turn; returns their trace, on rank 0 and if it is wanted."""
    rank = lanes[0].rank
    meter, others = Metering(rank.place.meter if options.report else None), Stolen()
    frames: list[list[Record]] = []
    kept: dict[str, list[np.ndarray]] = {name: [] for name in rank.outputs}
    first, busy_s = _compare(rank, options), 0.0
    with rank.shared.footprint.growing(memory.FRAMES):
        for index in range(-options.warmup, options.frames):
            lane = lanes[index % len(lanes)]
            lane.rank.records.clear()
            if lane.rank.pending:  # of the frame before the last, in a stream
                lane.rank.finish()
            if index == 0:
                others.start()
                meter.start()
            if _together(index, options):
                _meet(lane.rank)
            _fill(source, index % options.frames, lane.rank)
            began = time.process_time()
            if options.stream:
                _work_ahead(lanes, index, index + 1 == options.frames)
            else:
                lane.frame()
                lane.rank.finish()
            if index >= 0:
                busy_s += time.process_time() - began
                if options.report:  # else nobody looks, and a day's frames are many
                    frames.append(list(lane.rank.records))
                _keep(kept, lane.rank, options)
        for lane in lanes:
            if lane.rank.pending:
                lane.rank.finish()
    stolen = others.stop()
    if options.report:
        rank.communicator.barrier()  # a host draws power until the last rank is done
    energy, last = meter.stop(options.frames), _compare(rank, options)
    clock = {other: Clock(exchange, last[other]) for other, exchange in first.items()}
    account = Account(usage(rank, busy_s, stolen, energy), frames, described(kept))
    return hand_in(rank, options, account, kept, clock)


@dataclass(frozen=True)
class Lane:
    """A set of buffers, and what to do for a frame in it. A stream has two, used in turn."""

    rank: Rank
    frame: Callable[[], None]


def _compare(rank: Rank, options: Options) -> dict[int, Exchange]:
    """The clocks of the hosts, where anybody will look at times."""
    rank.shared.activity = "comparing clocks"
    return compare(rank.communicator) if options.report else {}


def _meet(rank: Rank) -> None:
    """Start a frame when all are done with the last one. Ranks with an input come last: it then finds the others
    waiting for it, as in use, however long after one another they leave the barrier.
    """
    rank.shared.activity = "waiting for the other ranks"
    rank.communicator.barrier()
    rank.pending.append(rank.communicator.arrive())
    if rank.inputs:
        rank.wait()


def _fill(source: Frames, index: int, rank: Rank) -> None:
    if rank.inputs:
        with rank.doing(INPUT, ", ".join(rank.inputs)):
            source.fill(index, rank.inputs)


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


def _keep(kept: dict[str, list[np.ndarray]], rank: Rank, options: Options) -> None:
    """Copy the outputs of a frame, if somebody wants them."""
    if options.output:
        for name, buffer in rank.outputs.items():
            kept[name].append(buffer.copy())
