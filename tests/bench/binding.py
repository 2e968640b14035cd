"""What binding a segment's inputs once saves, against binding them anew for every frame, as a GPU needs it.

    python -m tests.bench.binding [--cnn zoo:densenet121] [--ranks 2] [--pieces] [--frames 60] [--repeat 5]

The same bundles as ``tests.bench.waiting``, in turns; the shorter a network's segments, the more it saves.
"""

from __future__ import annotations

from tests.bench.waiting import compared, report

EACH_FRAME = """

class Segment(Segment):
    def __init__(self, session, inputs, outputs):
        super().__init__(session, inputs, outputs)
        self._copied = inputs
"""
POLICIES = {"once": "", "each frame": EACH_FRAME}
"""What is added at the end of a bundle's ``runtime/segment.py``."""


if __name__ == "__main__":
    report(compared(__doc__, "runtime/segment.py", POLICIES), "each frame")
