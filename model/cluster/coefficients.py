"""Coefficients: what a layer costs on a unit, in JSON with units and provenance.

Time follows Eq. 4.7 of the thesis (hybrid CNN partitioning, 2023), ``time = MAC / (frequency * coefficient)``, with a
coefficient for each kind of layer and unit, two for convolutions (Winograd and im2col), and a fixed cost a layer.
Memory follows Eq. 4.9 with a coefficient of its own for weights, activations and message buffers. Energy follows
Eq. 4.10 with a power for each kind of layer.

A calibrated set has more than a coefficient a kind: a table of the kernels that were measured, by signature, what it
gains to compute neighbours in one segment, and the errors to expect (``model.fit.fitting`` makes them,
``model.cost.segment_time`` says how they add up to the time of a segment).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, astuple, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from statistics import fmean

from model.cluster import records
from model.cluster.caches import COLD, Caches
from model.cluster.origin import Origin
from model.cluster.shipped import Shipped
from model.network import boxes
from model.network.layer_kinds import KINDS, PAIRS, PART, part_of
from model.network.relayout import SINGLY
from runtime.errors import CleaveError
from runtime.reading import parsed

PAPER = "#paper"
"""At the end of a set's name: the set as the thesis' equations have it, one coefficient a kind of layer."""

SETS = Shipped("coefficients", ".json", "coefficients")
"""Those that come with the distribution."""
FORMAT = "cleave-coefficients"
VERSION = 9
MOST_GAINED = 2.0
"""Times what the shorter of its layers takes that an edge may gain, where it tells what others do."""


@dataclass(frozen=True)
class LayerCost:
    """One kind of layer on one unit; ``model.cost.layer_time`` says how these add up to its seconds.

    macs_per_cycle: the coefficient of Eq. 4.7, more than 0
    overhead_s: fixed time of one layer, whatever its size
    power_w:    drawn while it runs
    s_per_byte: of what the layer reads and writes
    s_per_weight_byte: of its weights; None: like any byte
    splits:     by axis, what a shard takes whatever its share of a layer that was not measured split: a start, and
                seconds for each of ``layer_time.repeated``; none: ``overhead_s`` alone
    error:      relative error to expect of a layer that was not measured, held out; None: unknown
    paper:      the coefficient of Eq. 4.7 alone, for ``PAPER``; None: ``macs_per_cycle``
    """

    macs_per_cycle: float
    overhead_s: float
    power_w: float
    s_per_byte: float = 0.0
    s_per_weight_byte: float | None = None
    error: float | None = None
    paper: float | None = None
    splits: dict[int, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Kernel:
    """A layer as it was measured on one unit, in a segment of its own.

    op:      its operator, for a person
    whole_s: seconds of the whole layer
    splits:  by axis, seconds of a shard with a share ``x`` of the axis: fixed and slope, ``fixed + slope * x``; of
             channels those of the last vector count, too (``UnitCost.vector``), and one axis more is of those that are
             computed singly (``model.cost.vectors``)
    error:   relative error of ``whole_s`` to expect; None: unknown
    """

    op: str
    whole_s: float
    splits: dict[int, tuple[float, float]] = field(default_factory=dict)
    error: float | None = None


@dataclass(frozen=True)
class FrameError:
    """Relative errors to expect of what is told of a network: of its latency, of its period, and of the seconds that
    processors compute, which energy goes with."""

    latency: float
    period: float
    computing: float


@dataclass(frozen=True)
class UnitCost:
    """One unit (a CPU or a GPU).

    frequency_hz: of Eq. 4.7
    threads:      the figures hold for so many threads; a device with fewer is slower in proportion
    layers:       by kind, all of ``KINDS``
    vector:       output channels of a convolution that are computed at a time (``model.cost.vectors``)
    singly:       times as long that a channel takes which is computed singly, where its layer does not tell
    communication_w: drawn while sending, receiving and waiting at a join, where ``idle_w`` is not known
    memory_weights, memory_activations, memory_buffers: resident bytes a byte of each
    memory_passed: resident bytes a byte of what segments of a device pass on to one another
    memory_bias_bytes: of a rank that does nothing: interpreter, libraries
    memory_kinds: by kind of layer, or of its parts (``part_of``), in place of ``memory_weights``: kernels keep weights
                  as they need them, and more
    memory_opening: resident bytes a byte of the weights that are there twice while sessions are opened (``spending``)
    send_s, receive_s: processor time of a message, LogGP's overhead; send_s_per_byte, receive_s_per_byte: of a byte
    gap_s: of the link, between two messages; 0: unknown, like the four before
    step_s: between a step of a program and the next: a segment, or a message that is handed over or waited for
    overlap: of what a message's bytes take, the part that comes while the latency passes (``model.cost.message_time``)
    late_s, late_s_per_byte: of a message: it is noticed later than it came, see ``runtime.communicator.wait``
    wake_s, wake_s_per_byte: of a segment that waits for messages, and of a byte of these: it takes longer, for caches
                  are cold after a wait
    attend_s_per_byte: of a message to another host: processor time that sending it takes while it is leaving
    take_s_per_byte: of one from another host: processor time that it takes a device which computes while it comes
    crowded_s_per_byte: of weights of a layer, while another device of the same memory reads some of them, too:
                  computing takes longer (``model.cost.crowding``)
    turn_s:       of a frame of a stream of which the device has a part: it begins anew
    fill_s_per_byte: of a byte of the network's inputs, where it has these: it fills them for each frame of a stream
    turn_per_message_s, turn_s_per_byte: besides, of messages that it hands over or takes in such a frame, unless it
                  waits anyway
    rested_part, rested_s: what a segment that has waited for messages takes less: a part of its time, seconds at most.
                  Who has waited has a share of the processor left over, or a cooler one
    busy_part:    of the time that computing takes which has not waited, the part in which its processor is at it: less
                  than 1 where it may use a part of it only, or shares it; None: unknown, all
    wake_busy_s:  processor time that a segment takes more which waits for messages
    cold_s:       processor time that a segment takes more whose device has not computed until then: the geometric mean
                  of this and what it takes, up to ``rest.WARM_S``. Its caches are cold: others had them
    cold_part:    besides, of what a device has waited, the part by which its processor is longer at what comes next
    kernels: measured layers by signature (``model.network.signature``); they come before what ``layers`` says
    gains:   seconds that an edge inside a segment saves, of measured edges, by ``signature.edge_name``
    gain_parts: what other edges save, by pair of kinds (``pair``): as a part of what the shorter of both layers takes
                (of a Concat, what goes with the edge: ``layer_kinds.part_of_reader``)
    joins:   by axis, seconds a byte of putting a tensor together of parts that do not lie side by side in memory
    caches: what layers that were not measured save in networks with quick frames
    relayout_s_per_byte: that a convolution saves where what it reads has its layout (``model.network.relayout``)
    memory_segment_bytes, memory_layer_bytes: of each session, and of each layer or part of one, whatever it holds
    frame_errors: by network that was measured, what to expect of its frames
    memory_error: relative error to expect of resident memory; None: unknown
    idle_w:  what the unit's host draws all the time, a part of every ``power_w``; None: unknown
    send_j_per_byte, receive_j_per_byte: energy of a byte sent and received, on top of what the time of it takes
    """

    frequency_hz: float
    threads: int
    layers: dict[str, LayerCost]
    communication_w: float
    memory_weights: float
    memory_activations: float
    memory_buffers: float
    memory_bias_bytes: float
    vector: int = 1
    singly: float = 1.0
    send_s: float = 0.0
    receive_s: float = 0.0
    send_s_per_byte: float = 0.0
    receive_s_per_byte: float = 0.0
    gap_s: float = 0.0
    step_s: float = 0.0
    overlap: float = 0.0
    kernels: dict[str, Kernel] = field(default_factory=dict)
    gains: dict[str, float] = field(default_factory=dict)
    gain_parts: dict[str, float] = field(default_factory=dict)
    frame_errors: dict[str, FrameError] = field(default_factory=dict)
    memory_error: float | None = None
    idle_w: float | None = None
    send_j_per_byte: float = 0.0
    receive_j_per_byte: float = 0.0
    memory_segment_bytes: float = 0.0
    joins: dict[int, float] = field(default_factory=dict)
    late_s: float = 0.0
    late_s_per_byte: float = 0.0
    wake_s: float = 0.0
    wake_s_per_byte: float = 0.0
    attend_s_per_byte: float = 0.0
    take_s_per_byte: float = 0.0
    crowded_s_per_byte: float = 0.0
    turn_s: float = 0.0
    fill_s_per_byte: float = 0.0
    turn_per_message_s: float = 0.0
    turn_s_per_byte: float = 0.0
    rested_part: float = 0.0
    rested_s: float = 0.0
    busy_part: float | None = None
    wake_busy_s: float = 0.0
    cold_s: float = 0.0
    cold_part: float = 0.0
    memory_kinds: dict[str, float] = field(default_factory=dict)
    memory_opening: float = 0.0
    memory_passed: float = 0.0
    memory_layer_bytes: float = 0.0
    relayout_s_per_byte: float = 0.0
    caches: Caches = COLD

    def frame_error(self, network: str) -> FrameError | None:
        """What to expect of a frame of layers that were measured; None: unknown. Of a network of which nothing is known
        it is the mean of the others."""
        if network in self.frame_errors or not self.frame_errors:
            return self.frame_errors.get(network)
        return FrameError(*map(fmean, zip(*map(astuple, self.frame_errors.values()), strict=True)))

    def held(self, kind: str) -> float:
        """Resident bytes a byte of weights of a kind, or of parts of it: as of the whole where that is not known."""
        whole = self.memory_kinds.get(kind.removesuffix(PART), self.memory_weights)
        return self.memory_kinds.get(kind, whole)

    def gain(self, edge: str, pair: str, shorter_s: float) -> float:
        """Seconds that an edge saves, by its name and pair. shorter_s: what the shorter of its layers takes alone"""
        return self.gains[edge] if edge in self.gains else self.gain_parts.get(pair, 0.0) * shorter_s


@dataclass(frozen=True)
class Coefficients:
    """A set for one kind of board. ``calibrated``: measured on the user's cluster, not fitted to published figures.

    measured: None of a set that was not
    """

    name: str
    calibrated: bool
    provenance: str
    units: dict[str, UnitCost]
    measured: Origin | None = None

    def unit(self, unit: str) -> UnitCost:
        """The figures of ``cpu`` or ``gpu``; ``CleaveError`` when the set has none."""
        if unit not in self.units:
            raise CleaveError(f"coefficients '{self.name}' have no figures for a {unit} (only {', '.join(self.units)})")
        return self.units[unit]

    def to_json(self) -> str:
        """The set as text that ``parse`` reads; what is unknown or stands at its default is left out."""
        body = {"format": FORMAT, "version": VERSION, **records.plain(self)}
        return json.dumps(body, indent=1, allow_nan=False) + "\n"


def load(name: str) -> Coefficients:
    """A shipped set by name (``jetson-xavier-nx``), or the set in a JSON file as it is now."""
    return _read(name, _state(name.removesuffix(PAPER)))


def _state(name: str) -> tuple[int, ...]:
    """What is another one when a file has changed."""
    if name in SETS.names:
        return ()
    path = Path(name)
    if not path.is_file():
        raise CleaveError(f"coefficients '{name}' are neither shipped ({', '.join(SETS.names)}) nor a file")
    there = path.stat()
    return there.st_mtime_ns, there.st_size, there.st_ino


@cache
def _read(name: str, _: tuple[int, ...]) -> Coefficients:
    """Once, while nobody writes the file."""
    if name.endswith(PAPER):
        return _by_paper(load(name.removesuffix(PAPER)))
    return parse(SETS.text_of(SETS.place(name) if name in SETS.names else Path(name)), name)


def _by_paper(found: Coefficients) -> Coefficients:
    """Eq. 4.7 to 4.10 and nothing else: no fixed times, no kernels, nothing that neighbours save or join."""
    units = {name: _bare(unit) for name, unit in found.units.items()}
    return replace(found, units=units)


def _bare(unit: UnitCost) -> UnitCost:
    """What every unit has is of these equations, what it may lack is not."""
    needed = {f.name: getattr(unit, f.name) for f in fields(unit) if MISSING is f.default is f.default_factory}
    return UnitCost(**{**needed, "layers": {kind: _plain(cost) for kind, cost in unit.layers.items()}})


def _plain(cost: LayerCost) -> LayerCost:
    return LayerCost(cost.paper or cost.macs_per_cycle, overhead_s=0.0, power_w=cost.power_w)


def parse(text: str, where: str) -> Coefficients:
    """Read a set; ``CleaveError`` says everything that is wrong, and where."""
    try:
        body = parsed(text)
    except ValueError as error:
        raise CleaveError(f"{where}: is no coefficient file: {error}") from error
    if not isinstance(body, dict) or body.pop("format", None) != FORMAT:
        raise CleaveError(f"{where}: is no {FORMAT} of version {VERSION}")
    if (version := body.pop("version", None)) != VERSION:
        raise CleaveError(
            f"{where}: is {FORMAT} of version {version}, {VERSION} is needed; run dse calibrate again, "
            "into the same folder: what was measured is kept there"
        )
    found = records.read(Coefficients, body, where)
    problems = [p for name, unit in found.units.items() for p in _problems(unit, f"{where}: units.{name}")]
    if problems:
        raise CleaveError(*problems[: records.MOST])
    return found


def _axes(splits: Mapping[int, object], where: str, count: int = boxes.KINDS) -> list[str]:
    return [f"{where}: there is no axis {axis} to split" for axis in set(splits) - set(range(count))]


def _problems(unit: UnitCost, where: str) -> list[str]:
    """What is wrong with a unit whose fields are all there."""
    missing = [k for k in KINDS if k not in unit.layers]
    unknown = [k for k in unit.layers if k not in KINDS]
    found = [f"{where}.layers: no coefficient for {', '.join(missing)}"] if missing else []
    found += [f"{where}.layers: '{k}' is no kind of layer (they are {', '.join(KINDS)})" for k in unknown]
    if min(unit.frequency_hz, unit.threads, *[c.macs_per_cycle for c in unit.layers.values()]) <= 0:
        found.append(f"{where}: frequency_hz, threads and macs_per_cycle must be more than 0")
    if unit.caches.held > 1 or unit.caches.fade_s <= 0:
        found.append(f"{where}.caches: held must be at most 1 and fade_s more than 0")
    if unit.vector < 1:
        found.append(f"{where}.vector: must be at least 1, not {unit.vector}")
    if unit.singly < 1:
        found.append(f"{where}.singly: must be at least 1, not {unit.singly:g}")
    if unit.overlap > 1:
        found.append(f"{where}.overlap: must be at most 1, not {unit.overlap:g}")
    if unit.rested_part >= 1:
        found.append(f"{where}.rested_part: must be less than 1, not {unit.rested_part:g}")
    if unit.busy_part is not None and unit.busy_part <= 0:
        found.append(f"{where}.busy_part: must be more than 0, not {unit.busy_part:g}")
    for name, kernel in unit.kernels.items():
        found += _axes(kernel.splits, f"{where}.kernels.{name}", SINGLY + 1)
    for name, cost in unit.layers.items():
        found += _axes(cost.splits, f"{where}.layers.{name}")
    for name in (name for name in unit.memory_kinds if name not in {*KINDS, *map(part_of, KINDS)}):
        found.append(f"{where}.memory_kinds: '{name}' is no kind of layer (they are {', '.join(KINDS)})")
    found += _axes(unit.joins, f"{where}.joins")
    for name in unit.gains:
        if name.count(">") != 1 or not all("-" in end for end in name.split(">")):
            found.append(f"{where}.gains: '{name}' is no pair of signatures")
    for name, part in unit.gain_parts.items():
        if name not in PAIRS:
            found.append(f"{where}.gain_parts: '{name}' is no pair of kinds, such as conv>activation")
        if part > MOST_GAINED:
            found.append(f"{where}.gain_parts.{name}: must be at most {MOST_GAINED:g}, not {part:g}")
    return found
