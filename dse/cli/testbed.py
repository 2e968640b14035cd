"""The command line of testbeds: ``dse testbed up | down | status``."""

from __future__ import annotations

import shlex
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from dse import show
from dse.cli.options import DryRunOption, JsonOption, console, print_json, tell_dry
from dse.testbed import access, lifecycle, needs, spec, state
from dse.testbed.spec import HostSpec
from dse.testbed.state import Testbed
from runtime.errors import CleaveError

app = typer.Typer(
    help="A cluster in a box: several hosts on this Linux machine, with SSH, limited links and slower processors.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
DEFAULT = "testbed"
NameOption = Annotated[str, typer.Option("--name", help="Of the testbed, where there are several")]


@app.command()
def up(
    spec_file: Annotated[
        str, typer.Option("--spec", metavar="FILE", help=f"Hosts, or a shipped spec: {', '.join(spec.SPECS.names)}")
    ],
    out: Annotated[Path, typer.Option("--out", help="New folder for platform file, key and known_hosts")],
    name: NameOption = DEFAULT,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Put up a testbed. Needs root, iproute2 and openssh-server."""
    testbed = lifecycle.plan(name, spec.read(spec_file), out)
    if dry_run:
        hosts = [host.name for host in testbed.hosts]
        sentence = f"nothing is missing; would put up {', '.join(hosts)} and write {out}"
        tell_dry(as_json, sentence, would_put_up=hosts, would_write=[str(out)])
        return
    testbed = lifecycle.up(testbed)
    if as_json:
        print_json(_body(testbed, lifecycle.status(testbed)))
        return
    _table(testbed)
    show.line(console, f"log in: {login(testbed)}")
    show.line(console, f"use it: {options(testbed)}")
    show.line(console, f"end it: dse testbed down{'' if name == DEFAULT else f' --name {name}'}")


@app.command()
def down(
    name: NameOption = DEFAULT,
    every: Annotated[bool, typer.Option("--all", help="Every testbed of this machine")] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take down a testbed, or what a crash has left of it. Removes what up has made, and nothing else."""
    if every and name != DEFAULT:
        raise CleaveError(f"--name {name} says nothing with --all: every testbed would be taken down; leave one out")
    asked = lifecycle.names() if every else [state.check_name(name)]
    found = [one for one in asked if one in lifecycle.names()]
    nothing = "" if found else f"nothing to take down: {'no testbed' if every else f'no testbed {name!r}'} is up"
    if dry_run:
        tell_dry(as_json, nothing or f"would take down {', '.join(found)}", would_take_down=found)
        return
    problems = (needs.rights() or needs.programs()) if found else []
    if problems:
        raise CleaveError(*problems)
    for one in found:
        lifecycle.down(one)
    print_json({"down": found}) if as_json else show.line(console, nothing or f"took down {', '.join(found)}")


@app.command()
def status(as_json: JsonOption = False) -> None:
    """Show the testbeds of this machine: hosts, limits, and whether one can log in."""
    found = {name: state.load(name) for name in lifecycle.names()}
    if as_json:
        whole = [_body(testbed, lifecycle.status(testbed)) for testbed in found.values() if testbed]
        print_json({"testbeds": whole, "broken": [name for name, testbed in found.items() if testbed is None]})
        return
    if not found:
        show.line(console, "no testbed is up")
    for name, testbed in found.items():
        if testbed is None:
            show.line(console, f"testbed '{name}' was never finished; remove it: dse testbed down --name {name}")
        else:
            show.line(console, f"testbed '{name}', its files in {testbed.out}")
            _table(testbed)


def _table(testbed: Testbed) -> None:
    headers = ["host", "address", "cores", "share", "memory", "link", "ssh", "processes"]
    rows = [
        [one.spec.name, one.address, *_limits(one.spec), "answers" if one.answers else "silent", one.processes]
        for one in lifecycle.status(testbed)
    ]
    console.print(show.table(headers, rows, text=2))


def _limits(host: HostSpec) -> list[str]:
    cores = ",".join(map(str, host.cores))
    return [cores, f"{host.share:.4g}", f"{host.memory_bytes / 1e6:g} MB", access.bandwidth(host.bandwidth_bytes_per_s)]


def options(testbed: Testbed) -> str:
    """How commands get to its hosts."""
    files = [str(Path(testbed.out) / file) for file in (access.PLATFORM, access.KEY, access.KNOWN_HOSTS)]
    names = ("--platform", "--key", "--known-hosts", "--python")
    return shlex.join(chain.from_iterable(zip(names, (*files, testbed.python), strict=True)))


def login(testbed: Testbed) -> str:
    """How a person gets into the first host."""
    out, host = Path(testbed.out), testbed.hosts[0].name
    known = f'UserKnownHostsFile="{out / access.KNOWN_HOSTS}"'
    return shlex.join(["ssh", "-i", str(out / access.KEY), "-o", known, f"{state.USER}@{testbed.address(host)}"])


def _body(testbed: Testbed, hosts: list[lifecycle.HostStatus]) -> dict[str, Any]:
    """A testbed as plain data; SI units."""
    out = Path(testbed.out)
    return {
        "name": testbed.name,
        "platform": str(out / access.PLATFORM),
        "key": str(out / access.KEY),
        "known_hosts": str(out / access.KNOWN_HOSTS),
        "user": state.USER,
        "python": testbed.python,
        "hosts": [
            {
                "name": host.spec.name,
                "address": host.address,
                "cores": list(host.spec.cores),
                "share": host.spec.share,
                "memory_bytes": host.spec.memory_bytes,
                "bandwidth_bytes_per_s": host.spec.bandwidth_bytes_per_s,
                "answers": host.answers,
                "processes": host.processes,
            }
            for host in hosts
        ],
    }
