"""Does a bundle compute what the CNN computes? The same frames through both, and the worst difference."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from runtime.errors import CleaveError
from runtime.images import PLAIN, Pixels
from runtime.infer import asked
from runtime.inprocess import run_in_process
from runtime.inputs import member
from runtime.launch import TIMEOUT_S, Runner, read_plan, run
from runtime.options import Options
from runtime.plan import Plan
from runtime.segment import CPU, NUMPY_NAMES, choose_kernels

TOLERANCE, STEPS_TOLERANCE, HALF_TOLERANCE = 1e-4, 1e-3, 1e-2
"""Largest error that passes; with float16 anywhere, the last: it has 11 bits. Sums are taken in another order in a
part of a layer, so equality is not to be had. Where what is quantised to 16 bits passes between devices, the second:
ONNX Runtime computes it in floats, a sum may round to the next step, and a step is a third of the first."""

RANDOM = 3
"""Random frames that are compared, where nobody says how many."""

SMALL, MANY = 1e-2, 16
"""Values that are so much smaller than the largest of their output are compared as if they were of that size; and so
many tell of what size those are that lie beside one another."""
COUNTS_BYTES = 4
"""Integers so large are numbers and places of things, of which no other is as good; smaller ones are quantised."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class OutputCheck:
    """One output of the CNN.

    error:  max |bundle - CNN| / |CNN|, the worst of all frames, see ``_scale``; ``None`` if it cannot be said
    reason: why it fails in spite of ``error``, or in place of it; empty if nothing else is wrong
    """

    name: str
    error: float | None
    reason: str
    passed: bool

    def __str__(self) -> str:
        verdict = "the same" if self.passed else "WRONG"
        error = "" if self.error is None else f", worst error {self.error:.3g}"
        return f"output {self.name!r}: {verdict}{error}{', ' if self.reason else ''}{self.reason}"


@dataclass(frozen=True)
class Verification:
    """All outputs over all frames."""

    frames: int
    tolerance: float
    outputs: tuple[OutputCheck, ...]

    @property
    def passed(self) -> bool:
        """Whether every output is right."""
        return bool(self.outputs) and all(output.passed for output in self.outputs)

    @property
    def error(self) -> float | None:
        """The worst error of all outputs."""
        errors = [output.error for output in self.outputs]
        return None if None in errors else max((e for e in errors if e is not None), default=None)

    def to_json(self) -> str:
        """For ``--json``."""
        body = {"passed": self.passed, "error": self.error, **asdict(self)}
        return json.dumps(body, indent=1) + "\n"


def verify(
    bundle: Path,
    model: Path,
    *,
    frames: int | None = None,
    most: int | None = None,
    seed: int = 0,
    input: str | None = None,
    pixels: Pixels = PLAIN,
    tolerance: float | None = None,
    communicator: Literal["mpi", "inprocess"] = "mpi",
    threads: int | None = 1,
    provider: str | None = CPU,
    timeout_s: float = TIMEOUT_S,
    runner: Runner | None = None,
) -> Verification:
    """Run frames through the bundle, on this machine's CPU, and through the whole CNN.

    frames: how many; ``None``: all that ``input`` holds, or ``RANDOM`` random ones of ``seed`` where there is none
    most: of ``input``, where nobody says how many; ``None``: however many it holds
    threads, provider: of the ranks; ``None``: those of the plan
    runner: what runs the bundle, in so many seconds at most, in place of ``communicator``
    """
    plan = read_plan(bundle)
    tolerance = _tolerance(plan) if tolerance is None else tolerance
    with tempfile.TemporaryDirectory(prefix="cleave-") as folder:
        result = f"{folder}/out.npz"
        options = Options(RANDOM, input=input, output=result, seed=seed, pixels=pixels)
        options = replace(options, threads=threads, provider=provider)
        options, given = asked(plan, options, frames, most)
        wanted = run_whole(model, (given.frame(i) for i in range(options.frames)))
        if runner is not None:
            runner(options, timeout_s)
        elif communicator == "mpi":
            run(bundle, options, timeout_s=timeout_s)
        else:
            run_in_process(str(bundle), options, timeout_s=timeout_s)
        with np.load(result, allow_pickle=False) as file:
            got = {name: member(file, name) for name in file.files}
    return Verification(options.frames, tolerance, tuple(compare(got, wanted, tolerance)))


def _tolerance(plan: Plan) -> float:
    held = {buffer.dtype for rank in plan.ranks for buffer in rank.buffers}
    if "float16" in held:
        return HALF_TOLERANCE
    return STEPS_TOLERANCE if held & {"int16", "uint16"} else TOLERANCE


def run_whole(model: Path, frames: Iterable[Arrays]) -> Arrays:
    """The CNN in ONNX Runtime on the CPU, undivided, frame by frame. First axis of the result = frame."""
    rest = iter(frames)
    first = next(rest)
    try:
        session = _session(model, first)
        names = [output.name for output in session.get_outputs()]
        unread = {i.name: _zeros(i) for i in session.get_inputs() if i.name not in first}
        results = [session.run(names, {**unread, **feed}) for feed in chain([first], rest)]
    except CleaveError:  # of a frame
        raise
    except Exception as error:  # ONNX Runtime's errors have no common class
        raise CleaveError(f"{model}: ONNX Runtime cannot run it: {' '.join(str(error).split())}") from error
    return {name: np.stack([frame[i] for frame in results]) for i, name in enumerate(names)}


