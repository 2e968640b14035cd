"""A segment on a device: one ONNX Runtime session that reads and writes the rank's own buffers."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np

CPU = "CPUExecutionProvider"
BEHIND = {"TensorrtExecutionProvider": ("CUDAExecutionProvider",)}
"""Providers that take what the chosen one cannot run, before the CPU does."""
KERNELS = {"session.qdqisint8allowed": "1", "session.qdq_matmulnbits_accuracy_level": "1"}
"""Settings of a session by which a part of a network computes as the whole does. Signed integers are computed as
integers: by default ONNX Runtime makes them unsigned on x86 where it sees the operator that makes them, and else
computes in floats. And kernels for unsigned ones saturate on processors without VNNI. Floats that meet quantised
weights stay floats: by default they are rounded to 8 bits, block by block, and a part has other blocks."""
EXACT = {"NVIDIA_TF32_OVERRIDE": "0"}
"""Environment of ONNX Runtime, where nothing else is said: GPUs from Ampere on (Orin) would round float32 to 10 bits in
convolutions and products, and not give the whole network's answer."""
NUMPY_NAMES = {"float": "float32", "double": "float64"}
"""ONNX Runtime calls all other types as numpy does: ``tensor(int64)``, ``tensor(float16)``, ``tensor(bool)``."""


class Segment:
    """A session with the buffers it works on.

    Inputs and outputs are bound to the memory of the buffers: nothing is copied or allocated per frame on a CPU.
    """

    def __init__(
        self,
        session: Any,
        inputs: dict[str, np.ndarray],
        outputs: dict[str, np.ndarray],
    ) -> None:
        self._session = session
        _check("input", inputs, self._session.get_inputs())
        _check("output", outputs, self._session.get_outputs())
        self._binding = self._session.io_binding()
        for name, array in outputs.items():
            self._binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        self._bound = [*inputs.values(), *outputs.values()]  # a binding knows addresses alone
        self._bind(inputs)
        self._copied = {} if session.get_providers() == [CPU] else inputs

    def _bind(self, inputs: dict[str, np.ndarray]) -> None:
        for name, array in inputs.items():
            self._binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    def run(self) -> None:
        """Compute the output buffers from the input buffers.

        Binding is where ONNX Runtime copies inputs to a GPU, so there they are bound each time. On a CPU that would
        cost 2.4 us an input, more than to run a small segment.
        """
        self._bind(self._copied)
        self._session.run_with_iobinding(self._binding)


def choose_kernels(options: Any) -> None:
    """Of a session: ``KERNELS``."""
    for entry in KERNELS.items():
        options.add_session_config_entry(*entry)


def load() -> None:
    """Load ONNX Runtime, once. Not before a segment is opened: a rank that only holds the input needs none."""
    for name, value in EXACT.items():
        os.environ.setdefault(name, value)
    import onnxruntime  # noqa: F401


def open_session(path: str, provider: str, threads: int, arena: bool = True) -> Any:
    """A session on ``provider``; what it cannot run falls to those ``BEHIND`` it, then to the CPU.

    arena: keep the memory of a segment for the next one, in one arena for all sessions of the process. Without it each
           asks the system anew for one block, which takes more time (`python -m tests.bench.arena`)
    """
    load()
    import onnxruntime as ort

    available = ort.get_available_providers()
    if provider not in available:
        raise RuntimeError(f"no {provider} in this ONNX Runtime, which has {', '.join(available)}")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Both together take more memory than either, and are no faster.
    options.enable_cpu_mem_arena, options.enable_mem_pattern = arena, not arena
    if arena:
        _share_arena()
        options.add_session_config_entry("session.use_env_allocators", "1")
    options.log_severity_level = 3
    choose_kernels(options)
    # Threads spin while a segment runs, which is fast, and stop with it: the next segment has threads of its own.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    behind = [name for name in BEHIND.get(provider, ()) if name in available]
    session = ort.InferenceSession(path, options, providers=list(dict.fromkeys([provider, *behind, CPU])))
    if session.get_providers()[0] != provider:
        raise RuntimeError(f"{provider} did not start (are its libraries installed?), only {CPU} did")
    return session


@lru_cache(maxsize=None)
def _share_arena() -> None:
    """One arena for all sessions of the process: what a segment is done with, the next one takes, warm in the cache."""
    import onnxruntime as ort

    where = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(where, None)


def _check(kind: str, buffers: dict[str, np.ndarray], declared: list[Any]) -> None:
    """Names and types, before a wrong one becomes garbage; shapes are checked by ONNX Runtime when it runs."""
    types = {value.name: value.type for value in declared}
    if kind == "input" and set(types) - set(buffers):
        raise ValueError(f"nothing feeds {kind} {sorted(set(types) - set(buffers))}")
    for name, array in buffers.items():
        if name not in types:
            raise ValueError(f"has no {kind} {name!r}, only {sorted(types)}")
        dtype = types[name][len("tensor(") : -1]
        if NUMPY_NAMES.get(dtype, dtype) != array.dtype.name:
            raise ValueError(f"{kind} {name!r} is {dtype}, the plan says {array.dtype.name}")
