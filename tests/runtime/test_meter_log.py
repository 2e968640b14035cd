"""Logs of external meters: strict headers, units, and the part of them that counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.cluster.quantity import UNITS
from runtime.errors import CleaveError
from runtime.meter import trapezoid
from runtime.meter_log import SECONDS, WATTS, read_log, within


def log(folder: Path, text: str) -> str:
    (folder / "p.csv").write_text(text)
    return str(folder / "p.csv")


def test_columns_are_found_by_name_and_their_units_count(tmp_path: Path) -> None:
    path = log(tmp_path, "voltage_V,power_mW,time_ms\r\n5,1500,1000\r\n5, 2500 ,1500.5\r\n")
    assert read_log(path) == [(1.0, 1.5), (1.5005, 2.5)]


def test_a_line_that_is_being_written_does_not_count_yet(tmp_path: Path) -> None:
    assert read_log(log(tmp_path, "time_s,power_W\n1,2\n2,1")) == [(1.0, 2.0)]


def test_empty_lines_do_not_count(tmp_path: Path) -> None:
    assert read_log(log(tmp_path, "time_s,power_W\n1,2\n\n2,1\n \n")) == [(1.0, 2.0), (2.0, 1.0)]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", ":1: has no column of time (time_s or time_ms or time_us), only: nothing"),
        ("time_s,power_kW\n", ":1: has no column of power (power_W or power_mW or power_uW), only: time_s, power_kW"),
        ("time,power\n", ":1: has no column of time (time_s or time_ms or time_us), only: time, power"),
        ("time_h,power_W\n", ":1: has no column of time (time_s or time_ms or time_us), only: time_h, power_W"),
        ("time_s,power_w\n", ":1: has no column of power (power_W or power_mW or power_uW), only: time_s, power_w"),
        (
            "time_s,power_W,power_mW\n",
            ":1: has 2 columns of power (power_W or power_mW or power_uW), only: time_s, power_W, power_mW",
        ),
        ("time_s,power_W\n1,2\n2\n", ":3: 1 columns, but the first line names 2"),
        ("time_s,power_W\n1,2\n2,x\n", ":3: 'x' is not a number"),
        ("time_s,power_W\n1,nan\n", ":2: 'nan' is not a number"),
        ("time_s,power_W\n1,2\n3,2\n2,2\n", ":4: time goes back"),
    ],
)
def test_what_is_no_log_is_refused_with_its_line(text: str, wrong: str, tmp_path: Path) -> None:
    with pytest.raises(CleaveError) as caught:
        read_log(log(tmp_path, text))
    assert str(caught.value) == f"{tmp_path / 'p.csv'}{wrong}"


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CleaveError, match=r"none\.csv: cannot be read: No such file"):
        read_log(str(tmp_path / "none.csv"))


def test_units_are_those_of_the_platform_file() -> None:
    assert {unit: float(worth) for unit, worth in UNITS["time"].items()} == SECONDS
    assert {unit: float(worth) for unit, worth in UNITS["power"].items()}.items() <= WATTS.items()


@given(st.floats(1, 9), st.floats(0, 1), st.floats(-5, 5))
def test_ends_lie_on_the_line_between_samples(start: float, share: float, slope: float) -> None:
    samples = [(time / 2, slope * time / 2 + 1) for time in range(21)]
    stop = start + share * (10 - start)
    inner = within(samples, start, stop)
    assert (inner[0][0], inner[-1][0]) == (start, stop)
    assert trapezoid(inner) == pytest.approx(slope * (stop**2 - start**2) / 2 + stop - start, abs=1e-9)


@pytest.mark.parametrize(("start", "stop"), [(0.5, 2), (1, 3.5), (4, 5)])
def test_a_log_must_reach_over_all_frames(start: float, stop: float) -> None:
    with pytest.raises(CleaveError, match=rf"^it has from 1.000 to 3.000 s, the frames were from {start:.3f} to"):
        within([(1.0, 1.0), (3.0, 1.0)], start, stop)
