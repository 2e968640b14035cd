"""Devices that are not as fast as the one that was measured for them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean

import pytest

from dse.calibrate.boards import boards
from dse.calibrate.check import drifts, together_drifts
from dse.calibrate.command import FIRST_LOOK, LAST_LOOK, Lab, measured
from dse.calibrate.measure import Job
from dse.calibrate.results import result, write
from dse.calibrate.samples import opened
from dse.calibrate.slower import confirmed, far, times_as_long
from dse.cli.access import Running, placed
from dse.inputs import read_cnn
from model.cluster.platform import Platform
from model.cost.samples import Run
from tests.tiny_cnn import save, six_layers

SECONDS, TIMES = 0.01, 1.2
"""Of a look, and how many times as long the second of two devices takes."""
TEXT = "".join(f"{name}, slots=0\n" for name in "abcd")
CLUSTER = Platform.parse(TEXT, "p.txt")
ALL = boards(TEXT, CLUSTER)


def look(device: str, network: str, time_s: float) -> Run:
    """A first look at a network."""
    return Run("key", f"{device}_cpu0", network, "python", "hash", FIRST_LOOK, "", device, "", {}, (time_s,), (), ())


def test_the_middle_of_networks_and_the_quickest_of_looks_count() -> None:
    looks = [look(device, network, 1.0) for device in "ab" for network in ("six", "light", "heavy")]
    looks += [look("c", "six", 1.1), look("c", "light", 1.2), look("c", "heavy", 1.9), look("b", "six", 7.0)]
    assert times_as_long(CLUSTER, ALL, looks) == pytest.approx({"b_cpu0": 1.0, "c_cpu0": 1.2})  # d: nobody looked


@pytest.mark.parametrize(("times", "said"), [(1.0, False), (1.09, False), (1.2, True), (0.91, False), (0.85, True)])
def test_what_is_chance_counts_as_alike(times: float, said: bool) -> None:
    looks = [look("a", "six", 2.0), look("b", "six", 2.0 * times), look("c", "six", 2.0), look("d", "six", 2.0)]
    assert far(CLUSTER, [ALL], looks) == ({"b_cpu0": times} if said else {})


def test_nothing_is_known_where_nobody_looked_at_the_one_that_is_measured() -> None:
    assert far(CLUSTER, [ALL], [look("b", "six", 1.0), look("c", "six", 2.0)]) == {}


def test_what_is_so_twice_is_confirmed_as_far_as_it_is_both_times() -> None:
    first = {"hot": 1.2, "cool": 0.8, "disturbed": 1.5, "now this, now that": 0.85}
    last = {"hot": 1.25, "cool": 0.88, "now this, now that": 1.15, "another": 1.3}
    assert confirmed(first, last) == {"hot": 1.2, "cool": 0.88}


class Staged(Lab):
    """Real runs, but for what looks take."""

    def measure(self, job: Job) -> Run:
        """The second device is slower each time."""
        found = super().measure(job)
        looks = found.what in {FIRST_LOOK, LAST_LOOK}
        return found.lasting(SECONDS * (TIMES if found.device == "b_cpu1" else 1)) if looks else found


@pytest.mark.mpi
def test_a_platform_says_which_of_two_that_are_alike_is_slower_and_a_check_counts_it(tmp_path: Path) -> None:
    text = "a, address=localhost, slots=0\nb, address=localhost, slots=1\n"
    cluster = Platform.parse(text, "p.txt")
    cnn = read_cnn(str(save(tmp_path, six_layers(), "six.onnx")), [], True)
    with opened(tmp_path / "samples.jsonl") as store:
        place = partial(placed, cluster, Running())
        lab = Staged((cnn,), cluster, text, store, place, lambda *_: None, tmp_path, 0.1, 60.0, 0)
        found = measured(lab)
        assert found.slowdowns == {"b_cpu1": TIMES}
        looks = [(run.device, run.what) for run in found.looks]
        assert looks == [
            ("a_cpu0", FIRST_LOOK), ("b_cpu1", FIRST_LOOK), ("b_cpu1", FIRST_LOOK),
            ("a_cpu0", LAST_LOOK), ("b_cpu1", LAST_LOOK),
        ]  # fmt: skip
        made = result(lab, found)
        write(tmp_path, "p.txt", made)
        assert [line.partition("cpu_slowdown=")[2] for line in made.platform.splitlines()] == ["", "1.2"]

        calibrated = replace(lab, platform=Platform.from_file(tmp_path / "p.txt"))
        a, b = drifts(calibrated)
        assert b.before_s == pytest.approx(a.before_s * TIMES)
        before = next(turns for turns in found.turns if turns[0].period_s)
        assert together_drifts(calibrated)[0].before_s == pytest.approx(fmean(run.time_s for run in before))
