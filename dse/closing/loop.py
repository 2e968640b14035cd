"""Simulated first, then real: mappings of a front are measured in rounds, and the search goes on with what they teach.

A round: choose what is worth a measurement (``choice``), measure that, fit what predictions are off by to all
measurements (``residuals``), and search on with corrected predictions, from the mappings that are known. The thesis
names this as future work; experiment E4 of Andreassen (exprimo, 2020) carries a simulated search over to real runs.

All but the measurements is deterministic.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import moocore
import numpy as np
from numpy.typing import NDArray

from dse import ending
from dse.closing.attempts import Attempt, Closed, errors_of
from dse.closing.choice import ENERGY, LATENCY, MEMORY, choose, dispute
from dse.closing.earlier import Earlier
from dse.closing.figures import FILE, Measurement
from dse.closing.pool import MODELS, Pool, Space
from dse.closing.residuals import Correction
from dse.closing.trouble import Trouble
from dse.evaluation import OBJECTIVES
from dse.inputs import Cnn
from dse.lines import add_line
from dse.search import Front, in_order, search
from dse.units import many, shown
from model.mappings.arrays import Floats
from model.mappings.mapping import Mapping
from runtime.deploy.target import DeployError
from runtime.errors import CleaveError

ROUNDS = 5
"""So many rounds, about; each measures an equal number of mappings."""
GENERATIONS = 20
"""Of the search in a round, at most; as many rounds of the local search follow."""
AGAIN = 8
"""Of so many mappings that are measured, one is measured again, at most."""
GIVEN = 0.5
"""Part of its first population that is known mappings."""
ENOUGH = 4
"""Mappings of one round of which each fails end the loop: what is wrong is not theirs."""
NOTHING = np.full(len(OBJECTIVES), np.nan)
MEAN = math.sqrt(2 / math.pi)
"""Of the absolute values of a normal distribution about 0, in its standard deviations."""


class Rig(Protocol):
    """What measures; see ``dse.closing.figures``."""

    @property
    def cnn(self) -> Cnn:
        """What is measured."""

    def run(self, mapping: Mapping, folder: Path) -> Measurement:
        """Measure a mapping in a folder. ``CleaveError`` where that cannot be."""

    def record(self, mapping: Mapping, found: Measurement, expected: Floats) -> dict[str, Any]:
        """What is kept of it."""


@dataclass(frozen=True)
class Limits:
    """How many mappings are tried, and how long; one that has begun is finished. budget_s: None: as long as it takes;
    again: how often at most what seems best is measured once more, beside the ``count``"""

    count: int
    budget_s: float | None = None
    again: int = 0

    @property
    def whole_s(self) -> float:
        """Of everything."""
        return math.inf if self.budget_s is None else self.budget_s

    @property
    def first_s(self) -> float:
        """Until then mappings are tried that were not before: a share for each measurement."""
        return self.whole_s * self.count / (self.count + self.again)

    @property
    def batch(self) -> int:
        """Mappings of a round."""
        return -(-self.count // ROUNDS)


@dataclass(eq=False)
class Closing:
    """The loop while it goes on.

    folder:   that ``FILE`` is written in
    trouble:  with hosts, so far
    earlier:  what is known from another run
    attempts: by mapping, in order
    """

    space: Space
    rig: Rig
    limits: Limits
    folder: Path
    say: Callable[[str], None]
    trouble: Trouble = field(default_factory=Trouble)
    earlier: Sequence[Earlier] = ()
    attempts: dict[Mapping, Attempt] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begin_s = time.monotonic()
        self._before = 0

    def run(self, front: Front) -> Closed:
        """Measure and search on; the front of all that is known then. Ctrl-C ends it as a spent budget does."""
        pool = Pool.of(self.space).joined(self.space, front.genes, front.last, *(e.genes[None] for e in self.earlier))
        self._recall(pool)
        why, stopped = "", True
        with ending.stoppable():
            while not (why or self._over):
                why = self._measure(pool)
                self.trouble.now += 1
                if not (why or self._over):
                    front, pool = self._searched_on(front, pool)
            self._confirm(pool)
            stopped = False
        self.trouble.now += 1  # what failed in the last round alone may work
        if stopped:
            why = f"stopped: the front is of what is known by {len(self.attempts)} measurements"
        if why:
            self.say(why)
        if gone := sorted(self.trouble.gone - self.trouble.unfit):
            self.say(f"{', '.join(gone)} failed too often: mappings that need it are left out")
        return Closed(self._front(front, pool), tuple(self.attempts.values()), self._before)

    def _recall(self, pool: Pool) -> None:
        """Take what was measured earlier for tried."""
        for each in self.earlier:
            mapping = self.space.encoding.decode(each.genes)
            predicted = pool.scores[self.space.judge][pool.numbers[mapping]]
            found, known = self._counted(Measurement(each.values)), self.attempts.get(mapping)
            self.attempts[mapping] = known.again(found) if known else Attempt(mapping, found, predicted, predicted)
            self._keep(each.line)
        self._before = len(self.attempts)

    @property
    def _tried(self) -> int:
        """How many were tried here."""
        return len(self.attempts) - self._before

    @property
    def _over(self) -> bool:
        return self._tried >= self.limits.count or self._spent_s >= self.limits.first_s

    @property
    def _spent_s(self) -> float:
        return time.monotonic() - self._begin_s

    def _known(self, pool: Pool) -> Floats:
        """``(n, 4)`` measurements of a pool, NaN where there is none."""
        seen = {mapping: attempt.found.values for mapping, attempt in self.attempts.items()}
        return np.array([seen.get(mapping, NOTHING) for mapping in pool.mappings])

    def _counted(self, found: Measurement) -> Measurement:
        """What of a measurement counts: an energy where all hosts tell it."""
        known = np.full(len(OBJECTIVES), True)
        known[ENERGY] = self.space.metered
        return replace(found, values=np.where(known, found.values, np.nan))

    def _correction(self, pool: Pool) -> Correction:
        return Correction.fitted(pool.traits, pool.scores, self._known(pool))

    def _corrected(self, pool: Pool, correction: Correction) -> Floats:
        """``(n, 4)`` measurements where there are, else corrected predictions."""
        known, judge = self._known(pool), self.space.judge
        return np.where(np.isnan(known), correction(judge, pool.scores[judge], pool.traits), known)

    def _searched_on(self, front: Front, pool: Pool) -> tuple[Front, Pool]:
        """What is known, and what a search finds that starts from the best of it and knows of all measurements."""
        space, correction = self.space, self._correction(pool)
        best = self._best(pool, self._corrected(pool, correction))
        spread = best[
            np.linspace(0, len(best) - 1, num=min(len(best), int(GIVEN * space.settings.population)), dtype=int)
        ]
        settings = replace(
            space.settings,
            generations=min(space.settings.generations, GENERATIONS),
            seed=space.settings.seed + self.trouble.now,
            head_start=False,
        )
        found = search(space.encoding, space.costs, settings, begin_with=pool.genes[spread], correct=correction)
        more = {name: getattr(front, name) + getattr(found, name) for name in ("evaluated", "search_s", "scoring_s")}
        return replace(front, **more), pool.joined(space, found.genes, found.last)

    def _measure(self, pool: Pool) -> str:
        """One round of measurements; why there is no other one, or nothing."""
        space, correction = self.space, self._correction(pool)
        scores, judge = self._corrected(pool, correction), space.judge
        count = min(self.limits.batch, self.limits.count - self._tried)
        works = self._working(pool)
        picks = choose(
            np.where(works[:, None], scores, np.inf),
            correction.deviation(judge, pool.scores[judge], pool.traits),
            dispute(*(correction(who, pool.scores[who], pool.traits) for who in MODELS)),
            space.settings.columns,
            space.learnt,
            works & [mapping not in self.attempts for mapping in pool.mappings],
            count,
        )
        failed = list[bool]()
        for i in picks:
            if self._over:
                break
            if self._works(pool.mappings[i]):  # still
                failed.append(self._try(pool, i, scores[i]))
        if not picks:
            return f"after {self._tried} of {self.limits.count} there is nothing left to measure"
        hopeless = len(failed) >= ENOUGH and all(failed)
        return f"all {len(failed)} of a round failed, so no more are tried" if hopeless else ""

    def _working(self, pool: Pool) -> NDArray[np.bool_]:
        """(n,) ``_works`` of a pool."""
        return np.array([self._works(mapping) for mapping in pool.mappings])

    def _works(self, mapping: Mapping) -> bool:
        """Whether nothing is known against it: it has not failed, nor needs a host that is gone."""
        failed = mapping in self.attempts and self.attempts[mapping].found.failed
        return not failed and self.trouble.gone.isdisjoint(self._hosts(mapping))

    def _hosts(self, mapping: Mapping) -> set[str]:
        return {self.space.hosts[device] for device in mapping.devices}

    def _try(self, pool: Pool, number: int, expected: Floats) -> bool:
        """Measure a mapping of the pool; whether that failed, and not since a smaller one is wanted."""
        mapping, predicted = pool.mappings[number], pool.scores[self.space.judge][number]
        what = f"{self._tried + 1} of {self.limits.count} ({many(len(mapping.devices), 'rank')})"
        self.say(f"measuring {what}, latency expected {shown(OBJECTIVES[0], expected[0])}")
        try:
            found = self.rig.run(mapping, self.folder)
            came = f"measured {what}: latency {shown(OBJECTIVES[0], found.values[0])}{found.disturbed}"
            self.trouble.did_well(self._hosts(mapping))
        except CleaveError as error:
            self.rig.cnn.graph.check_files()  # else each would fail
            found = _failed(error)
            came = f"measuring {what} failed: {'; '.join(found.failed)}"
            self.trouble.failed(found.hosts)
        self.attempts[mapping] = Attempt(mapping, self._counted(found), predicted, expected)
        self._keep(self._line(pool.genes[number], self.attempts[mapping], found))
        self.say(came)  # last: who ends the command is let go here
        return bool(found.failed) and not found.overloaded

    def _confirm(self, pool: Pool) -> None:
        """Measure again what seems best, until that was measured more than once: the best of many figures that scatter
        was lucky."""
        for _ in range(self.limits.again):
            unsure = self._unsure()
            if unsure is None or self._spent_s >= self.limits.whole_s or not self._try_again(unsure, pool):
                return

    def _unsure(self) -> Attempt | None:
        """What is best in an objective that was searched for by one measurement alone; memory does not scatter."""
        there = [attempt for mapping, attempt in self.attempts.items() if self._works(mapping)]
        for column in (column for column in self.space.learnt if column != MEMORY):
            known = [attempt for attempt in there if not np.isnan(attempt.found.values[column])]
            best = min(known, key=lambda attempt: attempt.found.values[column], default=None)
            if best is not None and best.times == 1:
                return best
        return None

    def _try_again(self, attempt: Attempt, pool: Pool) -> bool:
        """Measure a mapping of the pool once more; whether that could be."""
        mapping, so_far = attempt.mapping, shown(OBJECTIVES[LATENCY], attempt.found.values[LATENCY])
        self.say(f"measuring again what seems best ({many(len(mapping.devices), 'rank')}), latency {so_far}")
        try:
            found = self.rig.run(mapping, self.folder)
        except CleaveError as error:
            self.rig.cnn.graph.check_files()
            self.say(f"that failed, and it counts as it was: {'; '.join(error.sentences)}")
            return False
        self.attempts[mapping] = attempt.again(self._counted(found))
        self._keep(self._line(pool.genes[pool.numbers[mapping]], attempt, found))
        self.say(f"measured again: latency {shown(OBJECTIVES[LATENCY], found.values[LATENCY])}{found.disturbed}")
        return True

    def _line(self, genes: NDArray[np.int32], attempt: Attempt, found: Measurement) -> str:
        """Of the file of measurements."""
        return json.dumps({"genes": genes.tolist(), **self.rig.record(attempt.mapping, found, attempt.expected)})

    def _keep(self, line: str) -> None:
        with (self.folder / FILE).open("ab", buffering=0) as file:
            add_line(file, line)

    def _best(self, pool: Pool, scores: Floats) -> NDArray[np.intp]:
        """Numbers of the mappings that no other dominates; of those that were measured, no other that was.

        Of what does not work on its hosts none, unless nothing was seen to. scores: ``(n, 4)`` corrected
        """
        works, seen = self._working(pool), ~np.isnan(self._known(pool)[:, LATENCY])
        usable = works | ~(works & seen).any()
        keep, columns = np.zeros(len(scores), dtype=bool), self.space.settings.columns
        for among in (usable & seen, usable):
            at = np.flatnonzero(among)
            if len(at):
                keep[at] |= moocore.is_nondominated(scores[at][:, columns], keep_weakly=False)
        return np.flatnonzero(keep)

    def _front(self, front: Front, pool: Pool) -> Front:
        """All that is known, as a front."""
        known, predicted, correction = self._known(pool), pool.scores[self.space.judge], self._correction(pool)
        scores = self._corrected(pool, correction)
        expected = self._off(correction.deviation(self.space.judge, predicted, pool.traits))
        off = np.where(np.isnan(known), expected, np.nan)
        whole = replace(front, genes=pool.genes, scores=scores, measured=known, predicted=predicted, off=off)
        return in_order(whole.at(self._best(pool, scores)), self.space.settings.columns)

    def _off(self, deviation: Floats) -> Floats:
        """``(n, 4)`` relative errors to expect of corrected predictions: their deviation, in the mean, and no less than
        what those were off by that were measured then; NaN: none was. deviation: ``(n, 4)`` relative
        """
        once = errors_of(self.attempts.values())
        least = [once[name][1] if name in once else None for name in OBJECTIVES]
        return np.maximum(MEAN * deviation, np.array(least, dtype=float))


def _failed(error: CleaveError) -> Measurement:
    """Why there is none: what hosts said, where an error came of that. Who may take a smaller part is not to blame."""
    cause = error if isinstance(error, DeployError) else error.__cause__
    if isinstance(cause, DeployError):
        hosts = tuple(cause.failures.keys() - cause.overloaded)
        return Measurement(NOTHING, cause.sentences, hosts, overloaded=not hosts)
    return Measurement(NOTHING, error.sentences)
