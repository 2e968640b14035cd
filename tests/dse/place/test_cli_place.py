"""``dse place``: what it prints, for a person and for machines, and what it says of bad input."""

from __future__ import annotations

import json
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.place import split
from dse.place.clock import due, now
from dse.place.cnn.bounds import Proven
from dse.place.methods import METHODS, PERIOD
from dse.place.workload import Workload
from dse.show import proven_line
from tests.command import done, dse
from tests.tiny_cnn import network, node, save, six_layers

HEAD = {"maxSizePerFPGA": 30, "maxFPGAs": 2, "maxCPUs": 1}
NODES = [{"id": 10 * k, "supportedOnFpga": 1, "fpgaLatency": 4, "cpuLatency": 9, "size": 5} for k in range(1, 7)]
EDGES = [{"sourceId": 10 * k, "destId": 10 * k + 10, "cost": 1} for k in range(1, 6)]


def written(folder: Path, **changes: Any) -> Path:
    file = folder / "chain.json"
    file.write_text(json.dumps({**HEAD, "nodes": NODES, "edges": EDGES} | changes))
    return file


def test_json_says_all_there_is(tmp_path: Path) -> None:
    file = written(tmp_path)
    body = json.loads(done("place", "--workload", file, "--json"))
    assert {"value", "bound", "optimal", "time_s", "ideals", "method", "split", "devices"} <= set(body)
    on, names = Workload.from_file(file), ["acc0", "acc1", "cpu0"]
    device = np.array([names.index(body["split"][str(i)]) for i in on.ids])
    assert body["value"] == body["bound"] == split.period(on, device) == 13
    assert body["optimal"] is True
    assert body["contiguous"] is True
    assert body["ideals"] == 7
    assert body["method"] == "dp"
    assert [row["device"] for row in body["devices"]] == names
    assert max(row["load"] for row in body["devices"]) == 13
    assert sum(row["nodes"] for row in body["devices"]) == 6


