"""What a testbed does to this machine: commands run, processes started and ended, groups made and removed."""

from __future__ import annotations

import errno
import json
import os
import re
import select
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from dse.testbed import cores, limits
from dse.testbed.limits import Hierarchy, Write
from dse.testbed.state import IDLE, PORT, TAG
from runtime.errors import CleaveError

PATIENCE_S = 10.0
"""For what takes far less than a second: a host that starts, an SSH server that answers, processes that end."""
ASK_S = 0.02
"""Between two looks at something that is soon to be."""


def run(command: list[str]) -> str:
    """Standard output of a command that must succeed."""
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CleaveError(f"'{' '.join(command)}' failed: {error}") from error
    if found.returncode != 0:
        said = (found.stderr.strip() or found.stdout.strip() or "it said nothing").replace("\n", "; ")
        raise CleaveError(f"'{' '.join(command)}' failed: {said}")
    return found.stdout


def start(command: list[str], place: Path) -> int:
    """Start what is not to end with us: a host, the switch, a program on cores; its process, once it is ready.

    place: its folder, for its log and the number of its process
    """
    log = place / "log"
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
    assert process.stdout is not None
    with process.stdout as said:
        ready = select.select([said], [], [], PATIENCE_S)[0] and said.readline().decode().strip() == cores.READY
    if not ready:
        process.kill()
        raise CleaveError(f"'{place.name}' did not start: {last_line(log)}")
    (place / "pid").write_text(f"{process.pid}\n")
    process.returncode = 0  # it is on its own from here, and nobody waits for it
    return process.pid


def write(file: Path, text: str) -> None:
    """Write into a file of the kernel's."""
    try:
        file.write_text(text)
    except OSError as error:
        if file.name not in limits.OPTIONAL:
            raise CleaveError(f"'{text}' cannot be written to {file}: {error.strerror}") from error


def make_group(group: Path, writes: list[Write]) -> None:
    """A cgroup and its limits. Those that testbeds share may be there."""
    try:
        group.mkdir()
    except FileExistsError:
        if group.name not in (TAG, IDLE):
            raise CleaveError(f"{group}: is there already; something that this program did not make?") from None
    except OSError as error:
        raise CleaveError(f"{group}: cannot be made: {error.strerror}") from error
    for file, text in writes:
        write(file, text)


def end_idle(idle: Path, group: Path) -> None:
    """Kill all in a cgroup that gives way to all others, and move them to another one, where they have time to end."""
    for pid in processes(idle):
        with suppress(OSError):  # it has ended, or the group was never made
            os.kill(pid, signal.SIGKILL)
            (group / "cgroup.procs").write_text(str(pid))


def end_processes(groups: list[Path]) -> None:
    """Kill all in some cgroups and in those below them, and wait until they are gone."""
    limit, killed = time.monotonic() + PATIENCE_S, set[int]()
    while left := {pid for group in groups for pid in processes(group)}:
        killed |= left - {0}  # 0: in a process namespace that we do not see into
        for pid in killed & left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > limit:
            raise CleaveError(f"processes do not end though they were killed: {', '.join(map(str, sorted(left)))}")
        time.sleep(ASK_S)
    _bury(killed)


def processes(group: Path) -> list[int]:
    """In a cgroup and all below it."""
    found: list[int] = []
    for folder, _, _ in os.walk(group):
        with suppress(OSError):
            found += [int(pid) for pid in (Path(folder) / "cgroup.procs").read_text().split()]
    return found


def remove_groups(outermost: Path) -> None:
    """Remove a cgroup and all below it, none with a process."""
    for folder, _, _ in os.walk(outermost, topdown=False):
        _retry_busy(Path(folder))


def tagged_links(tag: str) -> list[str]:
    """Network interfaces of this machine that carry a tag."""
    return [link["ifname"] for link in json.loads(run(["ip", "-json", "link", "show"])) if link.get("ifalias") == tag]


def remove_links(tag: str) -> None:
    """Remove these. Each goes by itself, too, some time after the last process of the switch at its other end."""
    for link in tagged_links(tag):
        try:
            run(["ip", "link", "delete", "dev", link])
        except CleaveError:
            if link in tagged_links(tag):
                raise


def taken_numbers() -> set[int]:
    """Numbers that a testbed cannot have, since an interface or an address of this machine has it."""
    taken = set()
    for link in json.loads(run(["ip", "-json", "address", "show"])):
        if link["ifname"].startswith("cleave") and link["ifname"][6:].isdigit():
            taken.add(int(link["ifname"][6:]))
        taken |= {int(a["local"].split(".")[2]) for a in link["addr_info"] if a.get("local", "").startswith("198.19.")}
    return taken


def make_key(file: Path, comment: str) -> str:
    """A new key pair, ``file`` and ``file.pub``; its public half as ``ssh-ed25519 AAAA…``."""
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(file)])
    return " ".join(file.with_name(f"{file.name}.pub").read_text().split()[:2])


def answers(address: str, patience_s: float) -> bool:
    """Whether an SSH server says its name there."""
    limit = time.monotonic() + patience_s
    while True:
        with suppress(OSError), socket.create_connection((address, PORT), timeout=max(ASK_S, patience_s)) as connection:
            connection.settimeout(max(ASK_S, patience_s))
            if connection.recv(4) == b"SSH-":
                return True
        if time.monotonic() >= limit:
            return False
        time.sleep(ASK_S)


def virtual() -> bool:
    """Whether this machine is a virtual one, as far as processors tell (those of x86 do)."""
    return re.search(r"^flags\b.*\bhypervisor\b", Path("/proc/cpuinfo").read_text(), re.MULTILINE) is not None


def mounted() -> list[Hierarchy]:
    """The cgroup hierarchies of this machine that limit what we limit."""
    return limits.hierarchies(Path("/proc/self/mountinfo").read_text())


def _bury(pids: set[int]) -> None:
    """Wait until the dead are gone, or their parents let them lie: what is not buried keeps its namespaces."""
    limit = time.monotonic() + PATIENCE_S / 4
    while pids and time.monotonic() < limit:
        for pid in pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # one that this very process has started
        pids = {pid for pid in pids if Path(f"/proc/{pid}").exists()}
        time.sleep(ASK_S)


def _retry_busy(group: Path) -> None:
    """The kernel holds a group for a moment after its last process has ended."""
    limit = time.monotonic() + PATIENCE_S
    while True:
        try:
            return group.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > limit:
                raise CleaveError(f"{group}: cannot be removed: {error.strerror}") from error
        time.sleep(ASK_S)


def last_line(log: Path) -> str:
    """The last line of a log that says something."""
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")
