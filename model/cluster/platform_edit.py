"""Changes in the text of a platform file. What is not changed stays as it was written, comments and spaces too."""

from __future__ import annotations

import re
from collections.abc import Mapping


def edited(text: str, changes: Mapping[int, Mapping[str, str]]) -> str:
    """The text of a platform file with other fields. changes: number of a line, from 1 → key → value"""
    lines = text.split("\n")
    for number, fields in changes.items():
        for key, value in fields.items():
            lines[number - 1] = _with_field(lines[number - 1], key, value)
    return "\n".join(lines)


def _with_field(line: str, key: str, value: str) -> str:
    """A line that states ``key=value``, in the place where it stated the key before or behind all others."""
    content, mark, comment = line.partition("#")
    field = re.compile(rf"(,\s*{re.escape(key)}\s*=)[^,]*?(?=\s*(?:,|$))")
    found, count = field.subn(lambda match: match[1] + value, content)
    if not count:
        bare = content.rstrip()
        found = f"{bare}, {key}={value}{content[len(bare) :]}"
    return found + mark + comment
