"""What is looked at before anything that takes long: places for results, and whether programs can be run here."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from codegen import folder
from codegen.render import CPP, check_providers
from codegen.verify import run_whole
from dse.inputs import Cnn
from model.cluster.platform import Platform
from runtime.compiling import compiler_of
from runtime.errors import CleaveError
from runtime.frames import random_frame
from runtime.launch import Mpirun


def check_place(out: Path, force: bool, **how: Any) -> None:
    """``CleaveError`` unless the folder ``out`` can be made: what takes long should not fail at its end.

    how: as ``folder.check_free`` takes it
    """
    folder.check_free(out, force, **how)
    parent = out
    try:
        parent = next(p for p in out.absolute().parents if p.exists())
        tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=parent).cleanup()
    except OSError as error:
        raise CleaveError(f"{out}: cannot be written: {parent}: {error.strerror}") from error


def check_file(out: Path, suffix: str, force: bool, read: Iterable[str | Path | None] = ()) -> None:
    """``CleaveError`` unless the file ``out`` can be made. suffix: that it must have, or nothing; read: what is read
    meanwhile
    """
    if suffix and out.suffix != suffix:
        raise CleaveError(f"{out}: results are written as {suffix}; give a name that ends so")
    if out.is_dir() or (out.exists() and not force):
        raise CleaveError(f"{out}: exists already; use --force to replace it, or choose another place")
    folder.check_writable(out, read=read)


def check_target(platform: Platform, target: str) -> None:
    """``CleaveError`` where a device of the platform cannot run programs of this kind."""
    check_providers({device.name: device.provider for device in platform.devices}, target)


def check_runs(target: str) -> None:
    """``CleaveError`` unless bundles of this kind can be run here."""
    with _to_verify():
        mpirun = Mpirun.find()
        if target == CPP:
            compiler_of(mpirun.path)


def check_whole(cnn: Cnn) -> None:
    """``CleaveError`` unless the CNN itself can be run here, as it is to be compared with what bundles give."""
    inputs = {name: cnn.graph.tensors[name] for name in cnn.graph.inputs}
    frame = {name: random_frame(name, tensor.shape, tensor.dtype, 0, 0) for name, tensor in inputs.items()}
    with _to_verify():
        run_whole(cnn.graph.path, [frame])


@contextmanager
def _to_verify() -> Iterator[None]:
    """What is needed to verify only: its errors say how to go on without."""
    try:
        yield
    except CleaveError as error:
        raise CleaveError(*error.sentences, "with --no-verify the bundles are written without being run") from error
