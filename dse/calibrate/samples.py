"""The raw measurements of a calibration: a file of JSON lines, one a bundle that was run, each there or not at all."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import numpy as np

from dse.lines import add_line
from model.cost.samples import SEGMENT, Arrival, Footing, PartOf, Run, Sample
from model.fit.link_costs import LinkSample
from runtime.errors import CleaveError
from runtime.reading import parsed, readable
from runtime.trace import Memory

__all__ = ["LINKS", "RUN", "SEGMENT", "Footing", "PartOf", "Run", "Sample", "Store", "opened"]

HEAD = {"format": "cleave-samples", "version": 2}
RUN, LINKS, HOSTS = "run", "links", "hosts"
"""Kinds of lines: of a run of computing, of messages, and of how hosts are measured."""


class Store:
    """A file of measurements that is open for more.

    path:  where it is
    lines: what it holds, in order, without the first line; a body has its ``kind``
    """

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self._file = path, file
        self.lines = self._read()

    def add(self, kind: str, body: dict[str, Any]) -> None:
        """One line more, in one write: whatever happens, it is in the file or it is not."""
        self.lines.append({"kind": kind, **body})  # before: whoever stops this while it is written finds it in both
        try:
            self._write(self.lines[-1])
        except CleaveError:
            self.lines.pop()
            raise

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Bodies of one kind."""
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def runs(self) -> list[Run]:
        """The runs of computing; ``CleaveError`` where a line is none of this version's."""
        with _as_written(self.path):
            return [_run(body) for body in self.of_kind(RUN)]

    @property
    def by_key(self) -> dict[str, Run]:
        """The runs by what they are known by."""
        return {run.key: run for run in self.runs}

    def add_run(self, run: Run) -> None:
        """Keep a run."""
        self.add(RUN, asdict(run))

    @property
    def links(self) -> dict[str, list[LinkSample]]:
        """Key → what was measured of links."""
        found = {}
        for body in self.of_kind(LINKS):
            with _as_written(self.path):
                found[str(body["key"])] = [_link(sample) for sample in body["samples"]]
        return found

    def add_links(self, key: str, samples: Sequence[LinkSample]) -> None:
        """Keep what was measured of links."""
        self.add(LINKS, {"key": key, "samples": [asdict(sample) for sample in samples]})

    @property
    def hosts(self) -> dict[str, dict[str, str | None]]:
        """Host → how it is measured, field by field."""
        found: dict[str, dict[str, str | None]] = {}
        for body in self.of_kind(HOSTS):
            with _as_written(self.path):
                found |= {host: dict(how) for host, how in body["hosts"].items()}
        return found

    def add_hosts(self, hosts: dict[str, dict[str, str | None]]) -> None:
        """Keep how hosts are measured."""
        self.add(HOSTS, {"hosts": hosts})

    def _read(self) -> list[dict[str, Any]]:
        """What is there. A last line that a crash has cut short is taken away, from what a calibration has written."""
        whole, _, rest = self._file.read().rpartition(b"\n")
        lines = [self._parsed(number, line) for number, line in enumerate(whole.splitlines(), 1)]
        if not (lines[:1] == [HEAD] or (not lines and _as_line(HEAD).encode().startswith(rest))):
            raise CleaveError(
                f"{self.path}: is no {HEAD['format']} of version {HEAD['version']}; calibrate into another folder"
            )
        if rest:
            self._file.truncate(len(whole) + bool(whole))
        if not lines:
            self._write(HEAD)
        return lines[1:]

    def _write(self, body: dict[str, Any]) -> None:
        try:
            add_line(self._file, _as_line(body))
        except OSError as error:
            raise CleaveError(f"{self.path}: cannot be written: {error.strerror}") from error

    def _parsed(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            body = parsed(line)
            if isinstance(body, dict) and (number == 1 or "kind" in body):
                return body
        except ValueError:
            pass
        raise CleaveError(f"{self.path}:{number}: is no line that a calibration writes; remove it, or the file")


def _as_line(body: dict[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":"))


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    """The file, made where there is none, for this process alone. ``CleaveError`` where that cannot be."""
    try:
        file = path.open("ab+", buffering=0)
    except OSError as error:
        raise CleaveError(f"{path}: cannot be written: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CleaveError(f"{path}: another calibration writes there; wait, or name another folder") from None
        file.seek(0)
        yield Store(path, file)


def _as_written(path: Path) -> AbstractContextManager[None]:
    """For what is not as a calibration writes it, said of its file."""
    return readable(f"{path}: holds a run that this version cannot read; remove the file")


def _run(body: dict[str, Any]) -> Run:
    lists = ("latencies_s", "ranks", "samples", "arrivals")
    plain = {key: value for key, value in body.items() if key not in ("kind", *lists)}
    run = Run(
        **plain,
        latencies_s=tuple(body["latencies_s"]),
        ranks=tuple(_footing(rank) for rank in body["ranks"]),
        samples=tuple(_sample(sample) for sample in body["samples"]),
        arrivals=tuple(Arrival(**arrival) for arrival in body.get("arrivals", ())),
    )
    datetime.fromisoformat(run.date)
    frames = {len(times_s) for times_s in (run.latencies_s, *(sample.times_s for sample in run.samples))}
    if len(frames) > 1 or 0 in frames:
        raise ValueError("its frames are not as many everywhere")
    _check_times([run.latencies_s, *(sample.times_s for sample in run.samples)])
    _check_times([[run.took_s, run.stolen, run.period_s or 0.0]])
    if min(run.latencies_s) <= 0:
        raise ValueError("a frame took no time")
    if lost := {sample.device for sample in run.samples} - {rank.device for rank in run.ranks}:
        raise ValueError(f"nothing is said of a rank on {min(lost)}")
    return run


def _check_times(rows: Sequence[Sequence[float]]) -> None:
    """``TypeError`` or ``ValueError`` where some are no finite numbers."""
    if not np.isfinite(np.array(rows, dtype=np.float64)).all():
        raise ValueError("some of its times are none")


def _footing(body: dict[str, Any]) -> Footing:
    return Footing(**{**body, "memory": body["memory"] and Memory(**body["memory"])})


def _sample(body: dict[str, Any]) -> Sample:
    parts = tuple(PartOf(**part) for part in body["parts"])
    return Sample(**{**body, "parts": parts, "times_s": tuple(body["times_s"])})


def _link(body: dict[str, Any]) -> LinkSample:
    plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in body.items()}
    link = LinkSample(**plain)
    if not link.times_s:
        raise ValueError("a message has no times")
    _check_times([link.times_s, link.send_s, *([link.there_s] if link.there_s else [])])
    return link
