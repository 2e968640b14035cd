"""``dse simulate``: what it says, what it writes, and what was measured beside what was predicted."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest

from runtime.trace import Trace
from tests.command import done, dse, files
from tests.tiny_cnn import save, six_layers

LAYERS = ["l1", "l2", "l3", "l4", "l5", "l6"]
A, B = "a_cpu0", "b_cpu1"
SIMULATE = ("simulate", "--cnn", "six.onnx", "--platform", "two.txt", "--mapping", "mapping.json")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a network, a platform and a mapping that sends in both directions."""
    monkeypatch.chdir(tmp_path)
    save(tmp_path, six_layers(), "six.onnx")
    (tmp_path / "two.txt").write_text("a, slots=0, address=localhost\nb, slots=1, address=localhost\n")
    mapping("mapping.json", [A, A, B, B, A, A])
    return tmp_path


def mapping(name: str, devices: list[str]) -> None:
    body = {"format": "cleave-mapping", "version": 1, "cnn": "six", "platform": "two"}
    names = [layer["name"] for layer in json.loads(done("inspect", "--cnn", "six.onnx", "--json"))["layers"]]
    Path(name).write_text(json.dumps({**body, "layers": dict(zip(names, devices, strict=True))}))


def refused(*words: object) -> str:
    """The sentence of a command that must be refused and must not write."""
    before = files(Path())
    said = dse(*SIMULATE, *words)
    assert (said.code, said.out) == (2, ""), said
    assert files(Path()) == before
    (sentence,) = said.sentences
    return sentence


def test_it_says_latency_and_period_what_bounds_them_and_what_more_would_buy() -> None:
    text = done(*SIMULATE, "--frames", 8)
    assert "(8 frames after 4)" in text
    for words in (
        "latency", "period of a pipeline", "by the analytical model", "busy in stream", "the latency is bound by",
        "the period is bound by", "busiest in the stream is", "longest on the latency's path",
        "1 % more bandwidth of all links", "not calibrated", "a out", "b in", "memory MB",
    ):  # fmt: skip
        assert words in text, words


def test_one_frame_has_no_stream() -> None:
    text = done(*SIMULATE, "--frames", 1)
    assert "by the analytical model (busiest device, link or circle" in text
    assert "at least" not in text
    assert "the period is bound by" not in text
    body = json.loads(done(*SIMULATE, "--frames", 1, "--json"))
    assert (body["period_s"], body["frames"], body["period_bounds"]) == (None, 1, [])


def test_hosts_on_one_medium_share_a_link_in_tables_traces_and_pictures(here: Path) -> None:
    lines = [f"{name}, address=localhost, medium=wifi, duplex=half\n" for name in ("a, slots=0", "b, slots=1")]
    (here / "two.txt").write_text("".join(lines))
    body = json.loads(done(*SIMULATE, "--json", "--trace", "out.json", "--picture", "out.svg"))
    assert [(row["link"], row["messages"]) for row in body["links"]] == [("wifi", 2)]
    assert {gain["where"] for gain in body["gains"] if gain["what"] == "bandwidth"} == {"wifi"}
    events = json.loads((here / "out.json").read_text())["traceEvents"]
    assert [e["args"]["name"] for e in events if e["name"] == "thread_name"].count("wifi") == 2  # alone, in a stream
    assert "<!-- wifi -->" in (here / "out.svg").read_text()
    text = done(*SIMULATE)
    assert "bytes on the link wifi" in text
    assert "1 % more bandwidth of the link wifi" in text
    (here / "two.txt").write_text(lines[0] + lines[1].replace("half", "full"))
    assert refused().startswith("two.txt:2: medium: 'wifi' is full duplex here, but half duplex on line 1; state")


def test_json_is_whole_and_its_parts_make_up_the_latency() -> None:
    body = json.loads(done(*SIMULATE, "--json"))
    assert body["calibrated"] is False
    assert body["latency_s"] == pytest.approx(sum(part["time_s"] for part in body["latency_path"]))
    assert sum(row["share"] for row in body["latency_bounds"]) == pytest.approx(1)
    assert sum(row["share"] for row in body["period_bounds"]) == pytest.approx(1)
    assert sum(row["time_s"] for row in body["period_bounds"]) == pytest.approx(body["period_s"])
    ends = [(part["start_s"], part["start_s"] + part["time_s"]) for part in body["latency_path"]]
    assert all(a[1] == pytest.approx(b[0]) for a, b in pairwise(ends))
    assert {gain["what"] for gain in body["gains"]} == {"speed", "bandwidth", "latency"}
    assert {row["link"] for row in body["links"]} == {"a out", "a in", "b out", "b in"}


