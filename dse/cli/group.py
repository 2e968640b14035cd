"""Options that go together: a dataclass, which a command takes as one parameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command as typer wants it: in place of a parameter whose type is a dataclass an option for each field."""
    hints = get_type_hints(command, include_extras=True)
    names = inspect.signature(command).parameters
    groups = {name: hints[name] for name in names if is_dataclass(hints[name])}

    @wraps(command)
    def call(**given: Any) -> None:
        made = {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        command(**given, **made)

    def expanded() -> Iterator[Parameter]:
        for name, parameter in names.items():
            if name in groups:
                yield from _options(groups[name])
            else:
                yield parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)

    call.__signature__ = inspect.Signature(list(expanded()))  # type: ignore[attr-defined]
    return call


def _options(group: Any) -> Iterator[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=_default(field), annotation=hints[field.name])


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return Parameter.empty if field.default is MISSING else field.default
