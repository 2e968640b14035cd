"""Frames from files: what each kind gives, and a sentence for what does not fit, is damaged or is not there."""

from __future__ import annotations

import re
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import CleaveError
from runtime.frames import Frames, save_stacks
from runtime.images import PLAIN, Pixels
from runtime.inputs import Several, open_inputs
from runtime.options import Options
from tests.npz import save_npz
from tests.tiny_cnn import examples

SHAPES = st.lists(st.integers(1, 4), max_size=4).map(tuple)
DTYPES = st.sampled_from(["float32", "float16", "float64", "uint8", "int64", "bool"])
FRAME = np.arange(6, dtype=np.float32).reshape(2, 3)
"""What an input of the tests below takes."""


def opened(path: Path, like: np.ndarray = FRAME, count: int = 9) -> Several:
    return open_inputs(str(path), {"x": like}, PLAIN, count)["x"]


def refused(path: Path, like: np.ndarray = FRAME, pixels: Pixels = PLAIN, count: int = 9) -> str:
    """Why, without the path, which comes first."""
    with pytest.raises(CleaveError) as caught:
        open_inputs(str(path), {"x": like}, pixels, count)
    assert str(caught.value).startswith(f"{path}: "), caught.value
    return str(caught.value).removeprefix(f"{path}: ")


def write(path: Path, frames: np.ndarray) -> None:
    """``frames`` by the ending of the path; a folder gets a file for each, in one of two kinds."""
    if path.suffix == ".npz":
        save_npz(str(path), {"x": frames})
    elif path.suffix == ".npy":
        np.save(path, frames)
    elif path.suffix == ".raw":
        path.write_bytes(frames.astype(frames.dtype.newbyteorder("<")).tobytes())
    else:
        path.mkdir()
        for number, frame in enumerate(frames):
            write(path / f"frame{number}.{'raw' if number % 3 else 'npy'}", frame)


@pytest.mark.parametrize("name", ["in.npz", "in.npy", "in.raw", "folder"])
@given(shape=SHAPES, dtype=DTYPES, count=st.integers(1, 12))
@examples(25)
def test_what_is_written_is_read_and_nothing_else_fits(
    name: str, shape: tuple[int, ...], dtype: str, count: int
) -> None:
    frames = np.random.default_rng(0).integers(0, 100, (count, *shape)).astype(dtype)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(path, frames)
        given_ = Frames(Options(count, input=str(path)), {"x": frames[0]})
        buffer = np.zeros(shape, dtype)
        assert given_.count == count
        for index in range(2 * count):
            given_.fill(index, {"x": buffer})
            assert np.array_equal(buffer, frames[index % count])
        if name != "in.raw":
            refused(path if name != "folder" else path / "frame0.npy", np.zeros((*shape, 2, 2), dtype))
            refused(path if name != "folder" else path / "frame0.npy", np.zeros(shape, "int16"))


@pytest.mark.parametrize("name", ["one.npz", "one.npy", "one.raw", "ONE.NPY"])
def test_one_frame_needs_no_first_axis(tmp_path: Path, name: str) -> None:
    write(tmp_path / name.lower(), FRAME)
    (tmp_path / name.lower()).rename(tmp_path / name)
    frames = opened(tmp_path / name)
    assert len(frames) == 1
    assert np.array_equal(frames[0], FRAME)


def test_another_byte_order_is_no_other_type(tmp_path: Path) -> None:
    np.save(tmp_path / "big.npy", FRAME.astype(">f4"))
    frame = Frames(Options(input=str(tmp_path / "big.npy")), {"x": FRAME}).frame(0)["x"]
    assert frame.dtype == np.float32
    assert np.array_equal(frame, FRAME)


def test_files_of_a_folder_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = ["frame10.npy", "frame2.npy", "Frame1.raw", "a.npy", "frame2b.raw", "07.npy", "frame02.npy"]
    order = ["07.npy", "a.npy", "Frame1.raw", "frame02.npy", "frame2.npy", "frame2b.raw", "frame10.npy"]
    for number, name in enumerate(order):
        write(tmp_path / name, FRAME + number)
    assert sorted(names) == sorted(order)
    (tmp_path / ".hidden.npy").write_bytes(b"")
    (tmp_path / "labels.txt").write_text("cat")
    (tmp_path / "more.npy").mkdir()
    frames = opened(tmp_path)
    assert [frames[i][0, 0] for i in range(len(frames))] == list(range(7))


