"""Which runs a calibration makes."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from dse.calibrate.command import TOGETHER, Lab
from dse.calibrate.design import STRETCHES
from dse.calibrate.samples import opened
from dse.inputs import read_cnn
from tests.tiny_cnn import platform, save, six_layers

NETWORKS = ("one", "two", "three")


def unused(*_: object) -> NoReturn:
    raise AssertionError


@pytest.mark.parametrize(
    ("devices", "pairs"), [(5, [{0, 1}, {1, 2}, {2, 3}]), (3, [{0, 1}, {1, 2}, {0, 2}]), (2, [{0, 1}] * 3)]
)
def test_most_devices_run_a_network_together_and_then_few_of_them_in_turn(
    tmp_path: Path, devices: int, pairs: list[set[int]]
) -> None:
    cnns = tuple(read_cnn(str(save(tmp_path, six_layers(), f"{name}.onnx")), [], True) for name in NETWORKS)
    with opened(tmp_path / "samples.jsonl") as store:
        lab = Lab(cnns, platform(devices), "", store, unused, unused, tmp_path, 1.0, 1.0, 0)
        jobs = [job for job in lab.together(0) if not job.design.what.startswith("alone")]
    for name, pair in zip(NETWORKS, pairs, strict=True):
        even, many, few = [job for job in jobs if job.subject.cnn.graph.name == name]
        assert even.design.what == STRETCHES
        everyone = set(range(min(devices, TOGETHER[0])))
        assert set(even.design.mapping.devices) <= everyone
        assert set(many.design.mapping.devices) <= everyone
        assert set(few.design.mapping.devices) == pair
        assert few.subject.device == min(pair)
    assert len(jobs) == 3 * len(NETWORKS)
