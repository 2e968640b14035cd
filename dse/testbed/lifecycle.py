"""A testbed from beginning to end: planned, put up, looked at, taken down."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from codegen.folder import ELSEWHERE
from dse.before import check_place
from dse.testbed import access, cores, limits, machine, needs, network, spec, state
from dse.testbed import host as inside
from dse.testbed.limits import Hierarchy
from dse.testbed.spec import HostSpec
from dse.testbed.state import IDLE, SWITCH, TAG, Testbed
from runtime.errors import CleaveError

SWITCHED_ON = "switched_on"
"""File of a testbed that lists the controllers of cgroups version 2 that it has switched on at the root."""


@dataclass(frozen=True)
class HostStatus:
    """A host as it is now. answers: whether its SSH server does; processes: that run on it."""

    spec: HostSpec
    address: str
    answers: bool
    processes: int


def names() -> list[str]:
    """Of all testbeds that stand or have left something: files or control groups."""
    grouped = [entry.name for h in machine.mounted() for entry in h.testbed("").glob("*") if entry.is_dir()]
    return sorted({*state.names(), *grouped})


def plan(name: str, hosts: tuple[HostSpec, ...], out: Path) -> Testbed:
    """The testbed that would be put up. ``CleaveError`` on all that stands in the way; nothing is made."""
    state.check_name(name)
    problems = needs.missing(hosts)
    if problems:
        raise CleaveError(*problems)
    if name in names():
        raise CleaveError(state.already(name))
    check_place(out, force=False, way_out=ELSEWHERE)
    uid, gid = state.account()
    return Testbed(name, _free_number(), hosts, str(out.absolute()), sys.executable, uid, gid)


def up(testbed: Testbed) -> Testbed:
    """Put up a planned testbed; it has another number where one that came meanwhile has its own.

    What fails half way is taken down again.
    """
    with state.alone():
        testbed = replace(testbed, number=_free_number())
        state.save(testbed)
        try:
            _make_groups(testbed)
            keys = _furnish(testbed)
            _start_ticks(testbed)
            _keep_awake(testbed)
            _connect(testbed)
            _await_servers(testbed)
            _hand_over(testbed, keys)
        except BaseException:
            _remove(testbed.name)
            raise
    return testbed


def down(name: str) -> bool:
    """Take down a testbed, or what a crash has left of it; whether there was anything."""
    with state.alone():
        found = name in names()
        if found:
            _remove(name)
    return found


def _remove(name: str) -> None:
    """All that there is of a testbed."""
    hierarchies = machine.mounted()
    for hierarchy in hierarchies:
        machine.end_idle(hierarchy.idle(name), hierarchy.switch(name))
    machine.end_processes([group for hierarchy in hierarchies for group in hierarchy.ours(name)])
    machine.remove_links(f"{TAG} {name}")
    for hierarchy in hierarchies:
        for group in hierarchy.ours(name):
            machine.remove_groups(group)
        _leave(hierarchy, name)
    testbed = state.load(name)
    if testbed is not None:
        _take_back(testbed)
    if (state.ROOT / name).exists():
        shutil.rmtree(state.ROOT / name)
    with suppress(OSError):  # other testbeds are in it
        state.ROOT.rmdir()


def status(testbed: Testbed) -> list[HostStatus]:
    """How the hosts of a testbed do, in the order of the spec."""
    groups = machine.mounted()[0]
    return [
        HostStatus(
            spec=host,
            address=testbed.address(host.name),
            answers=machine.answers(testbed.address(host.name), patience_s=0.5),
            processes=len(machine.processes(groups.group(testbed, host.name))),
        )
        for host in testbed.hosts
    ]


def _free_number() -> int:
    taken = machine.taken_numbers()
    taken |= {found.number for found in map(state.load, names()) if found is not None}
    free = next((number for number in range(state.MOST) if number not in taken), None)
    if free is None:
        raise CleaveError(f"{state.MOST} testbeds are up; end one with 'dse testbed down --name NAME'")
    return free


def _make_groups(testbed: Testbed) -> None:
    for hierarchy in machine.mounted():
        extra = limits.to_switch_on(hierarchy)
        if extra:
            (testbed.folder / SWITCHED_ON).write_text(" ".join(extra))
            machine.write(hierarchy.root / "cgroup.subtree_control", " ".join(f"+{c}" for c in extra))
        for group, writes in limits.groups(hierarchy, testbed):
            machine.make_group(group, writes)


def _leave(hierarchy: Hierarchy, name: str) -> None:
    """Remove what testbeds share in a hierarchy, unless another one is in it."""
    try:
        for shared in (IDLE, TAG):
            with suppress(FileNotFoundError):
                (hierarchy.root / shared).rmdir()
    except OSError:
        return
    switched = state.ROOT / name / SWITCHED_ON
    if switched.exists() and hierarchy.version == 2:
        for controller in switched.read_text().split():
            with suppress(CleaveError):  # others use it now
                machine.write(hierarchy.root / "cgroup.subtree_control", f"-{controller}")


def _furnish(testbed: Testbed) -> dict[str, str]:
    """The files and keys of all hosts, and the user's; host → public key."""
    accounts = Path("/etc/passwd").read_text(encoding="utf-8", errors="surrogateescape")
    for name in (SWITCH, cores.TICKS, cores.AWAKE):
        testbed.place(name).mkdir()
    user_key = machine.make_key(testbed.folder / access.KEY, f"{TAG}-{testbed.name}")
    keys = {}
    for host in testbed.hosts:
        place = testbed.place(host.name)
        place.mkdir()
        for name, text in inside.files(testbed, host.name, accounts).items():
            (place / name).write_text(text, encoding="utf-8", errors="surrogateescape")
        (place / "authorized_keys").write_text(f"{user_key}\n")
        keys[host.name] = machine.make_key(place / "host_key", host.name)
        _make_folders(testbed, place)
    return keys


