"""What is told of compiling, and that it is done once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from model.compiled import on_compiling, sources

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")

KERNELS = """
from model.compiled import allocating, kernel

@kernel
def inner(x):
    return x * 3 + 1

@allocating
def outer(x):
    return inner(x) - 1
"""

PROCESS = """
import os, sys, time
from pathlib import Path
from numba.core.event import install_recorder
from model.compiled import on_compiling
from kernels import inner, outer

here, name = Path(sys.argv[1]), sys.argv[2]
said = []
on_compiling(lambda: said.append("compiling"))
(here / name).touch()
while len(list(here.glob("process*"))) < 2:
    time.sleep(0.0005)
with install_recorder("numba:compile") as recorded:
    assert (outer if name == "process0" else inner)(2) == (6 if name == "process0" else 7)
    assert outer(2) == 6
made = [event.data["dispatcher"].__name__ for _, event in recorded.buffer if event.is_start and event.data]
print(*made, *said)
"""


def test_the_first_function_that_is_compiled_is_told() -> None:
    said: list[str] = []
    on_compiling(lambda: said.append("compiling"))
    assert not said
    one, other = numba.njit(lambda x: x + 1), numba.njit(lambda x: x + 2)
    assert (one(1), other(1), other(2)) == (2, 3, 4)
    assert said == ["compiling"]


def test_files_whose_constants_stand_in_kernels_are_part_of_the_key() -> None:
    root = Path(__file__).parents[2]
    found = {str(file.relative_to(root)) for file in sources(root)}
    assert {"dse/evaluation.py", "runtime/bench.py", "dse/place/workload.py", "model/cost/seconds.py"} <= found
    assert "dse/cli/main.py" not in found


def test_of_two_processes_that_need_a_function_at_once_one_compiles_it_and_both_say_so(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "process.py").write_text(PROCESS)
    root = Path(__file__).parents[2]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(root)}
    words = [sys.executable, str(tmp_path / "process.py"), str(tmp_path)]
    running = [
        subprocess.Popen([*words, f"process{i}"], stdout=subprocess.PIPE, text=True, env=environment) for i in range(2)
    ]
    said = [process.communicate(timeout=120)[0].split() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert sorted(name for names in said for name in names) == ["compiling", "compiling", "inner", "outer"]


def test_where_no_lock_can_be_made_functions_are_compiled_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "taken").write_text("a file where the folder should be")
    environment = {**os.environ, "PYTHONPATH": f"{Path(__file__).parents[2]}{os.pathsep}{tmp_path}"}
    environment["NUMBA_CACHE_DIR"] = str(tmp_path / "taken" / "cache")
    done = subprocess.run(
        [sys.executable, "-c", "from kernels import outer; print(outer(2))"],
        capture_output=True, text=True, env=environment, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "6\n"), done.stderr
