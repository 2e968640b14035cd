"""Files that something has gone wrong with: one value of a parsed text is another, or missing."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


def damage(data: st.DataObject, body: Any, junk: st.SearchStrategy) -> None:
    """Replace one value of nested lists and dictionaries by junk, or take it away."""
    container, key = data.draw(st.sampled_from(_places(body)))
    if data.draw(st.booleans()):
        container[key] = data.draw(junk)
    else:
        del container[key]


def _places(body: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of nested lists and dictionaries."""
    keys = list(body) if isinstance(body, dict) else range(len(body)) if isinstance(body, list) else ()
    return [(body, key) for key in keys] + [place for key in keys for place in _places(body[key])]