def test_a_split_that_fits_to_the_last_byte_fits_in_whichever_order_it_is_summed(tmp_path: Path) -> None:
    sizes = {10: 0.1, 20: 0.2, 30: 0.3}
    nodes = [NODES[0] | {"id": name, "size": size} for name, size in sizes.items()]
    edges = [{"sourceId": 30, "destId": 20, "cost": 1}, {"sourceId": 20, "destId": 10, "cost": 1}]
    file = written(tmp_path, nodes=nodes, edges=edges, maxFPGAs=1, maxCPUs=0, maxSizePerFPGA=0.6)
    assert json.loads(done("place", "--workload", file, "--json"))["value"] == 12


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"maxFPGAs": 2.7}, "the workload has maxFPGAs = 2.7, which is no whole number from 0 to 100000"),
        (
            {"maxCPUs": 3_000_000_000},
            "the workload has maxCPUs = 3000000000, which is no whole number from 0 to 100000",
        ),
        (
            {"maxSizePerFPGA": 10**400},
            f"the workload has maxSizePerFPGA = {10**400}, which is no number from 0 to 1e+200",
        ),
    ],
)
def test_numbers_that_cannot_be_are_told(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    file = written(tmp_path, **change)
    said = dse("place", "--workload", file)
    assert (said.code, said.sentences) == (2, [f"{file}: {sentence}"])


@pytest.mark.parametrize("key", ["fpgaLatency", "cpuLatency", "size"])
def test_numbers_that_have_no_sum_are_refused(tmp_path: Path, key: str) -> None:
    file = written(tmp_path, nodes=[{**row, key: 1e308} for row in NODES])
    said = dse("place", "--workload", file, "--objective", "latency")
    assert (said.code, said.out) == (2, "")
    assert said.sentences == [f"{file}: node 10 has {key} = 1e+308, which is no number from 0 to 1e+200"]


@pytest.mark.parametrize("key", ["supportedOnFpga", "isBackwardNode"])
@pytest.mark.parametrize("bad", ["0", "false", [], None, {}, 2, -1, 1.0])
def test_what_is_neither_true_nor_false_is_refused(tmp_path: Path, key: str, bad: Any) -> None:
    file = written(tmp_path, nodes=[*NODES[:-1], {**NODES[-1], key: bad}])
    said = dse("place", "--workload", file)
    sentence = f"node 60 has {key} = {json.dumps(bad)}, which is neither true (1) nor false (0)"
    assert (said.code, said.sentences) == (2, [f"{file}: {sentence}"])


def test_a_file_that_nests_too_deep_is_told(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    said = dse("place", "--workload", tmp_path / "deep.json")
    assert said.code == 2
    assert said.sentences[0].startswith(f"{tmp_path / 'deep.json'}: cannot be read: ")


def test_options_that_say_nothing_are_refused(tmp_path: Path) -> None:
    said = dse("place", "--workload", written(tmp_path), "--slow", 9)
    assert said.sentences == ["--slow says nothing of one machine: add --machines"]
    said = dse("place", "--cnn", "zoo:alexnet", "--platform", "local2", "--seed", 3)
    assert said.sentences == ["--seed says nothing with --cnn: nothing is random there"]


@pytest.mark.parametrize("method", METHODS[PERIOD])
def test_every_method_can_be_asked_for(tmp_path: Path, method: str) -> None:
    body = json.loads(done("place", "--workload", written(tmp_path), "--method", method, "--json"))
    assert body["method"] == method
    assert len(body["split"]) == 6
    assert body["bound"] <= body["value"]


@pytest.mark.parametrize(("mode", "value"), [("sum", 17), ("overlap", 10), ("duplex", 8)])
def test_modes_are_told_apart(tmp_path: Path, mode: str, value: float) -> None:
    file = written(tmp_path, maxFPGAs=3, maxCPUs=0, edges=[edge | {"cost": 5} for edge in EDGES])
    body = json.loads(done("place", "--workload", file, "--mode", mode, "--json"))
    assert body["mode"] == mode
    assert body["value"] == value


def test_devices_may_share_a_part(tmp_path: Path) -> None:
    words = ("place", "--workload", written(tmp_path), "--replicate", "1e9")
    body = json.loads(done(*words, "--json"))
    assert body["value"] == pytest.approx(10.5)
    assert [row["copies"] for row in body["devices"]] == [2, 1, 1]
    assert "acc0 ×2" in done(*words)


def test_links_between_machines_may_be_slower(tmp_path: Path) -> None:
    words = (
        "place",
        "--workload",
        written(tmp_path, maxFPGAs=4, maxCPUs=0),
        "--machines",
        "2",
        "--slow",
        "9",
        "--json",
    )
    body = json.loads(done(*words))
    assert body["optimal"] is True
    assert body["value"] == 13
    assert [row["nodes"] for row in body["devices"]] == [3, 3, 0, 0]
    found = dse(*words, "--method", "dpl")
    assert "one machine alone" in found.sentences[0]


def test_a_table_is_for_a_person(tmp_path: Path) -> None:
    text = done("place", "--workload", written(tmp_path))
    assert "period 13 ms, contiguous, optimal" in text
    assert "acc1" in text
    text = done("place", "--workload", written(tmp_path), "--method", "greedy")
    assert "more than the best: none is under" in text
    assert "cpu0" not in text


def test_the_same_can_be_kept(tmp_path: Path) -> None:
    out = tmp_path / "split.json"
    shown = json.loads(done("place", "--workload", written(tmp_path), "--json", "--out", out))
    assert json.loads(out.read_text()) == shown
    assert sorted(file.name for file in tmp_path.iterdir()) == ["chain.json", "split.json"]


def test_nodes_that_stand_for_edges_are_not_shown(tmp_path: Path) -> None:
    edges = [*EDGES, {"sourceId": 10, "destId": 30, "cost": 3}]
    body = json.loads(done("place", "--workload", written(tmp_path, edges=edges), "--json"))
    assert sorted(body["split"]) == sorted(str(node["id"]) for node in NODES)
    assert sum(row["nodes"] for row in body["devices"]) == 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--method", "magic"], "--method magic: must be one of dp, dpl"),
        (["--mode", "magic"], "--mode magic: must be one of sum, overlap, duplex"),
        (["--mode", "duplex", "--objective", "latency"], "--mode says nothing with --objective latency; leave it out"),
        (["--out", "no/split.json"], "no/split.json: cannot be written: no is no folder that can be written to"),
        (["--objective", "magic"], "--objective magic: must be one of period"),
        (["--non-contiguous", "--method", "dp"], "contiguous splits alone"),
    ],
)
def test_what_cannot_be_is_told(tmp_path: Path, words: list[str], said: str) -> None:
    found = dse("place", "--workload", written(tmp_path), *words)
    assert found.code == 2
    assert said in found.sentences[0]
    assert not found.out