@given(shape=st.lists(st.integers(0, 5), max_size=4).map(tuple), fortran=st.booleans(), compressed=st.booleans(),
       dtype=st.sampled_from(["<f4", ">f4", "<f2", ">i8", "u1", "?"]), before=st.text("ab", max_size=9))  # fmt: skip
@examples(150)
def test_an_npz_file_holds_what_numpy_finds_in_it(
    shape: tuple[int, ...], fortran: bool, compressed: bool, dtype: str, before: str
) -> None:
    """Wherever it begins in the file, and in whichever order its bytes are."""
    random = np.random.default_rng(len(shape))
    frames = (random.standard_normal((*shape, 3) if fortran else (3, *shape)) * 9).astype(dtype)
    frames = frames.T if fortran else frames
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.npz"
        (np.savez_compressed if compressed else np.savez)(path, **{f"a{before}": np.arange(len(before)), "x": frames})
        wanted = np.load(path)["x"]
        like = np.zeros(wanted.shape[1:], frames.dtype.newbyteorder("="))
        found = opened(path, like)
        assert isinstance(found, np.memmap) == (not compressed and frames.size > 0)
        assert np.array_equal(found, wanted)
        assert found.dtype == wanted.dtype
        given = Frames(Options(3, input=str(path)), {"x": like})
        for index in range(3):
            frame = given.frame(index)["x"]
            assert np.array_equal(frame, wanted[index])
            assert frame.flags.aligned


def test_a_large_npz_file_is_not_read_whole(tmp_path: Path) -> None:
    size, zeros = 2**18, np.zeros(2**18, np.uint8)
    save_stacks(str(tmp_path / "large.npz"), {"x": ((400, size), zeros.dtype, [zeros] * 400)})
    before = psutil.Process().memory_info().rss
    frames = Frames(Options(400, input=str(tmp_path / "large.npz")), {"x": zeros})
    assert frames.frame(399)["x"].sum() == 0
    assert frames.count == 400
    assert psutil.Process().memory_info().rss - before < 50 * size


def test_a_large_file_is_not_read_whole(tmp_path: Path) -> None:
    size = 2**20
    for name in ("large.npy", "large.raw"):
        with (tmp_path / name).open("wb") as file:
            if name == "large.npy":
                header = {"descr": "|u1", "fortran_order": False, "shape": (400, size)}
                np.lib.format.write_array_header_1_0(file, header)
            file.truncate(file.tell() + 400 * size)
        before = psutil.Process().memory_info().rss
        frames = Frames(Options(400, input=str(tmp_path / name)), {"x": np.zeros(size, np.uint8)})
        assert frames.frame(399)["x"].sum() == 0
        assert frames.count == 400
        assert psutil.Process().memory_info().rss - before < 50 * size