def _make_folders(testbed: Testbed, place: Path) -> None:
    for name, mode in inside.FOLDERS.items():
        (place / name).mkdir()
        (place / name).chmod(mode)
        os.chown(place / name, testbed.uid, testbed.gid)


def _start_ticks(testbed: Testbed) -> None:
    halted = spec.halted(testbed.hosts)
    if halted:
        groups = [limits.real_time(hierarchy, testbed) for hierarchy in machine.mounted()]
        machine.start(inside.start_ticks(groups, halted), testbed.place(cores.TICKS))


def _keep_awake(testbed: Testbed) -> None:
    """On a virtual machine, as far as its kernel knows processes that are in nobody's way."""
    (hierarchy,) = (each for each in machine.mounted() if "cpu" in each.controllers)
    if machine.virtual() and (hierarchy.testbed(testbed.name) / limits.CPU_IDLE).exists():
        for group, writes in limits.idle(hierarchy, testbed):
            machine.make_group(group, writes)
        command = inside.keep_awake(hierarchy.idle(testbed.name), spec.used(testbed.hosts))
        machine.start(command, testbed.place(cores.AWAKE))


def _connect(testbed: Testbed) -> None:
    """Start the switch and all hosts, each in its groups, and lay the cables."""
    switch = machine.start(inside.start_switch(_groups(testbed, SWITCH)), testbed.place(SWITCH))
    for command in network.switch(testbed, switch):
        machine.run(command)
    for host in testbed.hosts:
        place = testbed.place(host.name)
        pid = machine.start(inside.start(_groups(testbed, host.name), place, host.cores), place)
        for command in network.host(testbed, host, pid, switch):
            machine.run(command)


def _groups(testbed: Testbed, host: str) -> list[Path]:
    return [hierarchy.group(testbed, host) for hierarchy in machine.mounted()]


def _await_servers(testbed: Testbed) -> None:
    silent = [h.name for h in testbed.hosts if not machine.answers(testbed.address(h.name), machine.PATIENCE_S)]
    if silent:
        raise CleaveError(
            *(f"the SSH server of '{n}' does not answer: {machine.last_line(testbed.place(n) / 'log')}" for n in silent)
        )


def _hand_over(testbed: Testbed, keys: dict[str, str]) -> None:
    """The user's folder: all of it or none."""
    out, draft = Path(testbed.out), _draft(testbed)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir(mode=0o700)
        (draft / access.PLATFORM).write_text(access.platform(testbed, platform.machine()))
        (draft / access.KNOWN_HOSTS).write_text(access.known_hosts(testbed, keys))
        (draft / access.STATE).write_text(testbed.to_json())
        for name in (access.KEY, f"{access.KEY}.pub"):
            shutil.move(testbed.folder / name, draft / name)
        for path in draft.iterdir():
            os.chown(path, testbed.uid, testbed.gid, follow_symlinks=False)
        draft.chmod(0o755)
        os.chown(draft, testbed.uid, testbed.gid)
        draft.rename(out)
    except OSError as error:
        raise CleaveError(f"{out}: cannot be written: {error.strerror or error}") from error


def _draft(testbed: Testbed) -> Path:
    """What the user's folder is called while it is filled or removed, so that after a crash it is found."""
    out = Path(testbed.out)
    return out.with_name(f".{out.name}.{TAG}-{testbed.name}")


def _take_back(testbed: Testbed) -> None:
    """Remove from the user's folder what was put there, and the folder if nothing else is in it."""
    out, draft = Path(testbed.out), _draft(testbed)
    note = out / access.STATE
    if note.is_file() and note.read_text() == testbed.to_json():  # else it is not there yet, or another testbed's now
        if {path.name for path in out.iterdir()} <= set(access.FILES) and not out.is_symlink():
            out.rename(draft)
        else:
            for name in access.FILES:
                (out / name).unlink(missing_ok=True)
    if draft.is_dir():
        shutil.rmtree(draft)
