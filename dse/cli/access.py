"""How the command line gets to the hosts of a platform."""

from __future__ import annotations

import getpass
import re
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

import typer
from rich.console import Console

from dse import show
from dse.cli.options import one_of
from dse.ready import HERE, Ready
from model.cluster.platform import Platform
from runtime.deploy.cluster import Cluster, Hosts, cluster, connections, refused
from runtime.deploy.far.facts import hardware, version
from runtime.deploy.keys import Trust, trust
from runtime.deploy.parcel import Parcel, pack
from runtime.deploy.session import OWN_KEY, TRUSTS
from runtime.deploy.target import WORK, DeployError, Target
from runtime.errors import CleaveError
from runtime.launch import Mpirun, read_plan
from runtime.launch import run as run_here


@dataclass(frozen=True)
class Login:
    """How to get to the hosts, as options say it. ``CleaveError`` for those that cannot be."""

    known_hosts: Annotated[
        list[Path], typer.Option("--known-hosts", metavar="FILE", help="Host keys, besides those of ~/.ssh/known_hosts")
    ] = field(default_factory=list)
    pin: Annotated[list[str], typer.Option("--pin", metavar="HOST=SHA256:…", help="Fingerprint of a host's key")] = (
        field(default_factory=list)
    )
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="Private key to log in with [as ssh does it]")
    ] = None
    ask_password: Annotated[
        bool, typer.Option("--ask-password", help="Ask for a password to log in with, or of the key")
    ] = False
    work: Annotated[
        str, typer.Option("--work", metavar="DIR", help="Folder on the hosts, in the home folder or not")
    ] = WORK
    python: Annotated[
        str,
        typer.Option(
            "--python", metavar="PATH", help="Python on the hosts, 3.8 or later; ranks take that of dse prepare, if any"
        ),
    ] = "python3"
    mixed: Annotated[bool, typer.Option("--mixed", help="Let versions of Python packages differ between hosts")] = False

    def __post_init__(self) -> None:
        if not re.fullmatch("(~/)?[A-Za-z0-9_./-]+", self.work) or ".." in self.work.split("/"):
            raise CleaveError(f"--work {self.work!r}: only letters, digits, '.', '-', '_' and '/', and no '..'")
        if self.key is not None and not self.key.is_file():
            raise CleaveError(f"--key {self.key}: there is no such file")

    @property
    def given(self) -> list[str]:
        """The options that say something else than usual."""
        usual = type(self)()
        names = [each.name for each in fields(self) if getattr(self, each.name) != getattr(usual, each.name)]
        return [f"--{name.replace('_', '-')}" for name in names]

    def less(self, hosts: Collection[str]) -> Self:
        """Without what is said of hosts that are left alone."""
        return replace(self, pin=[pin for pin in self.pin if pin.partition("=")[0] not in hosts])

    def refuse(self) -> None:
        """``CleaveError`` where an option was given although all hosts are this machine."""
        for option in self.given:
            raise CleaveError(f"{option} says how hosts are reached, and all of these are this machine; leave it out")

    @cached_property
    def password(self) -> str:
        """Asked for once."""
        return getpass.getpass("password: ")


@dataclass(frozen=True)
class Access(Login):
    """The same of hosts that get a bundle."""

    head: Annotated[
        str | None, typer.Option("--head", metavar="HOST", help="Host of mpirun [the first with a rank]")
    ] = None


@dataclass(frozen=True)
class Running(Access):
    """The same of hosts that run it."""

    trust: Annotated[
        str, typer.Option("--trust", help="How hosts let mpirun in: key (made for this run), or existing")
    ] = OWN_KEY

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("--trust", self.trust, TRUSTS)


@contextmanager
def connected(
    bundle: Path, platform: Platform, access: Access, name: str | None = None, replan: bool = False
) -> Iterator[Cluster]:
    """Connections to the hosts of a bundle.

    name: as ``pack`` takes it
    replan: an error that is some hosts' alone says how to go on without them, for a command that has the options
    """
    if is_here(bundle, platform):
        raise CleaveError(f"{bundle}: all its hosts are this machine, where it is already; dse bench runs it")
    if here := _here_too(bundle, platform):
        raise CleaveError(f"{bundle}: has ranks on {here[0]}, which is this machine, and on other hosts, to which "
                          "localhost is not: give it its address in the network (address=)")  # fmt: skip
    known = _targets(platform, access)
    shipment = pack(bundle, known, name)
    try:
        with cluster(shipment, known, access.head, *_allowed(known, access)) as found:
            yield found
    except DeployError as error:
        way_on = without({target.name for target in shipment.targets}, error) if replan else []
        raise CleaveError(*error.sentences, *way_on) from error


