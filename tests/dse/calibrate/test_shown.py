"""What a calibration says of devices that others were measured for."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dse.calibrate.boards import boards
from dse.calibrate.command import FIRST_LOOK, Type
from dse.show_calibrated import _alike, _times_as_long
from model.cluster.platform import Platform
from model.cost.samples import Run

TEXT = "".join(f"{name}, slots=0\n" for name in "abcd")
CLUSTER = Platform.parse(TEXT, "p.txt")
ALL = Type("a", tuple(boards(TEXT, CLUSTER)))


def look(device: str, network: str, time_s: float) -> Run:
    """A first look at a network."""
    return Run("key", f"{device}_cpu0", network, "python", "hash", FIRST_LOOK, "", device, "", {}, (time_s,), (), ())


def shown(looks: list[Run]) -> str:
    """The lines about the type."""
    text = io.StringIO()
    _alike(Console(file=text, width=200), CLUSTER, ALL, _times_as_long(CLUSTER, ALL, looks))
    return text.getvalue()


def test_the_middle_of_networks_and_the_quickest_of_looks_count() -> None:
    looks = [look(device, network, 1.0) for device in "ab" for network in ("six", "light", "heavy")]
    looks += [look("c", "six", 1.1), look("c", "light", 1.2), look("c", "heavy", 1.9), look("b", "six", 7.0)]
    assert _times_as_long(CLUSTER, ALL, looks) == pytest.approx({"b_cpu0": 1.0, "c_cpu0": 1.2})  # d: nobody looked


@pytest.mark.parametrize(("times", "said"), [(1.0, False), (1.09, False), (1.2, True), (0.91, False), (0.85, True)])
def test_a_device_that_is_not_as_fast_as_the_one_measured_for_it_is_told(times: float, said: bool) -> None:
    text = shown([look("a", "six", 2.0), look("b", "six", 2.0 * times), look("c", "six", 2.0), look("d", "six", 2.0)])
    assert text.startswith("a_cpu0 was measured for b_cpu0, c_cpu0, d_cpu0, too\n")
    assert (f"b_cpu0 took {times:.2f} times as long as the device that was measured for it\n" in text) == said
    assert ("--check --adjust" in text) == said
    assert "c_cpu0 took" not in text
