"""What a calibration says of devices that others were measured for."""

from __future__ import annotations

import io

from rich.console import Console

from dse.calibrate.boards import boards
from dse.calibrate.command import Type
from dse.show_calibrated import _alike, _slower
from model.cluster.platform import Platform

TEXT = "".join(f"{name}, slots=0\n" for name in "abcd")
CLUSTER = Platform.parse(TEXT, "p.txt")
ALL = Type("a", tuple(boards(TEXT, CLUSTER)))


def test_for_whom_a_device_was_measured_and_which_of_them_is_not_as_fast_is_told() -> None:
    text = io.StringIO()
    console = Console(file=text, width=200)
    _alike(console, CLUSTER, ALL)
    _slower(console, {"b_cpu0": 1.204})
    assert text.getvalue().splitlines() == [
        "a_cpu0 was measured for b_cpu0, c_cpu0, d_cpu0, too",
        "b_cpu0 took 1.20 times as long as the device that was measured for it, and predictions count that",
    ]
