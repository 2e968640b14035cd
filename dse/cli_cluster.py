"""The command line of clusters: ``dse deploy``, and ``dse bench`` here or there."""

from __future__ import annotations

import getpass
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from codegen.bundle import check_source
from codegen.verify import Verification, verify
from dse import show
from dse.cli_options import (
    BundleArgument,
    ChannelsOption,
    DryRunOption,
    InputOption,
    JsonOption,
    MeanOption,
    PlatformOption,
    ScaleOption,
    check_bundle,
    console,
    one_of,
    pixels,
    print_json,
)
from dse.inputs import cnn_path
from model.platform import Platform
from runtime import bench as benching
from runtime.deploy import prepare as environments
from runtime.deploy.check import Verdict
from runtime.deploy.cluster import Cluster, cluster, refused
from runtime.deploy.keys import trust
from runtime.deploy.parcel import pack
from runtime.deploy.session import OWN_KEY, TRUSTS
from runtime.deploy.ship import Shipped
from runtime.deploy.target import WORK, Target
from runtime.errors import CleaveError
from runtime.frames import save_text
from runtime.images import Pixels
from runtime.perfetto import to_perfetto
from runtime.segment import CPU

KnownOption = Annotated[
    list[Path], typer.Option("--known-hosts", metavar="FILE", help="Host keys, besides those of ~/.ssh/known_hosts")
]
PinOption = Annotated[list[str], typer.Option("--pin", metavar="HOST=SHA256:…", help="Fingerprint of a host's key")]
KeyOption = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="Private key to log in with [as ssh does it]")
]
PasswordOption = Annotated[
    bool, typer.Option("--ask-password", help="Ask for a password to log in with, or of the key")
]
WorkOption = Annotated[
    str, typer.Option("--work", metavar="DIR", help="Folder on the hosts, in the home folder or not")
]
PythonOption = Annotated[str, typer.Option("--python", metavar="PATH", help="Python on the hosts, 3.8 or later")]
HeadOption = Annotated[
    str | None, typer.Option("--head", metavar="HOST", help="Host of mpirun [the first with a rank]")
]
MixedOption = Annotated[bool, typer.Option("--mixed", help="Let versions of Python packages differ between hosts")]


@dataclass(frozen=True)
class Access:
    """How to get to the hosts, as the options say it."""

    known_hosts: Sequence[Path]
    pins: Sequence[str]
    key: Path | None
    ask_password: bool
    work: str
    python: str
    head: str | None


