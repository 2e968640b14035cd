"""What caches still hold of the frame before: the quicker frames follow one another, the less each kernel takes.

All but the multiply-accumulates of a kernel (its start, its bytes) takes the part ``1 - held * exp(-frame_s / fade_s)``
of what it takes where caches are cold. ``frame_s`` is what all layers of the network take one by one, each in a segment
of its own. It stands for what was touched since the last frame, and for the time in which others have used the caches:
on a core of a server a Relu of 401 kB takes 14 us where it runs again at once, 21 after 5 ms, 41 after 20 ms and 94
after 100 ms (``python -m tests.bench.caches``).

Layers that were measured need none of it: their kernels have it already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Caches:
    """held: the part that is saved at most, of frames that take no time; fade_s: seconds in which this falls to 1/e."""

    held: float = 0.0
    fade_s: float = 1e-2

    def part(self, frame_s: float) -> float:
        """Of what kernels take, but for multiply-accumulates, in frames of so many seconds."""
        return 1 - self.held * math.exp(-frame_s / self.fade_s)


COLD = Caches()
"""They hold nothing."""
