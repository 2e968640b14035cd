"""The methods for each objective: a name, and a function of a workload and options."""

from __future__ import annotations

from dse.place import fastest, noncontiguous
from dse.place.baselines import expert, greedy
from dse.place.local import local_search
from dse.place.period import dp, dpl, pipedream
from dse.place.placed import Method

PERIOD, LATENCY = "period", "latency"

METHODS: dict[str, dict[str, Method]] = {
    PERIOD: {
        "dp": dp,
        "dpl": dpl,
        "greedy": greedy,
        "local-search": local_search,
        "pipedream": pipedream,
        "expert": expert,
        "ip": noncontiguous.ip,
    },
    LATENCY: {
        "series": fastest.series,
        "chain": fastest.chain,
        "greedy": fastest.greedy,
        "max-load": fastest.max_load,
    },
}


def usual(objective: str, contiguous: bool) -> str:
    """The method for an objective where none is named: the first; ``ip`` for splits that need not be contiguous."""
    return "ip" if objective == PERIOD and not contiguous else next(iter(METHODS[objective]))
