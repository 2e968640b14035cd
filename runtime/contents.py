"""``bundle.json``: what a folder that is a bundle says of itself. Workstation only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runtime.errors import CleaveError
from runtime.reading import parsed, readable


@contextmanager
def described(bundle: Path) -> Iterator[dict[str, Any]]:
    """What stands in it; ``CleaveError`` where that cannot be read, or the block does not find what it looks for."""
    file = bundle / "bundle.json"
    try:
        text = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CleaveError(f"{bundle}: is no bundle (no bundle.json in it); make one with dse generate") from error
    except OSError as error:
        raise CleaveError(f"{file}: cannot be read ({error.strerror}); see to that, or name another bundle") from error
    with readable(f"{file}: is no description of a bundle that this version can read"):
        yield parsed(text)
