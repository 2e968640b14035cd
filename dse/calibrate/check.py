"""Whether devices, alone and together, and links are what they were: a small sample, measured again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean

from dse.calibrate.boards import DRIFT
from dse.calibrate.command import Lab, Type
from dse.calibrate.design import WHOLE
from dse.calibrate.links import link_bundles
from dse.calibrate.measure import Job, link_samples
from dse.calibrate.turns import settled, turns_of
from dse.provenance import changes
from model.cost.samples import Run
from model.fit.links import WayTimes, by_size, way_times
from runtime.errors import CleaveError

DRIFT_S = 1e-4
"""Change of a time that calls for a new calibration is at least so many seconds, and relative ``DRIFT``."""
PART, FRAMES = 4, 3
"""So small a part of the frames of each bundle, but so many: few messages of 4 bytes tell nothing of the next."""
ALLOWED = 0.3
"""Change of a message's time that is no drift: messages repeat worse than kernels do."""
ALONE, TOGETHER, MESSAGES = "1/3 alone", "2/3 together", "3/3 messages"
"""The parts of a check."""
FIGURES: dict[str, tuple[Callable[[Run], float], Callable[[Sequence[float]], float]]] = {
    "latency": (attrgetter("time_s"), fmean),
    "period": (attrgetter("period_s"), max),
}
"""Times of a run on several devices, of a frame alone, and of one in a stream; and how many times as long it takes by
what each of them takes longer: one has about as much to do as another."""


@dataclass(frozen=True)
class Drift:
    """A whole network, measured again.

    before_s, now_s: seconds of a frame; before: on a device as much slower as the platform says
    changed: conditions that are others now

    Of messages and of several devices, too: ``device`` is their way, or how many there are, ``network`` says which
    size, or which time.
    """

    type: str
    device: str
    network: str
    before_s: float
    now_s: float
    changed: tuple[str, ...] = ()

    @property
    def change(self) -> float:
        """Relative; more than 0 where it takes longer now."""
        return self.now_s / self.before_s - 1

    @property
    def drifted(self) -> bool:
        """Whether the calibration does not hold any more."""
        return abs(self.now_s - self.before_s) > max(DRIFT * self.before_s, DRIFT_S)

    def beyond(self, slowdowns: Mapping[str, float]) -> bool:
        """Whether it has drifted by more than what devices take longer now (``dse.calibrate.adjust``) explains."""
        return replace(self, before_s=self.before_s * self._slower(slowdowns)).drifted

    def _slower(self, slowdowns: Mapping[str, float]) -> float:
        """How many times as long it takes now by that."""
        return slowdowns.get(self.device, 1.0)


@dataclass(frozen=True)
class LinkDrift(Drift):
    """Messages of one size from one device to another, measured again."""

    @property
    def drifted(self) -> bool:
        """Whether the calibration does not hold any more."""
        return super().drifted and abs(self.change) > ALLOWED


@dataclass(frozen=True)
class TogetherDrift(Drift):
    """A network on several devices, measured again: what messages and waits cost is part of it.

    devices: their names; figure: of ``FIGURES``
    """

    devices: tuple[str, ...] = ()
    figure: str = "latency"

    def _slower(self, slowdowns: Mapping[str, float]) -> float:
        return slower(self.figure, [slowdowns.get(name, 1.0) for name in self.devices])


def slower(figure: str, slowdowns: Sequence[float]) -> float:
    """How many times as long a network on several devices takes, by those of each."""
    return FIGURES[figure][1](slowdowns)


def drifts(lab: Lab) -> list[Drift]:
    """The whole networks, measured again on all devices. ``CleaveError`` where they were not before.

    Few that seem to have drifted where most have not are measured once more, and the mean of both counts: something may
    have run beside them.
    """
    wholes = _wholes(lab)
    found = [_drift(lab, wholes, number) for number in range(len(wholes))]
    few = [number for number, each in enumerate(found) if each.drifted]
    for number in few if 2 * len(few) <= len(found) else []:
        again = _drift(lab, wholes, number)
        found[number] = replace(again, now_s=fmean([found[number].now_s, again.now_s]))
    return found


@dataclass(frozen=True)
class Whole:
    """A whole network on a device.

    type: of the device; job: to measure it again; looks: those at it
    fitted: all runs of it that coefficients were fitted to, of the first device of that type; none where that was
        another, which is gone from the platform
    slower: how many times as long the device took then as that one, where that was no chance
    """

    type: str
    job: Job
    looks: tuple[Run, ...]
    fitted: tuple[Run, ...]
    slower: float


