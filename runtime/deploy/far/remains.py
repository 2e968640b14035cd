"""What a run leaves on a host, and how it goes: processes, the line in ``authorized_keys``, files, shared memory."""

import contextlib
import errno
import fcntl
import glob
import os
import shutil
import signal
import tempfile
import time
from typing import Dict, List, Optional, Set

from runtime.deploy.far.common import DENIED, FarError, folder
from runtime.deploy.far.lock import locked

MARKER = "CLEAVE_RUN"
"""Variable of the environment of every process of a run; its value is the run's name."""
RELEASE = "release"
"""File in the folder of a run: the place of what it runs."""


def begin(runs: str, run: str) -> int:
    """Make the folder of a run, and take away what is left of those whose guard was killed or whose host went down.

    Returns what keeps others from doing the same to this one, as long as it is open. runs: the folder of all runs
    """
    with locked(runs):
        for other in os.listdir(runs):
            if other != run:
                _sweep(runs, other)
        held = os.open(folder(runs, run), os.O_RDONLY)
        with contextlib.suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return held


def _sweep(runs: str, run: str) -> None:
    """Take a run away, unless its guard is there."""
    with contextlib.suppress(OSError, FarError):
        held = os.open(os.path.join(runs, run), os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            clear(runs, run)
        finally:
            os.close(held)


def in_use(work: str) -> Set[str]:
    """The releases that runs on this host use, as their guards wrote it down."""
    found = set()
    for file in glob.glob(os.path.join(glob.escape(work), "runs", "*", RELEASE)):
        with contextlib.suppress(OSError), open(file, encoding="utf-8", errors="surrogateescape") as text:
            found.add(text.read())
    return found


def clear(runs: str, run: str) -> None:
    """All of it, whatever there is.

    What is in the folder goes before the key, for which there is no room else where the disk is full. The folder goes
    last: where the key cannot be taken away, the next run knows by it that there is something left.
    """
    end_processes(run)
    place = os.path.join(runs, run)
    empty(place)
    for top in _memories():
        shutil.rmtree(os.path.join(top, "cleave-" + run), ignore_errors=True)
    edit_keys(None, run)
    shutil.rmtree(place, ignore_errors=True)


def empty(place: str) -> None:
    """Take away what is in a folder, as far as that can be."""
    for top, folders, names in os.walk(place, topdown=False):
        for name in names:
            with contextlib.suppress(OSError):
                os.remove(os.path.join(top, name))
        for name in folders:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(top, name))


def end_processes(run: str) -> None:
    """Kill them, those too that have left their session or are deaf to other signals."""
    for _ in range(50):
        pids = processes(run)
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def processes(run: str) -> List[int]:
    """Of a run on this host."""
    marker, found = f"{MARKER}={run}".encode(), []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if marker in file.read().split(b"\0"):
                    found.append(pid)
        except OSError:
            continue
    return [pid for pid in found if not zombie(pid)]


def zombie(pid: int) -> bool:
    """Whether it has ended, and only its parent has not noticed."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return True


def shared_memory(run: str) -> str:
    """A folder for the memory that ranks of one host share."""
    place = memory()
    if place is None:
        raise FarError("has neither /dev/shm nor a folder for temporary files that can be written to")
    return folder(place, "cleave-" + run)


def memory() -> Optional[str]:
    """Where such a folder can be."""
    return next((place for place in _memories() if os.access(place, os.W_OK)), None)


def places(own: str, shared: str) -> Dict[str, str]:
    """Environment of ranks by which all that they, MPI and ONNX Runtime leave behind when they are killed is in two
    folders. shared: the one for memory that they share. Open MPI otherwise makes a file beside it as it starts, to try
    another way to share memory, and who is killed then leaves it
    """
    found = dict.fromkeys((f"OMPI_MCA_btl_{name}_backing_directory" for name in ("sm", "vader")), shared)
    return dict(found, OMPI_MCA_shmem="mmap", TMPDIR=own, XDG_CACHE_HOME=own)


def _memories() -> List[str]:
    return ["/dev/shm", tempfile.gettempdir()]


def name_of(run: str) -> str:
    """The comment of the key of a run, by which it is found again."""
    return "cleave-run-" + run


def edit_keys(added: Optional[str], run: str) -> None:
    """Add a line to ``authorized_keys``, or take those of a run away again; all others stay as they are."""
    place = os.path.join(os.path.expanduser("~"), ".ssh")
    file = os.path.realpath(os.path.join(place, "authorized_keys"))
    if not added and not os.path.isdir(place):
        return
    try:
        with locked(folder(place)):  # another run may begin or end at this moment
            try:
                _edit(file, added, run)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ESTALE):
                    raise
                _edit(file, added, run)  # another host of this home ends the run, too, and has taken the draft away
    except OSError as error:
        if error.errno not in DENIED:
            raise
        if added or _has_key(file, run):
            why = f"may not write {file} ({error.strerror}), for the key of a run"
            raise FarError(f"{why}: let it be written, or use --trust existing") from None


def _has_key(path: str, run: str) -> bool:
    """Whether a line is of a run. Where that may not be read, none was added either."""
    try:
        with open(path, "rb") as file:
            return f" {name_of(run)}\n".encode() in file.read()
    except OSError:
        return False


def _edit(path: str, added: Optional[str], run: str) -> None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            before, mode = file.read(), os.stat(path).st_mode & 0o7777
    except FileNotFoundError:
        before, mode = "", 0o600
    lines = before.split("\n")  # sshd knows no other end of a line
    if lines[-1] == "":
        lines.pop()
    kept = [text for text in lines if not text.endswith(" " + name_of(run))]
    drafts = f"{path}.cleave-{run}"
    if kept != lines or added:
        text = "".join(line + "\n" for line in [*kept, *([added] if added else [])])
        _replace(path, drafts, mode, text.encode(errors="surrogateescape"))
    if not added:
        for draft in glob.glob(glob.escape(drafts) + "*"):  # of a guard that was killed here
            with contextlib.suppress(OSError):
                os.remove(draft)


def _replace(path: str, draft: str, mode: int, text: bytes) -> None:
    """Have a file say something else, by a draft that is this process' own: another host may have the same home, where
    locks are each host's."""
    handle, own = tempfile.mkstemp(dir=os.path.dirname(path), prefix=os.path.basename(draft) + "-")
    try:
        with open(handle, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
        os.chmod(own, mode)
        os.replace(own, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.remove(own)
        raise
