"""Frames from files: for each input of the CNN a sequence of frames, an array or something like one.

A large file is mapped into memory and a folder read file by file, so that neither has to fit; an .npz file as far as
its arrays are not compressed.
"""

from __future__ import annotations

import math
import os
import re
import struct
from typing import Any, Callable, Protocol, TypeVar
from zipfile import ZIP_STORED

import numpy as np

from runtime.errors import CleaveError
from runtime.images import PLAIN, SUFFIXES, Picture, Pixels

KEPT_BYTES = 64 * 2**20
"""Frames of a folder that are kept, so that they are read and decoded once although they are used round and round."""

RAW = (".raw", ".bin")
FILES = (".npy", *RAW, *SUFFIXES)
"""Endings of files that a folder of frames may hold."""

LOCAL = struct.Struct("<26xHH")
"""Of what is before a member of a .zip file: how long its name is and what follows the name."""

HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
"""Readers of what is before the values of an array, by the version of its form."""

T = TypeVar("T")


class Several(Protocol):
    """Frames of one input: an array whose first axis they are, or what can be used like one."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...


def open_inputs(path: str, buffers: dict[str, np.ndarray], pixels: Pixels, count: int) -> dict[str, Several]:
    """The frames at ``path`` for the inputs that ``buffers`` are of; ``CleaveError`` for what does not fit them.

    count: how many frames will be used; files of a folder that come later are not looked at
    """
    if not os.path.exists(path):
        raise CleaveError(f"{path}: there is no such file or folder")
    files = _files(path)
    if pixels != PLAIN and not any(_suffix(file) in SUFFIXES for file in files):
        raise CleaveError(f"{path}: mean, scale and channels are for images, and this is none")
    if _suffix(path) == ".npz" and files == [path]:
        return _npz(path, buffers)
    if len(buffers) != 1:
        raise CleaveError(f"{path}: feeds one input, not {len(buffers)} {sorted(buffers)}: give an .npz with them all")
    ((name, buffer),) = buffers.items()
    if os.path.isdir(path) or _suffix(path) in SUFFIXES:
        return {name: Files(files, buffer, pixels, count)}
    return {name: _open(path, buffer, pixels)}


def _files(path: str) -> list[str]:
    """The file itself, or the files of a folder that hold frames: ``frame2`` before ``frame10``."""
    if not os.path.isdir(path):
        return [path]
    names = sorted((n for n in os.listdir(path) if _suffix(n) in FILES and not n.startswith(".")), key=_natural)
    files = [file for file in (os.path.join(path, name) for name in names) if os.path.isfile(file)]
    if not files:
        raise CleaveError(f"{path}: is a folder without frames; a frame is a file that ends in {', '.join(FILES)}")
    return files


def _natural(name: str) -> tuple[list[Any], str]:
    """Numbers in a name are compared as numbers."""
    words = re.split(r"(\d+)", name.lower())
    return [int(word) if place % 2 else word for place, word in enumerate(words)], name


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _open(path: str, buffer: np.ndarray, pixels: Pixels) -> Several:
    """The frames of one file, by its ending."""
    suffix = _suffix(path)
    if suffix in SUFFIXES:
        return Picture(path, buffer, pixels)
    if suffix == ".npy":
        return _fit(_read(path, lambda: np.load(path, mmap_mode="r", allow_pickle=False)), buffer, f"{path}:")
    if suffix in RAW:
        return _raw(path, buffer)
    raise CleaveError(f"{path}: ends in none of .npz, {', '.join(FILES)}, and is no folder of these")


class Files:
    """Files that hold a frame each, read when it is asked for. The first ``count`` are looked at beforehand."""

    def __init__(self, files: list[str], buffer: np.ndarray, pixels: Pixels, count: int) -> None:
        self._files, self._buffer, self._pixels = files, buffer, pixels
        self._kept: dict[int, np.ndarray] = {}
        for file in files[:count]:
            self._frames(file)

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> np.ndarray:
        """Frame ``index``, an array like the buffer."""
        if index in self._kept:
            return self._kept[index]
        frame = np.array(self._frames(self._files[index])[0])
        if (len(self._kept) + 1) * frame.nbytes <= KEPT_BYTES:
            self._kept[index] = frame
        return frame

    def _frames(self, file: str) -> Several:
        frames = _open(file, self._buffer, self._pixels)
        if len(frames) != 1:
            raise CleaveError(f"{file}: holds {len(frames)} frames; a file of a folder holds one")
        return frames


def _npz(path: str, buffers: dict[str, np.ndarray]) -> dict[str, Several]:
    def read() -> dict[str, Any]:
        with np.load(path, allow_pickle=False) as file:
            missing = sorted(set(buffers) - set(file.files))
            if missing:
                raise CleaveError(f"{path}: has no array for input {missing}, only {sorted(file.files)}")
            return {name: _in_place(path, file, name) for name in buffers}

    return {name: _fit(array, buffers[name], f"{path}: {name!r}") for name, array in _read(path, read).items()}


def member(file: Any, name: str) -> Any:
    """What an .npz file has by a name, read."""
    return file[_called(file, name)]


def _called(file: Any, name: str) -> str:
    """By ``a.npy`` numpy also finds what is called ``a``."""
    return f"{name}.npy" if f"{name}.npy" in file.zip.namelist() else name


def _in_place(path: str, file: Any, name: str) -> Any:
    """The same, mapped where it is not compressed."""
    info = file.zip.getinfo(_called(file, name))
    try:
        found = _mapped(path, info.header_offset, info.file_size) if info.compress_type == ZIP_STORED else None
    except (ValueError, KeyError, struct.error):
        found = None  # numpy says what is wrong, or knows another form
    return member(file, name) if found is None else found


def _mapped(path: str, begin: int, size_bytes: int) -> np.ndarray | None:
    """The array of a member that begins there; ``None`` for one that holds nothing, or no plain values."""
    with open(path, "rb") as file:
        file.seek(begin)
        file.seek(sum(LOCAL.unpack(file.read(LOCAL.size))), os.SEEK_CUR)
        end = file.tell() + size_bytes
        shape, fortran, dtype = HEADERS[np.lib.format.read_magic(file)](file)
        offset = file.tell()
    values_bytes = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or not 0 < values_bytes <= end - offset:
        return None
    return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")


def _raw(path: str, buffer: np.ndarray) -> np.ndarray:
    """The bytes of frames, one after the other, little-endian."""
    size = os.path.getsize(path)
    if not buffer.nbytes or not size or size % buffer.nbytes:
        frame = f"{buffer.nbytes} bytes, {buffer.dtype} {buffer.shape}"
        raise CleaveError(f"{path}: has {size} bytes, which are not one or more frames of {frame}")
    shape = (size // buffer.nbytes, *buffer.shape)
    return _read(path, lambda: np.memmap(path, buffer.dtype.newbyteorder("<"), "r", shape=shape))


def _read(path: str, read: Callable[[], T]) -> T:
    """What ``read`` gives; if it fails, a sentence with the file."""
    try:
        return read()
    except CleaveError:
        raise
    except Exception as error:  # numpy and zipfile have many for a damaged file
        raise CleaveError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error


def _fit(array: Any, buffer: np.ndarray, where: str) -> np.ndarray:
    """``array`` as frames like ``buffer``: several along a new first axis, or one as it is."""
    wanted = f"{buffer.dtype} (frames, {', '.join(map(str, buffer.shape))})"
    if not isinstance(array, np.ndarray):
        raise CleaveError(f"{where} is no array, needed is {wanted}")
    frames = array[None] if array.shape == buffer.shape else array
    if frames.dtype.newbyteorder("=") != buffer.dtype or frames.shape[1:] != buffer.shape or len(frames) == 0:
        raise CleaveError(f"{where} is {array.dtype} {array.shape}, needed is {wanted}")
    return frames
