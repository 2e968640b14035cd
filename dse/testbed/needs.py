"""What a testbed needs of this machine, asked before anything is made."""

from __future__ import annotations

import os
import subprocess
import sys
from shutil import which

from dse.testbed import host as inside
from dse.testbed import limits, machine
from dse.testbed.spec import HostSpec

PACKAGES = {
    "util-linux": ("unshare", "nsenter", "mount", "taskset"),
    "hostname": ("hostname",),
    "iproute2": ("ip", "tc"),
    "openssh-client": ("ssh-keygen",),
}
"""Debian package → programs of it. The SSH server is looked for where it is, too, when it is not on the PATH."""

PROBES_S = 60.0
"""Most seconds that all of them take together."""
PROBES = {
    "ip link set dev lo up": "cannot make network namespaces",
    "ip link add name probe0 type veth peer name probe1": "has no veth network interfaces (CONFIG_VETH)",
    "ip link add name probe2 type bridge": "has no network bridges (CONFIG_BRIDGE)",
    "tc qdisc add dev lo root tbf rate 1mbit burst 32kb latency 20ms": (
        "has no token bucket filter to limit links with (CONFIG_NET_SCH_TBF)"
    ),
    "mount -t tmpfs tmpfs /run": "cannot make mount namespaces",
    "mount -t sysfs sysfs /sys": "lets nobody mount /sys in a namespace",
}
"""Command in namespaces of its own → what this kernel lacks when it fails."""


def missing(hosts: tuple[HostSpec, ...]) -> list[str]:
    """Sentences on what this machine lacks for a testbed of these hosts; none: it lacks nothing."""
    problems = rights() or programs()
    if problems:
        return problems
    return cores(hosts) + limits.lacking(machine.mounted()) + kernel()


def rights() -> list[str]:
    """Whether we may."""
    if not sys.platform.startswith("linux"):
        return ["a testbed is made of Linux namespaces; this machine runs something else"]
    return [] if os.geteuid() == 0 else ["a testbed needs root, to make namespaces and control groups; use sudo"]


def programs() -> list[str]:
    """Programs that are not installed, a package a sentence."""
    problems = []
    for package, names in PACKAGES.items():
        absent = [name for name in names if which(name) is None]
        if absent:
            problems.append(f"{', '.join(absent)} not found; install it with 'apt-get install {package}'")
    if not os.access(inside.sshd(), os.X_OK):
        problems.append("sshd not found; install it with 'apt-get install openssh-server'")
    return problems


def cores(hosts: tuple[HostSpec, ...]) -> list[str]:
    """Cores that hosts are to have and this machine has not."""
    here = os.sched_getaffinity(0)
    return [
        f"host '{host.name}' is to have core {core}; this machine has {', '.join(map(str, sorted(here)))}"
        for host in hosts
        for core in host.cores
        if core not in here
    ]


def kernel() -> list[str]:
    """What fails in namespaces that vanish with the command."""
    script = "\n".join(f"( {command} ) >/dev/null 2>&1 || echo {number}" for number, command in enumerate(PROBES))
    names = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    words = ["unshare", *names, "--propagation", "private", "sh", "-c", script]
    try:
        found = subprocess.run(words, capture_output=True, text=True, timeout=PROBES_S)
    except subprocess.TimeoutExpired:
        return [f"what this kernel can do was not known after {PROBES_S:g} s; try again when the machine is less busy"]
    if found.returncode != 0:
        return [f"this kernel makes no new namespaces: {found.stderr.strip()}; a container needs --privileged"]
    return [f"this kernel {list(PROBES.values())[int(number)]}" for number in found.stdout.split()]
