"""What ``bench`` measures against clocks that are not its own: the latency of a request, the period of a stream.

    python -m tests.bench.clock [--cnn zoo:alexnet zoo:squeezenet] [--place here cluster] [--repeat 5] [--frames 200]

Networks are cut into stretches of about as many MACs, one a rank: two ranks here, four on the four hosts of a testbed,
over SSH and TCP. In turn, so that all see the same machine:

* bench: frames alone, as ``dse bench`` runs them, by the trace;
* asked: one request after the other by the wall clock of the rank that asks (``tests.bench.requests``, which shares no
  timing code with the harness), with telling it that the answer is there, the time of which is printed, too;
* outside: the time of the whole command, ssh and mpirun and all, for many requests less that for few of them, by how
  many they are more; it holds what lies between two requests, and filling their input;
* the stream: its period by the trace, and the same from outside.

Figures are medians over the turns in ms; ratios are to what bench says, turn by turn: median (least to largest). On a
machine that has other things to do, the fastest tenth of the frames says most.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

from codegen.bundle import write_bundle
from dse.inputs import Cnn, read_cnn
from model.cluster.platform import Platform
from runtime.compiling import frames_file
from runtime.deploy.cluster import cluster, refused
from runtime.deploy.keys import Trust
from runtime.deploy.parcel import pack
from runtime.deploy.target import Target
from runtime.launch import Runner, read_plan, run
from runtime.options import Options
from runtime.trace import Trace
from tests.bench import waiting
from tests.bench.altered import altered
from tests.cluster import Cluster, standing

FEW, WARMUP, LIMIT_S = 20, 10, 600.0
HERE, CLUSTER = PLACES = ("here", "cluster")


@dataclass(frozen=True)
class Turn:
    """Seconds of one turn. bench: latencies; asked: of requests; told: of telling; the rest: a frame"""

    bench: Sequence[float]
    asked: Sequence[float]
    told: float
    outside: float
    period: float
    period_outside: float


def asking(bundle: Path) -> Path:
    """A copy of a bundle whose ranks are asked one request at a time."""
    requests = Path(__file__).with_name("requests.py").read_text(encoding="utf-8")
    return altered(bundle, bundle.with_name(bundle.name + "-asked"), "main.py", requests)


@contextmanager
def runner(bundle: Path, box: Cluster | None) -> Iterator[Runner]:
    """What runs a bundle: on a testbed, or here."""
    if box is None:
        yield lambda options, limit_s: run(bundle, options, timeout_s=limit_s)
        return
    hosts = Platform.from_file(box.platform).hosts
    targets = [Target(h.name, h.address, h.user, h.port, str(box.key), python=box.testbed.python) for h in hosts]
    with cluster(pack(bundle, targets), targets, None, Trust((box.known_hosts,), {})) as line:
        refused(line.check())
        with line.session(line.upload()) as session:
            yield session.run


def measured(runner: Runner, options: Options) -> tuple[str, float]:
    """What the ranks report, and seconds of the whole command."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        begin = time.monotonic()
        runner(replace(options, report=str(report)), LIMIT_S)
        return report.read_text(), time.monotonic() - begin


def turn(bench: Runner, asked: Runner, frames: int, file: str) -> Turn:
    """Everything once. file: of a few frames; random ones would be made before the first, which takes time for each"""
    few, many = (Options(count, WARMUP, input=file) for count in (FEW, frames))
    alone = Trace.from_json(measured(bench, replace(many, barrier=True))[0]).latencies_s
    _, few_s = measured(asked, few)
    text, many_s = measured(asked, many)
    _, few_streamed_s = measured(bench, replace(few, stream=True))
    streamed, many_streamed_s = measured(bench, replace(many, stream=True))
    requests = json.loads(text)
    return Turn(
        bench=alone,
        asked=requests["requests_s"],
        told=requests["told_s"],
        outside=(many_s - few_s) / (frames - FEW),
        period=Trace.from_json(streamed).period_s or 0.0,
        period_outside=(many_streamed_s - few_streamed_s) / (frames - FEW),
    )


def fastest(times_s: Sequence[float]) -> float:
    """What the fastest tenth took at most."""
    return sorted(times_s)[len(times_s) // 10]


def over(of: Callable[[Sequence[float]], float], times: Callable[[Turn], Sequence[float]]) -> Callable[[Turn], float]:
    """A figure of some times of a turn."""
    return lambda turn: of(times(turn))


def report(title: str, turns: list[Turn]) -> None:
    """A line for each clock."""

    def line(name: str, of: Callable[[Turn], float], by: Callable[[Turn], float] | None = None) -> None:
        text = f"  {name:34} {median(map(of, turns)) * 1e3:8.2f} ms"
        if by:
            ratios = sorted(of(t) / by(t) for t in turns)
            text += f"   x {median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        print(text, flush=True)

    print(title)
    for name, of in (("fastest tenth", fastest), ("median", median), ("mean", mean)):
        latency = over(of, lambda t: t.bench)
        line(f"bench: latency, {name}", latency)
        line(f"asked: request, {name}", over(of, lambda t: t.asked), latency)
    line("outside: a request more", lambda t: t.outside, lambda t: mean(t.bench))
    line("telling that it is done", lambda t: t.told)
    line("bench: period of a stream", lambda t: t.period)
    line("outside: a frame of a stream more", lambda t: t.period_outside, lambda t: t.period)


def bundles(cnn: Cnn, platform: Platform, folder: Path) -> tuple[Path, Path]:
    """One for bench, and one to be asked."""
    made = folder / cnn.graph.name
    mapping = waiting.stretched(cnn, len(platform.devices))
    write_bundle(cnn.graph, platform, mapping, cnn.source, made, force=False)
    return made, asking(made)


def compare(names: list[str], box: Cluster | None, repeat: int, frames: int) -> None:
    """All networks in one place."""
    platform = Platform.from_file(box.platform) if box else waiting.cluster(2)
    for cnn in (read_cnn(name, [], False) for name in names):
        with tempfile.TemporaryDirectory() as folder:
            plain, special = bundles(cnn, platform, Path(folder))
            file = str(Path(folder) / "frames.npz")
            frames_file(read_plan(plain), Options(4), file)
            with runner(plain, box) as bench, runner(special, box) as asked:
                turns = [turn(bench, asked, frames, file) for _ in range(repeat)]
        where = "4 hosts of a testbed" if box else "this machine"
        report(f"{cnn.graph.name}, {len(platform.devices)} ranks on {where}, {repeat} turns of {frames} frames", turns)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cnn", nargs="+", default=["zoo:alexnet", "zoo:squeezenet"])
    parser.add_argument("--place", nargs="+", choices=PLACES, default=PLACES)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--frames", type=int, default=200)
    arguments = parser.parse_args()
    if HERE in arguments.place:
        compare(arguments.cnn, None, arguments.repeat, arguments.frames)
    if CLUSTER in arguments.place:
        with tempfile.TemporaryDirectory() as folder, standing("testbed-4", Path(folder) / "box", "c") as box:
            compare(arguments.cnn, box, arguments.repeat, arguments.frames)


if __name__ == "__main__":
    main()
