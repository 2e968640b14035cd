"""Images: what their pixels become, and a sentence for each that cannot become a frame."""

from __future__ import annotations

import builtins
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from runtime.errors import CleaveError
from runtime.frames import Frames
from runtime.images import PLAIN, Canvas, Pixels, canvas
from runtime.options import Options
from tests.tiny_cnn import examples

RGB = np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3) * 10
"""An image two pixels high and four wide."""


def save(path: Path, pixels: np.ndarray = RGB) -> Path:
    Image.fromarray(pixels).save(path)
    return path


def read(path: Path, shape: tuple[int, ...], dtype: str = "float32", pixels: Pixels = PLAIN) -> np.ndarray:
    return Frames(Options(input=str(path), pixels=pixels), {"x": np.zeros(shape, dtype)}).frame(0)["x"]


def refused(path: Path, shape: tuple[int, ...], dtype: str = "float32", pixels: Pixels = PLAIN) -> str:
    with pytest.raises(CleaveError) as caught:
        read(path, shape, dtype, pixels)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@given(
    height=st.integers(4, 9),
    width=st.integers(4, 9),
    grey=st.booleans(),
    first=st.booleans(),
    bgr=st.booleans(),
    mean=st.lists(st.integers(-200, 200), min_size=3, max_size=3),
    scale=st.lists(st.sampled_from([-1.0, 0.5, 1 / 64]), min_size=3, max_size=3),
    dtype=st.sampled_from(["float32", "float16", "float64", "uint8", "int8", "int32"]),
    ending=st.sampled_from(["png", "bmp", "tiff"]),
)
@examples(60)
def test_a_value_is_the_pixel_less_the_mean_times_the_scale(
    height: int, width: int, grey: bool, first: bool, bgr: bool, mean: list, scale: list, dtype: str, ending: str
) -> None:
    """Element by element, in every layout and type; the numbers are such that float16 holds them."""
    count = 1 if grey else 3
    image = np.random.default_rng(height * 10 + width).integers(0, 256, (height, width, count)).astype(np.uint8)
    pixels = Pixels(tuple(map(float, mean[:count])), tuple(scale[:count]), "bgr" if bgr else "rgb")
    with tempfile.TemporaryDirectory() as folder:
        path = save(Path(folder) / f"frame.{ending}", image[..., 0] if grey else image)
        got = read(path, (1, count, height, width) if first else (1, height, width, count), dtype, pixels)
    assert got.dtype == dtype
    for y, x, c in np.ndindex(height, width, count):
        pixel = int(image[y, x, count - 1 - c if bgr else c])
        value = (pixel - mean[c]) * scale[c]
        if got.dtype.kind != "f":
            limits = np.iinfo(dtype)
            value = min(max(round(value), limits.min), limits.max)
        assert got[(0, c, y, x) if first else (0, y, x, c)] == value


def test_one_mean_and_scale_are_for_all_channels(tmp_path: Path) -> None:
    path = save(tmp_path / "a.png")
    one, each = (Pixels((128.0,) * n, (0.5,) * n) for n in (1, 3))
    assert np.array_equal(read(path, (1, 3, 2, 4), pixels=one), read(path, (1, 3, 2, 4), pixels=each))


