"""Does a bundle compute what the CNN computes? Random frames through both, and the worst difference."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from runtime.errors import CleaveError
from runtime.frames import random_frame, save_npz
from runtime.inprocess import run_in_process
from runtime.launch import run
from runtime.options import Options
from runtime.plan import Plan
from runtime.segment import CPU, NUMPY_NAMES

TOLERANCE, HALF_TOLERANCE = 1e-4, 1e-2
"""Largest error that passes; with float16 anywhere, the second: it has 11 bits. Sums are taken in another order in a
part of a layer, so equality is not to be had."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class OutputCheck:
    """One output of the CNN.

    error:  max |bundle - CNN| / max |CNN| over a frame, the worst of all frames; ``None`` if it cannot be said
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
    frames: int = 3,
    seed: int = 0,
    tolerance: float | None = None,
    communicator: Literal["mpi", "inprocess"] = "mpi",
    threads: int = 1,
    timeout_s: float = 600.0,
) -> Verification:
    """Run ``frames`` random frames through the bundle, on this machine's CPU, and through the whole CNN."""
    plan_file = bundle / "plan.json"
    if not plan_file.exists():
        raise CleaveError(f"{bundle}: is no bundle, it has no plan.json")
    plan = Plan.from_json(plan_file.read_text(encoding="utf-8"), str(plan_file))
    tolerance = _tolerance(plan) if tolerance is None else tolerance
    inputs = random_inputs(plan, frames, seed)
    wanted = run_whole(model, inputs)
    with tempfile.TemporaryDirectory(prefix="cleave-") as folder:
        source, result = f"{folder}/in.npz", f"{folder}/out.npz"
        save_npz(source, inputs)
        options = Options(frames=frames, input=source, output=result, threads=threads, provider=CPU)
        if communicator == "mpi":
            run(bundle, options, timeout_s=timeout_s)
        else:
            run_in_process(str(bundle), options, timeout_s=timeout_s)
        with np.load(result, allow_pickle=False) as file:
            got = {name: file[name] for name in file.files}
    return Verification(frames, tolerance, tuple(compare(got, wanted, tolerance)))


def _tolerance(plan: Plan) -> float:
    half = any(buffer.dtype == "float16" for rank in plan.ranks for buffer in rank.buffers)
    return HALF_TOLERANCE if half else TOLERANCE


def random_inputs(plan: Plan, frames: int, seed: int) -> Arrays:
    """Random frames for all inputs of the CNN, stacked along a new first axis."""
    return {
        b.name: np.stack([random_frame(b.name, b.shape, b.dtype, seed, i) for i in range(frames)]) for b in plan.inputs
    }


def run_whole(model: Path, inputs: Arrays) -> Arrays:
    """The CNN in ONNX Runtime on the CPU, undivided, frame by frame. First axis of all arrays = frame."""
    try:
        session = _session(model, inputs)
        names = [output.name for output in session.get_outputs()]
        unread = {i.name: _zeros(i) for i in session.get_inputs() if i.name not in inputs}
        count = len(next(iter(inputs.values())))
        feeds = [{name: np.asarray(array[i]) for name, array in inputs.items()} for i in range(count)]
        results = [session.run(names, {**unread, **feed}) for feed in feeds]
    except Exception as error:  # ONNX Runtime's errors have no common class
        raise CleaveError(f"{model}: ONNX Runtime cannot run it: {' '.join(str(error).split())}") from error
    return {name: np.stack([frame[i] for frame in results]) for i, name in enumerate(names)}


def _session(model: Path, inputs: Arrays) -> Any:
    """The whole CNN, opened for inputs of these sizes."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(model), options, providers=[CPU])
    if all(_fits(i.shape, inputs[i.name].shape[1:]) for i in session.get_inputs() if i.name in inputs):
        return session
    # Read from memory, so that external weights are no longer beside it.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(model.parent))
    return ort.InferenceSession(_resized(model, inputs).SerializeToString(), options, providers=[CPU])


def _fits(declared: list[int | str | None], shape: tuple[int, ...]) -> bool:
    """Whether ONNX Runtime takes an input of this shape; nothing declared is any shape."""
    pairs = zip(declared, shape, strict=False)
    return not declared or (len(declared) == len(shape) and all(a == b or not isinstance(a, int) for a, b in pairs))


def _resized(model: Path, inputs: Arrays) -> onnx.ModelProto:
    """The model for inputs of other sizes than its file says, as ``--shape`` asks for."""
    resized = onnx.load(model, load_external_data=False)
    for info in resized.graph.input:
        if info.name in inputs:
            elem_type, shape = info.type.tensor_type.elem_type, inputs[info.name].shape[1:]
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
    return OutputCheck(name, error, "", error <= tolerance)


def _mismatch(got: np.ndarray | None, wanted: np.ndarray) -> str:
    """Why no error can be told, or nothing."""
    if got is None:
        return "the bundle does not give it"
    if got.shape != wanted.shape:
        return f"shape {got.shape[1:]}, not {wanted.shape[1:]}"
    if got.dtype != wanted.dtype:
        return f"{got.dtype}, not {wanted.dtype}"
    if wanted.dtype.kind == "f" and not np.isfinite(wanted).all():
        return "the CNN itself gives NaN or infinities for random inputs"
    if wanted.dtype.kind == "f" and not np.isfinite(got).all():
        return "NaN or infinities"
    return ""


def _error(got: np.ndarray, wanted: np.ndarray) -> float:
    """``max |a-b| / max |b|`` of one frame, in double precision."""
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    difference, scale = np.max(np.abs(a - b), initial=0.0), np.max(np.abs(b), initial=0.0)
    if difference == 0.0:
        return 0.0
    return float(difference / scale) if scale else float("inf")
