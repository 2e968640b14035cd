"""Which frames of a measurement count, and how long one takes by them."""

from __future__ import annotations

from collections.abc import Sequence

DISTURBED = 1 / 10
"""Part of the frames, the slowest, that does not count, nor as many of the fastest."""


def steady_s(times_s: Sequence[float]) -> float:
    """The mean of the frames that count.

    Not the median: a device whose share of a processor is limited stands still now and then, which is part of its
    speed, but of few frames. And not the mean of all, which one frame that another program disturbs can change much.
    """
    frames = counted(times_s)
    return sum(times_s[frame] for frame in frames) / len(frames)


def counted(times_s: Sequence[float]) -> list[int]:
    """Which frames count, by what each takes, from the fastest to the slowest.

    As many are left out at either end: what is left is neither too fast nor too slow.
    """
    out = int(len(times_s) * DISTURBED)
    return sorted(range(len(times_s)), key=times_s.__getitem__)[out : len(times_s) - out]