def _session(model: Path, frame: Arrays) -> Any:
    """The whole CNN, opened for a frame of these sizes."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    choose_kernels(options)
    session = ort.InferenceSession(str(model), options, providers=[CPU])
    if all(_fits(i.shape, frame[i.name].shape) for i in session.get_inputs() if i.name in frame):
        return session
    # Read from memory, so that external weights are no longer beside it.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(model.parent))
    return ort.InferenceSession(_resized(model, frame).SerializeToString(), options, providers=[CPU])


def _fits(declared: list[int | str | None], shape: tuple[int, ...]) -> bool:
    """Whether ONNX Runtime takes an input of this shape; nothing declared is any shape."""
    pairs = zip(declared, shape, strict=False)
    return not declared or (len(declared) == len(shape) and all(a == b or not isinstance(a, int) for a, b in pairs))


def _resized(model: Path, frame: Arrays) -> onnx.ModelProto:
    """The model for inputs of other sizes than its file says, as ``--shape`` asks for."""
    resized = onnx.load(model, load_external_data=False)
    for info in resized.graph.input:
        if info.name in frame:
            elem_type, shape = info.type.tensor_type.elem_type, frame[info.name].shape
            info.CopyFrom(helper.make_tensor_value_info(info.name, elem_type, shape))
    del resized.graph.value_info[:]  # what it says of other tensors was true of the old sizes
    for output in resized.graph.output:
        output.type.tensor_type.ClearField("shape")
    return resized


def _zeros(declared: Any) -> np.ndarray:
    """Something for an input that nothing reads: the bundle knows nothing of it, ONNX Runtime insists on it."""
    name = declared.type[len("tensor(") : -1]
    shape = [size if isinstance(size, int) else 1 for size in declared.shape]
    return np.zeros(shape, NUMPY_NAMES.get(name, name))


def compare(got: Arrays, wanted: Arrays, tolerance: float = TOLERANCE) -> list[OutputCheck]:
    """Each output of the CNN; first axis = frame."""
    return [_compare(name, got.get(name), array, tolerance) for name, array in wanted.items()]


def _compare(name: str, got: np.ndarray | None, wanted: np.ndarray, tolerance: float) -> OutputCheck:
    reason = _mismatch(got, wanted)
    if got is None or reason:
        return OutputCheck(name, None, reason, False)
    error = max((_error(a, b) for a, b in zip(got, wanted, strict=True)), default=0.0)
    if error == float("inf"):
        return OutputCheck(name, None, "the CNN gives only zeros, the bundle does not", False)
    counts = wanted.dtype.kind in "iu" and wanted.dtype.itemsize >= COUNTS_BYTES
    return OutputCheck(name, error, "", np.array_equal(got, wanted) if counts else error <= tolerance)


def _mismatch(got: np.ndarray | None, wanted: np.ndarray) -> str:
    """Why no error can be told, or nothing."""
    if got is None:
        return "the bundle does not give it"
    if got.shape != wanted.shape:
        return f"shape {got.shape[1:]}, not {wanted.shape[1:]}"
    if got.dtype != wanted.dtype:
        return f"{got.dtype}, not {wanted.dtype}"
    if wanted.dtype.kind == "f" and np.isnan(wanted).any():
        return "the CNN itself gives NaN"
    if wanted.dtype.kind == "f" and not np.array_equal(_infinities(got), _infinities(wanted)):
        return "NaN or infinities" if np.isfinite(wanted).all() else "not the infinities of the CNN"
    return ""


def _infinities(of: np.ndarray) -> np.ndarray:
    """What is not finite; 0 elsewhere."""
    return np.where(np.isfinite(of), 0, of)


def _error(got: np.ndarray, wanted: np.ndarray) -> float:
    """``max |a - b| / scale`` of one frame, in double precision. Infinities are the same in both: they count as 0."""
    a, b = (of.astype(np.float64) for of in (got, wanted))
    a, b = (np.where(np.isfinite(of), of, 0) for of in (a, b))
    difference = np.abs(a - b)
    if not difference.any():
        return 0.0
    return float(np.max(difference / _scale(np.abs(b)))) if b.any() else float("inf")


def _scale(size: np.ndarray) -> np.ndarray:
    """Of what size each value counts as: the largest of all that share one of its indices, the least of these.

    So boxes in pixels do not hide that the classes beside them are wrong, in whichever order an output has them. Not
    less than ``SMALL`` of the largest: what is left of a difference of large values is known no better.
    """
    largest = float(size.max())
    scale = np.full(size.shape, largest)
    for axis, length in enumerate(size.shape):
        if size.size >= MANY * length:
            others = tuple(other for other in range(size.ndim) if other != axis)
            scale = np.minimum(scale, size.max(axis=others, keepdims=True))
    return np.maximum(scale, SMALL * largest)
