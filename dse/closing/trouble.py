"""Which hosts are left alone: they fail whatever they are to run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

PATIENCE = 2
"""A host that failed in so many rounds, and did nothing well since, is left alone; for the rest of a round one that has
failed in it once: it may be starting anew."""


@dataclass(eq=False)
class Trouble:
    """What is known of hosts, by name.

    unfit: nothing can be run there; now: the round that it is
    rounds: that a host failed in since something went well there
    """

    unfit: frozenset[str] = frozenset()
    now: int = 0
    rounds: dict[str, set[int]] = field(default_factory=dict)

    def failed(self, hosts: Iterable[str]) -> None:
        """These did."""
        for host in hosts:
            self.rounds.setdefault(host, set()).add(self.now)

    def did_well(self, hosts: Iterable[str]) -> None:
        """These have run something."""
        for host in hosts:
            self.rounds.pop(host, None)

    @property
    def gone(self) -> frozenset[str]:
        """Those that are left alone."""
        return self.unfit | {host for host, in_ in self.rounds.items() if len(in_) >= PATIENCE or self.now in in_}
