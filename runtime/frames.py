"""Frames in and out: npz files and random frames."""

from __future__ import annotations

import os
import zipfile
import zlib

import numpy as np

INTEGERS = 8
"""Random integers are 0..7: small enough to be an index or a class of any CNN."""

MADE_BYTES = 64 * 2**20
"""Random frames that a rank makes before it begins."""

WORD = 2**32
"""A seed is taken modulo this: numpy's has 32 bits."""


def random_frame(name: str, shape: tuple[int, ...], dtype: str, seed: int, index: int) -> np.ndarray:
    """One random frame of an input, standard normal for floats; the same on every machine and numpy version."""
    random = np.random.RandomState([seed % WORD, index, zlib.crc32(name.encode("utf-8"))])
    if np.dtype(dtype).kind == "f":
        return random.standard_normal(shape).astype(dtype)
    return random.randint(0, 2 if dtype == "bool" else INTEGERS, shape).astype(dtype)


class Frames:
    """The frames of the inputs that one rank holds.

    Random ones are made beforehand, ``count`` of them or as many as ``MADE_BYTES`` hold: a stream would measure how
    fast they are made (3 ms for an image of 224 x 224).
    """

    def __init__(self, path: str | None, seed: int, inputs: dict[str, np.ndarray], count: int = 0) -> None:
        self._seed = seed
        self._arrays = _load(path, inputs) if path and inputs else {}
        size_bytes = sum(buffer.nbytes for buffer in inputs.values()) or 1
        made = 0 if self._arrays else min(count, MADE_BYTES // size_bytes)
        self._made = [
            {name: self._random(name, buffer, index) for name, buffer in inputs.items()} for index in range(made)
        ]

    def fill(self, index: int, inputs: dict[str, np.ndarray]) -> None:
        """Put frame ``index`` into the input buffers. A file with fewer frames starts again."""
        for name, buffer in inputs.items():
            if name in self._arrays:
                frames = self._arrays[name]
                buffer[...] = frames[index % len(frames)]
            else:
                buffer[...] = self._made[index][name] if index < len(self._made) else self._random(name, buffer, index)

    def _random(self, name: str, buffer: np.ndarray, index: int) -> np.ndarray:
        return random_frame(name, buffer.shape, buffer.dtype.name, self._seed, index)


def _load(path: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays for ``inputs``, checked."""
    with np.load(path, allow_pickle=False) as file:
        missing = sorted(set(inputs) - set(file.files))
        if missing:
            raise ValueError(f"{path} has no array for input {missing}, only {sorted(file.files)}")
        arrays = {name: file[name] for name in inputs}
    for name, array in arrays.items():
        buffer = inputs[name]
        if array.shape[1:] != buffer.shape or len(array) == 0 or array.dtype != buffer.dtype:
            wanted = f"{buffer.dtype} (frames, {', '.join(map(str, buffer.shape))})"
            raise ValueError(f"{path}: {name!r} is {array.dtype} {array.shape}, needed is {wanted}")
    return arrays


def save_npz(path: str, arrays: dict[str, np.ndarray]) -> None:
    """Like ``numpy.savez``, for every name that a tensor can have (``file`` too), and all or nothing."""
    temporary = f"{path}.{os.getpid()}.part"
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(name + ".npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    os.replace(temporary, path)


def save_text(path: str, text: str) -> None:
    """Write a file, all or nothing."""
    temporary = f"{path}.{os.getpid()}.part"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)
