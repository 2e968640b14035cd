"""Some of the faults of ``tests.campaign.faults``, the quick ones: each names host and rank, and leaves nothing."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaign.box import Box, Ended
from tests.cluster import Cluster
from tests.runtime.deploy.conftest import make_bundle

pytestmark = pytest.mark.cluster
LONG = ("--frames", 3_000, "--no-verify")


@pytest.fixture
def box(testbed: Cluster, tmp_path: Path) -> Iterator[Box]:
    """Three hosts with a rank each; mended, and clean, in the end."""
    bundle = make_bundle(tmp_path, "\n".join(testbed.platform.read_text().splitlines()[:5]))
    (tmp_path / "tmp").mkdir()
    found = Box(testbed, tmp_path, bundle)
    try:
        yield found
    finally:
        found.mend()
        for host in testbed.hosts:  # as it was for the tests that follow
            testbed.said(host, "rm -rf .cleave/bundles")
    assert found.settled(Ended(0, "", 0.0, time.monotonic()))[0] == []


def test_memory_that_runs_out_is_told_from_a_kill_and_from_the_network(box: Box) -> None:
    ended = box.start("bench", box.hungry("rank_01.py"), *LONG).ended()
    assert ended.code == 2
    assert ended.text.startswith("error: pi1: rank 1 was killed by the kernel since memory ran out (")


@pytest.mark.slow
def test_a_cable_that_is_pulled_during_a_run(box: Box) -> None:
    ended = box.running(*LONG).struck(lambda: box.unplug("pi1"))
    assert ended.code == 2
    assert ended.text.startswith(
        "error: pi1: was lost during the run (rank 1 ran there): is it on, is it in the network?"
    )


@pytest.mark.slow
def test_a_guard_that_is_killed_ends_the_run_and_another_one_clears_away(box: Box) -> None:
    ended = box.running(*LONG).struck(lambda: box.kill(box.guards("pi1")))
    assert ended.code == 2
    assert ended.text.startswith("error: pi1: its guard was ended during the run (rank 1 ran there)")


@pytest.mark.slow
def test_a_head_host_that_hangs_though_its_kernel_answers_is_given_up(box: Box) -> None:
    ended = box.running(*LONG).struck(lambda: box.kill(box.guards("pi0"), signal.SIGSTOP))
    box.kill(box.guards("pi0"), signal.SIGCONT)
    assert ended.code == 2
    assert ended.text.startswith("error: pi0: gave no sign of life for 60 s during the run: has it much else to do, ")


def test_a_disk_that_fills_up_during_a_run(box: Box) -> None:
    fill = box.disk("pi0", size_mb=100)
    ended = box.running("--frames", 1_000, "--no-verify").struck(fill)
    assert ended.code == 2
    assert ended.text.startswith("error: pi0: ")
    assert "disk is full" in ended.text
    assert "rank 0" in ended.text


@pytest.mark.slow
def test_a_rank_that_hangs_is_told_from_those_that_wait_for_it(box: Box) -> None:
    ended = box.start("bench", box.stopping("rank_01.py"), *LONG, "--timeout", 15).ended()
    assert ended.text.startswith("error: the ranks were not done after 15 s and were ended\n")
    assert "error: pi1: rank 1 did not say what it was doing: it was stopped, or in one long computation" in ended.text
    assert "error: pi2: rank 2 of 3 on pi2_cpu0 was not done (" in ended.text
