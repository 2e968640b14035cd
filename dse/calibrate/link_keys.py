"""From the figures of links to what a platform file and coefficient files say of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dse.calibrate.links import host_kind
from model.cluster.platform import Platform
from model.fit.link_costs import LinkCosts, Path


def unit_fields(costs: LinkCosts, device_type: str) -> dict[str, float]:
    """``send_s``, ``gap_s`` … of `coefficients.UnitCost` for a type of device; none where it was not measured."""
    found = costs.devices.get(device_type)
    return {name: estimate.value for name, estimate in vars(found).items()} if found else {}


def host_keys(platform: Platform, costs: LinkCosts) -> dict[str, dict[str, str]]:
    """What a platform file is to say of each host: ``bandwidth``, ``latency``, ``copy_bandwidth``, as it is written.

    A message goes at the rate of the slower link: the faster of what a host reached with its neighbours is its own, if
    one of them is as fast. Latencies of pairs are divided among their hosts, evenly where nothing else follows.
    """
    host = platform.host_names
    far, near = ([p for p in costs.paths if p.local == local] for local in (False, True))
    found: dict[str, dict[str, str]] = {each.name: {} for each in platform.hosts}
    latency = _latencies([(host[p.source], host[p.target], p.latency_s.value) for p in far])
    for name, seconds in latency.items():
        found[name]["bandwidth"] = _rate(max(_both_ways([p for p in far if name in (host[p.source], host[p.target])])))
        found[name]["latency"] = f"{_plain(seconds * 1e6)}us"
    by_kind = {host_kind(platform, number): number for number in reversed(range(len(platform.hosts)))}
    for number, each in enumerate(platform.hosts):
        like = platform.hosts[by_kind[host_kind(platform, number)]].name
        rates = [p.bandwidth_bytes_per_s.value for p in near if host[p.source] == like]
        if rates and sum(d.host == number for d in platform.devices) > 1:
            found[each.name]["copy_bandwidth"] = _rate(float(np.median(rates)))
    return {name: keys for name, keys in found.items() if keys}


def _both_ways(paths: Iterable[Path]) -> list[float]:
    """Bytes/s of each pair of devices: a message each way, at the mean of their times a byte."""
    by_pair: dict[frozenset[str], list[float]] = {}
    for path in paths:
        by_pair.setdefault(frozenset((path.source, path.target)), []).append(1 / path.bandwidth_bytes_per_s.value)
    return [float(1 / np.mean(times)) for times in by_pair.values()]


def _latencies(pairs: list[tuple[str, str, float]]) -> dict[str, float]:
    """Seconds of each host whose sums come nearest to those of pairs; the evenest of them."""
    hosts = list(dict.fromkeys(name for source, target, _ in pairs for name in (source, target)))
    if not hosts:
        return {}
    table = np.array([[name in (source, target) for name in hosts] for source, target, _ in pairs], dtype=np.float64)
    found = np.linalg.lstsq(table, np.array([seconds for *_, seconds in pairs]), rcond=None)[0]
    return dict(zip(hosts, np.maximum(found, 0.0).tolist(), strict=True))


def _rate(bytes_per_s: float) -> str:
    return f"{_plain(bytes_per_s / 1e6)}MB/s"


def _plain(value: float) -> str:
    """Four digits behind the point, without those that say nothing."""
    return f"{value:.4f}".rstrip("0").rstrip(".")
