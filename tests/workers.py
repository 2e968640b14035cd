"""Tests side by side (pytest-xdist): how many workers there are, and which tests must share one."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parent.parent
CLUSTER = "cluster"


def workers() -> int:
    """As many as there are cores, and one for the tests on a cluster in a box, which wait more than they work."""
    return len(os.sched_getaffinity(0)) + 1


@cache
def group(file: str) -> str:
    """Tests of a file stay together, so that what they share is made once; so do all files with the marker ``cluster``:
    they share a testbed, and testbeds come and go on a machine one at a time."""
    return CLUSTER if f"mark.{CLUSTER}" in (ROOT / file).read_text(encoding="utf-8") else file


def of(nodeid: str) -> str:
    """The group of a test. xdist's own groups are not used: its way to tell them fails silently with pytest 9.2."""
    return group(nodeid.partition("::")[0])


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Those on a cluster first, since their group takes longest. Of these, those of ``dse`` come last: what a search
    has to have compiled, others have compiled by then."""
    there = [item for item in items if of(item.nodeid) == CLUSTER]
    there.sort(key=lambda item: item.nodeid.startswith("tests/dse/"))
    return there + [item for item in items if of(item.nodeid) != CLUSTER]


class Groups(LoadScopeScheduling):
    """Each worker that has nothing left to do gets the next group."""

    def _split_scope(self, nodeid: str) -> str:
        return of(nodeid)
