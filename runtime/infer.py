"""Use a bundle: run a user's frames through it, here or on its hosts, and keep what it answers. Workstation only."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from runtime.errors import CleaveError
from runtime.frames import Frames
from runtime.launch import Runner, read_plan, run
from runtime.options import Options
from runtime.plan import Buffer, Plan

MOST_BYTES = 2**31 - 2**20
"""Of all answers together: ranks have them in memory until the end, and those in C++ hand them in as one message of
MPI, with room for what says which is which."""

LONGEST_S = 86_400.0
"""Most seconds of a run on hosts: the key by which they let it in has to end some day."""


@dataclass(frozen=True)
class Answer:
    """What was written.

    output:  the .npz file: an array for each of ``outputs``, first axis = frame
    outputs: those of the CNN, one frame each
    time_s:  from start to end, with starting the ranks and opening their segments
    """

    output: str
    frames: int
    outputs: tuple[Buffer, ...]
    time_s: float

    def to_json(self) -> str:
        """For ``--json``."""
        return json.dumps(asdict(self), indent=1) + "\n"


def infer(bundle: Path, options: Options, timeout_s: float | None = None, runner: Runner | None = None) -> Answer:
    """Run the bundle as ``options`` say, which ``asked`` has seen.

    timeout_s: None: however long it takes, on hosts ``LONGEST_S``
    runner: what runs it, in so many seconds at most; None: this machine
    """
    plan = read_plan(bundle)
    done = runner(options, timeout_s or LONGEST_S) if runner else run(bundle, options, timeout_s=timeout_s)
    return Answer(str(options.output), options.frames, plan.outputs, done.time_s)


def asked(plan: Plan, options: Options, frames: int | None, most: int | None = None) -> tuple[Options, Frames]:
    """``options`` with so many frames, and those frames; ``CleaveError`` before a rank starts where they do not fit.

    frames: ``None``: as many as the input holds, ``most`` of them; where it is random, as many as ``options`` say
    """
    buffers = {b.name: np.zeros(b.shape, b.dtype) for b in plan.inputs}
    options = replace(options, frames=frames or options.frames)
    given = Frames(options, buffers)
    if frames is None and given.count is not None:
        options = replace(options, frames=min(given.count, most or given.count))
        given = Frames(options, buffers)
    _check_size(plan, options)
    return options, given


def _check_size(plan: Plan, options: Options) -> None:
    """``CleaveError`` where the answers are more than MPI takes at once: the ranks hand them in at the end."""
    frame_bytes = sum(math.prod(b.shape) * np.dtype(b.dtype).itemsize for b in plan.outputs)
    answers_bytes = options.frames * frame_bytes
    if options.output is not None and answers_bytes > MOST_BYTES:
        raise CleaveError(
            f"the answers to {options.frames} frames take {answers_bytes / 1e9:.1f} GB, and ranks can hand in 2 GB; "
            f"take at most {MOST_BYTES // frame_bytes} frames at a time (--frames, or less of --input)"
        )
