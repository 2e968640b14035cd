"""Gauges, on trees of files such as boards have under /sys."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import CleaveError
from runtime.meter import Domains, Rails, split, trapezoid
from tests import sysfs

FLOATS = st.floats(-1e3, 1e3)


def test_a_rail_is_found_by_its_label_and_is_volts_times_amperes(tmp_path: Path) -> None:
    sysfs.xavier(tmp_path)
    assert Rails("ina3221", ["VDD_IN"], str(tmp_path)).read() == pytest.approx(4.92)
    assert Rails("ina3221", ["VDD_CPU_GPU_CV"], str(tmp_path)).read() == pytest.approx(4.9 * 0.312)


def test_rails_joined_by_plus_are_added(tmp_path: Path) -> None:
    sysfs.xavier(tmp_path)
    both = Rails("ina3221", ["VDD_CPU_GPU_CV", "VDD_SOC"], str(tmp_path)).read()
    assert both == pytest.approx(4.9 * 0.312 + 4.896 * 0.248)


def test_a_chip_that_only_the_class_of_hwmon_shows_is_found(tmp_path: Path) -> None:
    first = sysfs.xavier(tmp_path)
    (tmp_path / "class/hwmon/hwmon4").unlink()
    first.rename(tmp_path / "class/hwmon/hwmon4")
    assert Rails("ina3221", ["VDD_IN"], str(tmp_path)).read() == pytest.approx(4.92)


def test_a_power_of_the_driver_itself_counts_before_volts_times_amperes(tmp_path: Path) -> None:
    chip = sysfs.ina238(tmp_path)
    assert Rails("ina238", ["VDD_GPU"], str(tmp_path)).read() == pytest.approx(6.1)
    assert Rails("ina238", ["in1"], str(tmp_path)).read() == pytest.approx(6.1)
    (chip / "power1_input").unlink()
    assert Rails("ina238", ["VDD_GPU"], str(tmp_path)).read() == pytest.approx(6.0)


def test_an_unknown_label_is_answered_by_those_there_are(tmp_path: Path) -> None:
    sysfs.xavier(tmp_path)
    with pytest.raises(CleaveError) as caught:
        Rails("ina3221", ["VDD_GPU"], str(tmp_path))
    assert str(caught.value) == "nothing is called 'VDD_GPU'; there are: VDD_IN, VDD_CPU_GPU_CV, VDD_SOC"


def test_a_label_that_two_rails_have_is_refused(tmp_path: Path) -> None:
    sysfs.put(sysfs.xavier(tmp_path), in3_label="VDD_IN")
    with pytest.raises(CleaveError, match="2 are called 'VDD_IN'; there are: VDD_IN, VDD_CPU_GPU_CV, VDD_IN"):
        Rails("ina3221", ["VDD_IN"], str(tmp_path))


def test_a_board_without_the_chip(tmp_path: Path) -> None:
    sysfs.xavier(tmp_path)
    with pytest.raises(CleaveError, match=r"^no ina238 with rails under .*: has the board one, and is its driver"):
        Rails("ina238", ["VDD_IN"], str(tmp_path))
    with pytest.raises(CleaveError, match=r"^no RAPL domain under "):
        Domains(["package-0"], str(tmp_path))


def test_a_file_that_goes_away_or_holds_no_number_is_named(tmp_path: Path) -> None:
    first = sysfs.xavier(tmp_path)
    rails = Rails("ina3221", ["VDD_IN"], str(tmp_path))
    sysfs.put(first, curr1_input="much")
    with pytest.raises(CleaveError, match=r"curr1_input: 'much' is not a whole number"):
        rails.read()
    (first / "curr1_input").unlink()
    with pytest.raises(CleaveError, match=r"curr1_input: cannot be read: No such file"):
        rails.read()


def test_a_channel_without_current_is_no_rail(tmp_path: Path) -> None:
    (sysfs.xavier(tmp_path) / "curr1_input").unlink()
    with pytest.raises(CleaveError, match=r"there are: VDD_CPU_GPU_CV, VDD_SOC$"):
        Rails("ina3221", ["VDD_IN"], str(tmp_path))


def test_a_counter_that_only_root_may_read_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = sysfs.rapl(tmp_path)
    (package / "energy_uj").chmod(0o400)
    if os.geteuid() == 0:  # whom no mode keeps out
        deny(monkeypatch, package / "energy_uj")
    with pytest.raises(CleaveError, match=r"intel-rapl:0/energy_uj: permission denied; let this user read it"):
        Domains(["package-0"], str(tmp_path))


def deny(monkeypatch: pytest.MonkeyPatch, denied: Path) -> None:
    def refusing(path: object, *more: object, **options: object):
        if str(path) == str(denied):
            raise PermissionError(13, "Permission denied")
        return open(path, *more, **options)

    monkeypatch.setattr("runtime.meter.open", refusing, raising=False)


def test_a_counter_that_wraps_goes_on(tmp_path: Path) -> None:
    package = sysfs.rapl(tmp_path)
    domain = Domains(["package-0"], str(tmp_path))
    assert domain.read() == 0
    found = []
    for energy in (262_143_300_000, 1_000_000, 262_143_328_849, 0):
        sysfs.put(package, energy_uj=energy)
        found.append(domain.read())
    assert found == pytest.approx([0.3, 1.32885, 262143.657699, 262143.6577])


def test_domains_are_found_by_name_and_added(tmp_path: Path) -> None:
    package = sysfs.rapl(tmp_path)
    both = Domains(["core", "dram"], str(tmp_path))
    sysfs.put(package.parent / "intel-rapl:0:0", energy_uj=2_001_000)
    sysfs.put(package.parent / "intel-rapl:0:1", energy_uj=505_000)
    assert both.read() == pytest.approx(2.5)
    with pytest.raises(CleaveError, match=r"^nothing is called 'psys'; there are: package-0, core, dram$"):
        Domains(["psys"], str(tmp_path))


@given(FLOATS, FLOATS, st.lists(st.floats(0, 1e3), min_size=2, max_size=50))
def test_the_energy_of_a_linear_power_is_exact(slope: float, watts: float, times: list[float]) -> None:
    times.sort()
    exact = slope * (times[-1] ** 2 - times[0] ** 2) / 2 + watts * (times[-1] - times[0])
    found = trapezoid([(time, slope * time + watts) for time in times])
    assert found == pytest.approx(exact, rel=1e-9, abs=1e-5)


@given(st.lists(st.tuples(st.floats(0, 1e3), FLOATS), min_size=2, max_size=20))
def test_time_that_goes_back_is_refused_and_no_other(samples: list[tuple[float, float]]) -> None:
    if samples == sorted(samples, key=lambda sample: sample[0]):
        trapezoid(samples)
    else:
        with pytest.raises(CleaveError, match="time goes back"):
            trapezoid(samples)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ina3221:VDD_IN", ("ina3221", "VDD_IN")),
        ("rapl:package-0+dram", ("rapl", "package-0+dram")),
        ("csv:/home/me/a b.csv", ("csv", "/home/me/a b.csv")),
    ],
)
def test_names_of_meters(text: str, parts: tuple[str, str]) -> None:
    assert split(text) == parts


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("ina219:VDD_IN", "'ina219:VDD_IN' is not a meter; write e.g. ina3221:VDD_IN"),
        ("rapl", "'rapl' is not a meter"),
        ("ina3221:", "'ina3221:' is not a meter"),
        ("csv:power.csv", r"'csv:power\.csv': the path of the file on the host starts with /"),
        ("rapl:a++b", r"'a\+\+b' is not a label, or labels joined by \+"),
        ("rapl:../etc", r"'\.\./etc' is not a label"),
    ],
)
def test_what_cannot_be_a_meter(text: str, wrong: str) -> None:
    with pytest.raises(CleaveError, match=f"^{wrong}"):
        split(text)
