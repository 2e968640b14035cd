"""What devices share in a run: links between their hosts, and memories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from model.cost.samples import Arrival, Run
from model.fit.link_costs import LinkCosts


@dataclass(frozen=True)
class Wires:
    """hosts, memories: by device"""

    links: LinkCosts
    hosts: Mapping[str, str]
    memories: Mapping[str, int]

    def leaving(self, run: Run) -> list[float]:
        """Bytes that leave for other hosts while each segment is computed: one message after the other, at the link's
        rate, from when it is handed over.
        """
        found, free = [0.0] * len(run.samples), defaultdict[str, float](float)
        away = [m for m in run.arrivals if m.sent_s is not None and self.between(m)]
        for message in sorted(away, key=lambda m: m.sent_s or 0.0):
            rate, host = self._rate(message.source, message.target), self.hosts[message.source]
            begin = max(message.sent_s or 0.0, free[host])
            free[host] = begin + message.size_bytes / rate
            for index, sample in enumerate(run.samples):
                if sample.device == message.source and sample.begin_s is not None:
                    together = min(free[host], sample.begin_s + sample.time_s) - max(begin, sample.begin_s)
                    found[index] += rate * max(together, 0.0)
        return found

    def between(self, message: Arrival) -> bool:
        """Whether it goes from host to host."""
        return self.hosts[message.source] != self.hosts[message.target]

    def _rate(self, source: str, target: str) -> float:
        """Bytes a second; of a pair that was not measured the least of those that were."""
        away = [p for p in self.links.paths if self.hosts[p.source] != self.hosts[p.target]]
        paths = [p for p in away if (p.source, p.target) == (source, target)] or away
        return min(path.bandwidth_bytes_per_s.value for path in paths)
