"""``dse calibrate``: what devices take for a network, measured, and kept as coefficients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from codegen.folder import scratch
from dse import show
from dse import show_calibrated as shown
from dse.calibrate import command as job
from dse.calibrate import refused, results
from dse.calibrate.adjust import adjusted
from dse.calibrate.check import Drift, drifts, link_drifts, together_drifts
from dse.calibrate.command import SAMPLES, Lab, Measured
from dse.calibrate.samples import LINKS, RUN, Store, opened
from dse.calibrate.tried import corrected, tried
from dse.cli.access import Running, placed, unfit
from dse.cli.group import grouped
from dse.cli.options import (
    DryRunOption,
    FoldOption,
    JsonOption,
    PlatformOption,
    SeedOption,
    ShapeOption,
    TimeoutOption,
    aside,
    console,
    finite,
    print_json,
    read_network,
    tell_dry,
)
from dse.cli.progress import working
from dse.inputs import Cnn
from dse.units import many
from model.cluster.platform import PLATFORMS, Device, Platform
from runtime.deploy.cluster import check_head
from runtime.errors import CleaveError
from runtime.launch import TIMEOUT_S


@dataclass(frozen=True)
class Networks:
    """Which networks are run, as options say it."""

    cnn: Annotated[list[str], typer.Option("--cnn", help="ONNX file, or zoo:NAME (see dse models); may be given again")]
    shape: ShapeOption = field(default_factory=list)
    fold: FoldOption = False

    def read(self) -> tuple[Cnn, ...]:
        """Load them."""
        return tuple(read_network(cnn, self.shape, self.fold) for cnn in dict.fromkeys(self.cnn))


@dataclass(frozen=True)
class Effort:
    """How long it is measured, as options say it."""

    budget: Annotated[
        float,
        typer.Option("--budget", min=0, callback=finite, help="Seconds of frames, for each network and type of device"),
    ] = 20.0
    timeout: TimeoutOption = TIMEOUT_S
    seed: SeedOption = 0


@grouped
def calibrate(
    networks: Networks,
    platform: PlatformOption,
    out: Annotated[Path, typer.Option("--out", help="Folder of the calibration; one that was begun is gone on with")],
    *,
    effort: Effort,
    check: Annotated[
        bool,
        typer.Option("--check", help="Only measure networks and some messages again: does the calibration still hold?"),
    ] = False,
    adjust: Annotated[
        bool, typer.Option("--adjust", help="With --check: OUT's platform file then says how fast devices are now")
    ] = False,
    access: Running,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure what a cluster takes for networks. The platform file in OUT then predicts with what was found."""
    file = PLATFORMS.find(platform)
    cluster, text = Platform.from_file(platform), PLATFORMS.text_of(file)
    cnns = networks.read()
    refused.check_names(cnns)
    check_head(access.head, [host.name for host in cluster.hosts])
    refused.check_place(out, file, check)
    if not check:
        refused.check_coefficients(cluster)
    if adjust:
        refused.check_adjustable(out / file.name, check)
    if dry_run:
        names, files = [cnn.graph.name for cnn in cnns], [] if check else [str(out)]
        files += [str(out / file.name)] if adjust else []
        sentence = " and ".join([f"would measure {', '.join(names)} on {cluster.name}", *(f"write {f}" for f in files)])
        tell_dry(as_json, sentence, would_measure=names, would_write=files)
        return
    say = aside(as_json)
    if wrong := unfit(say, cluster, access).sentences:
        raise CleaveError(*wrong, "to go on without such a host, make its line in the platform file a comment: # …")
    with opened(out / SAMPLES) if check else _store(out, cnns, cluster) as store:
        with working(say, "checking" if check else "measuring") as tell:
            lab = Lab(
                cnns=cnns,
                platform=cluster.slowed([1.0] * len(cluster.devices)) if adjust else cluster,
                text=text,
                store=store,
                place=partial(placed, cluster, access),
                tell=tell,
                folder=out,
                budget_s=effort.budget,
                timeout_s=effort.timeout,
                seed=effort.seed,
            )
            found = [*drifts(lab), *together_drifts(lab), *link_drifts(lab)] if check else job.measured(lab)
        if isinstance(found, Measured):
            _conclude(lab, found, out / file.name, as_json)
        else:
            _judge(found, adjusted(out / file.name, cnns, found) if adjust else {}, out / file.name, as_json)


def _judge(found: Sequence[Drift], slowdowns: Mapping[str, float], calibrated: Path, as_json: bool) -> NoReturn:
    """Say what has drifted; the exit code is 1 where something has that the slowdowns do not explain."""
    if as_json:
        print_json(shown.drift_rows(found, slowdowns))
    else:
        shown.drifts(console, found, slowdowns, calibrated)
    raise typer.Exit(1 if any(each.beyond(slowdowns) for each in found) else 0)


def _conclude(lab: Lab, found: Measured, calibrated: Path, as_json: bool) -> None:
    """Try what comes of all that was measured on the runs on several devices, write it, and say how far it is off."""
    say = aside(as_json)
    if len(found.programs) > 1:
        show.line(say, "measured with more than one version of what ranks run, whose times need not go together; to be "
                       "sure, measure into a new folder")  # fmt: skip
    show.line(say, "fitting what was measured")
    made = results.result(lab, found)
    with scratch(lab.folder, ".tried-") as draft:
        results.write(draft, calibrated.name, made)
        tests = tried(lab, found, Platform.from_file(str(draft / calibrated.name)))
    made = corrected(made, tests, found.apart)
    gone = [d for d in _devices_before(calibrated) if d.slowdown not in {1.0, found.slowdowns.get(d.name)}]
    results.write(lab.folder, calibrated.name, made)
    if gone:
        names = ", ".join(f"{device.name} {device.slowdown:g}" for device in gone)
        show.line(say, f"what --adjust had found is gone: {names}; --check --adjust finds it anew")
    if as_json:
        print_json(shown.body(lab, found, made, tests))
    else:
        shown.calibrated(console, lab, found, made, tests, calibrated)


def _devices_before(calibrated: Path) -> tuple[Device, ...]:
    """Those of an earlier calibration; none where its platform file is not there, or cannot be read any more."""
    with suppress(CleaveError):
        return Platform.from_file(calibrated).devices
    return ()


@contextmanager
def _store(out: Path, cnns: Sequence[Cnn], platform: Platform) -> Iterator[Store]:
    """The measurements, of no other networks, measured no other way. Where they break off, it is said how to go on."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CleaveError(f"{out}: cannot be made: {error.strerror}") from error
    with opened(out / SAMPLES) as store:
        refused.check_networks(cnns, store)
        refused.check_measured_by(platform, store)
        try:
            yield store
        except CleaveError as error:
            raise CleaveError(*error.sentences, *_way_on(store)) from error
        except SystemExit:
            for sentence in _way_on(store):
                show.line(Console(stderr=True), sentence)
            raise


def _way_on(store: Store) -> list[str]:
    count = len(store.of_kind(RUN)) + len(store.of_kind(LINKS))
    made = f"{many(count, 'run')} that {'was' if count == 1 else 'were'} made"
    return [f"{store.path} keeps the {made}; the same command goes on from there"] if count else []
