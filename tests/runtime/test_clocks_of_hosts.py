"""Spans of real ranks by one clock: ranks whose clocks are set apart come back together, here and on several hosts."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields
from pathlib import Path

import pytest

from codegen import render
from runtime.launch import run
from runtime.options import Options
from runtime.trace import SEND, WAIT, Memory, Trace
from runtime.transfers import transfers
from tests.cluster import Cluster
from tests.command import done
from tests.runtime.deploy.conftest import make_bundle
from tests.runtime.test_compiling import cpp
from tests.tiny import Tiny, channels

APART_S = 1000.0
RANK = "OMPI_COMM_WORLD_RANK"
"""Environment variable that Open MPI sets."""


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def set_apart(runtime: Path) -> None:
    """Have the clock of rank k be k times ``APART_S`` ahead, in a copy of the Python harness."""
    file, more = runtime / "clock.py", f"{APART_S} * int(os.environ['{RANK}'])"
    edit(file, "return time.perf_counter()", f"return time.perf_counter() + {more}")
    edit(file, "import time", "import os\nimport time")


def python(made: Tiny) -> Tiny:
    """Clocks apart, and every rank on a host of its own, as far as it knows."""
    set_apart(made.bundle / "runtime")
    edit(made.bundle / "runtime" / "mpi.py", "Split_type(MPI.COMM_TYPE_SHARED)", "Split(self.rank)")
    return made


def native(made: Tiny) -> Tiny:
    """The same in C++."""
    file = cpp(made).bundle / "native" / "communicator.cpp"
    edit(file, "return std::chrono::duration<double>(", f'return {APART_S} * std::atoi(std::getenv("{RANK}")) + '
         "std::chrono::duration<double>(")  # fmt: skip
    edit(file, "MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here)",
         "MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &here)")  # fmt: skip
    edit(file, "#include <climits>", "#include <climits>\n#include <cstdlib>")
    return made


def check(trace: Trace, ahead_s: list[float]) -> None:
    """Offsets are what they are, and no message was there before it was sent."""
    doubt_s = [usage.clock_uncertainty_s for usage in trace.ranks]
    assert doubt_s[0] == 0
    assert all(0 < s < 0.05 for s in doubt_s[1:])
    for usage, ahead in zip(trace.ranks, ahead_s, strict=True):
        assert abs(usage.clock_offset_s - ahead) <= usage.clock_uncertainty_s + 1e-9
    for frame in trace.frames:
        messages = transfers(frame)
        assert len(messages) == sum(s.kind == WAIT for s in frame) == sum(s.kind == SEND and s.peer is not None
                                                                         for s in frame) > 0  # fmt: skip
        for message in messages:
            a, b = message.link
            assert message.wait.stop_s >= message.send.start_s - doubt_s[a] - doubt_s[b]
        assert all(-60 < s.start_s <= s.stop_s < 60 for s in frame)


@pytest.mark.mpi
@pytest.mark.parametrize("target", [python, native])
@pytest.mark.parametrize("pace", [{"barrier": True}, {"stream": True}, {}])
def test_ranks_whose_clocks_are_apart_are_aligned(target, pace: dict, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    run(target(channels(tmp_path)).bundle, Options(frames=3, warmup=1, report=str(report), **pace), timeout_s=120)
    check(Trace.from_json(report.read_text()), [0, APART_S, 2 * APART_S])


@pytest.mark.cluster
def test_hosts_whose_clocks_are_apart_are_aligned(
    testbed: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts of a testbed have one clock: what they are apart is known."""
    monkeypatch.setattr(render, "RUNTIME", Path(shutil.copytree(render.RUNTIME, tmp_path / "runtime")))
    set_apart(render.RUNTIME)  # before the bundle is generated: its files are sealed
    bundle = make_bundle(tmp_path, "\n".join(testbed.platform.read_text().splitlines()[:5]))
    words = ["--platform", testbed.platform, "--key", testbed.key, "--known-hosts", testbed.known_hosts,
             "--python", testbed.testbed.python, "--frames", "5", "--no-verify"]  # fmt: skip
    ranks = json.loads(done("bench", bundle, *words, "--json"))["ranks"]
    assert [r["clock_uncertainty_s"] == 0 for r in ranks] == [True, False, False]
    for rank in ranks:
        assert abs(rank["clock_offset_s"] - rank["rank"] * APART_S) <= rank["clock_uncertainty_s"] + 1e-9
        assert rank["clock_uncertainty_s"] < 0.05
        assert 0 <= rank["wire_s"] <= rank["wait_s"]
        assert set(rank["memory"]) == {field.name for field in fields(Memory)}