@contextmanager
def reached(say: Console, platform: Platform, access: Login) -> Iterator[Hosts]:
    """Connections to all hosts of a platform that are not this machine, whatever is to run there."""
    targets = [target for target in _targets(platform, access) if target.address not in HERE]
    if not targets:
        raise CleaveError(f"{platform.name}: all its hosts are this machine, where ranks run as this command does")
    show.line(say, f"asking {', '.join(target.name for target in targets)}")
    with connections(_parcels(platform, targets), *_allowed(targets, access)) as found:
        yield found


def unfit(say: Console, platform: Platform, access: Login) -> DeployError:
    """What keeps hosts from taking part, maybe nothing; raised where none can. This machine always can."""
    here = [host.address in HERE for host in platform.hosts]
    if all(here):
        access.refuse()
        return DeployError({})
    with reached(say, platform, access) as hosts:
        verdicts = hosts.check(mixed=access.mixed)
    if not any(here) and all(verdict.failures for verdict in verdicts):
        refused(verdicts)
    return DeployError({verdict.host: verdict.failures for verdict in verdicts if verdict.failures})


def _parcels(platform: Platform, targets: list[Target]) -> list[Parcel]:
    """What each host needs for ranks on all its devices."""
    found = []
    for target in targets:
        devices = [device for device in platform.devices if platform.hosts[device.host].name == target.name]
        cores = frozenset(core for device in devices for core in device.cores)
        found.append(Parcel(target, cores=cores, providers=frozenset(device.provider for device in devices)))
    return found


def _allowed(targets: list[Target], access: Login) -> tuple[Trust, str | None]:
    """Which host keys are believed, and the password to log in with."""
    believed = trust(access.known_hosts, access.pin, [target.name for target in targets])
    return believed, access.password if access.ask_password else None


def without(used: set[str], error: DeployError, then: str = " --replan") -> list[str]:
    """How to go on without hosts that failed, where others of those used did not. then: another option that it takes"""
    lost = [host for host in error.failures if host in used]
    if not lost or len(lost) == len(used):
        return []
    options = " ".join(f"--exclude {host}" for host in lost)
    return [f"to go on without {', '.join(lost)}, add {options}{then}"]


def _targets(platform: Platform, access: Login) -> list[Target]:
    """The hosts of a platform as the runtime takes them."""
    return [
        Target(
            name=host.name,
            address=host.address,
            user=host.user,
            port=host.port,
            key=str(access.key) if access.key else None,
            arch=host.arch,
            interface=host.interface,
            work=access.work,
            python=access.python,
        )
        for host in platform.hosts
    ]


def placed(platform: Platform, access: Running, bundle: Path) -> AbstractContextManager[Ready]:
    """Bring a bundle to its hosts; one whose hosts are all this machine is there.

    It is one of many that come after one another, each in a place of its own for as long as it runs. So its name alone
    is that of its folder on hosts: they keep the files that these have in common, and no folder of each.
    """
    return _here(bundle) if is_here(bundle, platform) else _there(platform, access, bundle)


def is_here(bundle: Path, platform: Platform) -> bool:
    """Whether all hosts of a bundle are this machine, as the platform has them, whatever it was made for."""
    return len(_here_too(bundle, platform)) == len({rank.host for rank in read_plan(bundle).ranks})


def _here_too(bundle: Path, platform: Platform) -> list[str]:
    """The hosts of a bundle that are this machine."""
    address = {host.name: host.address for host in platform.hosts}
    hosts = dict.fromkeys(rank.host for rank in read_plan(bundle).ranks)
    return [host for host in hosts if address.get(host) in HERE]


@contextmanager
def _there(platform: Platform, access: Running, bundle: Path) -> Iterator[Ready]:
    with connected(bundle, platform, access, bundle.name) as hosts:
        verdicts = hosts.check(mixed=access.mixed)
        refused(verdicts)
        facts = {v.host: {**v.raw["hardware"], "open mpi": str(v.raw["open mpi"])} for v in verdicts}
        with hosts.session(hosts.upload(), access.trust) as session:
            yield Ready(session.run, facts[verdicts[0].host], facts)


@contextmanager
def _here(bundle: Path) -> Iterator[Ready]:
    facts = {**hardware(), "open mpi": str(version(Mpirun.find().path))}
    hosts = {rank.host: facts for rank in read_plan(bundle).ranks}
    yield Ready(lambda options, time_s: run_here(bundle, options, timeout_s=time_s), facts, hosts)
