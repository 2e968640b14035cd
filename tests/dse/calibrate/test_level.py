"""What was measured is taken to have taken as long as it usually does, by whole networks that were run meanwhile."""

from dataclasses import replace

import pytest

from dse.calibrate.command import FIRST_LOOK
from dse.calibrate.design import WHOLE
from dse.calibrate.level import AROUND_S, levelled
from model.cost.samples import SEGMENT, Footing, PartOf, Run, Sample

ALIKE = {"a_cpu0": ("a", "cpu"), "b_cpu0": ("a", "cpu"), "c_cpu0": ("c", "cpu"), "a_gpu0": ("a", "gpu")}


def run(device: str, what: str, frames_s: tuple[float, ...], network: str = "six", minute: int = 0) -> Run:
    """One segment, that takes nine tenths of each frame."""
    rank = Footing(device, 1.0, 2.0, 0.0, 3.0, 2, 5, None, 0.25, energy_j=6.0, energy_time_s=2.0)
    segment = Sample(SEGMENT, device, network, (PartOf(0, 1, 0, 4),), tuple(0.9 * time_s for time_s in frames_s))
    date = f"2030-01-01T00:{minute:02}:00+00:00"
    return Run("key", device, network, "python", "hash", what, date, "a", "", {}, frames_s, (rank,), (segment,))


LOOKS = [
    run("a_cpu0", FIRST_LOOK, (0.50,)),
    run("b_cpu0", FIRST_LOOK, (0.20,)),
    run("c_cpu0", FIRST_LOOK, (9.0,)),
    run("a_gpu0", FIRST_LOOK, (7.0,)),
    run("a_cpu0", FIRST_LOOK, (5.0,), "light"),
]


def test_whole_networks_take_the_middle_of_what_they_took_on_all_that_are_alike() -> None:
    (whole,) = levelled(LOOKS, [run("a_cpu0", WHOLE, (0.08, 0.12))], ALIKE)
    assert whole.time_s == pytest.approx(0.20)
    assert whole.latencies_s == pytest.approx((0.16, 0.24))
    assert whole.samples[0].times_s == pytest.approx((0.9 * 0.16, 0.9 * 0.24))
    (rank,) = whole.ranks
    assert (rank.processor_s, rank.energy_j, rank.energy_time_s) == pytest.approx((0.5, 12.0, 4.0))
    assert replace(rank, processor_s=0.25, energy_j=6.0, energy_time_s=2.0) == LOOKS[0].ranks[0]


def test_of_other_types_units_and_networks_each_has_its_own() -> None:
    runs = [run(d, WHOLE, (1.0,), n) for d, n in (("c_cpu0", "six"), ("a_gpu0", "six"), ("a_cpu0", "light"))]
    assert [each.time_s for each in levelled(LOOKS, runs, ALIKE)] == pytest.approx([5.0, 4.0, 3.0])
    assert levelled([], runs, ALIKE) == runs


def test_pieces_of_slow_minutes_are_as_quick_as_those_of_others() -> None:
    longer = [2.0 if 20 <= minute < 40 else 1.0 for minute in range(60)]
    wholes = [
        run("a_cpu0", WHOLE, (usual_s * longer[m],), network, m)
        for m in range(0, 60, 2)
        for network, usual_s in (("six", 0.1), ("light", 3.0))
    ]
    pieces = [run("a_cpu0", f"piece {m}", (0.3 * longer[m],), "six", m) for m in range(60)]
    elsewhere = [run("c_cpu0", "piece", (0.3,), "six", 30), run("c_cpu0", WHOLE, (1.0,), "six", 31)]
    six, light, other, *found, last = levelled([], [*wholes, *pieces, *elsewhere], ALIKE)
    assert (six.time_s, light.time_s) == pytest.approx((0.1, 3.0))
    assert (other, last) == (elsewhere[1], elsewhere[0])
    assert [each.what for each in found] == [each.what for each in pieces]
    blurred = 4 * AROUND_S / 60
    sure = [(m, each) for m, each in enumerate(found) if min(abs(m - 20), abs(m - 40)) > blurred]
    assert len(sure) > 40
    assert [each.time_s for _, each in sure] == pytest.approx([0.3] * len(sure), rel=1e-2)
    assert [each.ranks[0].processor_s for _, each in sure] == pytest.approx(
        [0.25 / longer[m] for m, _ in sure], rel=1e-2
    )


def test_where_nothing_ran_soon_before_or_after_the_nearest_tells() -> None:
    wholes = [run("a_cpu0", WHOLE, (0.1,)), run("a_cpu0", WHOLE, (0.2,), "six", 59), run("a_cpu0", WHOLE, (0.1,))]
    _, early, late = levelled(
        [], [*wholes, run("a_cpu0", "piece", (3.0,), "six", 25), run("a_cpu0", "piece", (3.0,), "six", 35)], ALIKE
    )
    assert (early.time_s, late.time_s) == pytest.approx((3.0, 1.5))
