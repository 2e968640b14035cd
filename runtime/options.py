"""What a bundle can be asked to do: the options of its ``main.py``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Callable


@dataclass(frozen=True)
class Options:
    """How many frames to run, on what, and where the results go.

    frames:   that are measured and kept
    warmup:   frames before them that are not
    barrier:  start every frame together (latency) instead of one after the other (throughput)
    input:    npz file: for each input of the CNN an array of frames, first axis = frame; used round and round.
              Needed where a rank holds an input. Without it: random frames, the same for the same ``seed``
    output:   npz file, written by rank 0: for each output of the CNN an array of frames
    report:   JSON file, written by rank 0: the trace
    threads, provider: instead of those of the plan, on every rank
    stream:   several frames on their way at once (throughput): a rank works on one while it sends the one before and
              receives the next. Takes a second set of buffers; no barrier
    """

    frames: int = 1
    warmup: int = 0
    barrier: bool = False
    input: str | None = None
    output: str | None = None
    report: str | None = None
    threads: int | None = None
    provider: str | None = None
    seed: int = 0
    stream: bool = False

    def arguments(self) -> list[str]:
        """As a command line that ``parse`` reads back."""
        words = [f"--frames={self.frames}", f"--warmup={self.warmup}", f"--seed={self.seed}"]
        words += ["--barrier"] if self.barrier else []
        words += ["--stream"] if self.stream else []
        for name in ("input", "output", "report", "threads", "provider"):
            if getattr(self, name) is not None:
                words.append(f"--{name}={getattr(self, name)}")
        return words


def parse(arguments: list[str]) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Run this CNN on the ranks that mpirun started.")
    parser.add_argument("--frames", type=_count(1), default=1, metavar="N", help="frames to measure (1)")
    parser.add_argument("--warmup", type=_count(0), default=0, metavar="W", help="frames before them (0)")
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument("--barrier", action="store_true", help="start every frame together")
    pace.add_argument("--stream", action="store_true", help="work on one frame while others are on their way")
    parser.add_argument("--input", metavar="FILE.npz", help="frames, an array for each input of the CNN")
    parser.add_argument("--output", metavar="FILE.npz", help="write the outputs here")
    parser.add_argument("--report", metavar="FILE.json", help="write times and memory here")
    parser.add_argument("--threads", type=_count(1), metavar="N", help="instead of the plan's, on every rank")
    parser.add_argument("--provider", metavar="NAME", help="instead of the plan's, on every rank")
    parser.add_argument("--seed", type=_count(0), default=0, metavar="N", help="of random frames (0)")
    return Options(**vars(parser.parse_args(arguments)))


def _count(least: int) -> Callable[[str], int]:
    def count(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return int(text)

    return count
