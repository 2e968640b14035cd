"""Bundles on threads: what a program means, without MPI."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from codegen.verify import run_whole
from runtime.bench import traces
from runtime.errors import CleaveError
from runtime.frames import random_frame
from runtime.inprocess import InProcessCommunicator, World, run_in_process
from runtime.options import Options
from runtime.pages import LARGEST_BYTES, SIZE_FILE, room_of
from runtime.plan import Buffer, Plan, Recv
from runtime.trace import Trace
from tests.npz import save_npz
from tests.tiny import DATA, Tiny, channels, finish, rank, rows, timeless, types


def outputs(tiny: Tiny, **more: object) -> dict[str, np.ndarray]:
    path = tiny.bundle.parent / "out.npz"
    run_in_process(str(tiny.bundle), Options(output=str(path), **more))
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def random_frames(tiny: Tiny, count: int, seed: int) -> list[dict[str, np.ndarray]]:
    """So many random frames, each an array for every input."""
    return [{b.name: random_frame(b.name, b.shape, b.dtype, seed, i) for b in tiny.plan.inputs} for i in range(count)]


@pytest.mark.parametrize("make", [channels, rows])
def test_frames_of_a_file_give_what_the_model_gives(make, tmp_path: Path) -> None:
    tiny = make(tmp_path)
    frames = random_frames(tiny, 3, 5)
    save_npz(str(tmp_path / "in.npz"), {name: np.stack([f[name] for f in frames]) for name in frames[0]})
    got = outputs(tiny, frames=3, warmup=1, input=str(tmp_path / "in.npz"))
    for name, wanted in run_whole(tiny.model, frames).items():
        np.testing.assert_allclose(got[name], wanted, rtol=1e-4, atol=1e-5)
        assert np.abs(wanted).max() > 1


def test_both_ends_of_a_message_have_one_box_where_they_ask_at_once() -> None:
    world = World(2)

    def slowly() -> deque:
        time.sleep(0.05)
        return deque()

    world.mail.default_factory = slowly
    with ThreadPoolExecutor(2) as ends:
        first, second = ends.map(lambda _: world.box(0, 1, 7), range(2))
    assert first is second


def test_random_frames_are_those_of_the_seed(tmp_path: Path) -> None:
    tiny = channels(tmp_path)
    wanted = run_whole(tiny.model, random_frames(tiny, 2, 9))["out.0"]
    np.testing.assert_allclose(outputs(tiny, frames=2, seed=9, warmup=2)["out.0"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [channels, rows])
@pytest.mark.parametrize(("frames", "warmup"), [(1, 0), (2, 1), (7, 0), (7, 3)])
def test_a_stream_gives_what_single_frames_give(make, frames: int, warmup: int, tmp_path: Path) -> None:
    tiny = make(tmp_path)
    alone, *others = (
        outputs(tiny, frames=frames, warmup=warmup, stream=stream, barrier=barrier)
        for stream, barrier in ((False, True), (True, False), (True, True))
    )
    for name, wanted in alone.items():
        assert len(wanted) == frames
        for stream in others:
            np.testing.assert_array_equal(stream[name], wanted)


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3), (1,)])
@pytest.mark.parametrize(
    ("dtype", "operator"),
    [("float16", "Neg"), ("int64", "Neg"), ("bool", "Not"), ("uint8", "Identity"), ("float64", "Neg")],
)
def test_types_and_shapes(dtype: str, operator: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    tiny = types(tmp_path, dtype, operator, shape)
    z = outputs(tiny, frames=2)["z"]
    assert (z.dtype.name, z.shape) == (dtype, (2, *shape))
    np.testing.assert_array_equal(z, np.stack([f["x"] for f in random_frames(tiny, 2, 0)]))  # twice negated


def test_the_report_is_a_trace_of_every_step_of_the_plan(tmp_path: Path) -> None:
    tiny = channels(tmp_path)
    run_in_process(str(tiny.bundle), Options(frames=2, barrier=True, report=str(tmp_path / "r.json")))
    trace = Trace.from_json((tmp_path / "r.json").read_text())
    assert (trace.source, trace.barrier, len(trace.frames)) == ("measured", True, 2)
    assert [usage.device for usage in trace.ranks] == ["edge00_cpu01", "edge01_cpu01", "edge02_cpu01"]
    assert all(usage.peak_bytes > 2**20 for usage in trace.ranks)
    for spans in trace.frames:
        assert [(s.rank, s.kind, s.name) for s in spans] == [
            (0, "input", DATA),
            (0, "send", DATA),
            (0, "send", DATA),
            (0, "send", "the rest"),
            (1, "wait", DATA),
            (1, "compute", "rank01/segment000.onnx"),
            (1, "wait", "relu/1[:,5:8]"),
            (1, "compute", "rank01/segment001.onnx"),
            (1, "send", "the rest"),
            (2, "wait", DATA),
            (2, "compute", "rank02/segment000.onnx"),
            (2, "send", "relu/1[:,4:8]"),
            (2, "send", "the rest"),
        ]
        for number in range(3):
            times = [t for s in spans if s.rank == number for t in (s.start_s, s.stop_s)]
            assert times == sorted(times)
        assert spans[0].stop_s == 0  # the input is there
        messages = [(s.kind, s.rank, s.peer, s.tag, s.size_bytes) for s in spans if s.peer is not None]
        assert messages == [
            ("send", 0, 1, 0, 768), ("send", 0, 2, 1, 768), ("wait", 1, 0, 0, 768), ("wait", 1, 2, 2, 432),
            ("wait", 2, 0, 1, 768), ("send", 2, 1, 2, 432),
        ]  # fmt: skip
    assert [(usage.reads, usage.writes) for usage in trace.ranks] == [(True, False), (False, True), (False, False)]


def test_the_parts_of_the_memory_are_those_of_the_plan(tmp_path: Path) -> None:
    tiny, buffers = channels(tmp_path), []
    for stream in (False, True):
        run_in_process(str(tiny.bundle), Options(frames=2, stream=stream, report=str(tmp_path / "r.json")))
        trace = Trace.from_json((tmp_path / "r.json").read_text())
        assert all(u.memory and u.memory.base_bytes > 2**20 for u in trace.ranks)
        buffers.append([u.memory.buffers_bytes for u in trace.ranks if u.memory])
    assert buffers[0] == [sum(map(room_of, sizes)) for sizes in ((768,), (768, 720, 432, 576), (768, 576))]
    assert buffers[1] == [2 * size_bytes for size_bytes in buffers[0]]


def test_both_passes_are_what_each_of_them_is(tmp_path: Path) -> None:
    """One run that reports first frames alone, then a stream, which alone has a second set of buffers."""
    tiny, report = channels(tmp_path), tmp_path / "r.json"
    found = []
    for paces in ({"barrier": True, "stream": True}, {"barrier": True}, {"stream": True}):
        run_in_process(str(tiny.bundle), Options(frames=3, warmup=2, report=str(report), **paces))
        found.append([(timeless(trace), [u.memory and u.memory.buffers_bytes for u in trace.ranks])
                      for trace in traces(report.read_text(), "r.json")])  # fmt: skip
    assert found[0] == found[1] + found[2]


def test_without_barriers_frames_share_one_clock(tmp_path: Path) -> None:
    tiny = channels(tmp_path)
    run_in_process(str(tiny.bundle), Options(frames=3, report=str(tmp_path / "r.json")))
    trace = Trace.from_json((tmp_path / "r.json").read_text())
    ends = [max(s.stop_s for s in spans if s.rank == 1) for spans in trace.frames]
    assert ends == sorted(ends)
    assert min(s.start_s for s in trace.frames[2] if s.rank == 1) >= ends[1]


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "wrong"),
    [
        ("rank_01.py", "s0.run()", "1 / 0", r"\(wait in/put.*\): ZeroDivisionError"),
        ("rank_01.py", "segment001.onnx", "gone.onnx", r"\(opening rank01/gone\.onnx\): .*gone\.onnx"),
        ("rank_01.py", "(1, 5, 6, 6)", "(1, 4, 6, 6)", r"\(compute rank01/segment000\.onnx\): .*(shape|dimension)"),
        ("rank_01.py", "(1, 3, 6, 6)", "(1, 2, 6, 6)", r"\(wait .*\): ValueError: .* 288 bytes, got 432"),
        ("rank_01.py", '"float32")\n    rank.output', '"float16")\n    rank.output', "'out.0' is float, .*float16"),
        ("rank_01.py", 'outputs={"out.0": b3}', 'outputs={"nothing": b3}', r"no output 'nothing', only \['out\.0'\]"),
        ("rank_01.py", '"relu/1[:,0:5]": b1, ', "", r"nothing feeds input \['relu/1\[:,0:5\]'\]"),
        ("rank_01.py", 'provider="CPU', 'provider="Magic', "no MagicExecutionProvider in this .* has .*CPU"),
        ("rank_01.py", "rank=1,", "rank=2,", r"MPI says rank 1 of 3"),
    ],
)  # fmt: skip
def test_a_rank_that_fails_ends_all_and_says_where(file: str, old: str, new: str, wrong: str, tmp_path: Path) -> None:
    tiny = channels(tmp_path)
    edit(tiny.bundle / file, old, new)
    with pytest.raises(CleaveError, match=rf"^rank \d of 3 on edge01_cpu01 failed {wrong}|{wrong}") as caught:
        run_in_process(str(tiny.bundle), Options(output=str(tmp_path / "out.npz")))
    assert "\n" not in str(caught.value)
    assert re.match(r"rank \d of 3 on edge01_cpu01 failed \(", str(caught.value))
    assert not (tmp_path / "out.npz").exists()


def test_the_reason_is_one_line_whatever_a_tensor_is_called(tmp_path: Path) -> None:
    name = "two\r\nlines"
    tiny = finish(
        Plan("c", (), (), (rank(0, [Buffer(name, (1,), "float32")], [Recv(name, 1, 0)]), rank(1, [], []))), tmp_path
    )
    edit(tiny.bundle / "rank_00.py", "return frame", "return lambda: (r0.post(), r0.wait())")
    edit(
        tiny.bundle / "rank_01.py",
        "pass",
        "rank.buffer('b', (2,), 'float32'), rank.send(rank._buffers[0][1], 0, 0).start()",
    )
    with pytest.raises(CleaveError) as caught:
        run_in_process(str(tiny.bundle), Options(), timeout_s=5)
    assert caught.value.sentences[0].splitlines() == [
        "rank 0 of 2 on edge00_cpu01 failed (wait two lines): ValueError: expected a message of 4 bytes, got 8"
    ]


def test_ranks_may_gather_again_and_again() -> None:
    world = World(3)
    ranks = [InProcessCommunicator(world, number) for number in range(3)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda r: [r.gather((r.rank, turn)) for turn in range(50)], ranks))
    assert found[0] == [[(0, turn), (1, turn), (2, turn)] for turn in range(50)]
    assert found[1] == found[2] == [None] * 50


FETCHING = """
from mmap import PAGESIZE
import numpy as np
from runtime.pages import ALIGNMENT
from runtime.bench import traces
from runtime.inprocess import InProcessCommunicator, World
from runtime.options import Options
from runtime.rank import Place, Rank

