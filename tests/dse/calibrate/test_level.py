"""Whole networks are taken to last as long as they did in the middle one of all runs on devices that are alike."""

from dataclasses import replace

import pytest

from dse.calibrate.command import FIRST_LOOK
from dse.calibrate.design import WHOLE
from dse.calibrate.level import levelled
from model.samples import SEGMENT, Footing, PartOf, Run, Sample

ALIKE = {"a_cpu0": ("a", "cpu"), "b_cpu0": ("a", "cpu"), "c_cpu0": ("c", "cpu"), "a_gpu0": ("a", "gpu")}


def run(device: str, what: str, frames_s: tuple[float, ...], network: str = "six") -> Run:
    """One segment, that takes nine tenths of each frame."""
    rank = Footing(device, 1.0, 2.0, 0.0, 3.0, 2, 5, None, 0.25, energy_j=6.0, energy_time_s=2.0)
    segment = Sample(SEGMENT, device, network, (PartOf(0, 1, 0, 4),), tuple(0.9 * time_s for time_s in frames_s))
    return Run("key", device, network, "python", "hash", what, "", "a", "", {}, frames_s, (rank,), (segment,))


LOOKS = [
    run("a_cpu0", FIRST_LOOK, (0.50,)),
    run("b_cpu0", FIRST_LOOK, (0.20,)),
    run("c_cpu0", FIRST_LOOK, (9.0,)),
    run("a_gpu0", FIRST_LOOK, (7.0,)),
    run("a_cpu0", FIRST_LOOK, (5.0,), "light"),
]


def test_whole_networks_take_the_middle_of_what_they_took_on_all_that_are_alike() -> None:
    pieces = run("a_cpu0", "layer by layer", (0.3,))
    whole, same = levelled(LOOKS, [run("a_cpu0", WHOLE, (0.08, 0.12)), pieces], ALIKE)
    assert same is pieces
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
