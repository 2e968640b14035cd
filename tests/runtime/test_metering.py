"""Metering while frames run: on threads, and under mpirun on a tree whose numbers change."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.bench import bench
from runtime.inprocess import run_in_process
from runtime.metering import Metering, Sampler, open_meter
from runtime.options import Options
from runtime.plan import Plan
from runtime.trace import Trace
from tests import sysfs
from tests.tiny import Tiny, channels, finish


class Steps:
    """A gauge that gives one value after the other; an error is raised."""

    def __init__(self, *values: Any) -> None:
        self._values = list(values)

    def read(self) -> float:
        value = self._values.pop(0) if len(self._values) > 1 else self._values[0]
        if isinstance(value, Exception):
            raise value
        return value

    def joules(self, samples: list[tuple[float, float]]) -> float:
        return samples[-1][1] - samples[0][1]


@contextmanager
def background(step: Any) -> Iterator[None]:
    """Do something every millisecond."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.001):
            step()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def metered(tiny: Tiny, meter: str, sys: Path, **more: Any) -> Tiny:
    """The same bundle with a meter at the first rank of its last two, which share a host; its sysfs is elsewhere."""
    first, *others = tiny.plan.ranks
    others = [replace(rank, host="board", idle_w=5.0) for rank in others]
    others[0] = replace(others[0], meter=meter)
    made = finish(replace(tiny.plan, ranks=(first, *others)), tiny.bundle.parent)
    file = made.bundle / "runtime/meter.py"
    text = file.read_text()
    assert 'SYS = "/sys"' in text
    file.write_text(text.replace('SYS = "/sys"', f"SYS = {str(sys)!r}"))
    assert Plan.from_json((made.bundle / "plan.json").read_text()).ranks[1].meter == meter
    return made


def test_a_sampler_takes_the_ends_and_some_between() -> None:
    sampler = Sampler(Steps(10, *range(11, 1000)), period_s=0.005)
    sampler.start()
    time.sleep(0.5)
    found = sampler.stop()
    assert 4 <= found.samples <= 3 + found.time_s / 0.005
    assert found.energy_j == found.samples - 1  # each reading is one more than the last
    assert found.time_s >= 0.5


def test_energy_and_time_are_of_one_frame(tmp_path: Path) -> None:
    sysfs.xavier(tmp_path)
    meter = Metering("ina3221:VDD_IN", str(tmp_path))
    meter.start()
    time.sleep(0.5)
    found = meter.stop(4)
    assert (found["energy_source"], found["energy_samples"] >= 3) == ("measured", True)
    assert found["energy_time_s"] >= 0.125
    assert found["energy_j"] == pytest.approx(4.92 * found["energy_time_s"])


@pytest.mark.parametrize(
    ("meter", "note"),
    [
        ("ina3221:VDD_XY", "nothing is called 'VDD_XY'; there are: VDD_IN, VDD_CPU_GPU_CV, VDD_SOC"),
        ("ina238:VDD_IN", "no ina238 with rails under"),
        ("csv:/none/p.csv", "/none/p.csv: cannot be read: No such file or directory"),
        ("magic:x", "'magic:x' is not a meter"),
    ],
)
def test_a_meter_that_is_not_there_leaves_a_note_and_no_more(meter: str, note: str, tmp_path: Path) -> None:
    sysfs.xavier(tmp_path)
    metering = Metering(meter, str(tmp_path))
    metering.start()
    found = metering.stop(1)
    assert list(found) == ["energy_note"]
    assert found["energy_note"].startswith(f"meter {meter}: {note}")


def test_a_meter_that_fails_between_two_frames_leaves_a_note(tmp_path: Path) -> None:
    first = sysfs.xavier(tmp_path)
    metering = Metering("ina3221:VDD_IN", str(tmp_path))
    metering.start()
    (first / "in1_input").unlink()
    time.sleep(0.5)
    sysfs.put(first, in1_input=1)  # what went wrong once is not forgotten
    assert "in1_input: cannot be read" in metering.stop(1)["energy_note"]


def test_no_meter_is_no_energy_and_no_note() -> None:
    metering = Metering(None)
    metering.start()
    assert metering.stop(3) == {}


