"""``dse prepare``: every host of a platform is looked at, and given the environment that ranks run in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dse import show
from dse.cli.access import Login, reached, without
from dse.cli.bundle import Excluded
from dse.cli.group import grouped
from dse.cli.options import DryRunOption, JsonOption, PlatformOption, aside, console, print_json
from model.cluster.platform import Platform
from runtime.deploy import prepare as environments
from runtime.deploy.check import Verdict
from runtime.deploy.cluster import Hosts, refused
from runtime.deploy.target import DeployError
from runtime.errors import CleaveError


@dataclass(frozen=True)
class Packages:
    """What is installed on hosts, as options say it."""

    wheels: Annotated[
        Path | None, typer.Option("--wheels", metavar="DIR", help="Packages for hosts that reach no index")
    ] = None
    requirements: Annotated[
        Path | None, typer.Option("--requirements", metavar="FILE", help="Packages in place of the usual ones")
    ] = None

    def read(self) -> Installs:
        """Read them, as far as they are given."""
        packages = environments.requirements(self.requirements) if self.requirements else None
        return Installs(packages, environments.wheels(self.wheels) if self.wheels else None)


@dataclass(frozen=True)
class Environment(Packages):
    """The same for a command that has something else to do."""

    prepare: Annotated[bool, typer.Option("--prepare", help="Make the Python environment of the ranks first")] = False

    def read(self) -> Installs:
        """``CleaveError`` for options that say nothing."""
        if not self.prepare and (self.wheels or self.requirements):
            raise CleaveError("--wheels and --requirements say what --prepare installs: add --prepare")
        return super().read()


@dataclass(frozen=True)
class Installs:
    """packages: None: those that suit all hosts; carried: for hosts that reach no index"""

    packages: tuple[str, ...] | None
    carried: environments.Wheels | None

    def make(self, hosts: Hosts, dry: bool = False) -> dict[str, str]:
        """Make the environment of every host that was checked; what was done, by host. dry: what would be"""
        packages = self.packages or hosts.suitable(self.carried)
        if dry:
            return {target.name: f"would have {' '.join(packages)}" for target in hosts.targets}
        return hosts.prepare(packages, self.carried)


@grouped
def prepare(
    platform: PlatformOption,
    *,
    packages: Packages,
    excluded: Excluded,
    access: Login,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check every host of a platform, and make the Python environment that ranks run in."""
    installs, body, say = packages.read(), dict[str, Any](), aside(as_json)
    left = excluded.left(Platform.from_file(platform))
    try:
        with reached(say, left, access.less(excluded.exclude)) as hosts:
            checked(hosts, True, access.mixed, body, as_json, show_table=dry_run)
            if not dry_run:
                show.line(say, "making what is not there yet of their environments, which takes minutes the first time")
            body["prepared"] = installs.make(hosts, dry_run)
            if not dry_run:
                checked(hosts, False, access.mixed, body, as_json)
    except DeployError as error:
        raise CleaveError(*error.sentences, *without({host.name for host in left.hosts}, error, then="")) from error
    if as_json:
        print_json({"dry_run": dry_run, **body})
    else:
        show.line(
            console, "\n".join(f"{'dry run: ' * dry_run}{host}: {done}" for host, done in body["prepared"].items())
        )


def checked(
    hosts: Hosts, prepare: bool, mixed: bool, body: dict[str, Any], as_json: bool, show_table: bool = True
) -> None:
    """Look at every host and show it; ``DeployError`` where one cannot take its part."""
    verdicts = hosts.check(prepare, mixed)
    body["hosts"] = [{"host": v.host, "verdict": v.word, "failures": v.failures, "warnings": v.warnings, **v.facts}
                     for v in verdicts]  # fmt: skip
    bad = any(verdict.failures for verdict in verdicts)
    if as_json and bad:
        print_json(body)
    if not as_json and (show_table or bad):
        table(console, verdicts)
    refused(verdicts)


def table(target: Console, verdicts: Sequence[Verdict]) -> None:
    """Every host with its verdict, and a line for what is worth knowing."""
    names = list(dict.fromkeys(name for verdict in verdicts for name in verdict.facts))
    rows = [[v.host, v.word, *[v.facts.get(name, "") for name in names]] for v in verdicts]
    target.print(show.table(["host", "verdict", *names], rows, text=2), markup=False)
    for verdict in verdicts:
        for sentence in verdict.warnings:
            show.line(target, f"{verdict.host}: {sentence}")
