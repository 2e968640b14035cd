"""Networks and messages that were measured again, against those of the calibration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dse.calibrate.check import Drift, compared, drifts
from dse.calibrate.command import Lab
from dse.calibrate.measure import Job
from dse.calibrate.samples import opened
from dse.inputs import read_cnn
from model.cluster.platform import Platform
from model.cost.samples import Run
from model.fit.links import ALIKE_BYTES, WayTimes
from runtime.errors import CleaveError
from tests.dse.calibrate.test_command import looked, unused
from tests.tiny_cnn import save, six_layers

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


def test_a_message_that_took_no_time_is_not_compared() -> None:
    told = list(compared(ways(30e-6, 30e-6), ways(30e-6, 30e-6, 0.0)))
    assert [(each.device, each.network) for each in told] == [
        ("a to b", "4 bytes"), ("b to a", "4 bytes"), ("b to a", f"{LONG} bytes"),
    ]  # fmt: skip


def found(folder: Path, measured: str = "a_cpu0", again_s: float | None = None, **now_s: list[float]) -> list[Drift]:
    """What a check finds on three devices that are alike, and took 1 s; one took 0.85 when it was looked at.

    measured: on which device coefficients were; again_s: what the second took when it was looked at once more
    now_s: what each takes, one time after the other
    """

    class Again(Lab):
        def measure(self, job: Job) -> Run:
            return looked(job, now_s[job.subject.name.removesuffix("_cpu0")].pop(0))

    cnn = read_cnn(str(save(folder, six_layers(), "six.onnx")), [], True)
    text = "".join(f"{name}, address=10.0.0.{k}, slots=0\n" for k, name in enumerate("abc"))
    with opened(folder / "samples.jsonl") as store:
        lab = Again((cnn,), Platform.parse(text, "p.txt"), text, store, unused, lambda *_: None, folder, 1.0, 1.0, 0)
        looks = [looked(job, time_s) for job, time_s in zip(lab.first_looks(), (1.0, 0.85, 1.0), strict=True)]
        for look in looks:
            store.add_run(look)
        if again_s is not None:
            store.add_run(looked(replace(lab.first_looks()[1], turn=1), again_s))
        whole = lab.full(0, cnn, looks[0])[0]
        for turn in range(3):
            of = replace(looked(replace(whole, turn=turn), 1.0), device=measured)
            store.add_run(of if measured == whole.subject.name else replace(of, key=f"of another {turn}"))
        return drifts(lab)


def test_a_device_is_held_against_those_whose_coefficients_it_has_not_against_one_look_at_it(tmp_path: Path) -> None:
    each = found(tmp_path, a=[1.05], b=[1.05], c=[0.95])
    assert [(d.type, d.device, d.now_s) for d in each] == [
        ("a", "a_cpu0", 1.05),
        ("a", "b_cpu0", 1.05),
        ("a", "c_cpu0", 0.95),
    ]
    assert [d.before_s for d in each] == pytest.approx([1.0, (0.85 + 3) / 4, 1.0])
    assert not any(d.drifted for d in each)


def test_of_looks_at_a_device_the_one_counts_that_nothing_disturbed(tmp_path: Path) -> None:
    each = found(tmp_path, again_s=2.0, a=[1.0], b=[1.0], c=[1.0])
    assert each[1].before_s == pytest.approx((0.85 + 3) / 4)
    assert not any(d.drifted for d in each)


@pytest.mark.parametrize(("second_s", "drifted"), [(1.0, False), (1.2, True)])
def test_one_that_seems_to_have_drifted_alone_is_measured_once_more(
    tmp_path: Path, second_s: float, drifted: bool
) -> None:
    each = found(tmp_path, a=[1.0], b=[1.0], c=[1.18, second_s])
    assert each[2].now_s == pytest.approx((1.18 + second_s) / 2)
    assert [d.drifted for d in each] == [False, False, drifted]


def test_where_most_have_drifted_none_is_measured_once_more(tmp_path: Path) -> None:
    assert [d.drifted for d in found(tmp_path, a=[1.0], b=[1.3], c=[1.2])] == [False, True, True]


def test_where_the_device_that_was_measured_is_gone_the_others_are_held_against_what_they_took(tmp_path: Path) -> None:
    each = found(tmp_path, "z_cpu0", a=[1.05], b=[0.9], c=[1.0])
    assert [d.before_s for d in each] == [1.0, 0.85, 1.0]
    assert not any(d.drifted for d in each)


def test_what_was_never_measured_is_no_calibration(tmp_path: Path) -> None:
    with pytest.raises(CleaveError, match=r"the calibration was not finished \(six on a_cpu0: whole\)"):
        found(tmp_path, "b_cpu0")
