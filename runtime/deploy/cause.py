"""Why a run on the cluster failed: what guards, ranks and mpirun know of it, made into sentences, by host."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.deploy.check import mb
from runtime.deploy.target import DeployError
from runtime.errors import CleaveError
from runtime.launch import OUT_OF_MEMORY, fate, killed, last, said
from runtime.plan import Plan

Sentences = dict[str, list[str]]
"""By host."""

NO_ENTRY = re.compile(r"Permission denied \(|Host key verification failed|Connection (refused|timed out)|No route to")
"""What ssh on the head host says where another host does not let it in."""
NO_WAY = re.compile(r"Local host:\s+(\S+).*?connect\(\) to (\S+?):\d+ failed\s+Error:\s+([^\n]*?) \(\d+\)", re.DOTALL)
"""What Open MPI, 4.1 and 5, says where a rank gets no connection to another."""
OPEN_UP = "does a firewall stand between them? is interface= of the platform file right?"
MUTE = "did not say what it was doing: it was stopped, or in one long computation; look at that host"
MAKE_ROOM = "make room, or choose another place with --work"
FULL_BYTES = 2**16
"""A disk with less left is full: Open MPI and ranks keep small files there."""


@dataclass(frozen=True)
class Failure:
    """A run that failed. ``done`` and ``seen`` are answers of guards (``far/guard.py``).

    done: of the head host on ``go``: code (None: time was up), stdout, stderr
    seen: of each host on ``seen``: how its ranks ended, room on its disk
    free: by host, bytes of memory that it had before the run, where known
    addresses: by host
    mend: what to do where hosts do not let the head host in
    """

    plan: Plan
    head: str
    done: Mapping[str, Any]
    seen: Mapping[str, Mapping[str, Any]]
    free: Mapping[str, int | None]
    addresses: Mapping[str, str]
    mend: str

    def error(self) -> CleaveError:
        """By the first cause that there is a sign of, as others follow from it. ``DeployError``: it is known whose."""
        if self.done["code"] is None:
            return DeployError(dict(self._late()))
        causes = (self._killed, self._said, self._unconnected, self._shut_out, self._full, self._noticed)
        found = next((found for cause in causes if (found := cause())), None)
        if found is None:
            return self._unknown()
        return DeployError(
            dict(found), [host for host, lines in found.items() if all(OUT_OF_MEMORY in line for line in lines)]
        )

    def _killed(self) -> Sentences:
        """Ranks that a signal ended, as their launchers saw it."""
        found: Sentences = {}
        for host, facts in self.seen.items():
            for rank, (code, memory) in sorted(facts["ranks"].items()):
                if code > 128:
                    found.setdefault(host, []).append(self._fate(host, int(rank), code - 128, memory))
        return found

    def _fate(self, host: str, rank: int, number: int, memory: bool) -> str:
        if number != signal.SIGKILL:
            return fate(rank, number)
        if not memory:
            return f"rank {rank} was killed (SIGKILL) by somebody there, not for want of memory: run it again"
        free = self.free.get(host)
        had = f" ({mb(free)} were free before the run)" if free is not None else ""
        return (
            f"rank {rank} was killed by the kernel since {OUT_OF_MEMORY}{had}: choose a mapping that needs less there, "
            "or end other programs"
        )

    def _said(self) -> Sentences:
        """Ranks that gave up with a sentence, or said what they were doing when time was up."""
        found: Sentences = {}
        for sentence in said(self.done["stderr"]):
            number = re.match(r"rank (\d+)", sentence)
            found.setdefault(self._host(int(number[1])) if number else self.head, []).append(sentence)
        return found

    def _late(self) -> Sentences:
        """What each rank was doing when time was up; first those that could not say."""
        told = self._said()
        busy = {int(n) for lines in told.values() for line in lines for n in re.findall(r"^rank (\d+)", line)}
        found: Sentences = {}
        for rank in self.plan.ranks:
            if rank.rank not in busy:
                found.setdefault(rank.host, []).append(f"rank {rank.rank} {MUTE}")
        for host, lines in told.items():
            found.setdefault(host, []).extend(lines)
        return found

    def _shut_out(self) -> Sentences:
        """A host that does not let the head host in; the head host, where it is not said which."""
        refused = next((line for line in self.done["stderr"].splitlines() if NO_ENTRY.search(line)), None)
        if refused is None:
            return {}
        words = set(re.split(r"[^\w.:%-]+", refused))
        host = next((host for host, address in self.addresses.items() if {address, f"{address}:"} & words), None)
        if host is None or host == self.head:
            return {self.head: [f"may not start ranks on another host ({refused}): {self.mend}"]}
        return {host: [f"does not let {self.head} in, which starts its ranks ({refused}): {self.mend}"]}

    def _unconnected(self) -> Sentences:
        """Hosts between which no message gets through."""
        names = {address: host for host, address in self.addresses.items()}
        found: Sentences = {}
        for host, address, error in NO_WAY.findall(self.done["stderr"] + self.done["stdout"]):
            sentence = f"its ranks get no connection to {names.get(address, address)} ({error}): {OPEN_UP}"
            found.setdefault(names.get(host, host), []).append(sentence)
        return {host: list(dict.fromkeys(sentences)) for host, sentences in found.items()}

    def _full(self) -> Sentences:
        """Hosts where nothing more can be written."""
        full = [host for host, facts in self.seen.items() if facts["free disk"] < FULL_BYTES]
        return {host: [f"its disk is full ({ranks_on(self.plan, host)}): {MAKE_ROOM}"] for host in full}

    def _noticed(self) -> Sentences:
        """Ranks that mpirun saw end by a signal."""
        found: Sentences = {}
        for rank, number in killed(self.done["stderr"] + self.done["stdout"]).items():
            found.setdefault(self._host(rank), []).append(fate(rank, number))
        return found

    def _unknown(self) -> CleaveError:
        """Nobody's: mpirun runs on the head host, and tells of all."""
        code, stdout, stderr = (self.done[name] for name in ("code", "stdout", "stderr"))
        return CleaveError(f"mpirun on {self.head} ended with code {code}", *last(stdout, stderr))

    def _host(self, rank: int) -> str:
        return next((each.host for each in self.plan.ranks if each.rank == rank), self.head)


def ranks_on(plan: Plan, host: str) -> str:
    """``ranks 2 and 3 there``."""
    numbers = [str(rank.rank) for rank in plan.ranks if rank.host == host]
    words = " and ".join(filter(None, [", ".join(numbers[:-1]), numbers[-1]])) if numbers else ""
    return f"rank{'s' if len(numbers) > 1 else ''} {words} ran there" if numbers else "no rank ran there"
