"""Which messages move by themselves while their ranks compute: those that the buffers of sockets hold.

    python -m tests.bench.unaided [--kb 64 128 256 512 1024 2048] [--frames 40] [--policy none]

Two hosts of a testbed, over 1 Gbit/s, a core each. The first one sends a message; then one of both computes a chain of
convolutions while nobody looks after messages (``--policy ours``: while somebody does):

* sending: the first one computes. How long after it was sent the second one, which waits for it, has the message;
* receiving: the second one computes and then takes the message. How long it waits for it.

In ms, of the first frame, and of the others median and most, beside what the link takes and what the computing takes. A
message that does not move by itself comes when the computing is over.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from onnx import ModelProto

from codegen.bundle import write_bundle
from dse.inputs import read_cnn
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping
from runtime.options import Options
from runtime.trace import COMPUTE, Span, Trace
from runtime.transfers import transfers
from tests.bench.altered import variants
from tests.bench.clock import measured, runner
from tests.bench.moving import POLICIES, SPEC
from tests.cluster import Cluster, boxed
from tests.tiny_cnn import network, node, save, weight

RATE = 125e6
"""Bytes a second of the link."""
CHAIN, CHANNELS, PIXELS = 12, 64, 56
ROLES = ("sending", "receiving")


def message_and_chain(size_bytes: int) -> ModelProto:
    """The first layer makes the message, the last one takes it; what is between them has nothing to do with either."""
    names = ["c", *(f"c{k}" for k in range(CHAIN))]
    between = [node("Conv", [names[k], "w"], [names[k + 1]], f"conv{k}", pads=[1] * 4) for k in range(CHAIN)]
    nodes = [node("Relu", ["x"], ["m"], "first"), *between, node("Sigmoid", ["m"], ["y"], "last")]
    inputs = {"x": (1, size_bytes // 4), "c": (1, CHANNELS, PIXELS, PIXELS)}
    return network(nodes, inputs, ["y", names[-1]], {"w": weight(CHANNELS, CHANNELS, 3, 3) / 24})


def frames(role: str, size_bytes: int, policy: str, box: Cluster, count: int) -> list[tuple[Span, ...]]:
    """What both ranks did in each frame."""
    with tempfile.TemporaryDirectory() as text:
        folder, platform = Path(text), Platform.from_file(box.platform)
        cnn = read_cnn(str(save(folder, message_and_chain(size_bytes))), [], False)
        mapping = Mapping.whole(cnn.graph, [0, *[ROLES.index(role)] * CHAIN, 1])
        write_bundle(cnn.graph, platform, mapping, cnn.source, folder / "bundle", force=False)
        made = variants(folder / "bundle", folder, "runtime/mpi.py", {policy: POLICIES[policy]})
        with runner(made[policy], box) as run:
            return list(Trace.from_json(measured(run, Options(count, 0, barrier=True))[0]).frames)


def came_s(role: str, frame: Sequence[Span]) -> float:
    """From when the message is sent, or from when it is waited for."""
    (message,) = transfers(frame)
    return message.stop_s - (message.start_s if role == "sending" else message.wait.start_s)


def computing_s(frame: Sequence[Span]) -> float:
    """Of the chain."""
    return max(span.time_s for span in frame if span.kind == COMPUTE)


def report(role: str, kb: int, found: Sequence[Sequence[Span]]) -> None:
    """A line."""
    first, *others = [came_s(role, frame) * 1e3 for frame in found]
    came = f"first {first:6.1f}  others {median(others):6.1f} to {max(others):6.1f}"
    link, computing = kb * 1024 / RATE * 1e3, median(map(computing_s, found)) * 1e3
    print(f"{role:9} {kb:5} kB  {came}  link {link:5.1f}  computing {computing:5.1f}", flush=True)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kb", nargs="+", type=int, default=[64, 128, 256, 512, 1024, 2048])
    parser.add_argument("--frames", type=int, default=40)
    parser.add_argument("--policy", choices=POLICIES, default="none")
    arguments = parser.parse_args()
    with boxed(SPEC, "u") as (_, box):
        for role in ROLES:
            for kb in arguments.kb:
                report(role, kb, frames(role, kb * 1024, arguments.policy, box, arguments.frames))


if __name__ == "__main__":
    main()
