"""Metering: the energy of a host while it works on frames, sampled by a thread or read from a log.

A meter that fails costs no result: what went wrong stands beside them as a sentence.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, Callable

from runtime.meter import CSV, RAPL, SYS, Domains, Rails, Samples, split, trapezoid
from runtime.meter_log import read_log, within
from runtime.trace import MEASURED

PERIOD_S = 0.02
"""Between two samples. A chip needs a few milliseconds for one."""
LATE_S = 3.0
"""How long a log may take to get what was measured up to now."""


@dataclass(frozen=True)
class Energy:
    """What a meter found between start and stop: joules in so many seconds, from so many samples."""

    energy_j: float
    time_s: float
    samples: int


class Sampler:
    """Reads a gauge every now and then, from start to stop."""

    def __init__(self, gauge: Any, period_s: float = PERIOD_S) -> None:
        self._gauge, self._period_s = gauge, period_s
        self._samples: Samples = []
        self._over = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="meter", daemon=True)

    def start(self) -> None:
        """Take the first sample, and others while the caller goes on."""
        self._sample()
        self._thread.start()

    def stop(self) -> Energy:
        """Take the last sample. ``CleaveError`` if any of them failed."""
        self._over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        self._sample()
        samples = self._samples
        return Energy(self._gauge.joules(samples), samples[-1][0] - samples[0][0], len(samples))

    def _work(self) -> None:
        try:
            while not self._over.wait(self._period_s):
                self._sample()
        except Exception as error:
            self._failure = error

    def _sample(self) -> None:
        """The time of a sample is half way between asking and having it."""
        before = time.perf_counter()
        value = self._gauge.read()
        self._samples.append(((before + time.perf_counter()) / 2, value))


class Log:
    """What an external meter wrote to a file between start and stop."""

    def __init__(self, path: str) -> None:
        self._path, self._start_s = path, 0.0
        read_log(path)

    def start(self) -> None:
        """From now on."""
        self._start_s = time.time()

    def stop(self) -> Energy:
        """Until now. The last lines may come late."""
        stop_s = time.time()
        samples = read_log(self._path)
        while (not samples or samples[-1][0] < stop_s) and time.time() < stop_s + LATE_S:
            time.sleep(0.1)
            samples = read_log(self._path)
        inner = within(samples, self._start_s, stop_s)
        # The ends of the interval lie between samples, and are none themselves.
        return Energy(trapezoid(inner), stop_s - self._start_s, len(inner) - 2)


def open_meter(text: str, sys: str = SYS) -> Sampler | Log:
    """The meter of that name. ``sys``: where sysfs is."""
    kind, what = split(text)
    if kind == CSV:
        return Log(what)
    names = what.split("+")
    return Sampler(Domains(names, sys) if kind == RAPL else Rails(kind, names, sys))


class Metering:
    """The meter of a rank, if it has one. Nothing here fails: it notes why there is no energy."""

    def __init__(self, text: str | None, sys: str = SYS) -> None:
        self._name, self._note = text, ""
        self._meter = self._try(lambda: open_meter(text, sys)) if text else None

    def start(self) -> None:
        """Frames begin."""
        if self._meter:
            self._try(self._meter.start)

    def stop(self, frames: int) -> dict[str, Any]:
        """All ranks are done with so many frames: what a ``Usage`` says of energy."""
        found = None if self._note or not self._meter else self._try(self._meter.stop)
        if found is None:
            return {"energy_note": self._note} if self._note else {}
        return {
            "energy_j": found.energy_j / frames,
            "energy_time_s": found.time_s / frames,
            "energy_source": MEASURED,
            "energy_samples": found.samples,
        }

    def _try(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            self._note = f"meter {self._name}: {error}"
            return None
