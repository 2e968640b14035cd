"""A calibration from its first run to its last: what has been measured already is not measured again."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise, zip_longest
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from dse.calibrate import boards as kinds
from dse.calibrate.boards import Board
from dse.calibrate.design import WHOLE, Design, designs, in_parts, probes, stretches, together, whole
from dse.calibrate.level import levelled
from dse.calibrate.links import link_bundles
from dse.calibrate.measure import (
    LEAST,
    WARMUP,
    Job,
    Subject,
    frames_for,
    guess,
    least_s,
    link_key,
    link_samples,
    run,
)
from dse.calibrate.samples import Store
from dse.calibrate.slower import confirmed, far
from dse.calibrate.turns import TURNS, doubtful, settled, turns_of
from dse.inputs import Cnn
from dse.provenance import PROGRAMS, changes
from dse.ready import Place
from model.cluster.platform import Platform
from model.cost.samples import Run
from model.fit.link_costs import LinkSample
from runtime.errors import CleaveError

SAMPLES = "samples.jsonl"
"""Raw measurements, in the folder of a calibration."""
FIRST_LOOK, FIRST_S = "first look, and a stream", 1.5
"""Every device runs the whole network for so many seconds, or what coefficients that are not calibrated take for that:
which devices are alike, how many frames can be afforded, and what is between two frames of a stream?"""
LAST_LOOK = "last look, and a stream"
"""The same minutes later, of devices that seem to be slower than those that are measured for them, and of these."""
PATIENCE, FEWEST = 8, 8
"""Where runs of as few frames as can be, with starting them, would take so many times the budget, only the designs that
tell most are run, at least so many."""
TOGETHER, TOGETHER_S = (4, 2), 10.0
"""At most so many devices run a network together, in stretches, and handing it to and fro in so many seconds by what is
guessed. The fewer, the longer each computes between two messages, and the less others take of its caches where hosts
share a processor. As many of one memory compute parts of layers."""
AMID = 4
"""After so many runs on one device the whole of a network is run again, now of the one, now of the other: how fast is
the device at that time?"""

PARTS = ("1/5 looking", "2/5 together", "3/5 alone", "4/5 messages", "5/5 together again")
"""Of a calibration: a look at all devices, runs on several, runs on one of each type, messages, several again."""

Tell = Callable[[str, int, int, str], None]
"""Is told which part it is, how many of how many runs of it are done, and what comes next."""


@dataclass(frozen=True)
class Type:
    """Devices that are alike.

    name:   of the coefficient file
    boards: that have it; the devices of the first are measured for all
    """

    name: str
    boards: tuple[Board, ...]

    @property
    def devices(self) -> tuple[int, ...]:
        """Those that are measured."""
        return self.boards[0].devices


def alike_devices(platform: Platform, types: Sequence[Type]) -> dict[str, tuple[str, str]]:
    """Device → name of its type, and its unit: what coefficients are found for."""
    return {
        platform.devices[device].name: (type_.name, platform.devices[device].unit)
        for type_ in types
        for board in type_.boards
        for device in board.devices
    }


@dataclass(frozen=True)
class Lab:
    """What a calibration measures, and what with.

    text:     of the platform file
    place:    what brings bundles to their hosts
    budget_s: seconds of frames that count, of each type of device and network; ``LEAST`` frames are run anyway
    folder:   for bundles, while they are measured
    """

    cnns: tuple[Cnn, ...]
    platform: Platform
    text: str
    store: Store
    place: Place
    tell: Tell
    folder: Path
    budget_s: float
    timeout_s: float
    seed: int

    @cached_property
    def boards(self) -> list[Board]:
        """Of the platform."""
        return kinds.boards(self.text, self.platform)

    @cached_property
    def _guesses(self) -> dict[str, Callable[[Design], float]]:
        """By network."""
        return {cnn.graph.name: guess(cnn, self.platform) for cnn in self.cnns}

    def first_looks(self) -> list[Job]:
        """The runs that tell which devices are alike."""
        first = kinds.twins(self.platform, self.boards)
        devices = [device for board in self.boards if first[board.number] == board.number for device in board.devices]
        return [self._first_look(Subject(cnn, self.platform, device)) for device in devices for cnn in self.cnns]

    def _first_look(self, subject: Subject) -> Job:
        design = whole(subject.cnn.graph, subject.device)
        looked = replace(design, what=FIRST_LOOK, stream=True)
        return Job(subject, looked, frames_for(FIRST_S, self._guesses[subject.cnn.graph.name](design)))

    def second_looks(self, looks: Sequence[Job]) -> list[Job]:
        """Those of the first looks, which are there, that differ where others do not, once more."""
        jobs, there = by_device(looks, looks), self.store.by_key
        times_s = by_device(looks, [there[job.key].time_s for job in looks])
        doubtful = kinds.doubtful(self.platform, self.boards, times_s)
        return [replace(jobs[device][number], turn=1) for device, number in sorted(doubtful)]

    def last_looks(self, looks: Sequence[Job], types: Sequence[Type], seen: Sequence[Run]) -> list[Job]:
        """Whether devices that seem to be slower or faster than those that are measured for them still are. seen: what
        came of looks, so far"""
        seem, again = self._far(types, seen, FIRST_LOOK), set[int]()
        for measured, *others in (type_.boards for type_ in types):
            others = [other for other in others if any(self.platform.devices[d].name in seem for d in other.devices)]
            again |= {device for board in (measured, *others) for device in board.devices if others}
        return [replace(job, design=replace(job.design, what=LAST_LOOK))
                for job in looks if job.subject.device in again]  # fmt: skip

    def slowdowns(self, types: Sequence[Type], looks: Sequence[Run]) -> dict[str, float]:
        """Device → how many times as long it takes as the one that is measured for it, where that is no chance."""
        return confirmed(*(self._far(types, looks, what) for what in (FIRST_LOOK, LAST_LOOK)))

    def _far(self, types: Sequence[Type], looks: Iterable[Run], what: str) -> dict[str, float]:
        seen = [look for look in looks if look.what == what]
        return far(self.platform, [type_.boards for type_ in types], seen)

    def types(self, looks: Sequence[Job]) -> list[Type]:
        """Which devices are alike, by the first looks, which are there, each by the quickest of its turns: who is
        disturbed takes longer, nobody less."""
        there = self.store.by_key
        times_s = by_device(looks, [min(run.time_s for run in turns_of(job, there)) for job in looks])
        groups = kinds.types(self.platform, self.boards, times_s)
        return [Type(n, tuple(group)) for n, group in zip(kinds.names(self.platform, groups), groups, strict=True)]

    def full(self, device: int, cnn: Cnn, look: Run) -> list[Job]:
        """The runs of a network on a device that coefficients are fitted to. look: the first at them"""
        every = designs(cnn.graph, device, self.seed)[: affordable(look, self.budget_s)]
        frames = frames_for(self.budget_s / len(every), look.time_s)
        return [Job(Subject(cnn, self.platform, device), design, frames) for design in every]

    def together(self, turn: int) -> list[Job]:
        """The runs of each network on several devices; none where there is one. Of different kinds and hosts, where
        there are, but for parts of layers, which those of one memory have.

        Before them those of the first network in which single layers are alone. turn: how often they were run before
        """
        return [replace(job, turn=turn) for job in self._on_several]

    @cached_property
    def _on_several(self) -> list[Job]:
        devices = kinds.various(self.platform, TOGETHER[0])
        if len(devices) == 1:
            return []
        guessed = [self._guessed(self.cnns[0], design) for design in probes(self.cnns[0].graph, devices)]
        alone = [Job(subject, design, LEAST) for subject, design, _ in guessed]
        return [*alone, *(job for cnn in self.cnns for job in self._together(cnn, devices))]

    def _together(self, cnn: Cnn, devices: list[int]) -> list[Job]:
        """What few devices run, others run of another network; which ones, no other network has a say in."""
        graph, begin = cnn.graph, random.Random(cnn.graph.name).randrange(len(devices))
        chosen: list[Design] = []
        for rank, most in enumerate(TOGETHER):
            some = sorted([*devices[begin:], *devices[:begin]][:most])
            chosen.append(stretches(graph, some))
            *others, last = together(graph, some, self.seed)
            fit = [d for d in others if (WARMUP + LEAST) * self._guessed(cnn, d)[-1] <= TOGETHER_S] + [last]
            chosen.append(fit[min(rank, len(fit) - 1)])
            chosen += [in_parts(graph, beside[:most]) for beside in kinds.beside(self.platform)]
        guessed = [self._guessed(cnn, design) for design in dict.fromkeys(chosen)]
        return [Job(on, design, frames_for(self.budget_s / FEWEST, time_s)) for on, design, time_s in guessed]

    def _guessed(self, cnn: Cnn, design: Design) -> tuple[Subject, Design, float]:
        """A design of several devices, and about how many seconds it takes."""
        subject = Subject(cnn, self.platform, design.mapping.devices[0])
        return subject, design, self._guesses[cnn.graph.name](design)

    def measure(self, job: Job) -> Run:
        """One run, now, whatever has been measured."""
        return run(job, self.place, self.folder, self.timeout_s)

    def runs(self, part: str, jobs: Sequence[Job]) -> list[Run]:
        """Runs, in order. What the store has is not measured again, all else is kept there."""
        there = self.store.by_key
        found = []
        for done, job in enumerate(jobs):
            if job.key not in there:
                self.tell(part, done, len(jobs), str(job))
                new = self.measure(job)
                check_alike(new, there.values())
                there[job.key] = new
                self.store.add_run(new)
            found.append(there[job.key])
        self.tell(part, len(jobs), len(jobs), "")
        return found

    def links(self, part: str) -> list[LinkSample]:
        """What messages take between devices, measured once."""
        found: list[LinkSample] = []
        bundles = link_bundles(self.platform)
        for done, bundle in enumerate(bundles):
            key = link_key(bundle)
            if key not in self.store.links:
                self.tell(part, done, len(bundles), bundle.name)
                self.store.add_links(key, link_samples(bundle, self.place, self.folder, self.timeout_s))
            found += self.store.links[key]
        self.tell(part, len(bundles), len(bundles), "")
        return found


def check_alike(new: Run, others: Iterable[Run]) -> None:
    """``CleaveError`` where the device of a run was another one before: coefficients are of one."""
    first = next((run for run in others if run.device == new.device), new)
    now = {name: said for name, said in new.conditions.items() if name != PROGRAMS}  # which are no device's
    if clauses := changes(first.conditions, now):
        raise CleaveError(f"{new.device} is not as it was: {', '.join(clauses)}. Measure it as it was, or begin "
                          "another calibration with --out")  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """All that was measured.

    looks: the first, at all devices, and the last, at some
    slowdowns: device → how many times as long it takes as the one that was measured for it, where that is no chance
    runs:  type → its runs, of all networks, as ``level.levelled`` has them
    links: of all pairs that were measured
    turns: on several devices, of each design those that count
    again: what was run twice, minutes apart
    """

    types: tuple[Type, ...]
    looks: tuple[Run, ...]
    slowdowns: dict[str, float]
    runs: dict[str, list[Run]]
    links: tuple[LinkSample, ...]
    turns: tuple[tuple[Run, ...], ...]
    again: tuple[tuple[Run, Run], ...]

    @property
    def together(self) -> tuple[Run, ...]:
        """All that count on several devices."""
        return tuple(chain.from_iterable(self.turns))

    @property
    def programs(self) -> set[str | None]:
        """What ranks ran, as far as runs say it."""
        every = (*self.looks, *chain.from_iterable(self.runs.values()), *self.together)
        return {run.conditions.get(PROGRAMS) for run in every}

    @property
    def apart(self) -> float:
        """Mean relative difference of a time from what it was minutes before."""
        return fmean([abs(now.time_s / before.time_s - 1) for before, now in self.again] or [0.0])


def measured(lab: Lab) -> Measured:
    """Measure all that is not there yet."""
    look, on_several, on_one, messages, once_more = PARTS
    jobs = lab.first_looks()
    seen = lab.runs(look, jobs)
    looks = by_device(jobs, seen)
    seen += lab.runs(look, lab.second_looks(jobs))
    types = lab.types(jobs)
    first = lab.runs(on_several, lab.together(0))
    devices = [device for type_ in types for device in type_.devices]
    full = [[lab.full(device, *of) for of in zip(lab.cnns, looks[device], strict=True)] for device in devices]
    alone = lab.runs(on_one, [job for of_networks in full for job in in_turn(of_networks)])
    links = lab.links(messages)
    turns = list(zip(first, *(lab.runs(once_more, lab.together(turn)) for turn in range(1, TURNS)), strict=True))
    lab.runs(once_more, [job for job, of in zip(lab.together(TURNS), turns, strict=True) if doubtful(of)])
    seen += lab.runs(once_more, lab.last_looks(jobs, types, seen))
    slower, alike = lab.slowdowns(types, seen), alike_devices(lab.platform, types)
    level = levelled([run for run in seen if run.device not in slower], alone, alike)
    runs = {type_.name: [run for run in level if alike[run.device][0] == type_.name] for type_ in types}
    there = lab.store.by_key
    several = tuple(settled(turns_of(job, there)) for job in lab.together(0))
    again = (*_whole_again(seen, alone), *((of[0], of[-1]) for of in turns))
    return Measured(tuple(types), tuple(seen), slower, runs, tuple(links), several, again)


def _whole_again(looks: Sequence[Run], runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Whole networks on one device, each with when it was run next."""
    found = defaultdict[tuple[str, str], list[Run]](list)
    for each in (*looks, *(of for of in runs if of.what == WHOLE)):
        found[each.device, each.network].append(each)
    return [pair for same in found.values() for pair in pairwise(same)]


def in_turn(of_networks: Sequence[Sequence[Job]]) -> list[Job]:
    """One of each in turn: what slows a device down for a minute then slows all networks down a bit, none a lot. Among
    them the whole networks again and again, which each has first.
    """
    wholes, *rows = zip_longest(*of_networks)
    jobs, found = [job for row in rows for job in row if job is not None], list(wholes)
    for number, begin in enumerate(range(0, len(jobs), AMID)):
        again = replace(wholes[number % len(wholes)], turn=1 + number // len(wholes))
        found += [*jobs[begin : begin + AMID], again]
    return found


def affordable(look: Run, budget_s: float) -> int:
    """How many runs of frames alone, as few as can be. look: the first, as ``least_s`` has it"""
    return max(FEWEST, int(PATIENCE * budget_s / least_s(look)))


T = TypeVar("T")


def by_device(jobs: Iterable[Job], found: Iterable[T]) -> dict[int, list[T]]:
    """Device → what came of its jobs, in order."""
    of = defaultdict[int, list[T]](list)
    for job, each in zip(jobs, found, strict=True):
        of[job.subject.device].append(each)
    return of
