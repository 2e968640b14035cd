"""Platforms that are not what their coefficients were measured of."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codegen.render import programs
from dse import provenance
from model.cluster import coefficients
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping
from model.network.load import load
from tests.command import dse
from tests.origin import ORIGIN
from tests.tiny_cnn import save, six_layers

LINES = "a, address=localhost, slots=0, coefficients=a.json\nfar, slots=0, coefficients=a.json\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in."""
    monkeypatch.chdir(tmp_path)
    measured()
    return tmp_path


def measured(**what: Any) -> None:
    """A coefficient file of both devices, as ``dse calibrate`` leaves it."""
    usual = coefficients.load("generic")
    units = {"cpu": replace(usual.unit("cpu"), threads=1)}
    origin = replace(ORIGIN, devices=("a_cpu0", "far_cpu0"), providers={"cpu": "CPUExecutionProvider"})
    said = replace(usual, calibrated=True, units=units, measured=replace(origin, **what))
    Path("a.json").write_text(said.to_json())


def clauses(lines: str = LINES, **seen: dict[str, str]) -> list[str]:
    Path("p.txt").write_text(lines)
    return provenance.unlike(Platform.from_file("p.txt"), seen)


def test_nothing_is_said_where_nothing_differs_or_nothing_was_measured() -> None:
    assert clauses() == []
    assert clauses(LINES.replace("a.json", "generic"), a={"kernel": "1"}) == []
    assert provenance.warning([]) is None


def test_settings_that_differ_are_said_with_their_devices() -> None:
    assert clauses(LINES.replace("slots=0,", "slots=0, threads=2,")) == [
        "a.json: threads 2 (was 1) at a_cpu0, far_cpu0"
    ]
    measured(providers={"cpu": "XnnpackExecutionProvider"})
    assert clauses()[0].startswith("a.json: provider CPUExecutionProvider (was XnnpackExecutionProvider) at a_cpu0")


def test_a_device_that_was_not_there_is_said() -> None:
    assert clauses(LINES + "new, slots=0, coefficients=a.json\n") == [
        "a.json: measured on a_cpu0, far_cpu0, and not at new_cpu0"
    ]


def test_conditions_are_compared_where_both_are_known() -> None:
    measured(conditions={"kernel": "6.1", "onnxruntime": "1.18.0", "temperature mC": "40000"})
    assert clauses() == []
    now = {"kernel": "6.6", "onnxruntime": "1.18.0", "temperature mC": "60000", "board": "x"}
    assert clauses(far=now) == ["a.json: kernel 6.6 (was 6.1) at far_cpu0"]


def test_only_of_this_machine_is_anything_known_without_asking(here: Path) -> None:
    (here / "p.txt").write_text(LINES)
    found = provenance.here(Platform.from_file("p.txt"))
    assert found["far"] == {"programs": programs()}
    assert found["a"]["kernel"] == os.uname().release
    assert found["a"]["onnxruntime"]


def test_what_was_measured_of_other_programs_is_said_of_all_hosts(here: Path) -> None:
    measured(conditions={"programs": "0123abcd"})
    (here / "p.txt").write_text(LINES)
    platform = Platform.from_file("p.txt")
    told = [f"a.json: programs {programs()} (was 0123abcd) at a_cpu0, far_cpu0"]
    assert provenance.unlike(platform, provenance.here(platform)) == told


@pytest.mark.parametrize("command", ["price", "simulate", "run"])
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_commands_that_predict_warn_in_one_line(here: Path, command: str, more: list[str]) -> None:
    measured(conditions={"kernel": "2.6.18"})
    (here / "p.txt").write_text(LINES)
    graph = load(save(here, six_layers()))
    (here / "m.json").write_text(Mapping.whole(graph, [0] * 6).to_json(graph, Platform.from_file("p.txt")))
    rest = ["--dry-run"] if command == "run" else ["--mapping", "m.json"]
    said = dse(command, "--cnn", "tiny.onnx", "--platform", "p.txt", *rest, *more)
    line = (
        f"Not as it was calibrated: a.json: kernel {os.uname().release} (was 2.6.18) at a_cpu0. "
        "dse calibrate --check tells whether times still hold."
    )
    assert line in (said.err if more else said.out).splitlines()
    assert command == "run" or not more or json.loads(said.out)


def test_a_coefficient_file_that_has_changed_is_read_again() -> None:
    first = coefficients.load("a.json")
    assert first.measured is not None
    assert coefficients.load("a.json") is first
    measured(devices=("b_cpu0",))
    assert coefficients.load("a.json").measured == replace(first.measured, devices=("b_cpu0",))