def test_a_trace_has_a_track_for_each_device_and_link_and_the_memory(here: Path) -> None:
    done(*SIMULATE, "--trace", "out.json", "--frames", 3)
    events = json.loads((here / "out.json").read_text())["traceEvents"]
    processes = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {"predicted", "predicted stream", "predicted: links and memory"} <= processes
    tracks = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {f"rank 0 {A}", f"rank 1 {B}", "a out", "b in", "b out", "a in"} <= tracks
    levels = [e["args"] for e in events if e["ph"] == "C" and e["name"] == f"memory of {A}"]
    assert levels[-1]["activations"] == 0
    peak = max(sum(level.values()) for level in levels)
    row = next(r for r in json.loads(done(*SIMULATE, "--json"))["devices"] if r["device"] == A)
    assert peak == pytest.approx(row["memory_bytes"], abs=4)


@pytest.mark.parametrize("name", ["out.svg", "out.png"])
def test_pictures_are_the_same_bytes_for_the_same_mapping(here: Path, name: str) -> None:
    done(*SIMULATE, "--picture", name)
    first = (here / name).read_bytes()
    done(*SIMULATE, "--picture", name)
    assert (here / name).read_bytes() == first
    assert [file for file in files(here) if "part" in file] == []


def test_a_picture_has_a_row_for_each_device_and_link(here: Path) -> None:
    done(*SIMULATE, "--picture", "out.svg")
    root = ET.fromstring((here / "out.svg").read_text())
    assert root.tag.endswith("svg")
    text = (here / "out.svg").read_text()
    for name in (A, B, "a out", "a in", "b out", "b in", "frame 5", "one frame alone; its critical path in red"):
        assert f"<!-- {name} -->" in text, name


def test_a_picture_of_another_kind_is_refused() -> None:
    assert refused("--picture", "out.jpg") == "out.jpg: pictures are written as .svg or .png; give a name that ends so"


def test_frames_before_those_that_count_are_refused_where_there_is_no_stream() -> None:
    sentence = "--warmup says nothing with --frames 1: there is no stream; leave it out"
    assert refused("--frames", 1, "--warmup", 2) == sentence


def test_files_have_a_place_before_anything_is_simulated() -> None:
    for option, name in (("--trace", "no/t.json"), ("--picture", "no/p.svg")):
        assert refused(option, name) == f"{name}: cannot be written: no is no folder that can be written to"


def test_what_was_measured_must_be_there_and_be_a_trace(here: Path) -> None:
    assert refused("--measured", "no.jsonl").startswith("no.jsonl: there is no such file; dse bench --save-trace")
    (here / "bad.jsonl").write_text("")
    assert refused("--measured", "bad.jsonl") == "bad.jsonl: is not what a benchmark keeps, one trace a line"
    (here / "worse.jsonl").write_text("{}\n")
    assert refused("--measured", "worse.jsonl").startswith("worse.jsonl:1: is no trace")


@pytest.mark.mpi
def test_predicted_and_measured_have_the_same_spans_and_come_in_one_file(here: Path) -> None:
    done("generate", "--cnn", "six.onnx", "--platform", "two.txt", "--mapping", "mapping.json", "--out", "bundle")
    done("bench", "bundle", "--frames", 3, "--save-trace", "measured.jsonl")
    text = done(*SIMULATE, "--measured", "measured.jsonl", "--trace", "both.json", "--frames", 3)
    assert "measured ms" in text
    for of in ("compute", "of it busy", "wait"):
        assert f"{A}: {of}" in text
    events = json.loads((here / "both.json").read_text())["traceEvents"]
    processes = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    named = {
        source: {(e["tid"], e["cat"], e["name"]) for e in events if e["ph"] == "X" and e["pid"] == processes[source]}
        for source in ("predicted", "measured", "predicted stream", "measured stream")
    }
    besides = {"input", "send the rest"}
    rest = {source: {s for s in spans if s[1] != "input" and s[2] not in besides} for source, spans in named.items()}
    assert rest["predicted"] == rest["measured"] == rest["predicted stream"] == rest["measured stream"] != set()
    alone, _ = (here / "measured.jsonl").read_text().splitlines()
    assert Trace.from_json(alone).source == "measured"
    mapping("mapping.json", [A, A, A, B, A, A])
    assert "was measured with another mapping" in refused("--measured", "measured.jsonl")
