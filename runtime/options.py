"""What a bundle can be asked to do: the options of its ``main.py``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Callable

from runtime.errors import CleaveError
from runtime.images import ORDERS, PLAIN, Pixels, numbers


@dataclass(frozen=True)
class Options:
    """How many frames to run, on what, and where the results go.

    frames:   that are measured and kept
    warmup:   frames before them that are not
    barrier:  start every frame together (latency) instead of one after the other (throughput); with stream: first so
              many frames that start together, then as many in a stream, each with its warmup
    input:    frames, used round and round; needed where a rank holds an input. One of
              .npz: for each input of the CNN an array of frames, first axis = frame, or one frame without that axis;
              .npy: the same for a CNN with one input; .raw, .bin: bytes of such frames, little-endian;
              an image (``runtime.images``); a folder of .npy, .raw, .bin and images, each one frame, in the order of
              their names. Without it: random frames, the same for the same ``seed``
    output:   npz file, written by rank 0: for each output of the CNN an array of frames; those of the last pass
    report:   JSON file, written by rank 0: the trace of each pass, one a line
    threads, provider: instead of those of the plan, on every rank
    stream:   several frames on their way at once (throughput): a rank works on one while it sends the one before and
              receives the next. Takes a second set of buffers
    pixels:   how images become frames
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
    pixels: Pixels = PLAIN

    @property
    def passes(self) -> list[Options]:
        """What is asked for, one after the other: each is either of frames that start together or a stream."""
        if self.barrier and self.stream:
            return [replace(self, stream=False), replace(self, barrier=False)]
        return [self]

    def arguments(self) -> list[str]:
        """As a command line that ``parse`` reads back."""
        words = [f"--frames={self.frames}", f"--warmup={self.warmup}", f"--seed={self.seed}"]
        words += ["--barrier"] if self.barrier else []
        words += ["--stream"] if self.stream else []
        for name in ("input", "output", "report", "threads", "provider"):
            if getattr(self, name) is not None:
                words.append(f"--{name}={getattr(self, name)}")
        return words + _pixel_words(self.pixels)


def parse(arguments: list[str]) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Run this CNN on the ranks that mpirun started.")
    parser.add_argument("--frames", type=_count(1), default=1, metavar="N", help="frames to measure (1)")
    parser.add_argument("--warmup", type=_count(0), default=0, metavar="W", help="frames before them (0)")
    parser.add_argument("--barrier", action="store_true", help="start every frame together")
    parser.add_argument("--stream", action="store_true", help="several frames on their way, after those of --barrier")
    parser.add_argument("--input", metavar="PATH", help="frames: .npz, .npy, .raw, an image, or a folder of these")
    parser.add_argument("--mean", type=_numbers, default=PLAIN.mean, metavar="M[,M,M]", help="of images (0)")
    parser.add_argument("--scale", type=_numbers, default=PLAIN.scale, metavar="S[,S,S]", help="of images (1)")
    parser.add_argument("--channels", choices=ORDERS, default=PLAIN.channels, help="order of an image's (rgb)")
    parser.add_argument("--output", metavar="FILE.npz", help="write the outputs here")
    parser.add_argument("--report", metavar="FILE.json", help="write times and memory here")
    parser.add_argument("--threads", type=_count(1), metavar="N", help="instead of the plan's, on every rank")
    parser.add_argument("--provider", metavar="NAME", help="instead of the plan's, on every rank")
    parser.add_argument("--seed", type=_count(0), default=0, metavar="N", help="of random frames (0)")
    found = vars(parser.parse_args(arguments))
    pixels = Pixels(*(found.pop(name) for name in ("mean", "scale", "channels")))
    return Options(**found, pixels=pixels)


def _pixel_words(pixels: Pixels) -> list[str]:
    """What differs from the usual, so that bundles made before there were images run all the same."""
    words = []
    for name in ("mean", "scale"):
        if getattr(pixels, name) != getattr(PLAIN, name):
            words.append(f"--{name}={','.join(map(repr, getattr(pixels, name)))}")
    return words + ([f"--channels={pixels.channels}"] if pixels.channels != PLAIN.channels else [])


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return numbers(text)
    except CleaveError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(least: int) -> Callable[[str], int]:
    def count(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return int(text)

    return count
