"""Lines that are added to a file, each there whole or not at all."""

from __future__ import annotations

import errno
import os
from typing import IO


def add_line(file: IO[bytes], line: str) -> None:
    """A line at the end of a file that is open for appending, without a buffer; on the disk when this returns.
    ``OSError`` where it cannot be, as when the disk is full; nothing of it is left then.
    """
    text = (line + "\n").encode()
    whole = file.seek(0, os.SEEK_END)
    try:
        if file.write(text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(file.fileno())
    except OSError as error:
        file.truncate(whole)
        raise OSError(error.errno, error.strerror, file.name) from error
