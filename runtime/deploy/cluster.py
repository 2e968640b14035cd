"""Many hosts at once: check them, prepare them; those of a bundle are brought their parts, and run them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from typing import Any

from runtime.deploy import check, ship
from runtime.deploy import prepare as environments
from runtime.deploy.check import Verdict
from runtime.deploy.connect import Connection, connect
from runtime.deploy.keys import Trust
from runtime.deploy.parcel import Parcel, Shipment
from runtime.deploy.prepare import Wheels
from runtime.deploy.session import OWN_KEY, Session, session
from runtime.deploy.sharing import sharing
from runtime.deploy.ship import Shipped
from runtime.deploy.target import DeployError, Target, each, everywhere
from runtime.errors import CleaveError

BUNDLES = "bundles"
"""Folder of the work folder that bundles are in."""


class Hosts:
    """Open connections to hosts, as far as they answer.

    lost: by host, why there is no connection
    """

    def __init__(self, parcels: Sequence[Parcel], lines: dict[str, Connection], lost: dict[str, Any]) -> None:
        self._parcels = {parcel.target.name: parcel for parcel in parcels}
        self._lines, self._lost = lines, lost
        self._facts: dict[str, dict[str, Any]] = {}

    @property
    def targets(self) -> list[Target]:
        """All of them."""
        return [parcel.target for parcel in self._parcels.values()]

    def check(self, prepare: bool = False, mixed: bool = False) -> list[Verdict]:
        """What is right and wrong with every host. prepare, mixed: as ``check.judge`` takes them"""
        peers = {name: [o.address for other, o in self._lines.items() if other != name] for name in self._lines}
        reached = [target for target in self.targets if target.name in self._lines]
        self._facts, failed = each(reached, lambda target: check.look(self._lines[target.name], peers[target.name]))
        shared, unmarked = self._sharing()
        lost, parcels = {**self._lost, **failed, **unmarked}, list(self._parcels.values())
        return check.judge(parcels, self._facts, lost, shared, self._sizes(), prepare=prepare, mixed=mixed)

    def _sizes(self) -> dict[str, int]:
        """Bytes that a host gets, of those where this is other than all that it needs."""
        return {}

    def _sharing(self) -> tuple[dict[str, str], dict[str, list[str]]]:
        """As ``sharing`` has it, of hosts that may write to their work folder at all."""
        writing = {name: self._lines[name] for name, found in self._facts.items() if found["writable"]}
        return sharing(writing) if len(writing) > 1 else ({}, {})

    def suitable(self, carried: Wheels | None) -> tuple[str, ...]:
        """The packages that suit all hosts, once checked. ``CleaveError`` where none do, or wheels lack some.

        carried: what hosts without an index get
        """
        environments.check_providers(chain(*(parcel.providers for parcel in self._parcels.values())))
        pinned = environments.pins(found["base python"] for found in self._facts.values())
        if carried is not None:
            environments.check_carried(carried, pinned, self._facts.values())
        return pinned

    def prepare(self, packages: tuple[str, ...], carried: Wheels | None) -> dict[str, str]:
        """Make every host's environment; what was done, by host. carried: as ``suitable`` takes it"""
        return everywhere(self.targets, lambda t: environments.prepare(self._lines[t.name], packages, carried))


class Cluster(Hosts):
    """Open connections to the hosts of a bundle: those with a rank, and the one that mpirun starts on."""

    def __init__(
        self,
        shipment: Shipment,
        head: str,
        parcels: Sequence[Parcel],
        lines: dict[str, Connection],
        lost: dict[str, Any],
    ) -> None:
        super().__init__(parcels, lines, lost)
        self._shipment, self._head = shipment, head

    def missing(self) -> dict[str, dict[str, int]]:
        """By host, path → size of what would be sent."""
        return everywhere(self.targets, self._missing)

    def _missing(self, target: Target) -> dict[str, int]:
        return ship.missing(self._lines[target.name], self._area, self._parcels[target.name].files)

    def _sizes(self) -> dict[str, int]:
        """Of hosts whose disk has no room for all: what they lack."""
        tight = [parcel.target for name, parcel in self._parcels.items()
                 if name in self._facts and check.tight(self._facts[name], parcel.size_bytes)]  # fmt: skip
        return {name: sum(files.values()) for name, files in each(tight, self._missing)[0].items()}

    def upload(self) -> dict[str, Shipped]:
        """Bring every host what it lacks. What a host had before stays current where that fails."""

        def bring(target: Target) -> Shipped:
            return ship.ship(self._lines[target.name], self._area, self._parcels[target.name].files)

        return everywhere([parcel.target for parcel in self._shipment.parcels], bring)

    def session(self, shipped: dict[str, Shipped], trust: str = OWN_KEY) -> AbstractContextManager[Session]:
        """Ready to run what was uploaded."""
        self._can_start()
        releases = {name: each.release for name, each in shipped.items()}
        return session(self._shipment, self._lines, self._facts, releases, self._head, trust)

    def _can_start(self) -> None:
        """``DeployError`` where the head host cannot reach the others at all."""
        if len(self._lines) > 1 and self._facts[self._head]["ssh"] is None:
            raise DeployError({self._head: ["has no ssh to start ranks on other hosts with: install openssh-client"]})

    @property
    def _area(self) -> str:
        return f"{BUNDLES}/{self._shipment.name}"


def check_head(head: str | None, hosts: Sequence[str]) -> None:
    """``CleaveError`` where it is none of the hosts."""
    if head is not None and head not in hosts:
        raise CleaveError(f"--head {head}: the platform has no such host (it has {', '.join(hosts)})")


@contextmanager
def cluster(
    shipment: Shipment, targets: Sequence[Target], head: str | None, trust: Trust, password: str | None = None
) -> Iterator[Cluster]:
    """Connections to all hosts of a bundle and to the head host, until the block ends.

    targets: of the platform; head: name of one of them; None: the first that has a rank
    """
    names = {target.name: target for target in targets}
    check_head(head, list(names))
    parcels = list(shipment.parcels)
    first = next(t.name for t in targets if t.name in {parcel.target.name for parcel in parcels})
    if head is not None and head not in {parcel.target.name for parcel in parcels}:
        parcels.append(Parcel(names[head]))
    with _lines(parcels, trust, password) as (opened, lost):
        yield Cluster(shipment, head or first, parcels, opened, lost)


@contextmanager
def connections(parcels: Sequence[Parcel], trust: Trust, password: str | None = None) -> Iterator[Hosts]:
    """Connections to hosts, with or without a bundle, until the block ends."""
    with _lines(parcels, trust, password) as (opened, lost):
        yield Hosts(parcels, opened, lost)


@contextmanager
def _lines(
    parcels: Sequence[Parcel], trust: Trust, password: str | None
) -> Iterator[tuple[dict[str, Connection], dict[str, list[str]]]]:
    """Connections, and what went wrong where there is none, by host, until the block ends."""
    opened: list[Connection] = []

    def open_(target: Target) -> Connection:
        connection = connect(target, trust, password)
        opened.append(connection)
        return connection

    try:
        yield each([parcel.target for parcel in parcels], open_)
    finally:
        for connection in opened:
            connection.close()


def refused(verdicts: Sequence[Verdict]) -> None:
    """``DeployError`` with everything that keeps hosts from taking part."""
    failures = {verdict.host: verdict.failures for verdict in verdicts if verdict.failures}
    if failures:
        raise DeployError(dict(failures), {verdict.host for verdict in verdicts if verdict.overloaded})
