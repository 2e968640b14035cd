"""Sessions are opened as the plan says."""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from runtime.segment import CPU, Segment, load, open_session
from tests.tiny_cnn import network, node, save, weight

HELD = """
import sys, numpy as np
from runtime.memory import peak_bytes
from runtime.segment import CPU, open_session
sessions = [open_session(sys.argv[1], CPU, 1, sys.argv[2] == "on") for _ in range(int(sys.argv[3]))]
for session in sessions:
    session.run(None, {"x": np.ones((1, 4, 512, 512), np.float32)})
print(peak_bytes())
"""


def convolutions(folder: Path) -> Path:
    """Little to compute, 40 MB for an activation."""
    channels = [4, 40, 4, 40, 4]
    weights = {f"w{i}": weight(b, a, 1, 1) for i, (a, b) in enumerate(pairwise(channels))}
    nodes = [node("Conv", ["x" if i == 0 else f"c{i}", f"w{i}"], [f"c{i + 1}"]) for i in range(len(weights))]
    return save(folder, network(nodes, {"x": (1, 4, 512, 512)}, ["c4"], weights))


def peak(path: Path, arena: str, segments: int) -> int:
    """Bytes that a process took at most for a frame through so many segments."""
    words = [sys.executable, "-c", HELD, str(path), arena, str(segments)]
    return int(subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, check=True).stdout)


@pytest.mark.parametrize("arena", ["on", "off"])
def test_many_segments_take_the_memory_of_one_at_a_time(arena: str, tmp_path: Path) -> None:
    """With an arena each there would be 80 MB more for each segment."""
    path = convolutions(tmp_path)
    assert peak(path, arena, 4) < peak(path, arena, 1) + 80e6


@pytest.mark.parametrize("arena", [True, False])
def test_the_arena_is_that_of_the_plan(arena: bool, tmp_path: Path) -> None:
    options = open_session(str(convolutions(tmp_path)), CPU, 3, arena).get_session_options()
    assert (options.enable_cpu_mem_arena, options.enable_mem_pattern) == (arena, not arena)
    assert options.intra_op_num_threads == 3


def test_what_tensorrt_cannot_run_goes_to_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As asked for: there is no such GPU here."""
    asked: list[list[str]] = []

    class Session:
        def __init__(self, path: str, options: object, providers: list[str]) -> None:
            asked.append(providers)

        def get_providers(self) -> list[str]:
            return asked[-1]

    tensorrt, cuda = "TensorrtExecutionProvider", "CUDAExecutionProvider"
    monkeypatch.setattr(ort, "InferenceSession", Session)
    monkeypatch.setattr(ort, "get_available_providers", lambda: [tensorrt, cuda, CPU])
    for provider in (tensorrt, cuda, CPU):
        open_session("x.onnx", provider, 1)
    monkeypatch.setattr(ort, "get_available_providers", lambda: [tensorrt, CPU])
    open_session("x.onnx", tensorrt, 1)
    assert asked == [[tensorrt, cuda, CPU], [cuda, CPU], [CPU], [tensorrt, CPU]]


class Copying:
    """A session as one on a GPU: what is bound is copied there."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def get_providers(self) -> list[str]:
        return ["CUDAExecutionProvider", CPU]

    def io_binding(self) -> Any:
        binding = self._session.io_binding()
        self.bound, bind = 0, binding.bind_input

        def counted(*what: Any) -> None:
            self.bound += 1
            bind(*what)

        binding.bind_input = counted
        return binding


def test_each_frame_computes_from_what_is_in_the_buffers_then(tmp_path: Path) -> None:
    """Bound once, and whoever has made the buffers may have forgotten them; on a GPU they are bound for each frame."""
    model = network([node("Neg", ["x"], ["y"])], {"x": (1, 4)}, ["y"], {})
    session = open_session(str(save(tmp_path, model)), CPU, 1)
    copying = Copying(session)
    for opened in (session, copying):
        x, y = np.zeros((1, 4), np.float32), np.zeros((1, 4), np.float32)
        segment, forgotten = Segment(opened, {"x": x}, {"y": y}), weakref.ref(x)
        for frame in range(3):
            x[:] = frame
            segment.run()
            assert y.tolist() == [[-frame] * 4]
        del x
        assert forgotten() is not None
    assert copying.bound == 1 + 3


def test_a_provider_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"no NoneExecutionProvider in this ONNX Runtime, which has .*CPU"):
        open_session(str(convolutions(tmp_path)), "NoneExecutionProvider", 1)


@pytest.mark.parametrize(("said", "then"), [(None, "0"), ("1", "1")])
def test_a_gpu_computes_float32_as_such_unless_somebody_says_otherwise(
    said: str | None, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", said or "")
    if said is None:
        monkeypatch.delenv("NVIDIA_TF32_OVERRIDE")
    load()
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == then
