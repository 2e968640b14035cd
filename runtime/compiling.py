"""Compiling the programs of a bundle that was generated as C++, and what they need to run here. Workstation only.

On a device it is the one line at the head of the bundle's ``main.cpp``. Here each file is compiled once and kept in the
user's cache, so that a bundle stays as it was made and the next one compiles little more than its own programs.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Iterator

import numpy as np

from runtime.cache import cache
from runtime.draft import drafted
from runtime.errors import CleaveError
from runtime.frames import Frames, Stack, save_stacks
from runtime.images import PLAIN
from runtime.options import Options
from runtime.plan import Buffer, Plan

MAIN = "main.cpp"
"""A bundle that has this file is made of C++ programs."""
NATIVE = "native"
"""Folder of what all programs have in common: in the bundle, and beside this file."""
COMPILE, LINK = ("-std=c++17", "-O2"), ("-ldl", "-pthread")
COMPILED = "compiled"
"""Folder of the cache."""
LIBRARY = "CLEAVE_ONNXRUNTIME"
"""Environment variable that says where libonnxruntime.so is."""


def is_compiled(bundle: Path) -> bool:
    """Whether a bundle is made of C++ programs."""
    return (bundle / MAIN).exists()


def program(bundle: Path, mpirun: str) -> list[str]:
    """The command of a rank of this bundle, compiled for this machine and the Open MPI that ``mpirun`` belongs to.

    ``CleaveError`` where there is no compiler, or it fails.
    """
    compiler = compiler_of(mpirun)
    sources = sorted([*bundle.glob("*.cpp"), *(bundle / NATIVE).glob("*.cpp")])
    headers = "".join(file.read_text(encoding="utf-8") for file in sorted((bundle / NATIVE).glob("*.hpp")))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda source: _object(compiler, source, headers), sources))
    target = cache(COMPILED) / f"{_key(compiler, *map(str, objects))}.ranks"
    _once(target, [compiler, *map(str, objects), *LINK])
    return ["env", f"{LIBRARY}={library()}", str(target), f"--bundle={bundle.resolve()}"]


def library() -> str:
    """The ONNX Runtime library: what the environment says, else that of this Python, which has a C interface too."""
    if LIBRARY in os.environ:
        return os.environ[LIBRARY]
    found = importlib.util.find_spec("onnxruntime")
    folder = Path(str(found.origin)).parent / "capi" if found else Path()
    files = sorted(folder.glob("libonnxruntime.so*")) if found else []
    if not files:
        raise CleaveError(f"there is no libonnxruntime.so in {folder}; say where it is with {LIBRARY}=FILE")
    return str(files[0])


@contextmanager
def prepared(plan: Plan, options: Options) -> Iterator[Options]:
    """``options`` for C++ programs, until the block ends: these read .npz files alone, and any other input becomes one.

    So do random frames where somebody wants the answer to them: the programs have random numbers of their own.
    """
    if options.input is None and options.output is None:
        yield options
        return
    with tempfile.TemporaryDirectory(prefix="cleave-") as folder:
        path = os.path.join(folder, "frames.npz")
        frames_file(plan, options, path)
        yield replace(options, input=path, pixels=PLAIN)


def frames_file(plan: Plan, options: Options, path: str) -> None:
    """The frames that ``options`` stand for, as far as they will be used, as an .npz file.

    Of each input as many as it has: it starts again by itself, when others may not. One is in memory at a time.
    """
    frames = Frames(options, {b.name: np.zeros(b.shape, b.dtype) for b in plan.inputs})
    most = min(options.frames, frames.count or options.frames)

    def stack(buffer: Buffer) -> Stack:
        count = min(most, frames.counts.get(buffer.name, most))
        parts = (frames.frame(index)[buffer.name] for index in range(count))
        return (count, *buffer.shape), np.dtype(buffer.dtype), parts

    save_stacks(path, {buffer.name: stack(buffer) for buffer in plan.inputs})


def compiler_of(mpirun: str) -> str:
    """The compiler of this Open MPI: its wrapper knows the headers and libraries."""
    beside = os.path.join(os.path.dirname(mpirun), "mpicxx")
    found = beside if os.access(beside, os.X_OK) else shutil.which("mpicxx")
    if found is None:
        raise CleaveError("no mpicxx, neither beside mpirun nor on the PATH: programs in C++ need that of Open MPI")
    if shutil.which(os.environ.get("OMPI_CXX", "g++")) is None:
        raise CleaveError("no g++ on the PATH: programs in C++ need a compiler; install it, or generate for Python")
    return found


def _object(compiler: str, source: Path, headers: str) -> Path:
    """One file, compiled."""
    target = cache(COMPILED) / f"{_key(compiler, headers, source.name, source.read_text(encoding='utf-8'))}.o"
    return _once(target, [compiler, *COMPILE, "-c", str(source)])


def _once(target: Path, command: list[str]) -> Path:
    """Have ``command`` make ``target`` unless it is there."""
    if target.exists():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with drafted(target) as draft:
            done = subprocess.run([*command, "-o", draft], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                said = [line for line in done.stderr.splitlines() if "error" in line or "undefined" in line]
                raise CleaveError("a program in C++ cannot be compiled:", *(said or done.stderr.splitlines())[:3])
    except OSError as error:
        raise CleaveError(f"{target}: cannot be written: {error.strerror}") from error
    return target


def _key(compiler: str, *texts: str) -> str:
    """Of what a file is made from: the compilers by their place, size and time of change."""
    programs = [Path(compiler), Path(shutil.which(os.environ.get("OMPI_CXX", "g++")) or "")]
    versions = [f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in programs]
    return hashlib.sha256("\0".join([*versions, *COMPILE, *LINK, *texts]).encode()).hexdigest()[:32]
