"""The command line of clusters: ``dse deploy``, and ``dse bench`` here or there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from codegen.bundle import check_source
from codegen.folder import check_writable
from codegen.verify import Verification, verify
from dse import show
from dse.cli_access import Access, TrustOption, connected, is_here
from dse.cli_bundle import Loss, Ready, Recipe, ready, stays_here
from dse.cli_group import grouped
from dse.cli_options import (
    BundleArgument,
    DryRunOption,
    Images,
    InputOption,
    JsonOption,
    PlatformOption,
    TimeoutOption,
    aside,
    check_bundle,
    console,
    one_of,
    print_json,
)
from model.platform import Platform
from runtime import bench as benching
from runtime.deploy import prepare as environments
from runtime.deploy.check import Verdict
from runtime.deploy.cluster import Cluster, refused
from runtime.deploy.parcel import File
from runtime.deploy.session import OWN_KEY, TRUSTS
from runtime.deploy.ship import Shipped
from runtime.errors import CleaveError
from runtime.frames import save_text
from runtime.images import Pixels
from runtime.launch import read_plan
from runtime.perfetto import to_perfetto
from runtime.segment import CPU


@dataclass(frozen=True)
class Environment:
    """What is installed on the hosts first, as options say it."""

    prepare: Annotated[bool, typer.Option("--prepare", help="Make the Python environment of the ranks first")] = False
    wheels: Annotated[
        Path | None, typer.Option("--wheels", metavar="DIR", help="Packages for hosts that reach no index")
    ] = None
    requirements: Annotated[
        Path | None, typer.Option("--requirements", metavar="FILE", help="Packages in place of the usual ones")
    ] = None

    def read(self) -> tuple[tuple[str, ...] | None, dict[str, File] | None]:
        """Packages and wheels, as far as they are given."""
        if not self.prepare and (self.wheels or self.requirements):
            raise CleaveError("--wheels and --requirements say what --prepare installs: add --prepare")
        packages = environments.requirements(self.requirements) if self.requirements else None
        return packages, environments.wheels(self.wheels) if self.wheels else None


@dataclass(frozen=True)
class Runs:
    """Which runs are made, as options say it."""

    warmup: Annotated[int, typer.Option(min=0, help="Frames before those that count")] = 4
    frames: Annotated[int, typer.Option(min=1, help="Frames that count")] = 20
    input: InputOption = None
    timeout: TimeoutOption = 600.0
    above_idle: Annotated[
        bool, typer.Option("--above-idle", help="Subtract the hosts' idle_power from their energies")
    ] = False

    def timed(self, bundle: Path, how: Pixels, **where: Any) -> benching.Bench:
        """How long frames take. where: as ``runtime.bench`` takes it"""
        return benching.bench(bundle, warmup=self.warmup, frames=self.frames, input=self.input, pixels=how,
                              above_idle=self.above_idle, **where)  # fmt: skip

    def verified(self, bundle: Path, whole: Path, how: Pixels, runner: benching.Runner | None) -> Verification:
        """The answers of the hosts, with the threads and providers of the plan, against the whole model's here."""
        return verify(bundle, whole, input=self.input, pixels=how, threads=None, provider=None,
                      timeout_s=self.timeout, runner=runner)  # fmt: skip


@dataclass(frozen=True)
class Keep:
    """What is kept of a benchmark, as options say it."""

    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write what each rank did when, for ui.perfetto.dev")
    ] = None
    save_trace: Annotated[
        Path | None, typer.Option("--save-trace", help="Write the same for dse simulate --measured")
    ] = None

    def write(self, found: benching.Bench) -> None:
        """All or nothing, each."""
        if self.trace is not None:
            save_text(str(self.trace), to_perfetto(*found.traces))
        if self.save_trace is not None:
            save_text(str(self.save_trace), found.to_lines())


@grouped
def deploy(
    bundle: BundleArgument,
    platform: PlatformOption,
    *,
    environment: Environment,
    recipe: Recipe,
    loss: Loss,
    access: Access,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Bring a bundle to its hosts. Checks every host, sends what each rank needs and has not got yet."""
    packages, carried = environment.read()
    with (
        ready(bundle, Platform.from_file(platform), recipe, loss, aside(as_json), dry_run) as found,
        connected(found.bundle, found.left, access, replan=True) as hosts,
    ):
        body = found.body
        if environment.prepare and packages is None:
            environments.check_providers(read_plan(found.bundle).ranks)
        _check(hosts, environment.prepare, access.mixed, body, as_json)
        if dry_run:
            missing = hosts.missing()
            body["would_send"] = missing
            _done(body, as_json, [_would(host, files) for host, files in missing.items()])
            return
        if environment.prepare:
            body["prepared"] = hosts.prepare(packages, carried)
            _check(hosts, False, access.mixed, body, as_json)
        shipped = hosts.upload()
    body["sent"] = {host: asdict(one) | {"sent_bytes": one.sent_bytes} for host, one in shipped.items()}
    _done(body, as_json, [_sent(one) for one in shipped.values()])


@grouped
def bench(
    bundle: BundleArgument,
    *,
    platform: Annotated[
        Path | None, typer.Option("--platform", help="Run on the hosts of this platform file [on this machine]")
    ] = None,
    runs: Runs,
    images: Images,
    check: Annotated[
        bool, typer.Option("--verify/--no-verify", help="On a platform: compare with the whole model too")
    ] = True,
    keep: Keep,
    trusting: TrustOption = OWN_KEY,
    recipe: Recipe,
    loss: Loss,
    access: Access,
    as_json: JsonOption = False,
) -> None:
    """Run a bundle, here or on its hosts, and time it. Each frame after a barrier, then a stream of them."""
    how = images.pixels
    one_of("--trust", trusting, TRUSTS)
    check_writable(keep.trace, keep.save_trace)
    if platform is None:
        stays_here(recipe, loss, access)
        check_bundle(bundle)
        if others := [rank.device for rank in read_plan(bundle).ranks if rank.provider != CPU]:
            show.line(aside(as_json), f"{', '.join(others)}: this machine's processor takes their place, "
                      "so times are not theirs")  # fmt: skip
        keep.write(found := runs.timed(bundle, how, provider=CPU, timeout_s=runs.timeout))
        sys.stdout.write(found.to_json()) if as_json else show.bench(console, bundle, found)
        return
    with ready(bundle, Platform.from_file(platform), recipe, loss, aside(as_json)) as made:
        whole = check_source(made.bundle, recipe.whole_model) if check else None
        with _running(made, access, trusting, as_json) as runner:
            keep.write(found := runs.timed(made.bundle, how, timeout_s=runs.timeout, runner=runner))
            if not as_json:
                show.bench(console, made.bundle, found)
            verified = runs.verified(made.bundle, whole, how, runner) if whole else None
    if as_json:
        print_json({**made.body, **json.loads(found.to_json()), **_verification(verified)})
    elif verified:
        show.verification(console, made.bundle, verified)
    raise typer.Exit(0 if verified is None or verified.passed else 1)


@contextmanager
def _running(made: Ready, access: Access, trusting: str, as_json: bool) -> Iterator[benching.Runner | None]:
    """What runs a bundle on its hosts; None where all of these are this machine."""
    if is_here(made.bundle):
        yield None
        return
    with connected(made.bundle, made.left, access, replan=True) as hosts:
        _check(hosts, False, access.mixed, made.body, as_json, show_table=False)
        with hosts.session(hosts.upload(), trusting) as session:
            yield session.run


def _verification(found: Verification | None) -> dict[str, Any]:
    return {"verification": json.loads(found.to_json())} if found else {}


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
