"""The inside of a host: its files, and the script that turns new namespaces into a host.

A host sees the file system of this machine, so programs and Python are where they are here. Its own are: the home
folder, /tmp, /run, /dev/shm, /sys, the host table, and the one account more. It sees its own folder at ROOT, and so
nothing of other hosts.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from shutil import which

from dse.testbed import cores as on_cores
from dse.testbed.state import PORT, ROOT, USER, Testbed

HOME = ROOT / "home"
"""Of USER, on every host."""


def files(testbed: Testbed, host: str, accounts: str) -> dict[str, str]:
    """File → text, all that a host's folder holds besides keys. accounts: this machine's ``/etc/passwd``."""
    return {
        "hosts": hosts_table(testbed),
        "passwd": _passwd(testbed, accounts),
        "sshd_config": _sshd_config(),
        "boot.sh": _boot(testbed, host),
    }


FOLDERS = {"home": 0o700, "tmp": 0o1777}
"""Of a host's folder, with their modes."""


JOIN = 'for group; do echo $$ > "$group/cgroup.procs" || exit 1; done'
"""A shell that has cgroups as arguments moves into them."""


def start(groups: list[Path], place: Path, cores: tuple[int, ...]) -> list[str]:
    """The command that becomes a host: into its cgroups, to its cores, into namespaces of its own, then the script.

    All that runs on the host inherits its cores. They are no hard limit (cpuset): mpirun takes hosts with as many cores
    for alike, and would bind ranks to the cores of its own host on all of them.
    """
    place_on = f"taskset --cpu-list {','.join(map(str, cores))}"
    namespaces = "unshare --net --uts --ipc --mount --pid --fork --kill-child --mount-proc --propagation private"
    return ["sh", "-c", f"{JOIN}; exec {place_on} {namespaces} sh {place}/boot.sh", "sh", *map(str, groups)]


def start_switch(groups: list[Path]) -> list[str]:
    """The command that becomes the switch: nothing runs in it, it is a namespace only."""
    script = f"echo {on_cores.READY}; exec sleep infinity >/dev/null"
    return ["sh", "-c", f"{JOIN}; exec unshare --net sh -c '{script}'", "sh", *map(str, groups)]


def start_ticks(groups: list[Path], cores: list[int]) -> list[str]:
    """The command that becomes the ticks of some cores."""
    return ["sh", "-c", f"{JOIN}; exec {_on(cores, on_cores.TICKS)}", "sh", *map(str, groups)]


def keep_awake(group: Path, cores: list[int]) -> list[str]:
    """The command that keeps some cores awake. It is taken for ready once it is in its group, where it begins when
    nothing else has to be done, which may be a while.
    """
    program = _on(cores, on_cores.AWAKE)
    return ["sh", "-c", f"{JOIN}; echo {on_cores.READY}; exec {program} >/dev/null", "sh", str(group)]


def _on(cores: list[int], what: str) -> str:
    return shlex.join([sys.executable, on_cores.__file__, what, *map(str, cores)])


def hosts_table(testbed: Testbed) -> str:
    """``/etc/hosts`` of every host: they know one another by name."""
    lines = ["127.0.0.1 localhost", f"{testbed.own_address} workstation"]
    lines += [f"{testbed.address(host.name)} {host.name}" for host in testbed.hosts]
    return "\n".join(lines) + "\n"


def _passwd(testbed: Testbed, accounts: str) -> str:
    """USER comes first, so that it is also the name and the home of its number, whoever else has that number."""
    others = [line for line in accounts.splitlines() if not line.startswith(f"{USER}:")]
    return "\n".join([f"{USER}:x:{testbed.uid}:{testbed.gid}:testbed:{HOME}:/bin/sh", *others]) + "\n"


def _sshd_config() -> str:
    """Keys only. No PAM, which would move sessions out of the host's cgroup where systemd runs."""
    return f"""\
Port {PORT}
ListenAddress 0.0.0.0
HostKey {ROOT}/host_key
AuthorizedKeysFile {ROOT}/authorized_keys .ssh/authorized_keys
PidFile {ROOT}/sshd.pid
AllowUsers {USER}
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
MaxStartups 100
MaxSessions 100
Subsystem sftp internal-sftp
"""


def _boot(testbed: Testbed, host: str) -> str:
    return f"""\
set -e
mount --bind {testbed.place(host)} {ROOT}
mount --bind {ROOT}/hosts /etc/hosts
mount --bind {ROOT}/passwd /etc/passwd
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd /run/cgroup
mount --rbind /sys/fs/cgroup /run/cgroup
mount -t sysfs sysfs /sys
mount --move /run/cgroup /sys/fs/cgroup
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
{_private_tmp()}
hostname {host}
ip link set dev lo up
echo {on_cores.READY}
exec >> {ROOT}/log 2>&1
cd /
/usr/bin/env -i PATH="$PATH" {sshd()} -D -e -f {ROOT}/sshd_config &
wait
exec sleep infinity
"""


def _private_tmp() -> str:
    """Unless Python or this program is under /tmp: then hosts must see it."""
    needed = [Path(path) for path in (sys.prefix, sys.base_prefix, *sys.path)]
    hidden = any(path.is_relative_to("/tmp") for path in needed)
    return "# /tmp is shared: Python is in it" if hidden else f"mount --bind {ROOT}/tmp /tmp"


def sshd() -> str:
    """The SSH server's absolute path: it refuses to be started by any other."""
    return which("sshd") or which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin") or "/usr/sbin/sshd"
