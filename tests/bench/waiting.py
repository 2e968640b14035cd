"""What waiting costs: our policy, the same asleep also when a message is near, the same without a memory of the frame
before, polling without a pause, and MPI's own blocking wait, in latency and processor time.

    python -m tests.bench.waiting [--cnn zoo:densenet121] [--ranks 2] [--pieces] [--frames 60] [--repeat 5]

A network cut into stretches of about as many MACs, one a rank and one thread each, or with ``--pieces`` into layers
on ranks at random, which wait often and briefly: while one rank computes, all others wait. They take turns in the
same run, each in its own copy of the bundle. Latency is that of a frame alone, processor time that of all ranks over
a frame. Ratios are medians over the turns.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path
from statistics import median

from codegen.bundle import write_bundle
from dse.calibrate.design import stretches
from dse.inputs import Cnn, read_cnn
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping
from runtime.bench import Bench
from runtime.launch import run
from runtime.options import Options
from runtime.trace import Trace
from tests.bench.altered import Policies, variants

BLOCKING = '''

def wait(test, last_s=0.0):
    """MPI's own."""
    request = test.__self__
    getattr(request, "_request", request).Wait()
    return 0.0
'''
FORGETFUL = '''

remembering = wait


def wait(test, last_s=0.0):
    """By the time waited so far."""
    return remembering(test)
'''
POLLING = """
SPIN_S = float("inf")
"""
ASLEEP = """
NEAR_S = 0.0
"""
POLICIES = {"ours": "", "asleep": ASLEEP, "forgetful": FORGETFUL, "polling": POLLING, "MPI's wait": BLOCKING}
"""What is added at the end of a bundle's ``runtime/communicator.py``."""


def stretched(cnn: Cnn, ranks: int) -> Mapping:
    """Layers in their order, as many MACs to each rank as can be."""
    return stretches(cnn.graph, range(ranks)).mapping


def cluster(ranks: int) -> Platform:
    """So many devices on this machine, one thread each."""
    lines = [f"local{i}, address=localhost, slots=0, threads=1" for i in range(ranks)]
    return Platform.parse("\n".join(lines), "local")


def scattered(cnn: Cnn, ranks: int) -> Mapping:
    """Each layer on some rank."""
    draw = random.Random(0)
    return Mapping.whole(cnn.graph, [draw.randrange(ranks) for _ in cnn.graph.layers])


def in_turn(
    cnn: Cnn, ranks: int, mapping: Mapping, file: str, policies: Policies, frames: int, repeat: int
) -> dict[str, list[Bench]]:
    """So many turns of a bundle for each policy, which changes one of its files."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "bundle"
        write_bundle(cnn.graph, cluster(ranks), mapping, cnn.source, made, force=False)
        bundles = variants(made, Path(folder), file, policies)
        turns = [{name: measure(bundle, frames) for name, bundle in bundles.items()} for _ in range(repeat)]
    return {name: [turn[name] for turn in turns] for name in policies}


def measure(bundle: Path, frames: int) -> Bench:
    """One turn."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        run(bundle, Options(frames, warmup=5, barrier=True, report=str(report)))
        return Bench.from_trace(Trace.from_json(report.read_text()))


def processor_s(found: Bench) -> float:
    """Of all ranks, over a frame."""
    return sum(rank.processor_s for rank in found.ranks)


def wait_s(found: Bench) -> float:
    """The same of waiting, in seconds that went by."""
    return sum(rank.wait_s for rank in found.ranks)


def report(found: dict[str, list[Bench]], base: str) -> None:
    """A line for each policy; ratios are to the one that is the base, turn by turn."""
    for name, turns in found.items():
        pairs = list(zip(turns, found[base], strict=True))
        latency = median(a.latency_s / b.latency_s for a, b in pairs)
        processor = median(processor_s(a) / processor_s(b) for a, b in pairs)
        milliseconds = [median(map(of, turns)) * 1e3 for of in (lambda b: b.latency_s, wait_s, processor_s)]
        print(
            "{:11} latency {:7.2f} ms (x {:.3f}), ranks wait {:7.2f} ms, processor time {:7.2f} ms (x {:.3f})".format(
                name, milliseconds[0], latency, *milliseconds[1:], processor
            )
        )


def compared(doc: str | None, file: str, policies: Policies) -> dict[str, list[Bench]]:
    """What the command line asks for, in turns. doc: what it says of itself"""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cnn", default="zoo:densenet121")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pieces", action="store_true", help="layers on ranks at random")
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    cnn = read_cnn(arguments.cnn, [], False)
    mapping = (scattered if arguments.pieces else stretched)(cnn, arguments.ranks)
    found = in_turn(cnn, arguments.ranks, mapping, file, policies, arguments.frames, arguments.repeat)
    print(f"{cnn.graph.name} on {arguments.ranks} ranks, {arguments.repeat} turns of {arguments.frames} frames")
    return found


def main() -> None:
    """Run the benchmark."""
    report(compared(__doc__, "runtime/communicator.py", POLICIES), "polling")


if __name__ == "__main__":
    main()
