"""Tests side by side (pytest-xdist): how many workers there are, and which tests must share one."""

from __future__ import annotations

import ast
import os
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parent.parent
CLUSTER = "cluster"
MARKER = f"pytest.mark.{CLUSTER}"
COMPILED = "tests/dse/place/cnn/"
"""What is tested there takes a minute and a half to compile, once a worker."""


def workers() -> int:
    """As many as there are cores, and one for the tests on a cluster in a box, which wait more than they work."""
    return len(os.sched_getaffinity(0)) + 1


@cache
def on_cluster(file: str) -> frozenset[str]:
    """Names of the tests of a file that have the marker ``cluster``, each by itself or all of them."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    whole = any(isinstance(line, ast.Assign) and ast.unparse(line) == f"pytestmark = {MARKER}" for line in tree.body)
    tests = [line for line in tree.body if isinstance(line, ast.FunctionDef)]
    return frozenset(test.name for test in tests if whole or MARKER in map(ast.unparse, test.decorator_list))


def group(nodeid: str) -> str:
    """The tests of a file stay together, so that what they share is made once, and so do those of ``COMPILED``. But
    those with the marker ``cluster`` of all files do: they share a testbed, and testbeds come and go on a machine one
    at a time.

    xdist's own groups are not used: the way in which they are told fails silently with pytest 9.2.
    """
    file, _, test = nodeid.partition("::")
    return CLUSTER if test.partition("[")[0] in on_cluster(file) else COMPILED if file.startswith(COMPILED) else file


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Those on a cluster first, since their group takes longest. Of these, those of ``dse`` come last: what a search
    has to have compiled, others have compiled by then."""
    there = [item for item in items if item.get_closest_marker(CLUSTER)]
    assert there == [item for item in items if group(item.nodeid) == CLUSTER], f"write {MARKER} as other files do"
    there.sort(key=lambda item: item.nodeid.startswith("tests/dse/"))
    return there + [item for item in items if not item.get_closest_marker(CLUSTER)]


class Groups(LoadScopeScheduling):
    """Each worker that has nothing left to do gets the next group."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)
