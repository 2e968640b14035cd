"""Messages that were measured again, against those of the calibration."""

from __future__ import annotations

import pytest

from dse.calibrate.check import compared
from model.link_fit import ALIKE_BYTES, WayTimes

LONG = 2**20


def ways(there_s: float, back_s: float, long_s: float = 9e-3) -> WayTimes:
    return {("a", "b"): {4: there_s, LONG: long_s}, ("b", "a"): {4: back_s, LONG: 9e-3}}


def test_what_clocks_make_of_short_messages_is_no_drift() -> None:
    """A clock that is 0.1 ms ahead has messages there before they were sent, and those back take twice as long."""
    found = list(compared(ways(-20e-6, 80e-6), ways(130e-6, -70e-6)))
    assert [(each.network, each.before_s, each.now_s) for each in found if each.network == "4 bytes"] == [
        ("4 bytes", pytest.approx(30e-6), pytest.approx(30e-6))
    ] * 2
    assert not any(each.drifted for each in found)


@pytest.mark.parametrize(("now", "drifted"), [(ways(300e-6, 80e-6), [True, False, True, False]),
                                              (ways(30e-6, 30e-6, 14e-3), [False, True, False, False])])  # fmt: skip
def test_slower_messages_drift_each_way_by_itself_unless_they_are_short(now: WayTimes, drifted: list[bool]) -> None:
    assert ALIKE_BYTES < LONG
    assert [each.drifted for each in compared(ways(30e-6, 30e-6), now)] == drifted
