"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import Iterator


@contextmanager
def drafted(path: str | os.PathLike[str]) -> Iterator[str]:
    """Where to write what shall be at ``path``, or where a link there leads: it is moved there when the block is done.
    If that fails, what was there stays, and nothing is left of the draft; an ``OSError`` of it names ``path``.
    """
    place = os.path.realpath(path)
    draft = f"{place}.{os.getpid()}.part"
    try:
        yield draft
        os.replace(draft, place)
    except OSError as error:
        if error.errno and error.filename in (None, draft):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise
    finally:
        with suppress(OSError):  # it has been moved, or could not be made
            os.remove(draft)
