"""Reading what was written as JSON: what is wrong with it becomes a sentence."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import Any, Iterator

from runtime.errors import CleaveError


def parsed(text: str | bytes, **hooks: Any) -> Any:
    """``json.loads``, whose only error is ``ValueError``."""
    try:
        return json.loads(text, **hooks)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


@contextmanager
def readable(sentence: str) -> Iterator[None]:
    """``CleaveError`` with a sentence and the reason where the block finds something that nobody here has written."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CleaveError(f"{sentence} ({_reason(error)})") from error


def _reason(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)
