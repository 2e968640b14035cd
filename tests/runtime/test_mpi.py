"""Real MPI ranks: messages of every size, waits that leave the cores to others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runtime.bench import bench
from runtime.launch import Mpirun, execute
from tests.tiny import channels

ROOT = Path(__file__).parents[2]

EXCHANGE = """
import sys; sys.path.insert(0, sys.argv[1])
import numpy as np
from runtime.communicator import wait
from runtime.mpi import MpiCommunicator
c = MpiCommunicator()
for size in (0, 1, 1000, 300_000, 3_000_000):
    for dtype in ("float16", "bool", "int64"):
        source, dest = (c.rank - 1) % c.size, (c.rank + 1) % c.size
        out = (np.arange(size) % 2 + c.rank).astype(dtype)
        into = np.zeros(size, dtype)
        requests = [c.receiver(into, source, 5), c.sender(out, dest, 5)]
        for request in requests:
            request.start()
        c.progress(True)
        c.progress(False)
        for request in requests:
            wait(request.test)
        assert (into == (np.arange(size) % 2 + source).astype(dtype)).all()
c.barrier()
assert c.gather(c.rank) == (list(range(c.size)) if c.rank == 0 else None)
print("good")
"""

WRONG_SIZE = """
import sys; sys.path.insert(0, sys.argv[1])
import numpy as np
from runtime.communicator import wait
from runtime.mpi import MpiCommunicator
c = MpiCommunicator()
a = np.zeros(4 if c.rank else 3, np.float32)
try:
    request = c.receiver(a, 0, 0) if c.rank else c.sender(a, 1, 0)
    request.start()
    wait(request.test)
except ValueError as error:
    print(error)
"""

IDLE = """
import sys; sys.path.insert(0, sys.argv[1])
import time
from runtime.mpi import MpiCommunicator
c = MpiCommunicator()
c.barrier()
used = time.process_time()
if c.rank == 0:
    time.sleep(2)
c.barrier()
print("used", time.process_time() - used)
"""

ONE_LOOK = """
import sys; sys.path.insert(0, sys.argv[1])
import time
import numpy as np
from runtime.mpi import MpiCommunicator
c = MpiCommunicator()
a = np.zeros(1000, np.float32)
request = c.receiver(a, 0, 0) if c.rank else c.sender(a, 1, 0)
seen = 0
for _ in range(20):
    c.barrier()
    if c.rank == 0:
        request.start()
        while not request.test():
            pass
    else:
        request.start()
        time.sleep(0.03)
        seen += (came := request.test())
        while not (came or request.test()):
            pass
if c.rank:
    print("seen", seen)
"""

UNASKED = """
import sys; sys.path.insert(0, sys.argv[1])
import time
import numpy as np
from runtime.communicator import wait
from runtime.mpi import MpiCommunicator
c = MpiCommunicator()
a = np.full(10, c.rank, np.float32)
request = c.receiver(a, 0, 0) if c.rank else c.sender(a, 1, 0)
if c.rank == 0:
    request.start()
    until = time.monotonic() + 0.3
    gone = any(request.test() for _ in iter(lambda: time.monotonic() < until, False))
c.barrier()
if c.rank:
    request.start()
wait(request.test)
print("gone" if c.rank == 0 and gone else "kept" if (a == 0).all() else "wrong")
"""

APART = """
import sys; sys.path.insert(0, sys.argv[1])
import time
import numpy as np
from runtime.communicator import wait
from runtime.mpi import MpiCommunicator

class Counted:
    def __init__(self, world):
        self.world, self.looks = world, 0
    def __getattr__(self, name):
        return getattr(self.world, name)
    def Iprobe(self, *of):
        self.looks += 1
        return self.world.Iprobe(*of)

class Apart(MpiCommunicator):
    def _first_of_each_host(self):
        self._world = Counted(self._world)
        return list(range(self.size))

c = Apart()
def looks(then):
    before = c._world.looks
    c.progress(True)
    time.sleep(0.5)
    c.progress(False)
    found = c._world.looks - before
    time.sleep(0.2)
    assert c._world.looks == before + found, "nobody looks when the segment is done: MPI may be, too"
    then()
    return c._world.looks - before

