"""How a script on the host speaks with the workstation: lines of JSON and plain bytes on its standard streams."""

import errno
import hashlib
import json
import os
import signal
import sys
from typing import Any, BinaryIO, Dict

MARK = "cleave-answer "
CHUNK = 1 << 20
SILENCE_S = 30
"""How long the workstation may say nothing while something is expected of it; then the script ends."""

DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Of what somebody may not do."""


class FarError(Exception):
    """Something to say and to end with."""


def begin(script: str, request: Dict[str, Any]) -> None:
    """Run a script: its ``start``, with files that only their owner reads, and errors that are sentences."""
    os.umask(0o077)
    request["work"] = os.path.join(os.path.expanduser("~"), os.path.expanduser(request["work"]))
    space: Dict[str, Any] = {"__name__": "far"}
    exec(compile(script, "far", "exec"), space)
    try:
        own(request["work"])
        space["start"](request)
    except FarError as error:
        answer({"error": str(error)})
    except OSError as error:
        answer({"error": sentence(error)})


def own(work: str) -> None:
    """An end where others can put something into the work folder: programs in it are run."""
    try:
        status = os.stat(work)
    except OSError:  # it will be made, or what keeps it from that is told then
        return
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise FarError(f"other users can write to {work}: take that right away (chmod 700), or choose another --work")


def sentence(error: OSError) -> str:
    """What is wrong, and what to do about it where that is known."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "its disk is full: make room, or choose another place with --work"
    if error.errno in DENIED:
        return f"may not write {error.filename} ({error.strerror}): choose another place with --work"
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


def answer(body: Any) -> None:
    """Say something to the workstation."""
    sys.stdout.write(MARK + json.dumps(body) + "\n")
    sys.stdout.flush()


def line() -> Any:
    """The next line from the workstation; None when it has hung up."""
    signal.alarm(SILENCE_S)
    text = sys.stdin.buffer.readline()
    signal.alarm(0)
    return json.loads(text.decode("utf-8")) if text.endswith(b"\n") else None


def take(file: BinaryIO, size: int) -> None:
    """Copy so many bytes that come into a file."""
    while size:
        signal.alarm(SILENCE_S)
        data = sys.stdin.buffer.read1(min(size, CHUNK))  # type: ignore[union-attr]
        signal.alarm(0)
        if not data:
            raise FarError("the connection was lost")
        file.write(data)
        file.flush()  # so that what has come is there to go on from
        size -= len(data)


def file_hash(path: str) -> str:
    """SHA-256, hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for data in iter(lambda: file.read(CHUNK), b""):
            digest.update(data)
    return digest.hexdigest()


def folder(*parts: str) -> str:
    """A folder that only its owner looks into."""
    path = os.path.join(*parts)
    os.makedirs(path, 0o700, exist_ok=True)
    return path


def existing(path: str) -> str:
    """The folder itself, or the nearest above it that there is."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def inside(root: str, path: str) -> str:
    """A path in ``root``, or an end: whatever comes over the line, nothing is written elsewhere."""
    if not path or os.path.isabs(path) or any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path:
        raise FarError(f"{path!r} is no path inside a folder")
    return os.path.join(root, path)


def venv_python(work: str, python: str) -> str:
    """The Python that ranks run with: that of the prepared environment, else the host's own."""
    own = os.path.join(work, "venv", "bin", "python")
    return own if os.access(own, os.X_OK) else python
