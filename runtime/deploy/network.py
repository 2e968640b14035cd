"""What mpirun on the head host needs to reach the others: configuration files, and words of its command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.communicator import EAGER_BYTES
from runtime.deploy.connect import Connection
from runtime.deploy.keys import entry
from runtime.deploy.target import DeployError
from runtime.launch import Mpirun
from runtime.plan import Plan

PIECES = "send,inplace,need-ack,need-csum,hetero-rdma"
"""How TCP takes messages beyond ``EAGER_BYTES``: in pieces of 128 kB. All that Open MPI has but ``put``: by that one
goes in one piece, and the answer that lets another come the other way waits behind it. 4 MB each way at once took 71 ms
instead of 37, one way 36 (1 Gbit/s), and VGG-16 in halves 410 ms a frame instead of 375 (``tests.bench.crossing``)."""
TRANSPORT: tuple[str, ...] = (
    *("--mca", "pml", "ob1", "--mca", "btl", "^ofi"),
    *("--mca", "btl_tcp_eager_limit", str(EAGER_BYTES + 256), "--mca", "btl_tcp_flags", PIECES),
)
"""Of messages. With a message's own bytes goes what it is.

Without ``ofi``, which carries none of them but has libfabric look for a way first: a second of sleep at each start.
"""

COMMON = (
    "StrictHostKeyChecking yes",
    "GlobalKnownHostsFile /dev/null",
    "BatchMode yes",
    "ConnectTimeout 10",
    "ServerAliveInterval 5",
    "ServerAliveCountMax 4",
    "ClearAllForwardings yes",
)


@dataclass(frozen=True)
class Site:
    """A run on one host. root: its folder there; python: that its scripts run with; networks: ``10.0.0.0/24`` …

    root_user: whether its user is root, which mpirun must be told to allow
    """

    connection: Connection
    root: str
    python: str
    root_user: bool
    networks: tuple[str, ...]

    @property
    def gate(self) -> str:
        """The command that starts an MPI daemon there."""
        return f"{shlex.quote(self.python)} -I {shlex.quote(self.root + '/gate.py')}"

    @property
    def agent(self) -> str:
        """The program ``agent`` there, which is ``agent.py``. A first line with its Python could have no blanks."""
        return f'#!/bin/sh\nexec {shlex.quote(self.python)} -I {shlex.quote(self.root + "/agent.py")} "$@"\n'


def networks(interface: str | None, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The network of an interface; without one those that lead to the other hosts. Boards have more: docker0, usb0."""
    known = facts["interfaces"]
    if interface is not None:
        return (known[interface]["network"],) if interface in known else ()
    ways = {source for source in facts["sources"].values() if source}
    return tuple(sorted({each["network"] for each in known.values() if each["address"] in ways}))


def head_files(head: Site, others: Sequence[Site], own_key: bool) -> dict[str, str]:
    """``ssh_config``, ``known_hosts`` and ``agent.json`` for the head host: whom it may speak with, and as whom."""
    known = [f"{entry(s.connection.address, s.connection.port)} {s.connection.host_key}\n" for s in others]
    gates = {name: site.gate for site in others for name in names(site.connection.address)}
    blocks = [_block(head.root, site.connection, own_key) for site in others]
    return {"ssh_config": "".join(blocks), "known_hosts": "".join(known), "agent.json": json.dumps(gates)}


def names(address: str) -> list[str]:
    """What Open MPI calls a host: 4.1 leaves the domain of a name out."""
    short = address.partition(".")[0]
    return [address] if ":" in address or short.isdigit() or short == address else [address, short]


def _block(root: str, connection: Connection, own_key: bool) -> str:
    """One host in ``ssh_config``."""
    words = [f"HostName {connection.address}", f"Port {connection.port}", f"User {connection.user}", *COMMON]
    words.append(f'UserKnownHostsFile "{root}/known_hosts"')
    if own_key:
        words += [f'IdentityFile "{root}/key"', "IdentitiesOnly yes", "IdentityAgent none"]
    return f"Host {' '.join(names(connection.address))}\n" + "".join(f"    {word}\n" for word in words)


def run_files(plan: Plan, addresses: Mapping[str, str]) -> dict[str, str]:
    """Hostfile and rankfile with the addresses that hosts have now. addresses: by host"""
    slots = dict.fromkeys(addresses.values(), 0)
    ranks = []
    for rank in plan.ranks:
        slots[addresses[rank.host]] += 1
        cores = f" slots={','.join(map(str, rank.cores))}" if rank.cores else ""
        ranks.append(f"rank {rank.rank}={addresses[rank.host]}{cores}\n")
    hosts = [f"{address} slots={count}\n" for address, count in slots.items() if count]
    return {"hostfile": "".join(hosts), "rankfile": "".join(ranks)}


def command(mpirun: Mpirun, head: Site, sites: Sequence[Site], rankfile: str, ranks: int) -> list[str]:
    """mpirun and its words, up to the options of the programs."""
    found = list(dict.fromkeys(network for site in sites for network in site.networks))
    words = [mpirun.path, "-n", str(ranks), "--hostfile", f"{head.root}/hostfile"]
    words += mpirun.place(f"{head.root}/rankfile", rankfile) + (["--allow-run-as-root"] if head.root_user else [])
    words += TRANSPORT
    if mpirun.version >= (5, 0):
        agent, daemons, interface = "ssh", "--prtemca", "prte_if_include"
    else:
        agent, daemons, interface = "rsh", "--mca", "oob_tcp_if_include"
    words += [daemons, f"plm_{agent}_agent", f"{head.root}/agent", daemons, f"plm_{agent}_no_tree_spawn", "1"]
    if found and len(sites) > 1:
        words += [daemons, interface, ",".join(found), "--mca", "btl_tcp_if_include", ",".join(found)]
    return [*words, "/bin/sh", "-c", 'exec "$CLEAVE_LAUNCH" "$@"', "rank"]


def distinct(connections: Sequence[Connection]) -> None:
    """``DeployError`` where mpirun could not tell two hosts apart."""
    seen: dict[str, str] = {}
    for connection in connections:
        short = names(connection.address)[-1]
        other = seen.setdefault(short, connection.target.name)
        if other != connection.target.name:
            sentence = f"has the same address as {other} ({short}): mpirun takes them for one"
            raise DeployError({connection.target.name: [sentence]})
