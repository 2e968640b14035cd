"""Programs in C++: compiled and run under mpirun, they give the whole model's answer, and say what goes wrong."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from codegen.bundle import Form, source, write_bundle
from codegen.render import CPP, render, write
from codegen.verify import verify
from model.mappings.mapping import Mapping
from model.network.load import load
from runtime import compiling
from runtime.bench import bench, traces
from runtime.compiling import LIBRARY, frames_file, program
from runtime.errors import CleaveError
from runtime.frames import Frames
from runtime.launch import Mpirun, execute, run
from runtime.options import Options
from runtime.plan import Buffer, Plan
from runtime.trace import COMPUTE, INPUT
from tests import tiny
from tests.npz import save_npz
from tests.tiny import Tiny
from tests.tiny_cnn import branches, network, node, platform, random_mapping, save, weight

pytestmark = pytest.mark.mpi

CLOCKS_S = 1e-3
"""What looking at two clocks may take, on a busy machine."""


def cpp(made: Tiny) -> Tiny:
    """The same bundle with programs in C++."""
    for file in made.bundle.glob("*.py"):
        file.unlink()
    shutil.rmtree(made.bundle / "runtime")
    write(render(made.plan, CPP), made.bundle)
    return made


def cut(folder: Path, model: onnx.ModelProto, draw: random.Random | None = None, devices: int = 3) -> tuple[Path, Path]:
    """A bundle of a mapping at random, or of layers in turn; and the file that it was made from."""
    path = save(folder, model)
    graph = load(path)
    whole = Mapping.whole(graph, [i % devices for i in range(len(graph.layers))])
    mapping = random_mapping(draw, graph, devices, tiles=True) if draw else whole
    out = folder / "bundle"
    write_bundle(graph, platform(devices), mapping, source(graph, False, {}), out, force=True, form=Form(target=CPP))
    return out, path


@pytest.mark.parametrize("make", [tiny.channels, tiny.rows])
def test_a_right_bundle_passes(make: Callable[[Path], Tiny], tmp_path: Path) -> None:
    made = cpp(make(tmp_path))
    before = sorted(made.bundle.rglob("*"))
    assert verify(made.bundle, made.model).passed
    assert sorted(made.bundle.rglob("*")) == before  # it stays as it was made


def test_a_wrong_box_is_found(tmp_path: Path) -> None:
    made = cpp(tiny.channels(tmp_path))
    file = made.bundle / "rank_02.cpp"
    assert "{{0, 1}, {1, 4}, {0, 6}, {0, 6}}" in file.read_text()
    file.write_text(file.read_text().replace("{{0, 1}, {1, 4}", "{{0, 1}, {0, 3}"))
    assert not verify(made.bundle, made.model).passed


@pytest.mark.parametrize("seed", range(3))
def test_any_cut_gives_the_whole_models_answer(seed: int, tmp_path: Path) -> None:
    """Samples, channels, rows that overlap and partial sums; groups, a residual, a Concat and two outputs."""
    assert verify(*cut(tmp_path, branches(), random.Random(seed)), frames=2).passed


def test_several_inputs_and_outputs_of_other_types(tmp_path: Path) -> None:
    nodes = [
        node("Cast", ["i"], ["f"], to=onnx.TensorProto.FLOAT),
        node("Add", ["x", "f"], ["sum"]),
        node("Relu", ["sum"], ["y"]),
        node("Greater", ["y", "f"], ["g"]),
    ]
    model = network(nodes, {"x": (1, 4)}, {"sum": "float32", "y": "float32", "g": "bool"})
    model.graph.input.append(helper.make_tensor_value_info("i", onnx.TensorProto.INT64, (1, 4)))
    found = verify(*cut(tmp_path, model))
    assert [(check.name, check.passed) for check in found.outputs] == [("sum", True), ("y", True), ("g", True)]


TYPES = [
    ("float16", "Neg"),
    ("int64", "Neg"),
    ("bool", "Not"),
    ("int8", "Neg"),
    ("uint8", "Identity"),
    ("float64", "Neg"),
]


@pytest.mark.parametrize(("dtype", "operator"), TYPES)
def test_types(dtype: str, operator: str, tmp_path: Path) -> None:
    made = cpp(tiny.types(tmp_path, dtype, operator))
    assert verify(made.bundle, made.model, frames=2).error == 0
    run(made.bundle, Options(frames=2))  # on random frames of its own


def test_columns_are_packed(tmp_path: Path) -> None:
    """A box with neither its rows nor its columns whole, which no slicer sends, but a plan may."""
    made = tiny.types(tmp_path, "float32", shape=(2, 3, 4))
    first, second = made.plan.ranks
    box = ((0, 2), (1, 3), (1, 3))
    send = replace(first.steps[1], box=box)  # type: ignore[type-var]
    y = replace(second.buffers[0], shape=(2, 2, 2))
    z = replace(second.buffers[1], shape=(2, 2, 2))
    ranks = (replace(first, steps=(first.steps[0], send)), replace(second, buffers=(y, z)))
    tiny.save(made.bundle / "rank01/segment000.onnx", [helper.make_node("Identity", ["y"], ["z"])], [y], [z])
    write(render(replace(made.plan, outputs=(z,), ranks=ranks)), made.bundle)
    cpp(replace(made, plan=replace(made.plan, outputs=(z,), ranks=ranks)))
    frames = np.arange(48, dtype=np.float32).reshape(2, 2, 3, 4)
    save_npz(str(tmp_path / "in.npz"), {"x": frames})
    run(made.bundle, Options(frames=3, input=str(tmp_path / "in.npz"), output=str(tmp_path / "out.npz")))
    with np.load(tmp_path / "out.npz") as file:
        assert np.array_equal(file["z"], frames[[0, 1, 0], :, 1:3, 1:3])  # the third frame is the first again


@pytest.mark.parametrize("count", [2, 6])
def test_each_input_is_used_round_and_round_by_itself(count: int, tmp_path: Path) -> None:
    like = {name: np.zeros((1, 4), np.float32) for name in ("x", "i")}
    given = {name: np.random.default_rng(0).random((n, 1, 4), np.float32) for name, n in (("x", 3), ("i", 2))}
    save_npz(str(tmp_path / "in.npz"), given)
    plan = Plan("two", tuple(Buffer(name, (1, 4), "float32") for name in like), (), ())
    options = Options(count, input=str(tmp_path / "in.npz"))
    frames_file(plan, options, str(tmp_path / "made.npz"))
    wanted, found = Frames(options, like), Frames(replace(options, input=str(tmp_path / "made.npz")), like)
    for index in range(count):
        assert all(np.array_equal(found.frame(index)[name], wanted.frame(index)[name]) for name in like)
    assert found.counts == {"x": min(count, 3), "i": 2}


@pytest.mark.parametrize("frames", [1, 5, 6])
def test_a_stream_gives_the_same_answers(frames: int, tmp_path: Path) -> None:
    made = cpp(tiny.channels(tmp_path))
    given = np.random.default_rng(0).standard_normal((frames, 1, 3, 8, 8)).astype(np.float32)
    save_npz(str(tmp_path / "in.npz"), {tiny.DATA: given})
    answers = []
    for barrier, stream in ((False, False), (False, True), (True, True)):
        out = str(tmp_path / "out.npz")
        run(made.bundle, Options(frames, 2, barrier, str(tmp_path / "in.npz"), out, stream=stream))
        with np.load(out) as file:
            answers.append(file["out.0"])
    assert answers[0].shape == (frames, 1, 4, 6, 6)
    assert all(np.array_equal(answer, answers[0]) for answer in answers)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_report_is_that_of_the_python_programs(threads: int, tmp_path: Path) -> None:
    """The same spans of the same frames, in the same order, of the same devices; of frames alone, then of a stream."""
    found = []
    for made in (tiny.channels(tmp_path / "py"), cpp(tiny.channels(tmp_path / "cpp"))):
        report = tmp_path / "report.json"
        run(made.bundle, Options(2, 1, barrier=True, stream=True, report=str(report), threads=threads))
        found.append(traces(report.read_text(), "report.json"))
    python, native = ([tiny.timeless(trace) for trace in each] for each in found)
    assert native == python
    assert [trace.barrier for trace in found[1]] == [True, False]
    for frame in found[1][0].frames:
        assert all(-10 < s.start_s <= s.stop_s < 10 for s in frame)
        assert [s.stop_s for s in frame if s.kind == INPUT] == [0]
        for span in (span for span in frame if span.kind == COMPUTE):
            assert threads == 2 if span.busy_s is None else 0 < span.busy_s < span.time_s + CLOCKS_S
    python_ranks, ranks = (each[0].ranks for each in found)
    assert all(b.peak_bytes < a.peak_bytes for a, b in zip(python_ranks, ranks, strict=True))
    assert all(u.processor_s > 0 and u.conditions for u in ranks)
    assert [u.stolen is None for u in ranks] == [u.stolen is None for u in python_ranks]
    for usage in ranks:
        assert usage.memory is not None
        assert 2**20 < usage.memory.base_bytes < usage.peak_bytes
        assert (usage.memory.segments_bytes > 2**20) == (usage.rank > 0)
        assert usage.memory.buffers_bytes >= 768


def test_a_bundle_can_be_timed(tmp_path: Path) -> None:
    found = bench(cpp(tiny.channels(tmp_path)).bundle, warmup=1, frames=4)
    assert len(found.latencies_s) == 4
    assert found.min_s > 0
    assert found.period_s is not None


def test_weights_lie_apart_so_that_they_can_be_mapped(tmp_path: Path) -> None:
    model = network([node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["y"])], {"x": (1, 64, 9, 9)}, ["y"],
                    {"w": weight(64, 64, 3, 3)})  # fmt: skip
    bundle, path = cut(tmp_path, model, devices=1)
    assert (bundle / "rank00/segment000.onnx.data").stat().st_size >= 64 * 64 * 9 * 4
    assert (bundle / "rank00/segment000.onnx").stat().st_size < 4096
    assert json.loads((bundle / "bundle.json").read_text())["target"] == "cpp"
    assert verify(bundle, path).passed


def failure(bundle: Path, options: Options | None = None) -> str:
    """The one sentence that a run ends with."""
    with pytest.raises(CleaveError) as caught:
        run(bundle, options or Options())
    (sentence,) = caught.value.sentences
    return str(sentence)


WHO = "rank 1 of 3 on edge01_cpu01 failed"


def test_a_segment_that_is_missing_is_named(tmp_path: Path) -> None:
    made = cpp(tiny.channels(tmp_path))
    (made.bundle / "rank01/segment001.onnx").unlink()
    sentence = failure(made.bundle)
    assert sentence.startswith(f"{WHO} (opening rank01/segment001.onnx): ")
    assert sentence.endswith("File doesn't exist")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('{1, 5, 6, 6}, "float32"', '{1, 5, 6, 6}, "int32"', "(opening rank01/segment000.onnx): output 'relu/1[:,0:5]' is float32, the plan says int32"),  # noqa: E501
        ('"relu/1[:,0:5]"', '"relu"', "(opening rank01/segment000.onnx): has no output 'relu'"),
        ('"float32"', '"complex64"', "(starting): a C++ program knows no elements of type complex64"),
        ("CPUExecutionProvider", "X", "(opening rank01/segment000.onnx): no X in a C++ program, which computes on the processor"),  # noqa: E501
        ("{1, 3, 6, 6}", "{1, 3, 6, 7}", "(wait relu/1[:,5:8]): expected a message of 504 bytes, got 432: its bundle is not that of the others; generate it again"),  # noqa: E501
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(old: str, new: str, sentence: str, tmp_path: Path) -> None:
    made = cpp(tiny.channels(tmp_path))
    file = made.bundle / "rank_01.cpp"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    assert failure(made.bundle) == f"{WHO} {sentence}"


def test_a_message_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    made = cpp(tiny.channels(tmp_path))
    file = made.bundle / "rank_01.cpp"
    file.write_text(file.read_text().replace("{1, 3, 6, 6}", "{1, 3, 6, 5}"))
    sentence = failure(made.bundle)
    assert sentence.startswith(f"{WHO} (wait relu/1[:,5:8]): MPI: MPI_ERR_TRUNCATE")
    assert sentence.endswith("its bundle is not that of the others; generate it again")


def test_a_rank_that_hangs_is_ended(tmp_path: Path) -> None:
    made = cpp(tiny.channels(tmp_path))
    file = made.bundle / "rank_02.cpp"
    file.write_text(file.read_text().replace("m0.start();", ""))
    with pytest.raises(CleaveError, match=r"not done after 3 s") as caught:
        run(made.bundle, Options(), timeout_s=3)
    doing = sorted(caught.value.sentences[1:])
    assert [line.partition(" on ")[0] for line in doing] == [f"rank {number} of 3" for number in range(3)]
    assert all(" was not done (" in line for line in doing)
    assert sum("(wait " in line for line in doing) >= 1  # for what never comes


def test_a_program_that_cannot_be_compiled_is_named(tmp_path: Path) -> None:
    made = cpp(tiny.channels(tmp_path))
    file = made.bundle / "rank_02.cpp"
    file.write_text(file.read_text().replace("s0.run();", "s0.walk();"))
    with pytest.raises(CleaveError) as caught:
        run(made.bundle, Options())
    first, second = caught.value.sentences
    assert first == "a program in C++ cannot be compiled:"
    assert "rank_02.cpp" in second
    assert "walk" in second


def test_no_compiler_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = cpp(tiny.channels(tmp_path))
    monkeypatch.setenv("OMPI_CXX", "no-such-compiler")
    with pytest.raises(CleaveError, match=r"no g\+\+ on the PATH: .* generate for Python"):
        run(made.bundle, Options())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CleaveError, match=r"no mpicxx, neither beside mpirun nor on the PATH"):
        compiling.program(made.bundle, str(tmp_path / "mpirun"))


def test_a_library_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the ranks that need it: rank 0 only holds the input."""
    made = cpp(tiny.channels(tmp_path))
    monkeypatch.setenv(LIBRARY, "/nowhere/libonnxruntime.so")
    with pytest.raises(CleaveError) as caught:
        run(made.bundle, Options())
    assert {s[:6] for s in caught.value.sentences} <= {"rank 1", "rank 2"}
    assert f"say where libonnxruntime.so is with {LIBRARY}=FILE" in caught.value.sentences[0]


