"""What control groups leave a process of a core: a container, say, is held to a share, and stopped when it is spent."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

GROUPS, ROOT = "/proc/self/cgroup", "/sys/fs/cgroup"


@lru_cache(maxsize=None)
def core_share(groups: str = GROUPS, root: str = ROOT) -> float:
    """The least that any group of this process allows, or one around it (cgroups(7), versions 1 and 2): above 0, and 1
    where that is a core or more, or nothing is told.
    """
    try:
        with open(groups, encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file if line.count(":") >= 2]
    except OSError:
        return 1.0
    return min((_allowed(root, controllers, path) for _, controllers, path in lines), default=1.0)


def _allowed(root: str, controllers: str, path: str) -> float:
    """By one hierarchy. A container may not see the groups around it, but it sees its own, as if that were the root."""
    if controllers and "cpu" not in controllers.split(","):
        return 1.0
    top = os.path.join(root, controllers)
    parts = path.strip("/").split("/")
    inner = [os.path.join(top, *parts[:depth]) for depth in range(len(parts) + 1)]
    return min(_of_group(folder) for folder in inner)


def _of_group(folder: str) -> float:
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = (int(word) for name in names for word in Path(folder, name).read_text("ascii").split())
            if quota > 0 and period > 0:
                return min(quota / period, 1.0)
        except (OSError, ValueError):  # no such file, or "max", or nonsense
            continue
    return 1.0
