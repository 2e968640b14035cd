"""Coefficient files: what is read, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest

from model.cluster import coefficients, records
from model.network import layer_kinds
from runtime.errors import CleaveError
from tests import origin

ORIGIN = records.plain(origin.ORIGIN)


def body() -> dict[str, Any]:
    """A set that can be read: one unit, every kind alike."""
    layer = {"macs_per_cycle": 2.0, "overhead_s": 0.001, "power_w": 3.0}
    memory = {"memory_weights": 1.0, "memory_activations": 1.0, "memory_buffers": 1.0, "memory_bias_bytes": 5.0}
    layers = {kind: dict(layer) for kind in layer_kinds.KINDS}
    unit = {"frequency_hz": 1e9, "threads": 4, "communication_w": 1.5, **memory, "layers": layers}
    rest = {"name": "mine", "calibrated": True, "provenance": "made up"}
    return {"format": "cleave-coefficients", "version": coefficients.VERSION, **rest, "units": {"cpu": unit}}


def test_a_set_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(body()))
    found = coefficients.load(str(tmp_path / "mine.json"))
    assert (found.name, found.calibrated, found.provenance) == ("mine", True, "made up")
    unit = found.unit("cpu")
    assert (unit.frequency_hz, unit.threads, unit.communication_w, unit.memory_bias_bytes) == (1e9, 4, 1.5, 5.0)
    assert set(unit.layers) == set(layer_kinds.KINDS)
    assert unit.layers["fc"] == coefficients.LayerCost(2.0, 0.001, 3.0)


@pytest.mark.parametrize("name", coefficients.SETS.names)
def test_shipped_sets_are_sound_and_say_that_they_are_not_measured(name: str) -> None:
    found = coefficients.load(name)
    assert found.name == name
    assert not found.calibrated
    assert len(found.provenance) > 40
    for unit in found.units.values():
        assert min(unit.memory_weights, unit.memory_activations, unit.memory_buffers) > 0
        assert all(min(c.macs_per_cycle, c.power_w) > 0 and c.overhead_s >= 0 for c in unit.layers.values())


def test_the_boards_of_the_thesis_are_shipped() -> None:
    assert {"generic", "jetson-xavier-nx"} <= set(coefficients.SETS.names)
    assert set(coefficients.load("jetson-xavier-nx").units) == {"cpu", "gpu"}


def test_a_set_that_is_nowhere_is_named() -> None:
    with pytest.raises(CleaveError, match=r"^coefficients 'nowhere' are neither shipped \(generic, .*\) nor a file$"):
        coefficients.load("nowhere")


def test_a_set_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (file := tmp_path / "set.json").write_bytes(b"{\n\xff")
    with pytest.raises(CleaveError, match=r"set\.json:2: byte 0xff is not UTF-8 text"):
        coefficients.load(str(file))


def test_a_unit_without_figures_is_named() -> None:
    found = coefficients.parse(json.dumps(body()), "mine.json")
    with pytest.raises(CleaveError, match=r"^coefficients 'mine' have no figures for a gpu \(only cpu\)$"):
        found.unit("gpu")


def without(*path: str) -> Callable[[dict], None]:
    def change(whole: dict) -> None:
        for key in path[:-1]:
            whole = whole[key]
        del whole[path[-1]]

    return change


def put(value: Any, *path: str) -> Callable[[dict], None]:
    def change(whole: dict) -> None:
        for key in path[:-1]:
            whole = whole[key]
        whole[path[-1]] = value

    return change


POSITIVE = r"^mine.json: units.cpu: frequency_hz, threads and macs_per_cycle must be more than 0$"
NUMBER = "must be a number of at least 0, not"
KERNEL = {"op": "Conv", "whole_s": 1e-3, "splits": {"1": [1e-4, 9e-4]}, "error": 0.02}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (put("cleave-plan", "format"), rf"^mine.json: is no cleave-coefficients of version {coefficients.VERSION}$"),
        (
            put(1, "version"),
            rf"^mine.json: is cleave-coefficients of version 1, {coefficients.VERSION} is needed; run dse calibrate "
            r"again, into the same folder: what was measured is kept there$",
        ),
        (without("units", "cpu", "layers", "fc"), r"^mine.json: units.cpu.layers: no coefficient for fc$"),
        (put({}, "units", "cpu", "layers", "gru"), r"^mine.json: units.cpu.layers.gru: has no 'macs_per_cycle'$"),
        (without("provenance"), r"^mine.json: has no 'provenance'$"),
        (without("units"), r"^mine.json: has no 'units'$"),
        (without("units", "cpu", "threads"), r"^mine.json: units.cpu: has no 'threads'$"),
        (without("units", "cpu", "layers", "fc", "power_w"), r"^mine.json: units.cpu.layers.fc: has no 'power_w'$"),
        (
            put(1.0, "units", "cpu", "speed"),
            r"^mine.json: units.cpu: 'speed' is not known \(known: frequency_hz, .*\)$",
        ),
        (put(1.0, "units", "cpu", "layers", "fc", "speed"), r"units.cpu.layers.fc: 'speed' is not known"),
        (put([], "units"), r"^mine.json: units: must be an object, not \[\]$"),
        (put("fast", "units", "cpu", "frequency_hz"), rf"units.cpu.frequency_hz: {NUMBER} 'fast'$"),
        (put(True, "units", "cpu", "frequency_hz"), rf"units.cpu.frequency_hz: {NUMBER} True$"),
        (put(float("nan"), "units", "cpu", "send_s"), rf"units.cpu.send_s: {NUMBER} nan$"),
        (put(1.5, "units", "cpu", "threads"), r"units.cpu.threads: must be a whole number of at least 0, not 1.5$"),
        (put(0.0, "units", "cpu", "frequency_hz"), POSITIVE),
        (put(0, "units", "cpu", "threads"), POSITIVE),
        (put(0, "units", "cpu", "layers", "fc", "macs_per_cycle"), POSITIVE),
        (put(-1.0, "units", "cpu", "layers", "fc", "macs_per_cycle"), rf"layers.fc.macs_per_cycle: {NUMBER} -1.0$"),
        (put(1, "calibrated"), r"^mine.json: calibrated: must be true or false, not 1$"),
        (put([], "units", "cpu", "kernels"), r"units.cpu.kernels: must be an object, not \[\]$"),
        (put({"Conv-1": {"op": "Conv"}}, "units", "cpu", "kernels"), r"kernels.Conv-1: has no 'whole_s'$"),
        (
            put({"C": KERNEL | {"splits": {"1": [1]}}}, "units", "cpu", "kernels"),
            r"splits.1: must be a list of 2 numbers",
        ),
        (
            put({"C": KERNEL | {"splits": {"x": [1, 1]}}}, "units", "cpu", "kernels"),
            r"splits: 'x' must be a whole number",
        ),
        (put({"C": KERNEL | {"splits": {"7": [1, 1]}}}, "units", "cpu", "kernels"), r"C: there is no axis 7 to split$"),
        (put({"C": KERNEL | {"whole_s": None}}, "units", "cpu", "kernels"), rf"C.whole_s: {NUMBER} None$"),
        (
            put({"conv": 0}, "units", "cpu", "gain_parts"),
            r"gain_parts: 'conv' is no pair of kinds, such as conv>activation$",
        ),
        (put({"conv>gru": 0}, "units", "cpu", "gain_parts"), r"gain_parts: 'conv>gru' is no pair of kinds"),
        (put({"conv>pool": -1}, "units", "cpu", "gain_parts"), rf"gain_parts.conv>pool: {NUMBER} -1$"),
        (put({"conv>pool": 2.5}, "units", "cpu", "gain_parts"), r"gain_parts.conv>pool: must be at most 2, not 2.5$"),
        (put({"9": [0, 0]}, "units", "cpu", "layers", "fc", "splits"), r"layers.fc: there is no axis 9 to split$"),
        (put({"conv>pool": 0}, "units", "cpu", "gains"), r"gains: 'conv>pool' is no pair of signatures$"),
        (put({"Conv-0123>Relu-4567": -1}, "units", "cpu", "gains"), rf"gains.Conv-0123>Relu-4567: {NUMBER} -1$"),
        (put(0, "units", "cpu", "vector"), r"units.cpu.vector: must be at least 1, not 0$"),
        (put(1.5, "units", "cpu", "overlap"), r"units.cpu.overlap: must be at most 1, not 1.5$"),
        (put(1, "units", "cpu", "rested_part"), r"units.cpu.rested_part: must be less than 1, not 1$"),
        (
            put({"held": 1.5}, "units", "cpu", "caches"),
            r"units.cpu.caches: held must be at most 1 and fade_s more than 0$",
        ),
        (put({"fade_s": 0}, "units", "cpu", "caches"), r"cpu.caches: held must be at most 1 and fade_s more than 0$"),
        (
            put({"tiny": {"latency": "small", "period": 0.1, "computing": 0.1}}, "units", "cpu", "frame_errors"),
            rf"frame_errors.tiny.latency: {NUMBER} 'small'$",
        ),
        (put([], "measured"), r"^mine.json: measured: must be an object, not \[\]$"),
        (
            put({**ORIGIN, "devices": None}, "measured"),
            r"^mine.json: measured.devices: must be a list of texts, not None$",
        ),
        (put({**ORIGIN, "hosts": ["a", 7]}, "measured"), r"^mine.json: measured.hosts: must be text, not 7$"),
        (put({**ORIGIN, "date": ["2023"]}, "measured"), r"measured.date: must be a list of 2 texts, not \['2023'\]$"),
        (put({**ORIGIN, "conditions": 0}, "measured"), r"^mine.json: measured.conditions: must be an object, not 0$"),
        (put({**ORIGIN, "providers": ["cpu"]}, "measured"), r"^mine.json: measured.providers: must be an object, not"),
        (put({}, "measured"), r"^mine.json: measured: has no 'devices'$"),
    ],
)
def test_a_wrong_set_is_refused(change: Callable[[dict], None], sentence: str) -> None:
    whole = body()
    change(whole)
    with pytest.raises(CleaveError, match=re.compile(sentence, re.MULTILINE)):
        coefficients.parse(json.dumps(whole), "mine.json")


def test_everything_that_is_wrong_is_said_at_once() -> None:
    whole = body()
    del whole["provenance"]
    whole["units"]["cpu"] |= {"threads": "all", "send_s": -1}
    with pytest.raises(CleaveError) as error:
        coefficients.parse(json.dumps(whole), "mine.json")
    assert len(error.value.sentences) == 3


def test_no_more_is_said_than_one_can_read() -> None:
    whole = body()
    whole["units"]["cpu"]["kernels"] = {f"Conv-{k}": 1 for k in range(100)}
    with pytest.raises(CleaveError) as error:
        coefficients.parse(json.dumps(whole), "mine.json")
    assert error.value.sentences[-1] == f"mine.json: and {100 - len(error.value.sentences) + 1} more like these"
    assert len(error.value.sentences) < 30


def test_a_calibrated_set_is_written_as_it_is_read() -> None:
    whole = body()
    whole["units"]["cpu"] |= {"kernels": {"Conv-0123": KERNEL}, "gains": {"Conv-0123>Relu-4567": 1e-6}}
    whole["units"]["cpu"] |= {"gain_parts": {"conv>activation": 0.5}}
    whole["units"]["cpu"] |= {
        "frame_errors": {"tiny": {"latency": 0.05, "period": 0.06, "computing": 0.07}},
        "memory_error": 0.01,
        "idle_w": 2.5,
        "send_j_per_byte": 1e-9,
        "rested_part": 0.4,
        "caches": {"held": 0.6, "fade_s": 0.02},
    }
    whole["units"]["cpu"]["layers"]["fc"] |= {"s_per_byte": 1e-10, "error": 0.2}
    whole["measured"] = {**ORIGIN, "residuals": {"mean": -0.01}}
    found = coefficients.parse(json.dumps(whole), "mine.json")
    assert found.measured == replace(origin.ORIGIN, residuals={"mean": -0.01})
    assert found.unit("cpu").kernels == {"Conv-0123": coefficients.Kernel("Conv", 1e-3, {1: (1e-4, 9e-4)}, 0.02)}
    assert found.unit("cpu").gains == {"Conv-0123>Relu-4567": 1e-6}
    assert found.unit("cpu").gain_parts == {"conv>activation": 0.5}
    assert json.loads(found.to_json()) == whole
    assert coefficients.parse(found.to_json(), "again") == found


@pytest.mark.parametrize("name", coefficients.SETS.names)
def test_a_shipped_set_is_written_as_it_is_read(name: str) -> None:
    found = coefficients.load(name)
    assert coefficients.parse(found.to_json(), name) == found
    assert found.unit("cpu").kernels == found.unit("cpu").gains == found.unit("cpu").gain_parts == {}
    assert found.measured is None


@pytest.mark.parametrize("text", ["", "[]", "null", "{"])
def test_a_file_of_something_else_is_no_set(text: str) -> None:
    with pytest.raises(
        CleaveError,
        match=rf"^mine.json: is no (coefficient file: |cleave-coefficients of version {coefficients.VERSION}$)",
    ):
        coefficients.parse(text, "mine.json")


def test_by_the_paper_a_kind_has_one_coefficient_and_messages_cost_a_device_nothing(tmp_path: Path) -> None:
    found = coefficients.load("generic")
    cost = replace(found.unit("cpu").layers["fc"], overhead_s=1e-3, s_per_byte=1e-9, paper=2.5)
    more = {
        "send_s": 1e-3,
        "late_s": 1e-3,
        "idle_w": 9.0,
        "send_j_per_byte": 1e-6,
        "memory_layer_bytes": 1e6,
        "vector": 16,
    }
    unit = replace(found.unit("cpu"), layers={**found.unit("cpu").layers, "fc": cost}, **more)
    file = tmp_path / "mine.json"
    file.write_text(replace(found, units={"cpu": unit}).to_json())
    plain = coefficients.load(f"{file}{coefficients.PAPER}").unit("cpu")
    assert (plain.layers["fc"].macs_per_cycle, plain.layers["fc"].overhead_s, plain.layers["fc"].s_per_byte) == (
        2.5,
        0,
        0,
    )
    assert plain.layers["pool"].macs_per_cycle == unit.layers["pool"].macs_per_cycle
    usual = {field.name: field.default for field in fields(plain) if field.default is not MISSING}
    assert {name: getattr(plain, name) for name in usual} == usual
    assert plain.kernels == plain.memory_kinds == plain.frame_errors == {}
