"""What control groups leave a process of a core: told by files of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.quota import core_share

V1, V2 = "3:cpuacct,cpu:{}\n2:memory:{}\n", "0::{}\n"


def told(tmp_path: Path, lines: str, files: dict[str, str]) -> float:
    """By these lines of /proc/self/cgroup and these files below /sys/fs/cgroup."""
    for name, text in files.items():
        (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / name).write_text(text + "\n")
    (tmp_path / "cgroup").write_text(lines)
    return core_share(str(tmp_path / "cgroup"), str(tmp_path / "fs"))


@pytest.mark.parametrize(
    ("lines", "files", "share"),
    [
        (V2, {"a/b/cpu.max": "45000 100000"}, 0.45),
        (V2, {"a/b/cpu.max": "max 100000"}, 1.0),
        (V2, {"a/b/cpu.max": "150000 100000"}, 1.0),
        (V2, {"a/b/cpu.max": "max 100000", "a/cpu.max": "30000 100000"}, 0.3),
        (V2, {"a/b/cpu.max": "20000 100000", "a/cpu.max": "30000 100000"}, 0.2),
        (V2, {"cpu.max": "60000 100000"}, 0.6),
        (V2, {"other/cpu.max": "1000 100000"}, 1.0),
        (V2, {}, 1.0),
        (V2, {"a/b/cpu.max": "nonsense"}, 1.0),
        (V1, {"cpuacct,cpu/a/b/cpu.cfs_quota_us": "1000", "cpuacct,cpu/a/b/cpu.cfs_period_us": "8889"}, 1000 / 8889),
        (V1, {"cpuacct,cpu/a/b/cpu.cfs_quota_us": "-1", "cpuacct,cpu/a/b/cpu.cfs_period_us": "8889"}, 1.0),
        (V1, {"memory/a/b/cpu.cfs_quota_us": "1000", "memory/a/b/cpu.cfs_period_us": "8889"}, 1.0),
    ],
)
def test_the_least_of_a_group_and_those_around_it(
    tmp_path: Path, lines: str, files: dict[str, str], share: float
) -> None:
    assert told(tmp_path, lines.format("/a/b", "/a/b"), files) == share


@pytest.mark.parametrize("lines", ["", "nonsense\n"])
def test_a_system_that_does_not_tell(tmp_path: Path, lines: str) -> None:
    assert told(tmp_path, lines, {"cpu.max": "10000 100000"}) == 1.0
    assert core_share(str(tmp_path / "none")) == 1.0
