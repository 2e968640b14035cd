"""The plan: what every rank does for one frame, step by step.

It is the only contract between the workstation and the devices. The cost model prices the same plan that the
generated programs execute. Plain data with a JSON form; nothing here imports more than the standard library.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Tuple, Union

from runtime.errors import CleaveError
from runtime.reading import parsed, readable

FORMAT = "cleave-plan"
VERSION = 1

Box = Tuple[Tuple[int, int], ...]
"""Half-open ``(start, stop)`` per dimension, zero-based, in elements."""


@dataclass(frozen=True)
class Buffer:
    """A tensor, or one piece of it, as it lies in the memory of a rank.

    name:   the tensor's name in the CNN; a piece carries its box: ``conv1[:,0:48]``. Unique on its rank.
    shape:  of the piece, in elements
    dtype:  numpy name, ``float32``
    within: name of the buffer that it is a part of: pieces that lie side by side are one input of a segment, without
            a copy. None where it has memory of its own
    box:    which part of that buffer, all dimensions; in one piece of memory
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    within: str | None = None
    box: Box = ()


@dataclass(frozen=True)
class Part:
    """One shard that a segment computes: ``start <= i < stop`` of a layer's output along ``axis``.

    Axis 3 stands for the input channels: the shard makes the whole output, summed over these channels alone.
    """

    layer: str
    axis: int
    start: int
    stop: int

    @property
    def label(self) -> str:
        """The layer with its box, for a person: ``conv1[:,0:48]``, ``conv1{+0:32}``."""
        interval = f"{self.start}:{self.stop}"
        return self.layer + (f"{{+{interval}}}" if self.axis == 3 else f"[{':,' * self.axis}{interval}]")


@dataclass(frozen=True)
class Recv:
    """Have ``buffer`` filled by rank ``source``. Posted when the frame starts; this step waits for it."""

    buffer: str
    source: int
    tag: int


@dataclass(frozen=True)
class Run:
    """Run one segment: an ONNX file whose inputs and outputs are buffers of the rank, named alike.

    file:  path inside the bundle
    parts: the shards it computes, in order
    """

    file: str
    parts: tuple[Part, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Send:
    """Start sending ``box`` of ``buffer`` (relative to the buffer, all dimensions) to rank ``dest``."""

    buffer: str
    dest: int
    tag: int
    box: Box


Step = Union[Recv, Run, Send]
STEPS: dict[str, type[Any]] = {"recv": Recv, "run": Run, "send": Send}


@dataclass(frozen=True)
class RankPlan:
    """Everything one rank needs to know.

    device:   the device's key, ``nx01_cpu012345``; host and address: where it is
    cores:    processor cores to bind to, as numbers; empty: no binding
    threads:  intra-op threads of ONNX Runtime
    provider: ONNX Runtime execution provider, ``CPUExecutionProvider``
    inputs, outputs: buffers that the rank fills from, or hands to, the outside: the CNN's own inputs and outputs
    buffers:  every buffer of the rank, allocated once; those that are parts of others come after them
    arena:    whether ONNX Runtime keeps the memory of a frame for the next one: faster, but takes more of it
    meter:    of the host's energy, ``ina3221:VDD_IN`` (``runtime.meter``), at the first rank of the host; None: none
    idle_w:   what the idle host draws; None: not declared
    busy_w:   what the device draws on top of it while it computes; None: not declared
    """

    rank: int
    device: str
    host: str
    address: str
    cores: tuple[int, ...]
    threads: int
    provider: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    arena: bool = True
    meter: str | None = None
    idle_w: float | None = None
    busy_w: float | None = None

    def buffer(self, name: str) -> Buffer:
        """The buffer called ``name``."""
        return next(b for b in self.buffers if b.name == name)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The segments of this rank, in order."""
        return tuple(step for step in self.steps if isinstance(step, Run))


@dataclass(frozen=True)
class Plan:
    """A mapping lowered to steps. ``inputs`` and ``outputs`` are the CNN's, in its order."""

    cnn: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    ranks: tuple[RankPlan, ...]

    def to_json(self) -> str:
        """The plan as text; ``from_json`` gives it back unchanged."""
        ranks = [dict(vars(rank), steps=[_step_to_dict(s) for s in rank.steps]) for rank in self.ranks]
        body = {
            "format": FORMAT,
            "version": VERSION,
            "cnn": self.cnn,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "ranks": ranks,
        }
        return json.dumps(body, indent=1, default=vars) + "\n"

    @staticmethod
    def from_json(text: str, where: str = "plan.json") -> Plan:
        """Read a plan; ``CleaveError`` names ``where`` and what is wrong with it."""
        with readable(f"{where}: is no plan that this version can read"):
            body = parsed(text)
            if body["format"] != FORMAT or body["version"] != VERSION:
                raise CleaveError(f"{where}: is no {FORMAT} of version {VERSION}")
            if not body["ranks"]:
                raise CleaveError(f"{where}: is no plan that can be run, it has no ranks")
            return Plan(
                cnn=body["cnn"],
                inputs=tuple(_buffer(b) for b in body["inputs"]),
                outputs=tuple(_buffer(b) for b in body["outputs"]),
                ranks=tuple(_rank(r) for r in body["ranks"]),
            )


def _step_to_dict(step: Step) -> dict[str, Any]:
    name = next(name for name, kind in STEPS.items() if isinstance(step, kind))
    return {"op": name, **vars(step)}


def _tuples(value: Any) -> Any:
    """Lists as tuples, all the way down: JSON has only lists."""
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def _buffer(body: dict[str, Any]) -> Buffer:
    return Buffer(**{key: _tuples(value) for key, value in body.items()})


def _step(body: dict[str, Any]) -> Step:
    fields = {key: _tuples(value) for key, value in body.items() if key != "op"}
    if body["op"] == "run":
        fields["parts"] = tuple(Part(**part) for part in fields["parts"])
    step: Step = STEPS[body["op"]](**fields)
    return step


def _rank(body: dict[str, Any]) -> RankPlan:
    plain = {key: _tuples(value) for key, value in body.items() if key not in ("buffers", "steps")}
    if plain["threads"] < 1:
        raise ValueError(f"rank {plain['rank']} has {plain['threads']} threads")
    return RankPlan(
        buffers=tuple(_buffer(b) for b in body["buffers"]), steps=tuple(_step(s) for s in body["steps"]), **plain
    )
