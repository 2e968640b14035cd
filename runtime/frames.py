"""Frames in and out: those of files or random ones, and what is kept of them."""

from __future__ import annotations

import zipfile
import zlib
from typing import Any, Iterable, Tuple

import numpy as np

from runtime.draft import drafted
from runtime.errors import CleaveError
from runtime.images import PLAIN
from runtime.inputs import Several, open_inputs
from runtime.options import Options

INTEGERS = 8
"""Random integers are 0..7: small enough to be an index or a class of any CNN."""

MADE_BYTES = 64 * 2**20
"""Of random frames of an input, which a rank makes before it begins: 111 of an image of 3 x 224 x 224."""

WORD = 2**32
"""A seed is taken modulo this: numpy's has 32 bits."""


Stack = Tuple[Tuple[int, ...], Any, Iterable[np.ndarray]]
"""Shape and type of an array, and its parts, in order."""


def random_frame(name: str, shape: tuple[int, ...], dtype: str, seed: int, index: int) -> np.ndarray:
    """One random frame of an input, standard normal for floats; the same on every machine and numpy version."""
    random = np.random.RandomState([seed % WORD, index, zlib.crc32(name.encode("utf-8"))])
    if np.dtype(dtype).kind == "f":
        return random.standard_normal(shape).astype(dtype)
    return random.randint(0, 2 if dtype == "bool" else INTEGERS, shape).astype(dtype)


class Frames:
    """The frames of the inputs that one rank holds, or of all inputs of the CNN.

    Random ones are made beforehand, as many as will be used or as ``MADE_BYTES`` hold, and then they come again: a
    stream would measure how fast they are made (3 ms for an image of 224 x 224). Those of files are read when they are
    needed, as a user has them.

    inputs: the buffers that will be filled, by the name of the input
    counts: how many frames the files hold of each input; empty for random ones, which never end
    count:  of the input that has most; ``None`` for random ones
    """

    def __init__(self, options: Options, inputs: dict[str, np.ndarray]) -> None:
        self._inputs = inputs
        if options.input is None and options.pixels != PLAIN:
            raise CleaveError("mean, scale and channels are for images: say which with --input")
        self._given: dict[str, Several] = {}
        if options.input is not None and inputs:
            self._given = open_inputs(options.input, inputs, options.pixels, options.frames)
        self.counts = {name: len(frames) for name, frames in self._given.items()}
        self.count = max(self.counts.values(), default=None)
        random = {} if self._given else inputs
        self._made = {name: _made(name, buffer, options) for name, buffer in random.items()}

    def frame(self, index: int) -> dict[str, np.ndarray]:
        """Frame ``index`` of every input. One of which a file has fewer frames starts again."""
        if self._given:
            found = {name: frames[index % len(frames)] for name, frames in self._given.items()}
            return {name: np.require(array, self._inputs[name].dtype, ["A", "E"]) for name, array in found.items()}
        return {name: made[index % len(made)] for name, made in self._made.items()}

    def fill(self, index: int, inputs: dict[str, np.ndarray]) -> None:
        """Put frame ``index`` into the input buffers."""
        for name, array in self.frame(index).items():
            inputs[name][...] = array


def _made(name: str, buffer: np.ndarray, options: Options) -> list[np.ndarray]:
    """Random frames of an input. How many does not depend on other inputs, which another rank may have."""
    count = max(1, min(options.frames, MADE_BYTES // max(1, buffer.nbytes)))
    return [random_frame(name, buffer.shape, buffer.dtype.name, options.seed, index) for index in range(count)]


def save_stacks(path: str, stacks: dict[str, Stack]) -> None:
    """An .npz file of arrays that need not be in memory, with every name that a tensor can have, and all or nothing."""
    with drafted(path) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, (shape, dtype, parts) in stacks.items():
            header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
            with archive.open(name + ".npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, header)
                for part in parts:
                    member.write(np.ascontiguousarray(part).tobytes())


def save_text(path: str, text: str) -> None:
    """Write a file, all or nothing."""
    with drafted(path) as draft, open(draft, "w", encoding="utf-8") as file:
        file.write(text)
