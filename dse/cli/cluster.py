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
from dse.cli.access import Access, Running, connected, is_here
from dse.cli.bundle import Loss, Outgoing, Recipe, ready, stays_here
from dse.cli.group import grouped
from dse.cli.options import (
    BundleArgument,
    DryRunOption,
    HostsOption,
    Images,
    InputOption,
    JsonOption,
    PlatformOption,
    TimeoutOption,
    aside,
    check_bundle,
    console,
    print_json,
)
from dse.cli.prepare import Environment, checked
from model.cluster.platform import Platform
from runtime import bench as benching
from runtime.deploy.ship import Shipped
from runtime.frames import save_text
from runtime.images import Pixels
from runtime.launch import TIMEOUT_S, Runner, read_plan
from runtime.perfetto import to_perfetto
from runtime.segment import CPU


@dataclass(frozen=True)
class Runs:
    """Which runs are made, as options say it."""

    warmup: Annotated[int, typer.Option(min=0, help="Frames before those that count")] = benching.WARMUP
    frames: Annotated[int, typer.Option(min=1, help="Frames that count")] = benching.FRAMES
    input: InputOption = None
    timeout: TimeoutOption = TIMEOUT_S
    above_idle: Annotated[
        bool, typer.Option("--above-idle", help="Subtract the hosts' idle_power from their energies")
    ] = False

    def timed(self, bundle: Path, how: Pixels, **where: Any) -> benching.Bench:
        """How long frames take. where: as ``runtime.bench`` takes it"""
        return benching.bench(bundle, warmup=self.warmup, frames=self.frames, input=self.input, pixels=how,
                              above_idle=self.above_idle, **where)  # fmt: skip

    def verified(self, bundle: Path, whole: Path, how: Pixels, runner: Runner | None) -> Verification:
        """The answers of the hosts, with the threads and providers of the plan, against the whole model's here."""
        return verify(bundle, whole, most=max(self.frames, benching.FRAMES), input=self.input, pixels=how,
                      threads=None, provider=None, timeout_s=self.timeout, runner=runner)  # fmt: skip


@dataclass(frozen=True)
class Keep:
    """What is kept of a benchmark, as options say it."""

    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write what each rank did when, for ui.perfetto.dev")
    ] = None
    save_trace: Annotated[
        Path | None, typer.Option("--save-trace", help="Write the same for dse simulate --measured")
    ] = None

    def write(self, found: benching.Bench, say: Console) -> None:
        """All or nothing, each."""
        if self.trace is not None:
            save_text(str(self.trace), to_perfetto(*found.traces))
        if self.save_trace is not None:
            save_text(str(self.save_trace), found.to_lines())
        for file in filter(None, (self.trace, self.save_trace)):
            show.line(say, f"wrote {file}")


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
    installs, lines = environment.read(), list[str]()
    with (
        ready(bundle, Platform.from_file(platform), recipe, loss, aside(as_json), dry_run) as found,
        connected(found.bundle, found.left, access.less(loss.exclude), found.area, replan=True) as hosts,
    ):
        body = {"dry_run": dry_run, **found.body}
        checked(hosts, environment.prepare, access.mixed, body, as_json)
        if environment.prepare:
            body["prepared"] = installs.make(hosts, dry_run)
            lines += [f"{'dry run: ' * dry_run}{host}: {done}" for host, done in body["prepared"].items()]
        if dry_run:
            missing = hosts.missing()
            body["would_send"] = missing
            _done(body, as_json, [*lines, *(_would(host, files) for host, files in missing.items())])
            return
        if environment.prepare:
            checked(hosts, False, access.mixed, body, as_json)
        shipped = hosts.upload()
    body["sent"] = {host: asdict(one) | {"sent_bytes": one.sent_bytes} for host, one in shipped.items()}
    _done(body, as_json, [*lines, *(_sent(one) for one in shipped.values())])


