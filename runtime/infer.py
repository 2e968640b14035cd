"""Use a bundle: run a user's frames through it on this machine, and keep what it answers. Workstation only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from runtime.frames import Frames
from runtime.launch import read_plan, run
from runtime.options import Options
from runtime.plan import Buffer, Plan


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


def infer(bundle: Path, options: Options) -> Answer:
    """Run the bundle as ``options`` say, which ``asked`` has seen, however long it takes."""
    plan = read_plan(bundle)
    done = run(bundle, options, timeout_s=None)
    return Answer(str(options.output), options.frames, plan.outputs, done.time_s)


def asked(plan: Plan, options: Options, frames: int | None) -> tuple[Options, Frames]:
    """``options`` with so many frames, and those frames; ``CleaveError`` before a rank starts where they do not fit.

    frames: ``None``: as many as the input holds; where it is random, as many as ``options`` say
    """
    buffers = {b.name: np.zeros(b.shape, b.dtype) for b in plan.inputs}
    options = replace(options, frames=frames or options.frames)
    given = Frames(options, buffers)
    if frames is not None or given.count is None:
        return options, given
    options = replace(options, frames=given.count)
    return options, Frames(options, buffers)