def test_of_a_folder_so_much_is_kept_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is not read again."""
    monkeypatch.setattr("runtime.inputs.KEPT_BYTES", 2 * FRAME.nbytes)
    write(tmp_path / "in", np.stack([FRAME + i for i in range(4)]))
    frames = opened(tmp_path / "in")
    first = [np.array(frames[i]) for i in range(4)]
    for file in (tmp_path / "in").iterdir():
        write(file, FRAME - 1)
    again = [frames[i][0, 0] for i in range(4)]
    assert [f[0, 0] for f in first] == [0, 1, 2, 3]
    assert again == [0, 1, -1, -1]


WANTED = "needed is float32 (frames, 2, 3)"


@pytest.mark.parametrize(
    ("array", "given_"),
    [
        (np.zeros((1, 2, 4), np.float32), "float32 (1, 2, 4)"),
        (np.zeros((4, 2, 3), np.float64), "float64 (4, 2, 3)"),
        (np.zeros((0, 2, 3), np.float32), "float32 (0, 2, 3)"),
        (np.zeros((3, 2), np.float32), "float32 (3, 2)"),
        (np.zeros((), np.float32), "float32 ()"),
    ],
)
def test_an_array_that_does_not_fit_says_what_it_is_and_what_is_needed(
    array: np.ndarray, given_: str, tmp_path: Path
) -> None:
    save_npz(str(tmp_path / "in.npz"), {"x": array})
    assert refused(tmp_path / "in.npz") == f"'x' is {given_}, {WANTED}"
    np.save(tmp_path / "in.npy", array)
    said = refused(tmp_path / "in.npy")
    assert said == f"is {given_}, {WANTED}" or (array.size == 0 and said.startswith("cannot be read: "))


@pytest.mark.parametrize("size", [0, 1, 23, 25, 47])
def test_bytes_that_are_no_whole_frames(size: int, tmp_path: Path) -> None:
    (tmp_path / "in.bin").write_bytes(bytes(size))
    wanted = "which are not one or more frames of 24 bytes, float32 (2, 3)"
    assert refused(tmp_path / "in.bin") == f"has {size} bytes, {wanted}"


@pytest.mark.parametrize("name", ["in.npz", "in.npy"])
@pytest.mark.parametrize("keep", [0, 3, 40, 140])
def test_a_torn_file_is_one_sentence(name: str, keep: int, tmp_path: Path) -> None:
    write(tmp_path / name, FRAME)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:keep])
    assert refused(tmp_path / name).startswith("cannot be read: ")


@pytest.mark.parametrize("name", ["in.npz", "in.npy"])
def test_a_damaged_file_is_one_sentence_or_still_fits(name: str, tmp_path: Path) -> None:
    write(tmp_path / name, FRAME)
    whole = (tmp_path / name).read_bytes()
    random = np.random.default_rng(0)
    for _ in range(100):
        data = bytearray(whole)
        for place in random.integers(0, len(data), 3):
            data[place] ^= int(random.integers(1, 256))
        (tmp_path / name).write_bytes(data)
        with suppress(CleaveError):
            opened(tmp_path / name)


def test_a_file_of_another_kind_than_its_name_says(tmp_path: Path) -> None:
    write(tmp_path / "in.npz", FRAME)
    (tmp_path / "in.npz").rename(tmp_path / "in.npy")
    assert refused(tmp_path / "in.npy") == f"is no array, {WANTED}"
    np.save(tmp_path / "a.npy", FRAME)
    (tmp_path / "a.npy").rename(tmp_path / "in.npz")
    assert refused(tmp_path / "in.npz").startswith("cannot be read: ")
    np.save(tmp_path / "o.npy", np.array([{}, 1]), allow_pickle=True)
    assert refused(tmp_path / "o.npy").startswith("cannot be read: ")


def test_an_input_that_a_file_does_not_have(tmp_path: Path) -> None:
    save_npz(str(tmp_path / "in.npz"), {"y": FRAME})
    assert refused(tmp_path / "in.npz") == "has no array for input ['x'], only ['y']"


def test_places_without_frames(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.npy") == "there is no such file or folder"
    assert refused(tmp_path).startswith("is a folder without frames; a frame is a file that ends in .npy, .raw")
    (tmp_path / "in.csv").write_text("1,2")
    assert re.match(r"ends in none of \.npz, \.npy, .*, and is no folder of these", refused(tmp_path / "in.csv"))


def test_a_file_of_a_folder_holds_one_frame_and_fits(tmp_path: Path) -> None:
    """Those that are used are looked at before the first frame, others are not."""
    write(tmp_path / "0.npy", FRAME)
    write(tmp_path / "1.npy", np.stack([FRAME, FRAME]))
    write(tmp_path / "2.npy", FRAME[:1])
    with pytest.raises(CleaveError, match=r"1\.npy: holds 2 frames; a file of a folder holds one$"):
        opened(tmp_path)
    (tmp_path / "1.npy").unlink()
    with pytest.raises(CleaveError, match=r"2\.npy: is float32 \(1, 3\), needed is float32 \(frames, 2, 3\)$"):
        opened(tmp_path, count=2)
    assert np.array_equal(opened(tmp_path, count=1)[0], FRAME)


def test_only_npz_feeds_several_inputs(tmp_path: Path) -> None:
    write(tmp_path / "in.npy", FRAME)
    with pytest.raises(CleaveError, match=r"in\.npy: feeds one input, not 2 \['x', 'y'\]: give an \.npz"):
        open_inputs(str(tmp_path / "in.npy"), {"y": FRAME, "x": FRAME}, PLAIN, 1)


@pytest.mark.parametrize("name", ["in.npz", "in.npy", "in.raw", "folder"])
def test_mean_and_scale_are_for_images(name: str, tmp_path: Path) -> None:
    write(tmp_path / name, np.stack([FRAME]))
    assert refused(tmp_path / name, pixels=Pixels(scale=(2.0,))).startswith("mean, scale and channels are for images")
