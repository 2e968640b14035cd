"""What devices share in a run: links between their hosts, and memories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from model.cost.samples import Arrival, Run
from model.fit.link_costs import LinkCosts, Path


class Way(NamedTuple):
    """From a device to another."""

    bytes_per_s: float
    latency_s: float

    @staticmethod
    def of(path: Path) -> Way:
        """As it was measured."""
        return Way(path.bandwidth_bytes_per_s.value, path.latency_s.value)


@dataclass(frozen=True)
class Wires:
    """hosts, memories: by device"""

    links: LinkCosts
    hosts: Mapping[str, str]
    memories: Mapping[str, int]

    def leaving(self, run: Run) -> list[float]:
        """Bytes that leave for other hosts while each segment is computed, from when they are handed over: at the rate
        of the slower of both links, and after those that leave for the same host, or by the sender's own link, before.
        """
        found, free = [0.0] * len(run.samples), defaultdict[tuple[str, ...], float](float)
        away = [m for m in run.arrivals if m.sent_s is not None and self.between(m)]
        own = {host: self._own_rate(host) for host in {self.hosts[message.source] for message in away}}
        for message in sorted(away, key=lambda m: m.sent_s or 0.0):
            (rate, _), link = self.way(message.source, message.target), (self.hosts[message.source],)
            pair = (*link, self.hosts[message.target])
            begin = max(message.sent_s or 0.0, free[link], free[pair])
            free[link], free[pair] = (begin + message.size_bytes / each for each in (own[link[0]], rate))
            for index, sample in enumerate(run.samples):
                if sample.device == message.source and sample.begin_s is not None:
                    together = min(free[pair], sample.begin_s + sample.time_s) - max(begin, sample.begin_s)
                    found[index] += rate * max(together, 0.0)
        return found

    def _own_rate(self, host: str) -> float:
        """Bytes a second of a host's own link: what it reaches with the fastest of the others, or any host with any."""
        away = [p for p in self.links.paths if not p.local] or self.links.paths
        mine = [p for p in away if self.hosts[p.source] == host] or away
        return _best(map(Way.of, mine)).bytes_per_s

    def between(self, message: Arrival) -> bool:
        """Whether it goes from host to host."""
        return self.hosts[message.source] != self.hosts[message.target]

    def way(self, source: str, target: str) -> Way:
        """From one device to another. Of a pair that was not measured it is that of the slower end, at the best that
        this end's host has with others, or within a host at the best that any has: links are their hosts' own.
        """
        here, there = self.hosts[source], self.hosts[target]
        alike = [p for p in self.links.paths if p.local == (here == there)] or self.links.paths
        measured = [Way.of(p) for p in alike if (p.source, p.target) == (source, target)]
        ends = [[p for p in alike if end in (self.hosts[p.source], self.hosts[p.target])] for end in (here, there)]
        return measured[0] if measured else _slower(*(_best(map(Way.of, end or alike)) for end in ends))


def _best(ways: Iterable[Way]) -> Way:
    """The most bytes a second, and the least latency."""
    rates, latencies = zip(*ways, strict=True)
    return Way(max(rates), min(latencies))


def _slower(one: Way, other: Way) -> Way:
    """The fewer bytes a second, and the longer latency."""
    return Way(min(one.bytes_per_s, other.bytes_per_s), max(one.latency_s, other.latency_s))
