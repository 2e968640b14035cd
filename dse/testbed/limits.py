"""Processor share and memory of a host, as files of cgroups and what to write into them.

Version 1 has a hierarchy for each controller, version 2 one for all; a machine may have both, so each controller is
looked up where it is mounted. Our groups are ``cleave-testbed/NAME/host-HOST`` in each hierarchy that is needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from dse.testbed.spec import HostSpec
from dse.testbed.state import IDLE, SWITCH, TAG, Testbed

CONTROLLERS = ("cpu", "memory")
LEAST_US = 1000
"""The kernel takes no quota and no period below. A host is given so little at a time, since a slow processor does not
stand still at all; see `cores`, too."""

FIRST = {1: ("cpu.shares", "262144"), 2: ("cpu.weight", "10000")}
"""The largest weights: hosts, which have their quotas, come before whatever else the machine has to do."""

CPU_IDLE = "cpu.idle"
"""What makes a group give way to all others; kernels before 5.15 have no such file."""

Write = tuple[Path, str]
"""A file and what to write into it."""


@dataclass(frozen=True)
class Hierarchy:
    """One mounted hierarchy of cgroups.

    root:        where it is mounted
    version:     1 or 2
    controllers: those of CONTROLLERS that it has, in that order
    writable:    whether it is mounted so
    """

    root: Path
    version: int
    controllers: tuple[str, ...]
    writable: bool

    def testbed(self, testbed_name: str) -> Path:
        return self.root / TAG / testbed_name

    def idle(self, testbed_name: str) -> Path:
        """For what runs when nothing else on the machine would."""
        return self.root / IDLE / testbed_name

    def ours(self, testbed_name: str) -> tuple[Path, Path]:
        """The outermost groups that are a testbed's alone."""
        return self.idle(testbed_name), self.testbed(testbed_name)

    def group(self, testbed: Testbed, host: str) -> Path:
        return self.switch(testbed.name) if host == SWITCH else self.testbed(testbed.name) / f"host-{host}"

    def switch(self, testbed_name: str) -> Path:
        return self.testbed(testbed_name) / "switch"


def hierarchies(mountinfo: str) -> list[Hierarchy]:
    """Those with a controller that we need, read from the text of ``/proc/self/mountinfo`` and, for version 2, from
    its root."""
    found: list[Hierarchy] = []
    for line in mountinfo.splitlines():
        mount, _, system = line.partition(" - ")
        root, options = Path(_unescaped(mount.split()[4])), mount.split()[5].split(",")
        kind, _, features = system.split(" ", 2)
        has = {"cgroup": features.split(",")}.get(kind) or (_version2(root) if kind == "cgroup2" else [])
        known = {controller for hierarchy in found for controller in hierarchy.controllers}
        ours = tuple(c for c in CONTROLLERS if c in has and c not in known)
        if ours:
            found.append(Hierarchy(root, 1 if kind == "cgroup" else 2, ours, "rw" in options))
    return found


def lacking(found: list[Hierarchy]) -> list[str]:
    """Sentences on why the hierarchies cannot hold testbeds; none: they can."""
    known = [controller for hierarchy in found for controller in hierarchy.controllers]
    problems = [
        f"no '{controller}' control group is mounted, which limits a host's {what}: the kernel lacks it, or it is off"
        for controller, what in zip(CONTROLLERS, ("processor share", "memory"), strict=True)
        if controller not in known
    ]
    for hierarchy in found:
        if not hierarchy.writable:
            problems.append(f"{hierarchy.root}: control groups are mounted read-only; a container needs --privileged")
        elif _is_occupied(hierarchy):
            problems.append(
                f"{hierarchy.root}: controllers cannot be given to new groups, since this is a container's own group "
                "and has processes in it; start the container with --cgroupns=host"
            )
    return problems


def to_switch_on(hierarchy: Hierarchy) -> tuple[str, ...]:
    """Controllers of version 2 that the root does not give to its children yet."""
    if hierarchy.version == 1:
        return ()
    given = (hierarchy.root / "cgroup.subtree_control").read_text().split()
    return tuple(c for c in hierarchy.controllers if c not in given)


def groups(hierarchy: Hierarchy, testbed: Testbed) -> list[tuple[Path, list[Write]]]:
    """The groups of one hierarchy in the order in which they are made, each with what is then written."""
    parents = [hierarchy.root / TAG, hierarchy.testbed(testbed.name)]
    made = [(parent, _pass_on(hierarchy, parent) + _first(hierarchy, parent)) for parent in parents]
    made.append((hierarchy.group(testbed, SWITCH), []))
    for host in testbed.hosts:
        made.append((hierarchy.group(testbed, host.name), limits(hierarchy, hierarchy.group(testbed, host.name), host)))
    return made


def limits(hierarchy: Hierarchy, group: Path, host: HostSpec) -> list[Write]:
    """What makes a group as slow and as small as a host is to be."""
    period = round(LEAST_US / min(host.share, 1))
    quota, memory = max(LEAST_US, round(host.share * period)), str(host.memory_bytes)
    if hierarchy.version == 2:
        files = {
            "cpu": [("cpu.max", f"{quota} {period}")],
            "memory": [("memory.max", memory), ("memory.swap.max", "0")],
        }
    else:
        files = {
            "cpu": [("cpu.cfs_period_us", str(period)), ("cpu.cfs_quota_us", str(quota))],
            "memory": [("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory)],
        }
    return [(group / name, text) for controller in hierarchy.controllers for name, text in files[controller]]


def idle(hierarchy: Hierarchy, testbed: Testbed) -> list[tuple[Path, list[Write]]]:
    """The groups for what runs when nothing else would, as `groups` has them."""
    group = hierarchy.idle(testbed.name)
    return [(group.parent, [(group.parent / CPU_IDLE, "1")]), (group, [])]


def real_time(hierarchy: Hierarchy, testbed: Testbed) -> Path:
    """The group for processes of a testbed with real-time priority: version 1 gives that to the root's only."""
    only_cpu = hierarchy.version == 1 and hierarchy.controllers == ("cpu",)
    return hierarchy.root if only_cpu else hierarchy.group(testbed, SWITCH)


OPTIONAL = ("memory.swap.max", "memory.memsw.limit_in_bytes")
"""Not there where the kernel does not account for swap."""


def _pass_on(hierarchy: Hierarchy, group: Path) -> list[Write]:
    """What a group between the root and a host's needs, so that the host's can have limits."""
    if hierarchy.version == 1:
        return []
    return [(group / "cgroup.subtree_control", " ".join(f"+{c}" for c in hierarchy.controllers))]


def _first(hierarchy: Hierarchy, group: Path) -> list[Write]:
    file, weight = FIRST[hierarchy.version]
    return [(group / file, weight)] if "cpu" in hierarchy.controllers else []


def _is_occupied(hierarchy: Hierarchy) -> bool:
    """Version 2 gives no controller to groups below one with processes, except below the very root."""
    is_root = not (hierarchy.root / "cgroup.type").exists()
    if hierarchy.version == 1 or is_root or not to_switch_on(hierarchy):
        return False
    return bool((hierarchy.root / "cgroup.procs").read_text().strip())


def _version2(root: Path) -> list[str]:
    file = root / "cgroup.controllers"
    return file.read_text().split() if file.exists() else []


def _unescaped(path: str) -> str:
    r"""A path of mountinfo, where a space is ``\040``."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)
