"""What running on two ranks costs over computing: two ranks against one, one thread and one core a rank.

    python -m tests.bench.overhead [--cnn zoo:vgg19 zoo:resnet50] [--repeat 3]

Every layer that can be is split in two. One rank and two ranks take turns in the same run. Prints, medians over the
repeats:

* how much faster two ranks are;
* latency against the critical path: the segments' own times in this run, and each message's bytes over the link, whose
  bandwidth is measured before, between two ranks that exchange arrays of a MB: median, and the best of 640 times;
* what a step (receive, run, send) costs a rank besides: the frame less computing, waiting and sending, a step;
* the period of a stream of frames against the busiest rank's computing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from codegen.bundle import write_bundle
from dse.inputs import Cnn, read_cnn
from model.cluster.platform import Platform
from model.mappings import tiles
from model.mappings.mapping import Mapping, Shard, extent
from model.network import boxes
from model.network.graph import Layer
from runtime.bench import Bench, bench
from runtime.launch import Mpirun
from runtime.plan import Plan, Recv, Run, Send
from runtime.trace import COMPUTE, SEND, WAIT, Trace

TILES = {"vgg19": (0, 10, 19)}
"""Where stacks of layers begin and end that are cut by rows, as fused tiles, for the sake of few and small messages."""

EXCHANGE = """
import time
import numpy as np
from runtime.communicator import wait
from runtime.mpi import MpiCommunicator
c = MpiCommunicator()
out, into, times_s = np.ones((64, 1 << 20), np.uint8), np.ones((64, 1 << 20), np.uint8), []
requests = [(c.receiver(into[k], 1 - c.rank, k), c.sender(out[k], 1 - c.rank, k)) for k in range(64)]
for k in range(640):
    out[k % 64] = k % 251
    c.barrier()
    begin = time.perf_counter()
    for request in requests[k % 64]:
        request.start()
    for request in requests[k % 64]:
        wait(request.test)
    times_s.append(time.perf_counter() - begin)
if c.rank == 0:
    print(*(out[0].size / sorted(times_s)[k] for k in (0, 320)))
"""


def link_bytes_per_s() -> list[float]:
    """Bandwidth of each direction between two ranks of this machine: the best, and the median."""
    command = [*Mpirun.find().here(2), sys.executable, "-c", EXCHANGE]
    return [float(word) for word in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()]


def mapping(cnn: Cnn, ranks: int) -> Mapping:
    """Every layer that can be is split evenly among the ranks; others are on the first."""
    ends = TILES.get(cnn.graph.name, (0,)) if ranks > 1 else (0,)
    shards: list[Shard] = []
    for first, last in pairwise(ends):
        rows = extent(cnn.graph, cnn.graph.layers[last - 1], boxes.ROWS)
        cuts = [rows * (k + 1) // ranks for k in range(ranks)]
        shards += tiles.fused(cnn.graph, range(first, last), cuts, range(ranks))
    for layer in cnn.graph.layers[ends[-1] :]:
        shards += _evenly(cnn, layer, ranks)
    return Mapping.of(shards)


def _evenly(cnn: Cnn, layer: Layer, ranks: int) -> list[Shard]:
    """By channels; the first fully connected layer by input channels, of which each rank has its part already."""
    dense = [other.index for other in cnn.graph.layers if other.op == "Gemm"]
    kind = boxes.PARTIAL if ranks > 1 and layer.index in dense[:1] else boxes.CHANNELS
    size, rule = extent(cnn.graph, layer, kind), boxes.rule(cnn.graph, layer, kind)
    grain = rule.grain if rule else size
    parts = min(ranks, size // grain)
    cuts = [size // grain * k // parts * grain for k in range(parts)] + [size]
    axis = kind if parts > 1 else boxes.CHANNELS
    return [Shard(layer.index, a, b, k, axis) for k, (a, b) in enumerate(pairwise(cuts))]


def critical_path_s(plan: Plan, trace: Trace, bytes_per_s: float) -> float:
    """The least a frame can take: segments as long as their medians, messages as long as their bytes take."""
    spans: dict[tuple[int, str], list[float]] = {}
    for span in (span for frame in trace.frames for span in frame if span.kind == COMPUTE):
        spans.setdefault((span.rank, span.name), []).append(span.stop_s - span.start_s)
    clock, at, mail = [0.0] * len(plan.ranks), [0] * len(plan.ranks), dict[tuple[int, int, int], float]()
    while any(at[r.rank] < len(r.steps) for r in plan.ranks):
        for rank in plan.ranks:
            for step in rank.steps[at[rank.rank] :]:
                if isinstance(step, Run):
                    clock[rank.rank] += median(spans[rank.rank, step.file])
                elif isinstance(step, Send):
                    mail[rank.rank, step.dest, step.tag] = clock[rank.rank] + _bytes(rank, step) / bytes_per_s
                elif isinstance(step, Recv):
                    if (step.source, rank.rank, step.tag) not in mail:
                        break
                    clock[rank.rank] = max(clock[rank.rank], mail[step.source, rank.rank, step.tag])
                at[rank.rank] += 1
    return max(clock)


def _bytes(rank: object, send: Send) -> float:
    elements = 1
    for start, stop in send.box:
        elements *= stop - start
    return 4.0 * elements


@dataclass(frozen=True)
class Measured:
    """One bundle, once: seconds; step_s: a rank's own, a step."""

    latency_s: float
    path_s: float
    best_path_s: float
    step_s: float
    period_s: float
    busiest_s: float


