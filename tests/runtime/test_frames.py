from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runtime.errors import CleaveError
from runtime.frames import Frames, random_frame, save_text
from runtime.images import Pixels
from runtime.inputs import member
from runtime.options import Options
from tests.npz import save_npz

NAMES = ["file", "file.npy", "file.npy.npy", "a/b", "q\"uo'te", "dots.and.npy", " blank", "[x]", "\u03b1\n"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64", "uint8", "int32", "bool"])
def test_random_frames_depend_on_seed_frame_and_name_alone(dtype: str) -> None:
    frame = random_frame("x", (4, 50), dtype, 1, 2)
    assert (frame.dtype.name, frame.shape) == (dtype, (4, 50))
    assert np.array_equal(frame, random_frame("x", (4, 50), dtype, 1, 2))
    others = [random_frame(n, (4, 50), dtype, s, i) for n, s, i in (("y", 1, 2), ("x", 2, 2), ("x", 1, 3))]
    assert not any(np.array_equal(frame, other) for other in others)


@pytest.mark.parametrize("made", [0, 1, 9])
def test_random_frames_come_again_when_as_many_were_used_as_are_made_beforehand(
    made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = np.zeros((2, 3), np.float32)
    monkeypatch.setattr("runtime.frames.MADE_BYTES", made * buffer.nbytes)
    frames = Frames(Options(3, seed=5), {"x": buffer})
    for index in range(3):
        frames.fill(index, {"x": buffer})
        assert np.array_equal(buffer, random_frame("x", (2, 3), "float32", 5, index % max(made, 1)))


def test_random_frames_stay_what_they_are() -> None:
    """Ranks with different versions of numpy must agree; so must two releases of this."""
    assert random_frame("data", (3,), "float32", 0, 0) == pytest.approx([-1.1447139, 0.7537572, 0.7352303], rel=1e-6)
    assert random_frame("data", (6,), "int64", 0, 0).tolist() == [0, 3, 0, 6, 2, 1]


def test_every_name_and_type_survives_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "x.npz")
    arrays = {name: random_frame(name, (2, 3), "float16", 0, i) for i, name in enumerate(NAMES)}
    arrays["scalar"] = np.array([True, False])
    save_npz(path, arrays)
    with np.load(path) as file:
        found = {name: member(file, name) for name in file.files}
    assert found.keys() == arrays.keys()
    assert all(np.array_equal(found[n], array) and found[n].dtype == array.dtype for n, array in arrays.items())
    assert [p.name for p in tmp_path.iterdir()] == ["x.npz"]


def test_text_is_written_whole(tmp_path: Path) -> None:
    save_text(str(tmp_path / "t"), "\u03b1")
    save_text(str(tmp_path / "t"), "\u03b2")
    assert [p.read_text(encoding="utf-8") for p in tmp_path.iterdir()] == ["\u03b2"]


def test_a_file_is_used_round_and_round(tmp_path: Path) -> None:
    path, buffer = str(tmp_path / "x.npz"), np.zeros(2, np.float32)
    save_npz(path, {"x": np.arange(6, dtype=np.float32).reshape(3, 2), "unused": np.zeros(1)})
    frames, seen = Frames(Options(4, input=path), {"x": buffer}), []
    for index in range(4):
        frames.fill(index, {"x": buffer})
        seen.append(buffer.tolist())
    assert seen == [[0, 1], [2, 3], [4, 5], [0, 1]]
    assert (frames.count, Frames(Options(4), {"x": buffer}).count) == (3, None)


def test_a_rank_without_inputs_needs_no_file() -> None:
    Frames(Options(3, input="/nowhere.npz"), {}).fill(0, {})


def test_random_frames_are_no_images() -> None:
    with pytest.raises(CleaveError, match="are for images: say which with --input"):
        Frames(Options(pixels=Pixels(mean=(1.0,))), {"x": np.zeros(2, np.float32)})