def share_in_memory(array):
    '''The part of its pages that has memory, or had and was written to swap (the upper two of a page's bits).'''
    first, last = array.ctypes.data // PAGESIZE, (array.ctypes.data + array.nbytes - 1) // PAGESIZE
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        file.seek(first * 8)
        entries = np.frombuffer(file.read((last + 1 - first) * 8), np.uint64)
    return float(np.mean(entries >> np.uint64(62) != 0))

def is_huge(address):
    '''Whether the kernel is asked for huge pages there (VmFlags of proc_pid_smaps(5)).'''
    inside, flags = False, []
    with open("/proc/self/smaps") as file:
        for line in file:
            head, *rest = line.split()
            if not head.endswith(":"):
                first, last = (int(edge, 16) for edge in head.split("-"))
                inside = first <= address < last
            elif inside and head == "VmFlags:":
                flags = rest
    return "hg" in flags

place = Place("rank_00.py", 0, 1, "pi_cpu0", 1, "CPUExecutionProvider")
rank = Rank(place, InProcessCommunicator(World(1), 0), Options())
buffer = rank.buffer("b", (50, 2**20), "uint8")
packed = rank.send(buffer[:, ::2], 0, 0).message
before = max(share_in_memory(buffer), share_in_memory(packed))
rank.fetch()
fetched = min(share_in_memory(buffer), share_in_memory(packed))
others = [rank.buffer(str(size), (size,), "uint8") for size in (0, 1, 64, 65, 300 * 2**20, 3)]
for number, array in enumerate(others):
    array[:] = number
