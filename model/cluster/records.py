"""Frozen dataclasses as JSON, and back: written without what stands at its default, read strictly.

A file is read as the annotations of its dataclasses say. What is wrong is told all at once, each with its place:
``mine.json: units.cpu.layers.fc: has no 'power_w'``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from runtime.errors import CleaveError

MOST = 20
"""Problems of a file that are printed at once."""

T = TypeVar("T")


def plain(record: Any) -> Any:
    """A record as objects, lists and numbers; fields that have their default are left out."""
    if isinstance(record, dict):
        return {str(key): plain(value) for key, value in record.items()}
    if isinstance(record, (tuple, list)):
        return [plain(value) for value in record]
    if not is_dataclass(record):
        return record
    held = {f.name: (getattr(record, f.name), f.default) for f in fields(record)}
    return {name: plain(value) for name, (value, default) in held.items() if value != default and value != {}}


def read(of: type[T], body: Any, where: str) -> T:
    """A record from plain data. Numbers are finite and at least 0; ``CleaveError`` lists what is wrong, and where."""
    reader = _Reader(where)
    found = reader.value(of, body, ())
    if reader.problems:
        rest = len(reader.problems) - MOST
        raise CleaveError(*reader.problems[:MOST], *([f"{where}: and {rest} more like these"] if rest > 0 else []))
    return cast(T, found)


Place = tuple[str, ...]


class _Reader:
    """Turns plain data into records and collects what is wrong. What could not be read is None in the end."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.problems: list[str] = []

    def value(self, of: Any, body: Any, place: Place) -> Any:
        """``body``, which stands at ``place``, as a value of the type ``of``."""
        if of is Any or (get_origin(of) is UnionType and body is None):
            return body
        if get_origin(of) is UnionType:
            of = get_args(of)[0]
        if is_dataclass(of):
            return self._record(of, body, place)
        if get_origin(of) is dict:
            return self._object(get_args(of), body, place)
        if get_origin(of) is tuple:
            return self._list(get_args(of), body, place)
        what, fits = SIMPLE[of]
        return of(body) if fits(body) else self._wrong(place, f"must be {what}, not {body!r}")

    def _wrong(self, place: Place, what: str) -> None:
        self.problems.append(f"{': '.join(filter(None, (self.where, '.'.join(place))))}: {what}")

    def _record(self, of: Any, body: Any, place: Place) -> Any:
        if not isinstance(body, dict):
            return self._wrong(place, f"must be an object, not {body!r}")
        types, before = get_type_hints(of), len(self.problems)
        needed = [f.name for f in fields(of) if f.default is MISSING and f.default_factory is MISSING]
        for name in (name for name in needed if name not in body):
            self._wrong(place, f"has no '{name}'")
        for name in (name for name in body if name not in types):
            self._wrong(place, f"'{name}' is not known (known: {', '.join(types)})")
        values = {name: self.value(types[name], body[name], (*place, name)) for name in body if name in types}
        return of(**values) if len(self.problems) == before else None

    def _object(self, of: tuple[Any, ...], body: Any, place: Place) -> Any:
        key_of, value_of = of
        if not isinstance(body, dict):
            return self._wrong(place, f"must be an object, not {body!r}")
        for key in (key for key in body if key_of is int and not key.isdecimal()):
            self._wrong(place, f"'{key}' must be a whole number")
        readable = {key: value for key, value in body.items() if key_of is str or key.isdecimal()}
        return {key_of(key): self.value(value_of, value, (*place, key)) for key, value in readable.items()}

    def _list(self, of: tuple[Any, ...], body: Any, place: Place) -> Any:
        if of[-1] is ... and isinstance(body, list):
            of = of[:1] * len(body)
        if not isinstance(body, list) or len(body) != len(of):
            size = "" if of[-1] is ... else f"{len(of)} "
            return self._wrong(place, f"must be a list of {size}{'texts' if of[0] is str else 'numbers'}, not {body!r}")
        return tuple(self.value(kind, value, place) for kind, value in zip(of, body, strict=True))


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max


SIMPLE: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    float: ("a number of at least 0", _number),
    int: ("a whole number of at least 0", lambda value: _number(value) and isinstance(value, int)),
    str: ("text", lambda value: isinstance(value, str)),
    bool: ("true or false", lambda value: isinstance(value, bool)),
}
