"""What it saves two hosts whose large messages cross each other that TCP takes them in pieces.

    python -m tests.bench.crossing [--cnn zoo:resnet50] [--frames 8] [--repeat 3]

Two hosts of a testbed, 45 % of a core each, 1 Gbit/s. First one message each way, alone and both at once, then a
network with every layer that can be in halves, so that each host sends what the other lacks. Both ways to send take
turns in the same run: in pieces, as deployed bundles do, and whole, as Open MPI does of itself. Ratios are medians over
the turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from codegen.bundle import write_bundle
from dse.calibrate import links
from dse.inputs import Cnn, read_cnn
from model.cluster.platform import Platform
from model.fit.link_costs import BOTH, WAY
from model.mappings.mapping import Mapping, Shard, extent
from model.network import boxes
from runtime.bench import Bench
from runtime.deploy import network
from runtime.launch import Runner
from runtime.trace import Trace
from tests.bench.clock import measured, runner
from tests.bench.limited import turn
from tests.bench.waiting import report
from tests.cluster import Cluster, boxed

SPEC = "".join(f"pi{k}, cores={k}, share=0.45, memory=2GB, bandwidth=1Gbit/s\n" for k in range(2))
PIECES, WHOLE = "in pieces", "whole"
FORMS = {PIECES: network.TRANSPORT, WHOLE: network.TRANSPORT[: network.TRANSPORT.index(network.PIECES) - 2]}
"""Words of mpirun."""


@contextmanager
def sent(form: str) -> Iterator[None]:
    """In a form while the block lasts."""
    usual, network.TRANSPORT = network.TRANSPORT, FORMS[form]
    try:
        yield
    finally:
        network.TRANSPORT = usual


@contextmanager
def runners(bundle: Path, box: Cluster) -> Iterator[dict[str, Runner]]:
    """Of a bundle, in each form."""
    with ExitStack() as stack:
        ready = {}
        for form in FORMS:
            with sent(form):
                ready[form] = stack.enter_context(runner(bundle, box))
        yield ready


def large(box: Cluster, folder: Path) -> None:
    """Print what messages take that calibration sends: the larger of both ways alone, and both at once."""
    (bundle,) = (b for b in links.link_bundles(Platform.from_file(box.platform)) if b.name.endswith("large"))
    bundle.write(folder / "bundle")
    with runners(folder / "bundle", box) as ready:
        for form, run in ready.items():
            samples = links.read(bundle.plan, Trace.from_json(measured(run, bundle.options)[0]))
            (both,) = (s for s in samples if s.kind == BOTH)
            alone_s = max(median(s.times_s) for s in samples if s.kind == WAY and s.size_bytes == both.size_bytes)
            both_s, size = median(both.times_s), both.size_bytes / 1e6
            print(f"{form:10} {size:.1f} MB one way {1e3 * alone_s:.1f} ms, both ways at once {1e3 * both_s:.1f} ms")


def halves(cnn: Cnn) -> Mapping:
    """Every layer that can be, in halves by channels."""
    return Mapping.of(shard for layer in cnn.graph.layers for shard in _halves(cnn, layer.index))


def _halves(cnn: Cnn, index: int) -> list[Shard]:
    layer = cnn.graph.layers[index]
    rule, whole = boxes.rule(cnn.graph, layer, boxes.CHANNELS), extent(cnn.graph, layer)
    middle = rule.size // rule.grain // 2 * rule.grain if rule else 0
    return [Shard(index, 0, middle, 0), Shard(index, middle, whole, 1)] if middle else [Shard(index, 0, whole, 0)]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cnn", default="zoo:resnet50")
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    cnn, found = read_cnn(asked.cnn, [], False), {form: list[Bench]() for form in FORMS}
    with boxed(SPEC, "c") as (folder, box):
        large(box, folder)
        bundle = folder / "halves"
        write_bundle(cnn.graph, Platform.from_file(box.platform), halves(cnn), cnn.source, bundle, force=False)
        with runners(bundle, box) as ready:
            for _ in range(asked.repeat):
                for form, run in ready.items():
                    found[form].append(turn(run, asked.frames))
    print(f"{cnn.graph.name} in halves, {asked.repeat} turns of {asked.frames} frames")
    report(found, WHOLE)


if __name__ == "__main__":
    main()