places = sorted((array.ctypes.data, array.nbytes) for array in [buffer, *others])
apart = all(a + size <= b and a < b for (a, size), (b, _) in zip(places, places[1:]))
kept = all((array == number).all() for number, array in enumerate(others)) and not buffer.any()
skew = max(array.ctypes.data % ALIGNMENT for array in [buffer, *others])
print(before, fetched, skew, int(apart and kept), int(is_huge(buffer.ctypes.data)))
"""


def test_buffers_are_aligned_zero_apart_and_in_memory_before_the_first_frame() -> None:
    """A page that is only mapped is fetched when it is first written. In a process of its own, as ranks are: in this
    one the buffer may lie where another test has left memory behind."""
    words = [sys.executable, "-c", FETCHING]
    said = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True).stdout
    before, fetched, skew, apart, huge = map(float, said.split())
    assert before < 0.1
    assert fetched > 0.9
    assert (skew, apart) == (0, 1)
    assert huge == (Path(SIZE_FILE).is_file() and int(Path(SIZE_FILE).read_text()) <= LARGEST_BYTES)


def test_a_message_that_nobody_sends_ends_in_time(tmp_path: Path) -> None:
    tiny = channels(tmp_path)
    edit(tiny.bundle / "rank_02.py", "m0.start()", "pass")
    with pytest.raises(CleaveError, match="did not finish in time"):
        run_in_process(str(tiny.bundle), Options(), timeout_s=0.5)


def test_what_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(CleaveError, match=r"is no bundle, it has no rank_00\.py"):
        run_in_process(str(tmp_path), Options())