def deploy(
    bundle: BundleArgument,
    platform: PlatformOption,
    prepare: Annotated[bool, typer.Option("--prepare", help="Make the Python environment of the ranks first")] = False,
    wheels: Annotated[
        Path | None, typer.Option("--wheels", metavar="DIR", help="Packages for hosts that reach no index")
    ] = None,
    requirements: Annotated[
        Path | None, typer.Option("--requirements", metavar="FILE", help="Packages in place of the usual ones")
    ] = None,
    known_hosts: KnownOption = [],
    pin: PinOption = [],
    key: KeyOption = None,
    ask_password: PasswordOption = False,
    work: WorkOption = WORK,
    python: PythonOption = "python3",
    head: HeadOption = None,
    mixed: MixedOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Bring a bundle to its hosts. Checks every host, sends what each rank needs and has not got yet."""
    if not prepare and (wheels or requirements):
        raise CleaveError("--wheels and --requirements say what --prepare installs: add --prepare")
    packages = environments.requirements(requirements) if requirements else None
    carried = environments.wheels(wheels) if wheels else None
    access = Access(known_hosts, pin, key, ask_password, work, python, head)
    body: dict[str, Any] = {"bundle": str(bundle)}
    with _cluster(bundle, platform, access) as hosts:
        _check(hosts, prepare, mixed, body, as_json)
        if dry_run:
            missing = hosts.missing()
            body["would_send"] = missing
            _done(body, as_json, [_would(host, files) for host, files in missing.items()])
            return
        if prepare:
            body["prepared"] = hosts.prepare(packages, carried)
            _check(hosts, False, mixed, body, as_json)
        shipped = hosts.upload()
    body["sent"] = {host: asdict(one) | {"sent_bytes": one.sent_bytes} for host, one in shipped.items()}
    _done(body, as_json, [_sent(one) for one in shipped.values()])


def bench(
    bundle: BundleArgument,
    platform: Annotated[
        Path | None, typer.Option("--platform", help="Run on the hosts of this platform file [on this machine]")
    ] = None,
    warmup: Annotated[int, typer.Option(min=0, help="Frames before those that count")] = 4,
    frames: Annotated[int, typer.Option(min=1, help="Frames that count")] = 20,
    input: InputOption = None,
    mean: MeanOption = "0",
    scale: ScaleOption = "1",
    channels: ChannelsOption = "rgb",
    check: Annotated[
        bool, typer.Option("--verify/--no-verify", help="On a platform: compare with the whole model too")
    ] = True,
    cnn: Annotated[str | None, typer.Option("--cnn", help="The whole model, if it has moved")] = None,
    trusting: Annotated[
        str, typer.Option("--trust", help="How hosts let mpirun in: key (made for this run), or existing")
    ] = OWN_KEY,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Most seconds of each run")] = 600.0,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write what each rank did when, for ui.perfetto.dev")
    ] = None,
    above_idle: Annotated[
        bool, typer.Option("--above-idle", help="Subtract the hosts' idle_power from their energies")
    ] = False,
    known_hosts: KnownOption = [],
    pin: PinOption = [],
    key: KeyOption = None,
    ask_password: PasswordOption = False,
    work: WorkOption = WORK,
    python: PythonOption = "python3",
    head: HeadOption = None,
    mixed: MixedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a bundle, here or on its hosts, and time it. Each frame after a barrier, then a stream of them."""
    how = pixels(mean, scale, channels)
    check_bundle(bundle)
    if platform is None:
        found = benching.bench(bundle, warmup=warmup, frames=frames, provider=CPU, input=input, pixels=how,
                               above_idle=above_idle)  # fmt: skip
        _write_trace(trace, found)
        sys.stdout.write(found.to_json()) if as_json else show.bench(console, bundle, found)
        return
    one_of("--trust", trusting, TRUSTS)
    whole = check_source(bundle, cnn_path(cnn) if cnn else None) if check else None
    access = Access(known_hosts, pin, key, ask_password, work, python, head)
    body: dict[str, Any] = {"bundle": str(bundle)}
    with _cluster(bundle, platform, access) as hosts:
        _check(hosts, False, mixed, body, as_json, show_table=False)
        shipped = hosts.upload()
        with hosts.session(shipped, trusting) as session:
            found = benching.bench(bundle, warmup=warmup, frames=frames, input=input, pixels=how, timeout_s=timeout,
                                   runner=session.run, above_idle=above_idle)  # fmt: skip
            verified = _verified(bundle, whole, input, how, timeout, session.run) if whole else None
    _write_trace(trace, found)
    if as_json:
        print_json({**body, **json.loads(found.to_json()), **_verification(verified)})
    else:
        show.bench(console, bundle, found)
        if verified:
            show.verification(console, bundle, verified)
    raise typer.Exit(0 if verified is None or verified.passed else 1)


def _write_trace(path: Path | None, found: benching.Bench) -> None:
    if path is not None:
        save_text(str(path), to_perfetto(*found.traces))


def _verified(
    bundle: Path, whole: Path, input: str | None, how: Pixels, timeout_s: float, runner: benching.Runner
) -> Verification:
    """The answers of the hosts, with the threads and providers of the plan, held against the whole model's here."""
    return verify(
        bundle, whole, input=input, pixels=how, threads=None, provider=None, timeout_s=timeout_s, runner=runner
    )


def _verification(found: Verification | None) -> dict[str, Any]:
    return {"verification": json.loads(found.to_json())} if found else {}


@contextmanager
def _cluster(bundle: Path, platform: Path, access: Access) -> Iterator[Cluster]:
    """Connections to the hosts of a bundle."""
    known = targets(Platform.from_file(platform), access)
    shipment = pack(bundle, known)
    believed = trust(access.known_hosts, access.pins, [target.name for target in known])
    password = getpass.getpass("password: ") if access.ask_password else None
    with cluster(shipment, known, access.head, believed, password) as hosts:
        yield hosts


def targets(platform: Platform, access: Access) -> list[Target]:
    """The hosts of a platform as the runtime takes them. ``CleaveError`` for options that cannot be."""
    if not re.fullmatch("(~/)?[A-Za-z0-9_./-]+", access.work) or ".." in access.work.split("/"):
        raise CleaveError(f"--work {access.work!r}: only letters, digits, '.', '-', '_' and '/', and no '..'")
    if access.key is not None and not access.key.is_file():
        raise CleaveError(f"--key {access.key}: there is no such file")
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


def _check(
    hosts: Cluster, prepare: bool, mixed: bool, body: dict[str, Any], as_json: bool, show_table: bool = True
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


def _done(body: dict[str, Any], as_json: bool, lines: Sequence[str]) -> None:
    print_json(body) if as_json else show.line(console, "\n".join(lines))


def _would(host: str, files: dict[str, int]) -> str:
    return f"dry run: would send {len(files)} files, {sum(files.values()) / 1e6:.2f} MB, to {host}"


def _sent(one: Shipped) -> str:
    """What happened on one host."""
    text = f"{one.host}: sent {len(one.sent)} files, {one.sent_bytes / 1e6:.2f} MB; {one.kept} were there"
    text += f"; went on after {one.resumed_bytes / 1e6:.2f} MB" if one.resumed_bytes else ""
    return text + (f"; CHANGED on the host and sent again: {', '.join(one.changed)}" if one.changed else "")