def measure(bundle: Path, bytes_per_s: list[float]) -> Measured:
    """Run a bundle and take it apart."""
    plan, found = Plan.from_json((bundle / "plan.json").read_text()), bench(bundle, threads=1)
    busiest = max(rank.compute_s for rank in found.ranks)
    best, path = (critical_path_s(plan, found.trace, rate) for rate in bytes_per_s)
    return Measured(found.latency_s, path, best, _step_s(plan, found), found.period_s or 0.0, busiest)


def _step_s(plan: Plan, found: Bench) -> float:
    """Of the rank for which it is most: what of its frame is in no span, a step."""
    own = []
    for rank in plan.ranks:
        kinds = (COMPUTE, WAIT, SEND)
        frames = [[s for s in frame if s.rank == rank.rank and s.kind in kinds] for frame in found.trace.frames]
        spent = [sum(s.stop_s - s.start_s for s in frame) for frame in frames]
        lasted = [frame[-1].stop_s - frame[0].start_s for frame in frames]
        own.append(median(b - a for a, b in zip(spent, lasted, strict=True)) / len(rank.steps))
    return max(own)


def report(name: str, one: list[Measured], two: list[Measured]) -> None:
    """Print the medians."""

    def of(found: list[Measured], field: str) -> float:
        return median(getattr(m, field) for m in found)

    latency, path, best = of(two, "latency_s"), of(two, "path_s"), of(two, "best_path_s")
    period, busiest = of(two, "period_s"), of(two, "busiest_s")
    print(f"{name}: 1 rank {of(one, 'latency_s') * 1e3:.1f} ms, 2 ranks {latency * 1e3:.1f} ms a frame", end="")
    print(f": {of(one, 'latency_s') / latency:.2f} times as fast")
    print(f"  critical path {path * 1e3:.1f} ms: latency is {latency / path:.3f} of it", end="")
    print(f"; {best * 1e3:.1f} ms with the link at its best: {latency / best:.3f}")
    print(f"  a step costs a rank {of(two, 'step_s') * 1e6:.0f} us besides computing, waiting and sending")
    print(f"  stream: a frame every {period * 1e3:.1f} ms, {busiest / period:.1%} of what the busiest rank could")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cnn", nargs="+", default=["zoo:vgg19", "zoo:resnet50"])
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    cluster, bandwidth = Platform.from_file(Path("local2")), link_bytes_per_s()
    print(f"link: {bandwidth[1] / 1e9:.2f} GB/s each way, at best {bandwidth[0] / 1e9:.2f}")
    for name in arguments.cnn:
        cnn = read_cnn(name, [], False)
        with tempfile.TemporaryDirectory() as folder:
            bundles = [Path(folder) / f"ranks{ranks}" for ranks in (1, 2)]
            for ranks, bundle in enumerate(bundles, 1):
                write_bundle(cnn.graph, cluster, mapping(cnn, ranks), cnn.source, bundle, force=False)
            found = [[measure(bundle, bandwidth) for bundle in bundles] for _ in range(arguments.repeat)]
        report(cnn.graph.name, *map(list, zip(*found, strict=True)))


if __name__ == "__main__":
    main()
