"""The energy of hosts, on the workstation: estimates where no meter measured, idle power subtracted on request.

An estimate is declared watts times measured time: what the idle host draws, all the time, and what each of its
devices draws on top of that while its processor computes. Without the idle power it is the energy that the cost model
predicts, by measured times, but for what that adds for messages.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from runtime.errors import CleaveError
from runtime.plan import Plan, RankPlan
from runtime.trace import ESTIMATE, Trace, Usage


def accounted(trace: Trace, plan: Plan, above_idle: bool = False) -> Trace:
    """A measured trace with the energies that can be told of its hosts, each at the host's first rank.

    above_idle: without what the idle host would have drawn in that time
    """
    usages = {usage.rank: usage for usage in trace.ranks}
    for ranks in _hosts(plan):
        usage = _noted(usages[ranks[0].rank], ranks[0].meter)
        known = usage if usage.energy_j is not None else _estimated(trace, usage, ranks, above_idle)
        usages[usage.rank] = _above_idle(known, ranks[0].idle_w) if above_idle else known
    return replace(trace, ranks=tuple(usages.values()))


def check_idle(plan: Plan) -> None:
    """``CleaveError`` where a host is metered and its idle power is not known, or no host will have an energy."""
    hosts = _hosts(plan)
    if not any(ranks[0].meter or _is_declared(ranks) for ranks in hosts):
        raise CleaveError("--above-idle: no host of this bundle has a meter or its power in the platform file, so that "
                          "there is no energy to subtract from; leave it out")  # fmt: skip
    unknown = [ranks[0].host for ranks in hosts if ranks[0].meter and ranks[0].idle_w is None]
    if unknown:
        why = "has a meter, but no idle_power in the platform file of this bundle: it cannot be subtracted"
        raise CleaveError(*(f"{host} {why}" for host in unknown))


def _hosts(plan: Plan) -> list[list[RankPlan]]:
    """The ranks of each host, in order."""
    hosts: dict[str, list[RankPlan]] = {}
    for rank in plan.ranks:
        hosts.setdefault(rank.host, []).append(rank)
    return list(hosts.values())


def _noted(usage: Usage, meter: str | None) -> Usage:
    """With a word on a meter that the program did not read."""
    silent = meter and usage.energy_j is None and usage.energy_note is None
    return replace(usage, energy_note=f"meter {meter}: was not read; programs in C++ read none") if silent else usage


def _is_declared(ranks: list[RankPlan]) -> bool:
    """Whether it is known what all devices of a host draw while they compute."""
    return all(rank.busy_w is not None for rank in ranks)


def _estimated(trace: Trace, usage: Usage, ranks: list[RankPlan], above_idle: bool) -> Usage:
    """Declared watts times measured time, where all watts that it takes are declared."""
    time_s = sum(trace.latencies_s) / len(trace.frames) if trace.barrier else trace.period_s
    idle_w = ranks[0].idle_w or 0.0 if above_idle else ranks[0].idle_w
    if time_s is None or idle_w is None or not _is_declared(ranks):
        return usage
    energy_j = idle_w * time_s + sum((rank.busy_w or 0.0) * _busy_s(trace, rank.rank) for rank in ranks)
    return replace(usage, energy_j=energy_j, energy_time_s=time_s, energy_source=ESTIMATE)


def _busy_s(trace: Trace, rank: int) -> float:
    """Seconds that a rank's processor computes in a frame, mean."""
    place = [usage.rank for usage in trace.ranks].index(rank)
    return fmean(trace.busy_s(frame)[place] for frame in range(len(trace.frames)))


def _above_idle(usage: Usage, idle_w: float | None) -> Usage:
    if usage.energy_j is None or usage.energy_time_s is None:
        return usage
    return replace(usage, energy_j=usage.energy_j - (idle_w or 0.0) * usage.energy_time_s)
