"""What one mapping takes where it runs: a bundle is made, run as ``dse bench`` runs it, and kept as a line of JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.bundle import Form, write_bundle
from codegen.folder import scratch, unused
from dse.evaluation import OBJECTIVES
from dse.inputs import Cnn
from dse.ready import Place, Ready
from dse.results import FRONT, compact, known
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping
from runtime.bench import STOLEN, TRIES, Bench, bench
from runtime.trace import MEASURED

FILE = "measured.jsonl"
"""In the folder of a run: a line for each time that a mapping was tried."""


@contextmanager
def kept(folder: Path, out: Path, say: Callable[[str], None]) -> Iterator[None]:
    """What was measured, and its front, outlive what ends a run: where ``folder`` does not become ``out`` they are put
    beside that."""
    try:
        yield
    except BaseException:
        if (folder / FILE).is_file():
            files = [folder / name for name in (FILE, FRONT) if (folder / name).is_file()]
            places = [file.rename(unused(out, f".{file.name}")) for file in files]
            say(f"what was measured is kept: {', '.join(map(str, places))}")
        raise


@dataclass(frozen=True, eq=False)
class Measurement:
    """A mapping that was brought to its hosts.

    values:  (4,) what was measured, as ``OBJECTIVES``; NaN: not
    failed:  why nothing was measured, sentences; hosts: those to blame for it, by name
    overloaded: whether all that is wrong is that hosts have no room for it
    stolen:  largest part of the time of a rank's cores that other virtual machines had
    details: for the file
    """

    values: NDArray[np.float64]
    failed: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    overloaded: bool = False
    stolen: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def disturbed(self) -> str:
        """What to add to its figures where others took the processor however often it was measured; or nothing."""
        return f" (disturbed: others had {self.stolen:.0%} of a core)" if self.stolen > STOLEN else ""


@dataclass(frozen=True)
class Rig:
    """What mappings are measured with.

    place:     what brings bundles to their hosts
    timeout_s: of each run
    seen:      conditions of the hosts that were reached, by name
    """

    cnn: Cnn
    platform: Platform
    target: str
    place: Place
    timeout_s: float
    seen: dict[str, dict[str, str]] = field(default_factory=dict)

    def run(self, mapping: Mapping, folder: Path) -> Measurement:
        """Measure a mapping, now. ``CleaveError`` where that cannot be."""
        began = datetime.now(UTC)
        with scratch(folder, ".bundle-") as draft:
            path = draft / "measured"  # of one name, so that hosts keep the files that bundles have in common
            write_bundle(self.cnn.graph, self.platform, mapping, self.cnn.source, path, False, Form(target=self.target))
            with self.place(path) as ready:
                found = bench(path, timeout_s=self.timeout_s, runner=ready.runner, tries=TRIES)
        self._note(ready, found)
        details = {"date": began.isoformat(timespec="seconds"), "facts": ready.facts, **_details(found)}
        return Measurement(values(found, self.platform.host_names), stolen=found.stolen, details=details)

    def _note(self, ready: Ready, found: Bench) -> None:
        """What hosts and ranks say of themselves."""
        hosts = self.platform.host_names
        for usage in found.trace.ranks:
            host = hosts[usage.device]
            self.seen[host] = {**ready.by_host.get(host, {}), **(usage.conditions or {})}

    def subject(self, mapping: Mapping) -> dict[str, Any]:
        """What is measured, plain data: where two are equal the one's figures are the other's."""
        source = self.cnn.source
        return {
            "network": [source.blake3, source.folded, {name: [*shape] for name, shape in source.shapes.items()}],
            "target": self.target,
            "devices": [[d.name, d.unit, d.threads, d.provider, d.arena] for d in self.platform.devices],
            "ends": [mapping.reader, mapping.writer],
            "mapping": compact(self.cnn.graph, mapping),
        }

    def record(self, mapping: Mapping, found: Measurement, expected: NDArray[np.float64]) -> dict[str, Any]:
        """For the file. expected: (4,) what had been predicted, corrected by what was known then"""
        return {
            **self.subject(mapping),
            "expected": dict(zip(OBJECTIVES, map(float, expected), strict=True)),
            "measured": known(found.values),
            **({"failed": found.failed} if found.failed else {}),
            **found.details,
        }


def values(found: Bench, host_names: dict[str, str]) -> NDArray[np.float64]:
    """(4,) as ``OBJECTIVES``: of energy and memory the largest of a device.

    A meter counts for its whole host, so energy is that of the hosts; NaN unless all of them have one, and where none
    counts anything. Memory is without frames that only the measurement keeps. host_names: of devices
    """
    energies = [row["alone"] for row in found.energies()]
    hosts = {host_names[rank.device] for rank in found.ranks}
    metered = [e["energy_j"] for e in energies if e["source"] == MEASURED and e["energy_j"] is not None]
    energy = max(metered) if len(metered) == len(hosts) and any(metered) else np.nan
    memory = max(rank.memory.without_input(rank.peak_bytes) if rank.memory else rank.peak_bytes for rank in found.ranks)
    return np.array([found.latency_s, energy, memory, found.period_s or np.nan], dtype=np.float64)


def _details(found: Bench) -> dict[str, Any]:
    return {
        "latencies_s": [round(time_s, 9) for time_s in found.latencies_s],
        "stolen": found.stolen,
        "ranks": [
            {
                "device": rank.device,
                "compute_s": rank.compute_s,
                "wait_s": rank.wait_s,
                "send_s": rank.send_s,
                "processor_s": rank.processor_s,
                "peak_bytes": rank.peak_bytes,
                "conditions": usage.conditions,
            }
            for rank, usage in zip(found.ranks, found.trace.ranks, strict=True)
        ],
    }
