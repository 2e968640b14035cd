"""Estimates, and energies above idle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.energy import accounted, check_idle
from runtime.errors import CleaveError
from runtime.plan import Plan
from runtime.trace import COMPUTE, WAIT, Span, Trace, Usage
from tests.tiny import rank


def plan(**more: Any) -> Plan:
    """Ranks 0 and 2 on one host, rank 1 on another; all watts are declared, or what ``more`` says."""
    watts = {"idle_w": 3.0, **more}
    ranks = [rank(n, [], [], host=host, **{"busy_w": float(10 * n + 10), **watts}) for n, host in enumerate("aba")]
    return Plan("net", (), (), tuple(ranks))


def trace(barrier: bool = True, **first: Any) -> Trace:
    """Frames of 2 and 4 s: rank 0 computes 1 s of each, rank 2 0.5 s of the second, rank 1 the whole time."""
    frames = (
        (Span(0, COMPUTE, "a", 0, 1), Span(0, WAIT, "x", 1, 2), Span(1, COMPUTE, "b", 0, 2)),
        (Span(0, COMPUTE, "a", 1, 2), Span(1, COMPUTE, "b", 0, 4), Span(2, COMPUTE, "c", 3, 3.5)),
    )
    usages = [Usage(n, f"{host}_cpu{n}", "CPU", 1, 100, 1.0) for n, host in enumerate("aba")]
    return Trace("measured", barrier, (replace(usages[0], **first), *usages[1:]), frames)


def energies(found: Trace) -> list[tuple[float | None, float | None, str | None]]:
    return [(usage.energy_j, usage.energy_time_s, usage.energy_source) for usage in found.ranks]


NONE = (None, None, None)


def test_an_estimate_is_idle_watts_all_the_time_and_busy_watts_while_a_device_computes() -> None:
    found = accounted(trace(), plan())
    assert energies(found) == [
        (3 * 3 + 10 * 1 + 30 * 0.25, 3, "estimate"),
        (3 * 3 + 20 * 3, 3, "estimate"),
        NONE,
    ]
    assert found.frames == trace().frames


def test_a_processor_that_a_device_has_a_part_of_draws_nothing_for_the_rest() -> None:
    held = trace()
    first, *others = held.frames[1]
    found = accounted(replace(held, frames=(held.frames[0], (replace(first, busy_s=0.5), *others))), plan())
    assert energies(found)[0] == (3 * 3 + 10 * 0.75 + 30 * 0.25, 3, "estimate")


def test_in_a_stream_the_time_of_a_frame_is_the_period() -> None:
    assert energies(accounted(trace(barrier=False), plan()))[1] == (3 * 2 + 20 * 3, 2, "estimate")


def test_above_idle_the_estimate_is_busy_watts_times_busy_time() -> None:
    wanted = [(10 * 1 + 30 * 0.25, 3, "estimate"), (20 * 3, 3, "estimate"), NONE]
    assert energies(accounted(trace(), plan(), above_idle=True)) == wanted
    assert energies(accounted(trace(), plan(idle_w=None), above_idle=True)) == wanted


@pytest.mark.parametrize("unknown", ["idle_w", "busy_w"])
def test_watts_that_nobody_declared_give_no_estimate(unknown: str) -> None:
    assert energies(accounted(trace(), plan(**{unknown: None}))) == [NONE] * 3


def test_a_host_with_one_device_of_unknown_watts_has_no_estimate() -> None:
    ranks = plan().ranks
    known = replace(plan(), ranks=(*ranks[:2], replace(ranks[2], busy_w=None)))
    assert [source for _, _, source in energies(accounted(trace(), known))] == [None, "estimate", None]


@given(st.floats(0, 1e3), st.floats(0, 1e2), st.floats(1e-3, 1e2))
def test_what_was_measured_stands_and_idle_is_taken_off_for_its_own_time(
    joules: float, idle: float, time: float
) -> None:
    measured = trace(energy_j=joules, energy_time_s=time, energy_source="measured")
    assert energies(accounted(measured, plan(idle_w=idle)))[0] == (joules, time, "measured")
    above = energies(accounted(measured, plan(idle_w=idle), above_idle=True))[0]
    assert above == (pytest.approx(joules - idle * time), time, "measured")


def test_a_meter_that_failed_leaves_its_note_beside_the_estimate() -> None:
    found = accounted(trace(energy_note="meter x: gone"), plan()).ranks[0]
    assert (found.energy_source, found.energy_note) == ("estimate", "meter x: gone")


def test_a_meter_that_the_program_does_not_know_is_said_to_be_unread() -> None:
    """As programs in C++ do."""
    found = accounted(trace(), plan(meter="rapl:core")).ranks
    note = "meter rapl:core: was not read; programs in C++ read none"
    assert [(usage.energy_source, usage.energy_note) for usage in found[:2]] == [("estimate", note)] * 2
    measured = trace(energy_j=1.0, energy_time_s=1.0, energy_source="measured")
    assert accounted(measured, plan(meter="rapl:core")).ranks[0].energy_note is None


def test_without_any_energy_there_is_none_to_subtract_from() -> None:
    with pytest.raises(CleaveError, match=r"^--above-idle: no host of this bundle has a meter or its power"):
        check_idle(plan(busy_w=None))
    check_idle(plan(busy_w=None, meter="rapl:core"))


def test_idle_power_that_is_not_known_cannot_be_subtracted_from_a_meter() -> None:
    check_idle(plan(idle_w=None))
    check_idle(plan(meter="rapl:core"))
    with pytest.raises(CleaveError) as caught:
        check_idle(plan(meter="rapl:core", idle_w=None))
    assert [sentence.split(" has a meter")[0] for sentence in caught.value.sentences] == ["a", "b"]
