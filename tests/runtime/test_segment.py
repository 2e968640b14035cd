"""Sessions are opened as the plan says."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import onnxruntime as ort
import pytest

from runtime.segment import CPU, open_session
from tests.tiny_cnn import network, node, save, weight

HELD = """
import sys, numpy as np
from runtime.loop import peak_bytes
from runtime.segment import CPU, open_session
sessions = [open_session(sys.argv[1], CPU, 1, sys.argv[2] == "on") for _ in range(4)]
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


def peak(path: Path, arena: str) -> int:
    """Bytes that a process took at most for a frame through four segments."""
    words = [sys.executable, "-c", HELD, str(path), arena]
    return int(subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, check=True).stdout)


def test_without_an_arena_segments_do_not_keep_their_memory(tmp_path: Path) -> None:
    path = convolutions(tmp_path)
    assert peak(path, "off") < 0.8 * peak(path, "on")


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


def test_a_provider_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"no NoneExecutionProvider in this ONNX Runtime, which has .*CPU"):
        open_session(str(convolutions(tmp_path)), "NoneExecutionProvider", 1)
