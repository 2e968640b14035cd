"""Images as frames: one file, resized to the input of the CNN, its pixels turned into values."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from runtime.errors import CleaveError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp", ".gif")
"""Endings of image files, in lower case."""

ORDERS = ("rgb", "bgr")


@dataclass(frozen=True)
class Pixels:
    """How pixels, 0..255, become values: ``(pixel - mean) * scale``.

    mean, scale: one number, or one for each channel, in the order of the input's channels
    channels:    that order, ``rgb`` or ``bgr``
    """

    mean: tuple[float, ...] = (0.0,)
    scale: tuple[float, ...] = (1.0,)
    channels: str = "rgb"


PLAIN = Pixels()
"""As they are."""


def numbers(text: str) -> tuple[float, ...]:
    """``123.7,116.8,103.9`` as numbers: a mean or a scale."""
    try:
        found = tuple(float(word) for word in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(map(isfinite, found)):
        raise CleaveError(f"{text!r} is not a number, or some between commas; write e.g. 123.7,116.8,103.9")
    return found


@dataclass(frozen=True)
class Canvas:
    """An input of the CNN that an image fills: its size in pixels, and whether its channels are axis 1 or the last."""

    height: int
    width: int
    channels: int
    first: bool


def canvas(shape: tuple[int, ...], dtype: str, pixels: Pixels) -> Canvas:
    """What an input takes of an image; ``CleaveError`` if it takes none, or has no channel for each mean and scale."""
    places = [axis for axis in (1, 3) if len(shape) == 4 and shape[axis] in (1, 3)]
    if dtype == "bool" or len(places) != 1 or shape[0] != 1 or 0 in shape:
        wanted = "one of (1, channels, height, width) or (1, height, width, channels) with 1 or 3 channels"
        both = ", which may be either" if len(places) == 2 else ""
        raise CleaveError(f"an image needs an input of {wanted}, not {dtype} {shape}{both}: give frames as .npy")
    first = places == [1]
    height, width = shape[2:] if first else shape[1:3]
    found = Canvas(height, width, shape[places[0]], first)
    for name in ("mean", "scale"):
        count = len(getattr(pixels, name))
        if count not in (1, found.channels):
            raise CleaveError(f"--{name} has {count} numbers, the input {found.channels} channels: give one or each")
    return found


class Picture:
    """An image file as a sequence of one frame, decoded when it is asked for. ``CleaveError`` if it is none."""

    def __init__(self, path: str, buffer: np.ndarray, pixels: Pixels) -> None:
        self._path, self._buffer, self._pixels = path, buffer, pixels
        self._canvas = canvas(buffer.shape, buffer.dtype.name, pixels)
        _open(path).close()  # reads its first bytes only

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> np.ndarray:
        """The frame, whichever is asked for."""
        with _open(self._path) as image:
            try:
                array = _resized(image, self._canvas)
            except Exception as error:  # Pillow's decoders fail in many ways
                raise _broken(self._path, error) from error
        return _values(array, self._canvas, self._pixels, self._buffer.dtype).reshape(self._buffer.shape)


def _open(path: str) -> Any:
    """An image of which only the header is read."""
    try:
        from PIL import Image  # here, so that only those need it who have images
    except ImportError as error:
        raise CleaveError(f"{path}: needs Pillow to be read: pip install pillow, or convert it to .npy") from error
    try:
        image = Image.open(path)
    except Exception as error:
        raise _broken(path, error) from error
    if image.mode.startswith(("I", "F")):
        raise CleaveError(f"{path}: has more than 8 bits a pixel ({image.mode}): convert it to 8 bits, or to .npy")
    return image


def _broken(path: str, error: Exception) -> CleaveError:
    return CleaveError(f"{path}: is no whole image that Pillow can read: {' '.join(str(error).split())}")


def _resized(image: Any, goal: Canvas) -> np.ndarray:
    """The whole image, stretched to the size of the input: ``(height, width, channels)``, uint8."""
    from PIL import Image

    image = image.convert("L" if goal.channels == 1 else "RGB")
    if image.size != (goal.width, goal.height):
        image = image.resize((goal.width, goal.height), Image.BILINEAR)  # type: ignore[attr-defined]
    return np.asarray(image).reshape(goal.height, goal.width, goal.channels)


def _values(array: np.ndarray, goal: Canvas, pixels: Pixels, dtype: np.dtype) -> np.ndarray:
    """Pixels as values of an input's type, in the order of its axes. Integers are rounded, and kept in range."""
    if pixels.channels == "bgr":
        array = array[..., ::-1]
    mean, scale = np.array(pixels.mean, np.float32), np.array(pixels.scale, np.float32)
    values = (array.astype(np.float32) - mean) * scale
    if dtype.kind != "f":
        limits = np.iinfo(dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    return (values.transpose(2, 0, 1) if goal.first else values).astype(dtype)
