"""Large ONNX files without their weights in memory: reading and writing the protobuf wire format piece by piece.

An ONNX file is a protobuf message in which every weight is one field of bytes. ``scan`` reads all but the large
fields and leaves those where they are: the tensors say, in ONNX's own form for external data, at which offset of which
file their bytes lie. ``write`` puts a model and its weights into one file, each byte straight from where it lies.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper

GRAPH_OF_MODEL, INITIALIZER_OF_GRAPH, RAW_DATA_OF_TENSOR = 7, 5, 9
"""Numbers of the fields that are followed (onnx.proto)."""
VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5
"""Wire types."""

LARGE_BYTES = 1024
"""Weights above this stay in the file."""
CHUNK_ELEMENTS = 1 << 20
ALIGNMENT = 64
"""Where a value may begin in a file of values alone, so that it can be used where it is mapped."""


class Field(NamedTuple):
    """A field of a message: its number, where it begins (with its tag), and where its bytes are (BYTES only)."""

    number: int
    wire_type: int
    begin: int
    start: int
    stop: int


def scan(path: Path) -> onnx.ModelProto:
    """The model in ``path``; weights over ``LARGE_BYTES`` are external data in that same file.

    ``DecodeError`` for what is no protobuf message, ``OSError`` for a file that cannot be read.
    """
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            return onnx.ModelProto()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _model(data, path.name)


def _model(data: mmap.mmap, file: str) -> onnx.ModelProto:
    head, graphs = bytearray(), []
    for field in fields(data, 0, len(data)):
        if field.number == GRAPH_OF_MODEL and field.wire_type == BYTES:
            graphs.append(_graph(data, field, file))
        else:
            head += data[field.begin : field.stop]
    model = onnx.ModelProto.FromString(bytes(head))
    for graph in graphs:
        model.graph.MergeFrom(graph)
    return model


def _graph(data: mmap.mmap, graph: Field, file: str) -> onnx.GraphProto:
    rest, weights = bytearray(), []
    for field in fields(data, graph.start, graph.stop):
        if field.number == INITIALIZER_OF_GRAPH and field.wire_type == BYTES:
            weights.append(_tensor(data, field, file))
        else:
            rest += data[field.begin : field.stop]
    found = onnx.GraphProto.FromString(bytes(rest))
    found.initializer.extend(weights)
    return found


def _tensor(data: mmap.mmap, tensor: Field, file: str) -> TensorProto:
    rest, raw = bytearray(), None
    for field in fields(data, tensor.start, tensor.stop):
        if field.number == RAW_DATA_OF_TENSOR and field.stop - field.start > LARGE_BYTES:
            raw = field
        else:
            rest += data[field.begin : field.stop]
    found = TensorProto.FromString(bytes(rest))
    if raw is not None:
        _refer(found, file, raw.start, raw.stop - raw.start)
    return found


def _refer(tensor: TensorProto, file: str, offset: int, length: int) -> None:
    """Have a tensor say that its values are in a file."""
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", file), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))


def fields(data: mmap.mmap | bytes, start: int, stop: int) -> Iterator[Field]:
    """The fields of the message in ``data[start:stop]``."""
    at = start
    while at < stop:
        begin = at
        tag, at = _varint(data, at, stop)
        number, wire_type = tag >> 3, tag & 7
        first = at
        if wire_type == VARINT:
            _, at = _varint(data, at, stop)
        elif wire_type == BYTES:
            length, first = _varint(data, at, stop)
            at = first + length
        elif wire_type in (EIGHT_BYTES, FOUR_BYTES):
            at += 8 if wire_type == EIGHT_BYTES else 4
        else:
            raise DecodeError(f"wire type {wire_type} at byte {begin}")
        if at > stop or number == 0:
            raise DecodeError(f"a field that begins at byte {begin} does not end inside its message")
        yield Field(number, wire_type, begin, first, at)


def _varint(data: mmap.mmap | bytes, at: int, stop: int) -> tuple[int, int]:
    """A number of 7 bits a byte, and where it ends."""
    value = shift = 0
    while at < stop and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise DecodeError(f"a number that begins before byte {at} does not end")


def in_place(tensor: TensorProto, folder: Path) -> np.ndarray | None:
    """The values of a tensor with external data, mapped from its file; None where they have to be converted."""
    place = {entry.key: entry.value for entry in tensor.external_data}
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    shape = tuple(tensor.dims)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if "location" not in place or size == 0 or int(place.get("length", size)) != size or is_packed(tensor.data_type):
        return None
    return np.memmap(folder / place["location"], dtype, "r", int(place.get("offset", 0)), shape)


def inline(tensor: TensorProto, folder: Path) -> TensorProto:
    """The tensor with its bytes in it, read from their file where that is another."""
    place = {entry.key: entry.value for entry in tensor.external_data}
    if "location" not in place:
        return tensor
    with (folder / place["location"]).open("rb") as file:
        file.seek(int(place.get("offset", 0)))
        raw = file.read(int(place.get("length", -1)))
    return TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=raw)


def is_packed(data_type: int) -> bool:
    """Whether elements take less than a byte, or no fixed number of them."""
    return data_type in PACKED


PACKED = frozenset(
    TensorProto.DataType.Value(name)
    for name in ("STRING", "INT4", "UINT4", "FLOAT4E2M1", "INT2", "UINT2")
    if name in TensorProto.DataType.keys()  # noqa: SIM118 (an enum, not a dict)
)


def write(file: BinaryIO, model: onnx.ModelProto, weights: Iterable[tuple[str, np.ndarray]]) -> int:
    """Write ``model`` with further initializers, values straight from the arrays; returns the bytes written.

    Elements must take whole bytes. The result is one ONNX file; above 2 GB nothing could read it.
    """
    graph = model.graph.SerializeToString(deterministic=True)
    heads = [(_tensor_head(name, array), array) for name, array in weights]
    length = len(graph) + sum(len(_opening(INITIALIZER_OF_GRAPH, n)) + n for n in (_length(h, a) for h, a in heads))
    light = onnx.ModelProto()
    light.CopyFrom(model)
    light.ClearField("graph")
    pieces = light.SerializeToString(deterministic=True) + _opening(GRAPH_OF_MODEL, length) + graph
    written = file.write(pieces)
    for head, array in heads:
        written += file.write(_opening(INITIALIZER_OF_GRAPH, _length(head, array)) + head)
        written += file.write(_opening(RAW_DATA_OF_TENSOR, array.nbytes))
        written += _write_values(file, array)
    return written


def write_apart(file: BinaryIO, weights: Iterable[tuple[str, np.ndarray]]) -> list[TensorProto]:
    """Write values alone, one after the other; returns the tensors that refer to them as external data."""
    found, at = [], 0
    for name, array in weights:
        at += file.write(bytes(-at % ALIGNMENT))
        tensor = TensorProto.FromString(_tensor_head(name, array))
        _refer(tensor, Path(file.name).name, at, array.nbytes)
        at += _write_values(file, array)
        found.append(tensor)
    return found


def _write_values(file: BinaryIO, array: np.ndarray) -> int:
    """The elements in C order; what is not in one piece is copied a slice at a time."""
    if array.flags.c_contiguous:
        copied = _copy(file, array)
        return copied + file.write(_bytes(array)[copied:])
    rows = max(1, CHUNK_ELEMENTS // max(1, array[0].size))
    parts = (np.ascontiguousarray(array[i : i + rows]) for i in range(0, len(array), rows))
    return sum(file.write(_bytes(part)) for part in parts)


def _copy(file: BinaryIO, array: np.ndarray) -> int:
    """Have the system copy values from the file that they lie in: they never come into this process.

    Returns how many bytes it has copied: fewer than there are where it cannot, such as on some file systems.
    """
    mapped = array
    while isinstance(mapped.base, np.ndarray):
        mapped = mapped.base
    if not isinstance(mapped, np.memmap) or not hasattr(os, "copy_file_range"):
        return 0
    at, copied = mapped.offset + array.ctypes.data - mapped.ctypes.data, 0
    with open(str(mapped.filename), "rb", buffering=0) as source, suppress(OSError):
        file.flush()
        size = 1
        while size and copied < array.nbytes:
            size = os.copy_file_range(source.fileno(), file.fileno(), array.nbytes - copied, at + copied)
            copied += size
    file.seek(0, os.SEEK_END)
    return copied


def _bytes(array: np.ndarray) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def _tensor_head(name: str, array: np.ndarray) -> bytes:
    """A tensor without its values."""
    data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
    return TensorProto(name=name, data_type=data_type, dims=array.shape).SerializeToString(deterministic=True)


def _length(head: bytes, array: np.ndarray) -> int:
    return len(head) + len(_opening(RAW_DATA_OF_TENSOR, array.nbytes)) + array.nbytes


def _opening(number: int, length: int) -> bytes:
    """Tag and length of a field of bytes."""
    return _encoded(number << 3 | BYTES) + _encoded(length)


def _encoded(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
