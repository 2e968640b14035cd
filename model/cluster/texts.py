"""Text files that a person wrote, or a run before."""

from __future__ import annotations

from pathlib import Path

from runtime.errors import CleaveError

MOST_BYTES = 2**28


def read_text(path: Path, what: str) -> str:
    """What is in a file, but for a byte order mark; ``CleaveError`` where it cannot be read.

    what: it is, and where there are others
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise CleaveError(f"{path}: there is no such {what}") from None
    except (OSError, ValueError) as error:
        raise CleaveError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MOST_BYTES:
        raise CleaveError(f"{path}: holds more than {MOST_BYTES >> 20} MB; is this the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CleaveError(f"{path}:{line}: byte 0x{data[error.start]:02x} is not UTF-8 text") from None