def _wholes(lab: Lab) -> list[Whole]:
    """All that were measured, of each device."""
    there, looks = lab.store.by_key, lab.first_looks()
    if any(job.key not in there for job in looks):
        raise CleaveError(f"{lab.store.path}: not all devices of this platform and these networks were measured there; "
                          "calibrate first, without --check")  # fmt: skip
    types = lab.types(looks)
    alike, slower = _alike(types), _slowdowns_then(lab, types)
    jobs = {_of(look): lab.full(look.subject.device, look.subject.cnn, there[look.key])[0] for look in looks}
    names = {device.name for device in lab.platform.devices}
    gone = {run.network for run in there.values() if run.what == WHOLE and run.device not in names}
    found = []
    for look in looks:
        device, network = _of(look)
        type_, like = alike[device]
        job, fitted = jobs[device, network], jobs[like, network]
        if fitted.key not in there and network not in gone:
            raise CleaveError(f"{lab.store.path}: the calibration was not finished ({fitted}); go on with it, without "
                              "--check")  # fmt: skip
        seen, times = tuple(turns_of(look, there)), slower.get(look.subject.name, 1.0)
        found.append(Whole(type_, job, seen, tuple(turns_of(fitted, there)), times))
    return found


def _slowdowns_then(lab: Lab, types: Sequence[Type]) -> dict[str, float]:
    """``Measured.slowdowns`` of the calibration."""
    return lab.slowdowns(types, [*lab.store.by_key.values()])


def _of(job: Job) -> tuple[int, str]:
    """The device, and the network's name."""
    return job.subject.device, job.subject.cnn.graph.name


def _alike(types: Sequence[Type]) -> dict[int, tuple[str, int]]:
    """Device → its type, and the device that its coefficients were measured on."""
    return {
        device: (type_.name, like)
        for type_ in types
        for board in type_.boards
        for device, like in zip(board.devices, type_.devices, strict=True)
    }


def _drift(lab: Lab, wholes: Sequence[Whole], number: int) -> Drift:
    """One of them, measured now, against what it took at first, and what that device did whose coefficients it has: a
    first look is short, and predictions are for the other."""
    whole = wholes[number]
    lab.tell(ALONE, number, len(wholes), str(whole.job))
    now, slowdown = lab.measure(whole.job), lab.platform.devices[whole.job.subject.device].slowdown
    look_s = min(run.time_s for run in whole.looks) / whole.slower  # who is disturbed takes longer, nobody less
    before_s = fmean([look_s, *(run.time_s for run in whole.fitted)]) * slowdown
    changed = tuple(changes(whole.looks[-1].conditions, now.conditions))
    return Drift(whole.type, now.device, now.network, before_s, now.time_s, changed)


def together_drifts(lab: Lab) -> list[Drift]:
    """Each network in stretches on several devices, as far as that was measured before."""
    there, jobs = lab.store.by_key, [job for job in lab.together(0) if job.design.stream]
    then = _slowdowns_then(lab, lab.types(lab.first_looks()))
    found: list[Drift] = []
    for done, job in enumerate(jobs):
        if turns := [run for run in turns_of(job, there) if run.period_s]:
            lab.tell(TOGETHER, done, len(jobs), str(job))
            found += _together(lab, then, settled(turns), lab.measure(job))
    return found


def _together(lab: Lab, then: Mapping[str, float], before: Sequence[Run], now: Run) -> Iterator[TogetherDrift]:
    """All ``FIGURES`` of it. then: slowdowns when it was measured before"""
    devices = tuple(rank.device for rank in now.ranks)
    slowdowns = [lab.platform.devices[lab.platform.index(name)].slowdown / then.get(name, 1.0) for name in devices]
    for figure, (time_s, _) in FIGURES.items():
        name, before_s = f"{now.network}, {figure}", fmean(map(time_s, before)) * slower(figure, slowdowns)
        yield TogetherDrift(
            "several", f"{len(devices)} devices", name, before_s, time_s(now), devices=devices, figure=figure
        )


def link_drifts(lab: Lab) -> list[Drift]:
    """Of each way between devices, of each bundle the smallest and the largest message that was measured before."""
    before = way_times(sample for samples in lab.store.links.values() for sample in samples)
    found: list[Drift] = []
    for done, bundle in enumerate(bundles := link_bundles(lab.platform) if before else []):
        lab.tell(MESSAGES, done, len(bundles), bundle.name)
        few = replace(bundle, frames=max(bundle.frames // PART, FRAMES), warmup=1)
        found += compared(before, way_times(link_samples(few, lab.place, lab.folder, lab.timeout_s)))
    return found


def compared(before: WayTimes, now: WayTimes) -> Iterator[Drift]:
    """The smallest and the largest message of each way."""
    for source, target in now:
        then_s, now_s = (by_size((source, target), ways) for ways in (before, now))
        both = then_s.keys() & now_s.keys()
        for size in sorted({min(both), max(both)} if both else ()):
            yield LinkDrift("link", f"{source} to {target}", f"{size} bytes", then_s[size], now_s[size])
