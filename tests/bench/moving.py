"""What looking after messages brings while a segment runs, and what it costs, in the period of a stream.

    python -m tests.bench.moving [--cnn zoo:densenet121] [--layers N] [--frames 40] [--repeat 5]

A network cut into two stretches, of about as many MACs or with so many layers in the first, on two hosts of a testbed,
over 1 Gbit/s, a core each: the second one computes a frame while the message of the next one is on its way. Policies
take turns in the same run:

* ours: looks become rarer the longer a segment runs;
* steady: every 0.5 ms;
* for any: the same, but for any message; they find one of a frame that nobody is ready for, and nothing moves;
* none: nobody looks.

Period, and processor time of both ranks over a frame, are medians over the turns; ratios are to ours, turn by turn.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from codegen.bundle import write_bundle
from dse.inputs import Cnn, read_cnn
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping
from runtime.launch import Runner
from runtime.options import Options
from runtime.trace import Trace
from tests.bench.altered import Policies, variants
from tests.bench.clock import measured, runner
from tests.bench.waiting import stretched
from tests.cluster import Cluster, boxed

SPEC = "".join(f"pi{k}, cores={k}, share=0.92, memory=2GB, bandwidth=1Gbit/s\n" for k in range(2))
STEADY = "\n\nPOKE_SHARE = 0.0\n"
FOR_ANY = """

class Any:
    def __init__(self, world):
        self._world = world

    def __getattr__(self, name):
        return getattr(self._world, name)

    def Iprobe(self, source, tag):
        return self._world.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)


class Asking(MpiCommunicator):
    def _look_after_messages(self):
        self._world = Any(self._world)
        super()._look_after_messages()


MpiCommunicator = Asking
"""
NONE = "\n\nMpiCommunicator._look_after_messages = lambda self: None\n"
OURS = "ours"
POLICIES = {OURS: "", "steady": STEADY, "for any": STEADY + FOR_ANY, "none": NONE}
"""What is added at the end of a bundle's ``runtime/mpi.py``."""


@contextmanager
def runners(
    cnn: Cnn, mapping: Mapping, box: Cluster, folder: Path, file: str = "runtime/mpi.py", policies: Policies = POLICIES
) -> Iterator[dict[str, Runner]]:
    """Of a bundle for each policy, which is what is added at the end of a file."""
    platform, made = Platform.from_file(box.platform), folder / "bundle"
    write_bundle(cnn.graph, platform, mapping, cnn.source, made, force=False)
    with ExitStack() as stack:
        bundles = variants(made, folder, file, policies)
        yield {name: stack.enter_context(runner(bundle, box)) for name, bundle in bundles.items()}


def turn(run: Runner, frames: int) -> Trace:
    """A stream."""
    return Trace.from_json(measured(run, Options(frames, 5, stream=True))[0])


def period_s(found: Trace) -> float:
    """Seconds a frame."""
    assert found.period_s is not None
    return found.period_s


def processor_s(found: Trace) -> float:
    """Of both ranks over a frame."""
    return sum(rank.processor_s for rank in found.ranks) / len(found.frames)


def report(found: dict[str, list[Trace]]) -> None:
    """A line for each policy."""
    for name, turns in found.items():
        cells = []
        for of in (period_s, processor_s):
            ratio = median(of(a) / of(b) for a, b in zip(turns, found[OURS], strict=True))
            cells.append(f"{median(map(of, turns)) * 1e3:8.2f} ms (x {ratio:.3f})")
        print(f"{name:8} period {cells[0]}, processor time {cells[1]}")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cnn", default="zoo:densenet121")
    parser.add_argument("--layers", type=int, help="that the first host computes")
    parser.add_argument("--frames", type=int, default=40)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    cnn = read_cnn(arguments.cnn, [], False)
    mapping = stretched(cnn, 2)
    if arguments.layers:
        mapping = Mapping.whole(cnn.graph, [int(k >= arguments.layers) for k in range(len(cnn.graph.layers))])
    found: dict[str, list[Trace]] = {name: [] for name in POLICIES}
    with boxed(SPEC, "m") as (folder, box), runners(cnn, mapping, box, folder) as ready:
        for _ in range(arguments.repeat):
            for name, run in ready.items():
                found[name].append(turn(run, arguments.frames))
    print(f"{cnn.graph.name} on two hosts, {arguments.repeat} turns of {arguments.frames} frames")
    report(found)


if __name__ == "__main__":
    main()