def test_the_whole_image_is_stretched_to_the_input(tmp_path: Path) -> None:
    """Half black, half white: so it stays, at any size, with what is between only in the middle."""
    image = np.zeros((10, 40, 3), np.uint8)
    image[:, 20:] = 255
    path = save(tmp_path / "a.png", image)
    for height, width in ((20, 8), (5, 80), (64, 64)):
        got = read(path, (1, 3, height, width), "uint8")
        assert got[..., : width // 4].max() == 0
        assert got[..., -(width // 4) :].min() == 255
        assert (np.diff(got.astype(int), axis=3) >= 0).all()


def test_grey_and_coloured_images_fit_coloured_and_grey_inputs(tmp_path: Path) -> None:
    grey = save(tmp_path / "grey.pgm", RGB[..., 0])
    assert np.array_equal(read(grey, (1, 3, 2, 4), "uint8"), np.stack([RGB[..., 0]] * 3)[None])
    assert read(save(tmp_path / "colour.ppm"), (1, 1, 2, 4)).shape == (1, 1, 2, 4)
    alpha = np.dstack([RGB, np.full((2, 4), 255, np.uint8)])
    assert np.array_equal(read(save(tmp_path / "alpha.png", alpha), (1, 2, 4, 3), "uint8"), RGB[None])


def test_a_folder_of_images_and_arrays(tmp_path: Path) -> None:
    save(tmp_path / "f10.png", RGB + 1)
    save(tmp_path / "f2.png", RGB)
    np.save(tmp_path / "f3.npy", np.full((1, 2, 4, 3), 7, np.uint8))
    frames = Frames(Options(3, input=str(tmp_path)), {"x": np.zeros((1, 2, 4, 3), np.uint8)})
    assert frames.count == 3
    assert [int(frames.frame(i)["x"][0, 0, 0, 0]) for i in range(3)] == [0, 7, 1]


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        ((1, 3, 224, 200), Canvas(224, 200, 3, True)),
        ((1, 224, 200, 3), Canvas(224, 200, 3, False)),
        ((1, 1, 28, 28), Canvas(28, 28, 1, True)),
        ((1, 28, 28, 1), Canvas(28, 28, 1, False)),
    ],
)
def test_where_the_channels_are(shape: tuple[int, ...], found: Canvas) -> None:
    assert canvas(shape, "float32", PLAIN) == found


@pytest.mark.parametrize("shape", [(1, 3, 8, 3), (1, 1, 8, 1), (2, 3, 8, 8), (3, 8, 8), (1, 4, 8, 8), (1, 3, 0, 8)])
def test_inputs_that_no_image_fits(shape: tuple[int, ...]) -> None:
    with pytest.raises(CleaveError, match=r"an image needs an input of one of ") as caught:
        canvas(shape, "float32", PLAIN)
    assert str(caught.value).endswith("give frames as .npy")
    assert ("may be either" in str(caught.value)) == (shape in {(1, 3, 8, 3), (1, 1, 8, 1)})


def test_a_number_for_each_channel_or_one() -> None:
    with pytest.raises(CleaveError, match=r"^--mean has 2 numbers, the input 3 channels: give one or each$"):
        canvas((1, 3, 8, 8), "float32", Pixels(mean=(1.0, 2.0)))
    with pytest.raises(CleaveError, match=r"^--scale has 3 numbers, the input 1 channels"):
        canvas((1, 1, 8, 8), "float32", Pixels(scale=(1.0, 2.0, 3.0)))


@pytest.mark.parametrize("ending", ["png", "jpg", "bmp", "ppm", "gif", "webp", "tiff"])
def test_an_image_that_is_torn_is_one_sentence(ending: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    path = save(tmp_path / f"a.{ending}", noise)
    data = path.read_bytes()
    for size in (0, 5, len(data) // 2):
        path.write_bytes(data[:size])
        assert refused(path, (1, 3, 8, 8)).startswith(f"{path}: is no whole image that Pillow can read: ")


def test_what_is_no_image_is_found_before_the_first_frame(tmp_path: Path) -> None:
    save(tmp_path / "1.png")
    (tmp_path / "2.png").write_text("hello")
    with pytest.raises(CleaveError, match=r"2\.png: is no whole image"):
        Frames(Options(2, input=str(tmp_path)), {"x": np.zeros((1, 3, 2, 4), np.float32)})


def test_more_than_8_bits_are_not_made_fewer(tmp_path: Path) -> None:
    deep = save(tmp_path / "deep.png", RGB[..., 0].astype(np.uint16) * 256)
    assert "has more than 8 bits a pixel" in refused(deep, (1, 1, 2, 4))


def test_a_device_without_pillow_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, usual = save(tmp_path / "a.png"), builtins.__import__

    def without(name: str, *rest: object, **more: object) -> object:
        if name == "PIL":
            raise ModuleNotFoundError("No module named 'PIL'")
        return usual(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    wanted = f"{path}: needs Pillow to be read: pip install pillow, or convert it to .npy"
    assert refused(path, (1, 3, 2, 4)) == wanted
