"""The command line of the event simulator: ``dse simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from codegen import bundle as bundles
from codegen.folder import check_writable
from dse import show, show_simulated, timeline
from dse.cli.group import grouped
from dse.cli.options import (
    CALIBRATED,
    JoinOption,
    JsonOption,
    ModelOption,
    Network,
    Placement,
    PlatformOption,
    aside,
    console,
    one_of,
    print_json,
    read_platform,
)
from dse.show_simulated import Look
from dse.timeline import Scene
from model.cluster.platform import Platform
from model.cluster.texts import read_text
from model.cost.confidence import expected_error
from model.mappings.gather import gathered
from model.simulator import panels
from model.simulator.bounds import gains, held
from model.simulator.predicted import traces
from model.simulator.script import Script
from model.simulator.simulated import simulated
from runtime import bench
from runtime.bench import Bench
from runtime.errors import CleaveError
from runtime.frames import save_text
from runtime.perfetto import to_perfetto
from runtime.trace import COMPUTE, SEND, WAIT, Trace

MOST_FRAMES = 1000


@grouped
def simulate(
    network: Network,
    platform: PlatformOption,
    placement: Placement,
    *,
    join: JoinOption = "use",
    frames: Annotated[
        int, typer.Option(min=1, max=MOST_FRAMES, help="Frames of the stream that count; 1: no stream")
    ] = bench.FRAMES,
    warmup: Annotated[
        int | None,
        typer.Option(min=0, max=MOST_FRAMES, help=f"Frames of it before those [{bench.WARMUP}]", show_default=False),
    ] = None,
    trace: Annotated[Path | None, typer.Option("--trace", help="Write what happens when, for ui.perfetto.dev")] = None,
    measured: Annotated[
        Path | None, typer.Option("--measured", help="What dse bench --save-trace wrote: compare, and trace both")
    ] = None,
    model: ModelOption = CALIBRATED,
    picture: Annotated[Path | None, typer.Option("--picture", help="Draw a timeline: .svg or .png")] = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate a mapping: latency, period, what bounds them, and what more of it would buy."""
    if warmup is not None and frames == 1:
        raise CleaveError("--warmup says nothing with --frames 1: there is no stream; leave it out")
    if picture:
        timeline.check(picture)
    read = (network.cnn, platform, placement.mapping, placement.horizontal, measured)
    check_writable(trace, picture, read=read)
    loaded = network.read()
    mapping, cluster = placement.read(loaded, read_platform(platform, model))
    graph = loaded.graph
    if one_of("--join", join, bundles.JOINS) == bundles.GATHER:
        graph, mapping = gathered(graph, mapping)
    found = simulated(graph, cluster, mapping, frames, bench.WARMUP if warmup is None else warmup)
    script = Script.of(found, graph, cluster, mapping)
    predicted = traces(script)
    seen = _measured(measured, predicted[0]) if measured else None
    look = Look(
        found,
        cluster,
        held(script, cluster, found.alone, found.latency_path),
        held(script, cluster, found.stream, found.period_path) if found.stream else [],
        gains(script, cluster),
        Bench.from_trace(*predicted),
        seen,
        expected_error(graph, cluster, found.price),
    )
    if trace:
        save_text(
            str(trace), to_perfetto(*predicted, *(seen.traces if seen else ()), panels=panels.panels(script, cluster))
        )
    if picture:
        _draw(picture, script, cluster, look, predicted)
    print_json(show_simulated.body(look)) if as_json else show_simulated.simulated(console, look)
    for file in filter(None, (trace, picture)):
        show.line(aside(as_json), f"wrote {file}")
    show.warn_unlike(aside(as_json), graph, cluster)


def _measured(file: Path, predicted: Trace) -> Bench:
    """What was measured, of the very mapping that was simulated."""
    found = Bench.from_lines(read_text(file, "file; dse bench --save-trace writes one"), str(file))
    if _steps(found.trace) != _steps(predicted):
        raise CleaveError(f"{file}: was measured with another mapping, or on other devices")
    return found


def _steps(trace: Trace) -> list[tuple[Any, ...]]:
    """Devices, and the segments and messages of their ranks in a frame."""
    kinds = (COMPUTE, SEND, WAIT)
    spans = (s for s in trace.frames[0] if s.kind in kinds and (s.kind == COMPUTE or s.peer is not None))
    devices = [(usage.rank, usage.device) for usage in trace.ranks]
    return [*devices, *((s.rank, s.kind, s.name, s.peer, s.tag, s.size_bytes) for s in spans)]


def _draw(out: Path, script: Script, cluster: Platform, look: Look, predicted: list[Trace]) -> None:
    found, stream = script.found, script.found.stream
    scenes = [Scene(predicted[0], panels.busy(script, cluster, found.alone, 0))]
    title = f"{script.graph.name} on {cluster.name}, predicted: latency {found.price.latency_s * 1e3:.4g} ms"
    if stream:
        scenes.append(Scene(predicted[1], panels.busy(script, cluster, stream, found.warmup)))
        title += f", period {found.price.period_s * 1e3:.4g} ms"
    timeline.draw(out, scenes, look.latency, title)
