"""What a calibration measures: bundles that were run, and the seconds of each of their segments. Plain data.

Coefficients are fitted to these, whoever measured them; ``dse.calibrate.samples`` keeps them in a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from model.mappings.arrays import Floats
from model.mappings.mapping import extent
from model.network.graph import Graph
from runtime.steady import counted, steady_s
from runtime.trace import Memory

SEGMENT = "segment"
"""Kind of a sample: the times of one segment."""
UNDISTURBED = 1 / 4
"""Of the frames of a short segment at least so many, the fastest, were not held up."""
MEAN_ERROR, SHAPE_ERROR = 0.02, 0.3
"""Relative standard errors: of a mean, however many frames it is of; of telling it by frames that were not held up."""
LEAST_S = 1e-9
"""Traces tell no shorter times apart."""


@dataclass(frozen=True)
class PartOf:
    """One shard that a segment computes: a layer's ``start <= i < stop`` along ``axis``, as ``mapping.Shard`` has it.

    layer: index into ``Graph.layers``. A whole layer is the channels ``0..extent``.
    """

    layer: int
    axis: int
    start: int
    stop: int

    def share(self, graph: Graph) -> float:
        """Of its layer."""
        return (self.stop - self.start) / extent(graph, graph.layers[self.layer], self.axis)


@dataclass(frozen=True)
class Sample:
    """One segment, measured.

    kind:    ``SEGMENT``
    device:  name of the device that was measured, for itself and all that are alike
    network: name of the graph
    parts:   what the segment computes, in order
    times_s: seconds of each measured frame, in order; those before them, which warm up, are left out
    begin_s: when in a frame it begins, median; None: unknown
    busy_s:  processor time of a frame, mean of those that count; None: unknown
    """

    kind: str
    device: str
    network: str
    parts: tuple[PartOf, ...]
    times_s: tuple[float, ...]
    begin_s: float | None = None
    busy_s: float | None = None

    @cached_property
    def time_s(self) -> float:
        """Seconds of a frame."""
        return steady_s(self.times_s)

    def scaled(self, factor: float) -> Sample:
        """All frames take so many times as long."""
        busy_s = None if self.busy_s is None else self.busy_s * factor
        return replace(self, times_s=tuple(time_s * factor for time_s in self.times_s), busy_s=busy_s)

    def lasting(self, time_s: float) -> Sample:
        """Frames take so long, for as much work of the processor."""
        return replace(self.scaled(time_s / max(self.time_s, LEAST_S)), busy_s=self.busy_s)


def means_s(samples: Sequence[Sample]) -> Floats:
    """(S,) seconds of each segment of a run, in the mean of the frames that count: their sum is what these compute.

    Steady times of short segments add up to less: each is held up in other frames, which do not count.
    """
    if not samples:
        return np.zeros(0)
    times = np.array([s.times_s for s in samples])
    return np.asarray(times[:, counted(times.sum(axis=0))].mean(axis=1))


def scatter_s(samples: Sequence[Sample]) -> float:
    """Variance of the times of a run's segments for each second of them, in the mean over its frames.

    One number for all: what holds frames up comes ever so often, so the longer a segment, the more often.
    """
    if not samples:
        return 0.0
    times = np.array([s.times_s for s in samples])
    return float(times.var(axis=1).sum() / max(times.mean(axis=1).sum(), LEAST_S) / times.shape[1])


@dataclass(frozen=True)
class Footing:
    """What one rank of a run held, and what it took: bytes, and seconds of one frame.

    weights_bytes, activations_bytes, messages_bytes: by the account of ``model.cost.spending``
    buffers_bytes: of all buffers of its plan, whether they are sent or only passed from segment to segment
    segments, layers: how many it has, and how many layers or parts of some they compute
    peak_bytes, memory: resident, as the rank itself says
    processor_s:   processor time of a frame, mean of those that count
    weights_of:    of ``weights_bytes`` those of each kind of layer; empty: unknown
    opening_bytes: weights that are there twice while sessions are opened, see ``ledger.OPENING``
    stream_s:      of a frame of a stream, in which it computes; None: there was none
    between_s:     processor time of a frame of a stream, but for what it computes and fills; None: unknown
    input_bytes, fill_s: of the network's inputs that it holds, and of a frame of a stream, in which it fills them,
                   median; None: there was none
    energy_j, energy_time_s: what a meter says that its host took for a frame, and in how long; None: none was read
    """

    device: str
    weights_bytes: float
    activations_bytes: float
    messages_bytes: float
    buffers_bytes: float
    segments: int
    peak_bytes: int
    memory: Memory | None
    processor_s: float
    weights_of: dict[str, float] = field(default_factory=dict)
    opening_bytes: float = 0.0
    layers: int = 0
    energy_j: float | None = None
    energy_time_s: float | None = None
    stream_s: float | None = None
    between_s: float | None = None
    input_bytes: float = 0.0
    fill_s: float | None = None

    def scaled(self, factor: float) -> Footing:
        """Each frame takes so many times as long, at the same watts."""
        times = ("processor_s", "energy_j", "energy_time_s", "stream_s", "between_s", "fill_s")
        timed = {name: getattr(self, name) for name in times}
        return replace(self, **{name: value * factor for name, value in timed.items() if value is not None})


@dataclass(frozen=True)
class Arrival:
    """One message of a run.

    source, target: names of devices
    sample:  index of the first segment that its receiver computes after it, among the samples; None: there is none
    took_s:  median over frames: from when the sender hands it over until the receiver has it; None: the receiver did
             not wait for it yet when it was sent, in most frames
    sent_s:  when in a frame its sender hands it over, median; None: unknown
    """

    source: str
    target: str
    size_bytes: int
    sample: int | None
    took_s: float | None
    sent_s: float | None = None


@dataclass(frozen=True)
class Run:
    """One bundle, measured.

    key:      what was run and on what: two runs of one key are measurements of the same thing
    device, network: as the samples have them
    target:   what its programs are written in
    model:    hash of the file of the network
    what:     which design this is of, for a person: ``whole``, ``alone``, ``split 1/3`` …
    date:     when it began, ISO 8601, UTC
    host:     name of the host that was measured
    command:  how to do it again, about
    conditions: that it depends on, as text
    latencies_s: of each frame, in order
    ranks:    what each took
    samples:  its segments
    arrivals: its messages, of a run on several devices
    stolen:   the largest part of the time of a rank's cores that other virtual machines had
    period_s: of a stream of as many frames; None: there was none
    took_s:   from its begin to its end, with bringing the bundle to its host and starting it; 0: unknown
    """

    key: str
    device: str
    network: str
    target: str
    model: str
    what: str
    date: str
    host: str
    command: str
    conditions: dict[str, str]
    latencies_s: tuple[float, ...]
    ranks: tuple[Footing, ...]
    samples: tuple[Sample, ...] = field(repr=False)
    arrivals: tuple[Arrival, ...] = field(default=(), repr=False)
    stolen: float = 0.0
    period_s: float | None = None
    took_s: float = 0.0

    @property
    def time_s(self) -> float:
        """Seconds of a frame, from its first input to its last output."""
        return steady_s(self.latencies_s)

    def lasting(self, time_s: float) -> Run:
        """The run on one device when its frames take so long: all that it took times by as much."""
        factor = time_s / self.time_s
        return replace(
            self,
            latencies_s=tuple(latency_s * factor for latency_s in self.latencies_s),
            ranks=tuple(rank.scaled(factor) for rank in self.ranks),
            samples=tuple(sample.scaled(factor) for sample in self.samples),
            period_s=None if self.period_s is None else self.period_s * factor,
        )

    @property
    def telling(self) -> frozenset[str]:
        """The devices that tell the processor time of each of their segments."""
        silent = {sample.device for sample in self.samples if not sample.busy_s}
        return frozenset(sample.device for sample in self.samples) - silent

    @property
    def busy_s(self) -> float:
        """Processor time of all segments of devices that tell it."""
        telling = self.telling
        return sum(sample.busy_s or 0.0 for sample in self.samples if sample.device in telling)

    @cached_property
    def evened(self) -> tuple[Sample, ...]:
        """The samples of one device, with what holds up some of their frames shared out among all.

        Where processor times are known, by these: as many times each as all that the rank took makes a frame. Else:

        A limited share of a processor stands still every now and then, in whichever segment that happens to be: long
        ones show it in every frame, short ones hardly ever. So two figures tell of a segment: its mean, which is right
        but scatters; and what it takes when it is not held up, times by how much whole frames are, which is right for
        short ones. Both count by how well they are known: a mean of a short segment no better than what all segments
        scatter for their length. The sums of whole frames stay.
        """
        if not self.samples:
            return ()
        processor_s = sum(rank.processor_s for rank in self.ranks)
        if self.busy_s and processor_s:
            held_up = max(1.0, self.time_s / processor_s)
            return tuple(sample.lasting((sample.busy_s or 0.0) * held_up) for sample in self.samples)
        times = np.array([s.times_s for s in self.samples])
        means, variance = means_s(self.samples), times.var(axis=1)
        free = np.quantile(times, UNDISTURBED, axis=1, method="inverted_cdf")
        together = float(means.sum())
        held_up = max(1.0, together / processor_s) if processor_s > 0 else 1.0
        scatter = variance.sum() / max(free.sum(), LEAST_S) * free
        likely = _likely(means, free * held_up, np.maximum(variance, scatter) / times.shape[1])
        stretch = together / max(likely.sum(), LEAST_S)
        return tuple(s.lasting(float(time_s * stretch)) for s, time_s in zip(self.samples, likely, strict=True))


def _likely(means: Floats, free: Floats, variance: Floats) -> Floats:
    """Between means of segments and what undisturbed frames tell, by their inverse variances. variance: of the means,
    for too few frames
    """
    errors = np.stack([np.hypot(np.sqrt(variance), MEAN_ERROR * means), SHAPE_ERROR * free])
    weights = np.maximum(errors, LEAST_S) ** -2
    return np.asarray((weights * np.stack([means, free])).sum(axis=0) / weights.sum(axis=0))