def test_a_workload_that_cannot_be_split_is_told(tmp_path: Path) -> None:
    found = dse("place", "--workload", written(tmp_path, maxCPUs=0, maxSizePerFPGA=4))
    assert found.code == 2
    assert "too little memory" in found.sentences[0]
    found = dse("place", "--workload", written(tmp_path, nodes=[], edges=[]))
    assert "there are no nodes" in found.sentences[0]
    found = dse("place", "--workload", tmp_path / "none.json")
    assert "there is no such workload" in found.sentences[0]


@pytest.mark.parametrize("bad", ["conv1", None, [1], 2.5, 10.0, True, -1, 2**63])
def test_an_id_that_is_no_whole_number_is_refused(bad: Any, tmp_path: Path) -> None:
    nodes = [NODES[0], {**NODES[1], "id": bad}, *NODES[2:]]
    found = dse("place", "--workload", written(tmp_path, nodes=nodes))
    assert f"nodes[1] has id = {json.dumps(bad)}, which is no whole number from 0 to " in found.sentences[0]
    found = dse("place", "--workload", written(tmp_path, edges=[{**EDGES[0], "sourceId": bad}]))
    assert f" → 20 has sourceId = {json.dumps(bad)}, which is no whole number from 0 to " in found.sentences[0]
    nodes = [NODES[0], {**NODES[1], "colorClass": bad}, *NODES[2:]]
    found = dse("place", "--workload", written(tmp_path, nodes=nodes))
    assert f"node 20 has colorClass = {json.dumps(bad)}, which is no whole number from 0 to " in found.sentences[0]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("--replicate", "1e9", "--method", "ip", "--non-contiguous"),
            "leave --replicate out, or take --objective period --method dp",
        ),
        (
            ("--replicate", "1e9", "--objective", "latency"),
            "leave --replicate out, or take --objective period --method dp",
        ),
        (("--subgraphs", "2"), "leave --subgraphs out"),
    ],
)
def test_what_a_method_does_not_know_is_refused(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    said = dse("place", "--workload", written(tmp_path), *words)
    assert (said.code, said.out) == (2, "")
    assert sentence in said.sentences[0]


@pytest.mark.parametrize("limit_s", [None, 1e6])
def test_ctrl_c_ends_what_has_a_limit_and_what_has_none(limit_s: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    end = due(limit_s)
    assert now() < end
    monkeypatch.setattr("dse.ending._asked", [signal.SIGINT])
    assert now() > end


@pytest.mark.parametrize("words", [("--non-contiguous",), ("--objective", "latency")])
def test_ctrl_c_gives_the_best_so_far(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Of a random graph that nobody solves within the time."""
    draw = random.Random(1)
    nodes = [NODES[0] | {"id": k, "fpgaLatency": draw.uniform(1, 9), "cpuLatency": 30, "size": draw.uniform(0, 1)}
             for k in range(150)]  # fmt: skip
    edges = [{"sourceId": a, "destId": b, "cost": draw.uniform(0, 3)} for b in range(1, 150)
             for a in draw.sample(range(max(0, b - 12), b), min(b, 2))]  # fmt: skip
    file = written(tmp_path, nodes=nodes, edges=[e | {"cost": 1 + e["sourceId"] % 3} for e in edges], maxFPGAs=5)
    command = [sys.executable, "-m", "dse", "place", "--workload", str(file), *words, "--time-limit", "300", "--json"]
    for patience in (8, 20, 60):  # until it has begun: before, Ctrl-C ends it as it ends every command
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            time.sleep(patience)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=150)
        if process.returncode == 0:
            break
    assert process.returncode == 0
    body = json.loads(out)
    assert 0 < body["bound"] <= body["value"]
    assert len(body["split"]) == 150


PLATFORM = "a, address=localhost, slots=0\nb, address=localhost, slots=1\n"


@pytest.fixture
def six(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """A folder to be in, with a CNN and a platform; and the words that name them."""
    monkeypatch.chdir(tmp_path)
    save(tmp_path, six_layers(), "six.onnx")
    (tmp_path / "p.txt").write_text(PLATFORM)
    return "--cnn", "six.onnx", "--platform", "p.txt"


@pytest.mark.parametrize("objective", ["period", "latency"])
def test_a_cnn_is_placed_by_a_mapping_like_any_other(six: tuple[object, ...], objective: str) -> None:
    body = json.loads(done("place", *six, "--objective", objective, "--out", "m.json", "--json"))
    priced = json.loads(done("price", *six, "--mapping", "m.json", "--json"))
    assert json.loads(Path("m.json").read_text()) == body["mapping"]
    assert body["proven"]["bound"] <= body["proven"]["best"] == body[f"{objective}_s"]
    assert priced["memory_bytes"] == pytest.approx(body["memory_bytes"])
    said = done("place", *six, "--objective", objective)
    assert proven_line(f"{objective}_s", Proven(body["proven"]["best"], body["proven"]["bound"])) in said
    assert "any mapping of this kind could reach" in said
    assert "keep the mapping with --out FILE" in said


def test_a_mapping_that_is_there_is_replaced_where_that_is_wanted(six: tuple[object, ...]) -> None:
    Path("m.json").write_text("mine")
    said = dse("place", *six, "--out", "m.json")
    assert (said.code, said.sentences) == (
        2,
        ["m.json: exists already; use --force to replace it, or choose another place"],
    )
    assert Path("m.json").read_text() == "mine"
    body = json.loads(done("place", *six, "--out", "m.json", "--force", "--json"))
    assert json.loads(Path("m.json").read_text()) == body["mapping"]


def test_what_uses_the_mapping_is_said_as_it_can_be_typed(six: tuple[object, ...]) -> None:
    said = done("place", *six, "--fold", "--out", "the mapping.json")
    (command,) = re.findall("^use it: dse (.*)$", said, re.MULTILINE)
    done(*shlex.split(command))
    assert json.loads(Path("bundle/mapping.json").read_text()) == json.loads(Path("the mapping.json").read_text())


def test_a_cnn_of_which_no_layer_can_be_split_is_placed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path, network([node("Relu", ["x"], ["y"]), node("Sigmoid", ["y"], ["z"])], {"x": (1, 64)}, ["z"]))
    assert json.loads(done("place", "--cnn", "tiny.onnx", "--platform", "local2", "--json"))["proven"]
    said = dse("place", "--cnn", "tiny.onnx", "--platform", "local2", "--splits", 9)
    assert said.sentences == ["--splits 9: each part needs a device of its own; 'local2' has 2"]


def test_no_device_of_a_cnn_exceeds_what_it_may_take() -> None:
    words = ("place", "--cnn", "zoo:squeezenet", "--platform", "local2", "--objective", "latency", "--json")
    free = json.loads(done(*words, "--splits", 1))
    less = free["energy_j"] * 0.8
    limited = json.loads(done(*words, "--splits", 1, "--max-energy", less))
    assert limited["energy_j"] <= less
    assert limited["latency_s"] > free["latency_s"]
    assert limited["proven"]["bound"] > free["proven"]["bound"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "name one thing to place: --cnn with --platform, or --workload"),
        (("--cnn", "six.onnx"), "--cnn needs the devices that it is placed on: add --platform"),
        (
            ("--cnn", "six.onnx", "--platform", "p.txt", "--replicate", 5),
            "--replicate: says nothing with --cnn; leave it",
        ),
        (("--workload", "x.json", "--max-memory", "1GB"), "--max-memory: says nothing with --workload; leave it out"),
        (("--cnn", "six.onnx", "--platform", "p.txt", "--max-memory", "1"), "--max-memory: '1' has no unit"),
        (
            ("--cnn", "six.onnx", "--platform", "p.txt", "--max-memory", "1kB"),
            "at most 0.001 MB a device: the least found is",
        ),
    ],
)
def test_what_cannot_be_placed_is_said(six: tuple[object, ...], words: tuple[object, ...], sentence: str) -> None:
    said = dse("place", *words)
    assert (said.code, said.out) == (2, "")
    assert sentence in " ".join(said.sentences)
