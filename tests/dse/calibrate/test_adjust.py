"""What a platform file is told of the speed that devices have now."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from dse.calibrate.adjust import adjusted
from dse.calibrate.check import Drift, LinkDrift, TogetherDrift
from dse.inputs import Cnn, read_cnn
from dse.show_calibrated import drifts
from model.cluster.platform import Platform
from model.cost.priced import priced
from model.mappings.mapping import Mapping
from tests.tiny_cnn import save, six_layers

LINES = """# of mine
a, slots=0  # the first
b, slots=0, gpu=V (CUDA), cpu_slowdown=3
c, slots=0,  gpu_slowdown = 2, gpu=V (CUDA)
d, slots=0
"""


@pytest.fixture
def cnn(tmp_path: Path) -> Cnn:
    save(tmp_path, six_layers(), "six.onnx")
    (tmp_path / "p.txt").write_text(LINES)
    return read_cnn(str(tmp_path / "six.onnx"), [], False)


def now(cnn: Cnn, file: Path, ratios: dict[str, list[float]]) -> list[Drift]:
    """So many times what the file's coefficients alone say."""
    platform, found = Platform.from_file(file), list[Drift]()
    platform = platform.slowed([1.0] * len(platform.devices))
    for name, times in ratios.items():
        told = priced(cnn.graph, platform, Mapping.whole(cnn.graph, [platform.index(name)] * len(cnn.graph.layers)))
        found += [Drift("a", name, cnn.graph.name, 1.0, told.latency_s * ratio) for ratio in times]
    return found


def test_devices_that_are_alike_stay_alike_but_one_that_is_far_off(cnn: Cnn, tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    found = now(cnn, file, {"a_cpu0": [1.2], "b_cpu0": [1.1, 1.23, 9.0], "c_cpu0": [1.4], "b_gpu": [0.8]})
    told = adjusted(file, [cnn], [*found, LinkDrift("link", "a_cpu0 to b_cpu0", "4 bytes", 1.0, 7.0)])
    assert told == {"a_cpu0": 1.23, "b_cpu0": 1.23, "b_gpu": 0.8, "c_cpu0": 1.4, "c_gpu": 0.8, "d_cpu0": 1.23}
    assert {device.name: device.slowdown for device in Platform.from_file(file).devices} == told
    assert file.read_text().splitlines() == [
        "# of mine",
        "a, slots=0, cpu_slowdown=1.23  # the first",
        "b, slots=0, gpu=V (CUDA), cpu_slowdown=1.23, gpu_slowdown=0.8",
        "c, slots=0,  gpu_slowdown =0.8, gpu=V (CUDA), cpu_slowdown=1.4",
        "d, slots=0, cpu_slowdown=1.23",
    ]
    assert adjusted(file, [cnn], found) == told


@pytest.mark.parametrize(("slowdowns", "said"), [
    ({}, "The calibration does not hold any more, unless something else is running there. Calibrate again, in another "
         "folder.\nWhere devices are faster or slower, and nothing else has changed, --adjust will do.\n"),
    ({"a_cpu0": 1.5}, "a_cpu0 takes 1.5 times as long to compute as its coefficients say\n"
                      "p.txt says so now, and predictions by it are for devices of that speed. Those of a type stay "
                      "alike, unless one differs by more than 10%; a type that was not measured stays as it was.\n"),
    ({"a_cpu0": 1.2}, "a_cpu0 takes 1.2 times as long to compute as its coefficients say\n"
                      "p.txt says so now, and predictions by it are for devices of that speed. Those of a type stay "
                      "alike, unless one differs by more than 10%; a type that was not measured stays as it was.\n"
                      "Also for devices of that speed the calibration does not hold any more, unless something else is "
                      "running there. Calibrate again, in another folder.\n"),
])  # fmt: skip
def test_what_to_do_is_said(slowdowns: dict[str, float], said: str) -> None:
    text = io.StringIO()
    found = [Drift("a", "a_cpu0", "six", 1.0, 1.5), LinkDrift("link", "a_cpu0 to b_cpu0", "4 bytes", 1.0, 1.25)]
    drifts(Console(file=text, width=200), found, slowdowns, Path("p.txt"))
    table, rest = text.getvalue().split("messages that hold: 1, changed by +250.00 to +250.00 ms\n")
    assert "bytes" not in table
    assert rest == f"drifted: changed by more than 10% and 0.1 ms, messages by 30%\n{said}"


@pytest.mark.parametrize(("figure", "now_s", "slowdowns", "beyond"), [
    ("latency", 1.05, {}, False),
    ("latency", 1.2, {}, True),
    ("latency", 1.2, {"a_cpu0": 1.1, "b_cpu0": 1.2}, False),
    ("latency", 1.0, {"a_cpu0": 1.3}, True),
    ("latency", 1.15, {"a_cpu0": 1.3}, False),
    ("period", 1.15, {"a_cpu0": 1.3}, True),
    ("period", 1.25, {"a_cpu0": 1.3}, False),
    ("period", 1.0, {"c_cpu0": 1.3}, False),
    ("latency", 1.0, {"c_cpu0": 1.3}, False),
])  # fmt: skip
def test_devices_together_take_as_much_longer_as_those_do_that_take_part(
    figure: str, now_s: float, slowdowns: dict[str, float], beyond: bool
) -> None:
    """A frame alone by the mean of them, one in a stream by the slowest."""
    devices = ("a_cpu0", "b_cpu0")
    each = TogetherDrift("several", "2 devices", f"six, {figure}", 1.0, now_s, devices=devices, figure=figure)
    assert each.beyond(slowdowns) == beyond


@pytest.mark.parametrize(("now_s", "slowdowns", "beyond"), [
    (1.2, {}, True), (1.2, {"b_cpu0": 1.2}, True), (1.2, {"a_cpu0": 1.15}, False), (2.0, {"a_cpu0": 1.45}, True),
    (0.9, {"a_cpu0": 1.45}, True),
])  # fmt: skip
def test_a_network_that_is_not_as_much_slower_as_its_device_has_drifted(
    now_s: float, slowdowns: dict[str, float], beyond: bool
) -> None:
    assert Drift("a", "a_cpu0", "six", 1.0, now_s).beyond(slowdowns) == beyond


def test_a_type_of_device_that_was_not_measured_stays_as_it_is(cnn: Cnn, tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    told = adjusted(file, [cnn], now(cnn, file, {"a_cpu0": [1.2]}))
    assert told == {f"{host}_cpu0": 1.2 for host in "abcd"}
    assert "c, slots=0,  gpu_slowdown = 2, gpu=V (CUDA), cpu_slowdown=1.2\n" in file.read_text()
