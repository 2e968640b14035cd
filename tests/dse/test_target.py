"""``--target``: the command makes, checks and times bundles in C++ as it does those in Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import done, dse, files
from tests.tiny_cnn import branches, save


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save(tmp_path, branches())
    return tmp_path


@pytest.mark.mpi
def test_a_run_ships_programs_in_cpp_that_give_the_answer_of_the_whole_model(here: Path) -> None:
    words = ("--cnn", "tiny.onnx", "--platform", "local2", "--target", "cpp")
    out = done("run", *words, "--population", 20, "--generations", 4, "--out", "run")
    assert out.count("the same (") == 3
    done("generate", *words, "--mapping", "run/best-energy/mapping.json", "--out", "again")
    assert files(here / "again") == files(here / "run/best-energy")
    assert json.loads((here / "again/bundle.json").read_text())["target"] == "cpp"
    assert json.loads(done("bench", "again", "--warmup", 1, "--frames", 3, "--json"))["median_s"] > 0
    frame = here / "frame.raw"
    frame.write_bytes(bytes(3 * 9 * 9 * 4))
    assert json.loads(done("verify", "again", "--input", frame, "--json"))["passed"]


def test_a_target_that_there_is_not_is_refused(here: Path) -> None:
    said = dse("run", "--cnn", "tiny.onnx", "--platform", "local2", "--target", "rust")
    assert (said.code, said.sentences) == (2, ["--target rust: must be one of python, cpp"])


def test_a_platform_with_other_devices_is_refused_before_the_search(here: Path) -> None:
    (here / "gpu.txt").write_text("nx, slots=0, gpu=NVIDIAVolta (CUDA)\n")
    said = dse("run", "--cnn", "tiny.onnx", "--platform", "gpu.txt", "--target", "cpp")
    assert said.code == 2
    assert said.sentences == ["nx_gpu: a program in C++ computes on processors, not by CUDAExecutionProvider"]
    assert not (here / "runs").exists()