def directly(made: Tiny, *words: str, ranks: int = 3) -> str:
    """What the programs say when they are started by hand."""
    mpirun = Mpirun.find()
    with pytest.raises(CleaveError) as caught:
        execute([*mpirun.here(ranks), *program(made.bundle, mpirun.path), *words], timeout_s=60)
    return str(caught.value.sentences[0])


def test_another_number_of_ranks_is_refused(tmp_path: Path) -> None:
    sentence = directly(cpp(tiny.channels(tmp_path)), ranks=2)
    assert "of 2: start it with -n 3 and the mpirun that it was compiled with" in sentence


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("--speed=9", "there is no option --speed"),
        ("--frames=0", "--frames 0: must be 1 or more"),
        ("--frames=x", "--frames x: must be 1 or more"),
        ("--report", "option --report is unknown or needs a value"),
    ],
)
def test_wrong_words_are_refused(word: str, reason: str, tmp_path: Path) -> None:
    assert directly(cpp(tiny.channels(tmp_path)), word).endswith(f"failed (starting): {reason}")


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    made, file = cpp(tiny.rows(tmp_path)), tmp_path / "in.npz"
    wanted = {
        "needed are frames of float32 (1, 3, 8, 8)": lambda: np.savez(file, data=np.zeros((2, 1, 3, 8, 9), np.float32)),
        "'data' is float64 (2, 1, 3, 8, 8)": lambda: np.savez(file, data=np.zeros((2, 1, 3, 8, 8))),
        "has no array for input 'data'": lambda: np.savez(file, other=np.zeros(1)),
        "is compressed": lambda: np.savez_compressed(file, data=np.zeros((1, 1, 3, 8, 8), np.float32)),
        "Fortran order": lambda: np.savez(file, data=np.asfortranarray(np.ones((2, 1, 3, 8, 8), np.float32))),
        "is no .npz file": lambda: file.write_bytes(b"x" * 100),
        "is damaged": lambda: file.write_bytes(bytes(100) + b"PK\x05\x06" + bytes(6) + b"\x01\x00" + bytes(10)),
        "cannot be read": lambda: file.unlink(),
    }
    for reason, make in wanted.items():
        make()
        assert reason in directly(made, f"--input={file}", ranks=2)


def test_frames_are_read_straight_from_a_file_of_numpy(tmp_path: Path) -> None:
    made, mpirun = cpp(tiny.rows(tmp_path)), Mpirun.find()
    frames = np.random.default_rng(0).standard_normal((2, 1, 3, 8, 8)).astype(np.float32)
    for name, save_as in (("a.npz", np.savez), ("b.npz", lambda file, data: save_npz(str(file), {"data": data}))):
        save_as(tmp_path / name, data=frames)
        words = [f"--input={tmp_path / name}", f"--output={tmp_path / ('out' + name)}", "--frames", "2"]
        execute([*mpirun.here(2), *program(made.bundle, mpirun.path), *words], timeout_s=60)
    with np.load(tmp_path / "outa.npz") as a, np.load(tmp_path / "outb.npz") as b:
        assert np.array_equal(a["out"], b["out"])
        assert a["out"].any()


def test_an_output_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    made = cpp(tiny.rows(tmp_path))
    sentence = failure(made.bundle, Options(report=str(tmp_path / "no" / "report.json")))
    assert "failed (gathering the results): " in sentence
    assert sentence.endswith("report.json: cannot be written: No such file or directory")