early = c.sender(np.zeros(1, np.uint8), 1, 1) if c.rank == 0 else c.receiver(np.zeros(1, np.uint8), 0, 1)
if c.rank == 0:
    early.start()

for size in (10_000, 20_000_000):
    a = np.full(size, c.rank, np.uint8)
    request = c.sender(a, 1, 0) if c.rank == 0 else c.receiver(a, 0, 0)
    nothing = looks(c.barrier)
    request.start()
    moving = looks(lambda: None)
    here = request.test()
    if not here:
        wait(request.test)
    c.barrier()
    print("rank", c.rank, size, nothing > 1, moving > 1, here or c.rank == 0, looks(c.barrier) > 1, flush=True)
    assert not a.any()
if c.rank:
    early.start()
wait(early.test)
"""


def ranks(count: int, program: str, folder: Path, tcp: bool = False) -> str:
    (folder / "program.py").write_text(program)
    words = Mpirun.find().here(count)
    if tcp:
        words[words.index("btl") + 1] = "self,tcp"
        words += ["--mca", "btl_tcp_if_include", "lo"]
    command = [*words, sys.executable, str(folder / "program.py"), str(ROOT)]
    return execute(command, timeout_s=120).stdout


@pytest.mark.mpi
def test_messages_of_every_size_and_type(tmp_path: Path) -> None:
    assert ranks(3, EXCHANGE, tmp_path).count("good") == 3


@pytest.mark.mpi
def test_a_message_of_another_size_is_an_error(tmp_path: Path) -> None:
    assert "expected a message of 16 bytes, got 12" in ranks(2, WRONG_SIZE, tmp_path)


@pytest.mark.mpi
def test_large_messages_move_while_a_segment_runs_and_nobody_looks_after_others(tmp_path: Path) -> None:
    """Whether they are looked after: before; meanwhile; whether it had come at the end of that; afterwards."""
    said = sorted(line for line in ranks(2, APART, tmp_path, tcp=True).splitlines() if line.startswith("rank"))
    assert said == [
        "rank 0 10000 False False True False",
        "rank 0 20000000 False True True False",
        "rank 1 10000 False False True False",
        "rank 1 20000000 False True True False",
    ]


@pytest.mark.mpi
@pytest.mark.parametrize("tcp", [False, True])
def test_a_message_that_has_come_is_seen_at_the_first_look(tmp_path: Path, tcp: bool) -> None:
    said = ranks(2, ONE_LOOK, tmp_path, tcp).split()
    assert said[0] == "seen"
    assert int(said[1]) > 15, "all of 20, but for a busy machine"


@pytest.mark.mpi
@pytest.mark.parametrize("tcp", [False, True])
def test_a_rank_does_not_get_rid_of_messages_that_nobody_is_ready_for(tmp_path: Path, tcp: bool) -> None:
    """Else the one that is to read them would have to keep all that a faster one sends in a long stream."""
    assert ranks(2, UNASKED, tmp_path, tcp).split() == ["kept", "kept"]


@pytest.mark.mpi
def test_fifteen_ranks_that_wait_leave_the_cores_alone(tmp_path: Path) -> None:
    """MPI's own wait would take the whole 2 s on each rank."""
    used = [float(line.split()[1]) for line in ranks(16, IDLE, tmp_path).splitlines() if line.startswith("used")]
    assert len(used) == 16
    assert sorted(used)[8] < 0.3


@pytest.mark.mpi
def test_bench_measures_every_rank(tmp_path: Path) -> None:
    found = bench(channels(tmp_path).bundle, warmup=1, frames=5)
    assert len(found.latencies_s) == 5
    assert 0 < found.min_s <= found.median_s <= found.max_s < 5
    assert [(r.rank, r.device) for r in found.ranks] == [(i, f"edge{i:02d}_cpu01") for i in range(3)]
    assert found.ranks[0].compute_s == 0 < found.ranks[1].compute_s < found.latency_s
    assert all(2**20 < r.peak_bytes < 2**31 for r in found.ranks)
    assert found.trace.barrier
    assert found.period_s is not None
    assert 0 < found.period_s < 1
