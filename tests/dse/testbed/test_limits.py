"""Cgroups of both versions: found where they are mounted, and what is written into them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dse.testbed import limits, machine
from dse.testbed.limits import Hierarchy
from tests.dse.testbed.boxes import BOX, FAST

V1 = """\
24 1 254:0 / / rw,relatime - ext4 /dev/vda rw
31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 / /sys/fs/cgroup/my\\040memory ro,nosuid shared:3 - cgroup cgroup rw,memory
33 24 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
"""


def version2(root: Path, controllers: str = "cpuset cpu io memory pids", given: str = "") -> str:
    """The files of a root of version 2, and how it is mounted."""
    root.mkdir(exist_ok=True)
    (root / "cgroup.controllers").write_text(controllers)
    (root / "cgroup.subtree_control").write_text(given)
    return f"30 24 0:26 / {root} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def test_each_controller_of_version_1_is_found_where_it_is_mounted() -> None:
    assert limits.hierarchies(V1) == [
        Hierarchy(Path("/sys/fs/cgroup/cpu,cpuacct"), 1, ("cpu",), True),
        Hierarchy(Path("/sys/fs/cgroup/my memory"), 1, ("memory",), False),
    ]


def test_version_2_has_all_controllers_in_one_place(tmp_path: Path) -> None:
    assert limits.hierarchies(version2(tmp_path)) == [Hierarchy(tmp_path, 2, ("cpu", "memory"), True)]


def test_a_machine_with_both_uses_each_controller_where_it_is(tmp_path: Path) -> None:
    mixed = version2(tmp_path, "memory") + V1.replace("memory", "blkio")
    assert [(h.version, h.controllers) for h in limits.hierarchies(mixed)] == [(2, ("memory",)), (1, ("cpu",))]


def test_what_is_lacking_is_told_in_sentences(tmp_path: Path) -> None:
    assert limits.lacking(limits.hierarchies(version2(tmp_path))) == []
    (read_only,) = limits.lacking(limits.hierarchies(V1))
    assert read_only.startswith("/sys/fs/cgroup/my memory: control groups are mounted read-only")
    (no_memory,) = limits.lacking(limits.hierarchies(V1.replace("rw,memory", "rw,net_cls")))
    assert no_memory.startswith("no 'memory' control group is mounted, which limits a host's memory")
    assert len(limits.lacking([])) == 2


def test_a_container_whose_own_group_is_occupied_is_refused(tmp_path: Path) -> None:
    found = limits.hierarchies(version2(tmp_path, given="cpu"))
    (tmp_path / "cgroup.type").write_text("domain\n")
    (tmp_path / "cgroup.procs").write_text("")
    assert limits.lacking(found) == []
    (tmp_path / "cgroup.procs").write_text("1\n")
    assert "start the container with --cgroupns=host" in limits.lacking(found)[0]
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory")
    assert limits.lacking(found) == [], "nothing needs to be switched on"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (1, {"cpu.cfs_period_us": "1000", "cpu.cfs_quota_us": "1500", "memory.limit_in_bytes": "2000000000"}),
        (2, {"cpu.max": "1500 1000", "memory.max": "2000000000", "memory.swap.max": "0"}),
    ],
)
def test_a_host_has_its_share_and_its_memory(version: int, expected: dict[str, str]) -> None:
    hierarchy = Hierarchy(Path("/cgroup"), version, ("cpu", "memory"), True)
    writes = {file.name: text for file, text in limits.limits(hierarchy, Path("/g"), FAST)}
    assert expected.items() <= writes.items()


def test_groups_are_made_from_the_outside_in_and_version_2_passes_controllers_on(tmp_path: Path) -> None:
    (hierarchy,) = limits.hierarchies(version2(tmp_path))
    assert limits.to_switch_on(hierarchy) == ("cpu", "memory")
    for group, writes in limits.groups(hierarchy, BOX):
        machine.make_group(group, writes)
    made = {str(file.relative_to(tmp_path)): file.read_text() for file in tmp_path.rglob("cleave-testbed/**/*.*")}
    assert made == {
        "cleave-testbed/cgroup.subtree_control": "+cpu +memory",
        "cleave-testbed/cpu.weight": "10000",
        "cleave-testbed/box/cpu.weight": "10000",
        "cleave-testbed/box/cgroup.subtree_control": "+cpu +memory",
        "cleave-testbed/box/host-slow/cpu.max": "1000 8889",
        "cleave-testbed/box/host-slow/memory.max": "500000000",
        "cleave-testbed/box/host-slow/memory.swap.max": "0",
        "cleave-testbed/box/host-fast/cpu.max": "1500 1000",
        "cleave-testbed/box/host-fast/memory.max": "2000000000",
        "cleave-testbed/box/host-fast/memory.swap.max": "0",
    }
    assert (tmp_path / "cleave-testbed/box/switch").is_dir()


def test_what_gives_way_to_all_others_is_outside_of_what_comes_first(tmp_path: Path) -> None:
    (hierarchy,) = limits.hierarchies(version2(tmp_path))
    for testbed in (BOX, replace(BOX, name="other")):
        for group, writes in limits.idle(hierarchy, testbed):
            machine.make_group(group, writes)
    outer = tmp_path / "cleave-testbed-idle"
    assert sorted(path.name for path in outer.iterdir()) == ["box", "cpu.idle", "other"]
    assert (outer / "cpu.idle").read_text() == "1"
    assert hierarchy.ours(BOX.name) == (outer / "box", tmp_path / "cleave-testbed/box")


def test_processes_are_found_in_all_groups_below(tmp_path: Path) -> None:
    for path, text in {"a": "1\n2\n", "a/b": "3\n", "a/b/c": ""}.items():
        (tmp_path / path).mkdir()
        (tmp_path / path / "cgroup.procs").write_text(text)
    assert sorted(machine.processes(tmp_path / "a")) == [1, 2, 3]
    assert machine.processes(tmp_path / "none") == []