@grouped
def bench(
    bundle: BundleArgument,
    *,
    platform: HostsOption = None,
    runs: Runs,
    images: Images,
    check: Annotated[
        bool,
        typer.Option(
            "--verify/--no-verify",
            help=f"On a platform: compare with the whole model too, on as many frames of --input as count, "
            f"{benching.FRAMES} at least if it has them",
        ),
    ] = True,
    keep: Keep,
    recipe: Recipe,
    loss: Loss,
    access: Running,
    as_json: JsonOption = False,
) -> None:
    """Run a bundle, here or on its hosts, and time it. Each frame after a barrier, then a stream of them."""
    how = images.pixels
    read = (platform, runs.input, recipe.cnn, recipe.mapping, recipe.horizontal, *bundle.glob("*"), *bundle.glob("*/*"))
    check_writable(keep.trace, keep.save_trace, read=read)
    if platform is None:
        stays_here(recipe, loss, access)
        check_bundle(bundle)
        if others := [rank.device for rank in read_plan(bundle).ranks if rank.provider != CPU]:
            show.line(aside(as_json), f"{', '.join(others)}: this machine's processor takes their place, "
                      "so times are not theirs")  # fmt: skip
        found = runs.timed(bundle, how, provider=CPU, timeout_s=runs.timeout)
        show.line(aside(as_json), "on this machine; --platform FILE runs a bundle on its hosts, and checks the answer")
        sys.stdout.write(found.to_json()) if as_json else show.bench(console, bundle, found)
        keep.write(found, aside(as_json))
        return
    verified: Verification | None = None
    with ready(bundle, Platform.from_file(platform), recipe, loss, aside(as_json)) as made:
        whole = check_source(made.bundle, recipe.whole_model) if check else None
        with running(made, access.less(loss.exclude), as_json, replan=True) as runner:
            found = runs.timed(made.bundle, how, timeout_s=runs.timeout, runner=runner)
            if not as_json:
                show.bench(console, made.bundle, found)
            try:
                keep.write(found, aside(as_json))
                verified = runs.verified(made.bundle, whole, how, runner) if whole else None
            finally:  # what was measured is told, whatever becomes of its answers
                if as_json:
                    print_json({**made.body, **json.loads(found.to_json()), **_verification(check, verified)})
    if verified and not as_json:
        show.verification(console, made.bundle, verified)
    raise typer.Exit(0 if verified is None or verified.passed else 1)


@contextmanager
def running(made: Outgoing, access: Running, as_json: bool, replan: bool = False) -> Iterator[Runner | None]:
    """What runs a bundle on its hosts; None where all of these are this machine. replan: as ``connected`` takes it"""
    if is_here(made.bundle, made.left):
        access.refuse()
        yield None
        return
    with connected(made.bundle, made.left, access, made.area, replan) as hosts:
        checked(hosts, False, access.mixed, made.body, as_json, show_table=False)
        with hosts.session(hosts.upload(), access.trust) as session:
            yield session.run


def _verification(wanted: bool, found: Verification | None) -> dict[str, Any]:
    return {"verification": found and json.loads(found.to_json())} if wanted else {}


def _done(body: dict[str, Any], as_json: bool, lines: Sequence[str]) -> None:
    print_json(body) if as_json else show.line(console, "\n".join(lines))


def _would(host: str, files: dict[str, int]) -> str:
    return f"dry run: would send {len(files)} files, {sum(files.values()) / 1e6:.2f} MB, to {host}"


def _sent(one: Shipped) -> str:
    """What happened on one host."""
    text = f"{one.host}: sent {len(one.sent)} files, {one.sent_bytes / 1e6:.2f} MB; {one.kept} were there"
    text += f"; went on after {one.resumed_bytes / 1e6:.2f} MB" if one.resumed_bytes else ""
    return text + (f"; CHANGED on the host and sent again: {', '.join(one.changed)}" if one.changed else "")
