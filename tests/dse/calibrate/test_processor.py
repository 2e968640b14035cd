"""What of a rank's processor time is of a frame that counts."""

from __future__ import annotations

import pytest

from dse.calibrate.measure import _processor_s
from runtime.trace import COMPUTE, SEND, Span, Trace, Usage


@pytest.mark.parametrize("told", [True, False])
def test_a_frame_that_something_disturbed_does_not_count(told: bool) -> None:
    """20 frames of 2 s, two of 9: each has half a second for messages, on one of two ranks."""
    usage = Usage(1, "a", "CPU", 1, 0, 20 * 2.5 + 2 * 9.5)
    busy = [2.0] * 20 + [9.0] * 2
    frames = tuple(
        (
            Span(0, COMPUTE, "x", 0, 1, busy_s=1.0),
            Span(1, COMPUTE, "s", 0, t, busy_s=t if told else None),
            Span(1, SEND, "m", t, t + 1),
        )
        for t in busy
    )
    trace = Trace("measured", True, (Usage(0, "b", "CPU", 1, 0, 30.0), usage), frames)
    assert _processor_s(trace, usage) == pytest.approx(2.5 if told else usage.processor_s / 22)