def test_a_log_that_is_written_late_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "p.csv"
    file.write_text(f"time_s,power_W\n{time.time() - 1},3\n")

    def write() -> None:
        time.sleep(0.3)
        with file.open("a") as log:
            log.write(f"{start + 0.02},3\n{start + 100},3\n")

    log = open_meter(f"csv:{file}")
    log.start()
    start = time.time()
    writer = threading.Thread(target=write)
    time.sleep(0.05)
    writer.start()
    found = log.stop()
    writer.join()
    assert found.time_s >= 0.05
    assert found.energy_j == pytest.approx(3 * found.time_s)
    assert found.samples == 1


def test_a_log_that_ends_early_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.metering.LATE_S", 0.2)
    (tmp_path / "p.csv").write_text("time_s,power_W\n10,3\n20,4\n")
    metering = Metering(f"csv:{tmp_path}/p.csv")
    metering.start()
    assert "p.csv: it has from 10.000 to 20.000 s, the frames were from" in metering.stop(1)["energy_note"]


def test_only_a_run_with_a_report_is_metered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = metered(channels(tmp_path), "ina3221:VDD_IN", tmp_path)
    opened: list[str] = []
    monkeypatch.setattr("runtime.metering.open_meter", lambda text, sys: opened.append(text))
    run_in_process(str(tiny.bundle), Options(output=str(tmp_path / "o.npz")))
    assert opened == []
    run_in_process(str(tiny.bundle), Options(report=str(tmp_path / "r.json")))
    assert opened == ["ina3221:VDD_IN"]
    assert len(Trace.from_json((tmp_path / "r.json").read_text()).ranks) == 3


@pytest.mark.mpi
def test_a_real_run_has_the_power_of_rails_that_change(tmp_path: Path) -> None:
    """Between 4.92 and 9.84 W in turns; and the energy above idle is 5 W times the time less."""
    sys = tmp_path / "sys"
    first = sysfs.xavier(sys)
    tiny = metered(channels(tmp_path), "ina3221:VDD_IN", sys)
    turns = iter(range(10**9))
    with background(lambda: sysfs.put(first, curr1_input=1000 * (1 + next(turns) % 2))):
        found, above = (bench(tiny.bundle, warmup=1, frames=2000, above_idle=idle) for idle in (False, True))
    (row,) = found.energies()
    assert (row["rank"], row["device"]) == (1, "edge01_cpu01")
    for run in ("alone", "stream"):
        assert (row[run]["source"], row[run]["note"]) == ("measured", None)
        assert row[run]["samples"] >= 3
        assert 4.9199 < row[run]["energy_j"] / row[run]["time_s"] < 9.8401
    assert row["alone"]["time_s"] >= 0.9 * sum(found.latencies_s) / 2000
    (row,) = above.energies()
    assert -0.0801 < row["alone"]["energy_j"] / row["alone"]["time_s"] < 4.8401


@pytest.mark.mpi
def test_a_real_run_counts_the_joules_of_a_counter(tmp_path: Path) -> None:
    """A counter that grows and wraps while frames run: its total is what frames were given."""
    sys = tmp_path / "sys"
    package = sysfs.rapl(sys)
    tiny = metered(channels(tmp_path), "rapl:package-0", sys)
    began = time.perf_counter()

    def step() -> None:
        micro = 262_143_000_000 + 20e6 * (time.perf_counter() - began)  # 20 W
        sysfs.put(package, energy_uj=int(micro % 262_143_328_850))

    with background(step):
        found = bench(tiny.bundle, warmup=1, frames=2000)  # a second or more: whoever counts may be late by a tenth
    (row,) = found.energies()
    assert row["alone"]["energy_j"] / row["alone"]["time_s"] == pytest.approx(20, rel=0.3)


@pytest.mark.mpi
def test_a_real_run_without_its_meter_is_timed_all_the_same(tmp_path: Path) -> None:
    tiny = metered(channels(tmp_path), "ina3221:VDD_IN", tmp_path / "nothing")
    found = bench(tiny.bundle, warmup=1, frames=3)
    (row,) = found.energies()
    assert row["alone"]["energy_j"] is None
    assert row["alone"]["note"].startswith("meter ina3221:VDD_IN: no ina3221 with rails under")
    assert len(found.latencies_s) == 3
