"""Hybrid mappings on clusters in a box, for the record: prepared, deployed, run, timed and verified over SSH and TCP.

    python -m tests.campaign.cluster [--specs testbed-8 …] [--networks alexnet densenet121] [--frames 20] [--repeat 1]

For each testbed and network the fastest of some random hybrid mappings that has work for every host, whose bundle is
deployed and benched on hosts that were prepared from wheels. Prints a line a rank, then a table: predicted and measured
latency, period and memory, and whether the answers are the whole model's; with ``--repeat`` that many measurements of
each. Exit code 1 if an answer is wrong. Needs root. About two minutes a testbed on two cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from codegen import zoo
from codegen.bundle import write_bundle
from dse.inputs import Cnn, read_cnn
from dse.testbed import needs, spec
from model.cluster.platform import Platform
from model.cost.priced import Priced, priced
from model.mappings.mapping import Mapping
from runtime.errors import CleaveError
from tests.cluster import Cluster, download, standing
from tests.command import done
from tests.hybrid import hybrid

HEADER = (
    f"{'testbed':17} {'network':12} ranks {'latency: predicted':>19} {'measured':>9} {'period: predicted':>18} "
    f"{'measured':>9} {'most memory: predicted':>23} {'measured':>9}  answer"
)


class Result(NamedTuple):
    """One measurement. body: what ``dse bench --json`` says"""

    testbed: str
    network: str
    predicted: Priced
    body: dict[str, Any]

    @property
    def passed(self) -> bool:
        return bool(self.body["verification"]["passed"])

    def __str__(self) -> str:
        body, peaks = self.body, [rank["peak_bytes"] for rank in self.body["ranks"]]
        verdict = f"{'the same' if self.passed else 'WRONG'} ({body['verification']['error']:.1e})"
        return (
            f"{self.testbed:17} {self.network:12} {len(peaks):5} {_ms(self.predicted.latency_s):>19} "
            f"{_ms(body['latency_s']):>9} {_ms(self.predicted.period_s):>18} {_ms(body['period_s']):>9} "
            f"{_mb(self.predicted.memory_bytes):>23} {_mb(max(peaks)):>9}  {verdict}"
        )


def ranks(result: Result, platform: Platform) -> Iterator[str]:
    """A line a rank."""
    rows = zip(result.body["ranks"], result.predicted.devices(platform), strict=True)
    for rank, priced_rank in rows:
        times = "  ".join(f"{kind} {_ms(rank[f'{kind}_s'])}" for kind in ("compute", "wait", "send"))
        memory = f"memory: predicted {_mb(priced_rank['memory_bytes'])}, measured {_mb(rank['peak_bytes'])}"
        yield f"  rank {rank['rank']} {rank['device']:9}  {memory}  {times}"


def about(cnn: Cnn, mapping: Mapping) -> str:
    """What is split."""
    parts = Counter(Counter(shard.layer for shard in mapping.shards).values())
    ways = ", ".join(f"{parts[n]} in {n}" for n in sorted(parts) if n > 1)
    return f"{len(cnn.graph.layers)} layers, split are {ways}"


def jobs(cluster: Cluster, name: str, wheels: Path, folder: Path, asked: argparse.Namespace) -> Iterator[Result]:
    """Every network on one testbed."""
    platform = Platform.from_file(cluster.platform)
    for network in asked.networks:
        cnn = read_cnn(f"zoo:{network}", [], False)
        mapping = hybrid(cnn, platform, asked.seed)
        write_bundle(cnn.graph, platform, mapping, cnn.source, folder / network, force=False)
        with cluster.hurried():  # what is measured is made ready at full speed
            done("deploy", folder / network, *cluster.options, "--prepare", "--wheels", wheels)
        begin = time.monotonic()
        for _ in range(asked.repeat):
            said = done("bench", folder / network, *cluster.options, "--frames", asked.frames, "--json")
            result = Result(name, network, priced(cnn.graph, platform, mapping), json.loads(said))
            print(f"{name} {network}: {about(cnn, mapping)}; benched in {time.monotonic() - begin:.0f} s")
            print(*ranks(result, platform), sep="\n", flush=True)
            yield result


def run(asked: argparse.Namespace) -> Iterator[Result]:
    """Every testbed, one after the other."""
    with tempfile.TemporaryDirectory(prefix="cleave-") as folder:
        wheels = download(Path(folder) / "wheels")
        for name in asked.specs:
            place = Path(folder) / Path(name).name
            with standing(name, place / "testbed", "c") as cluster:
                yield from jobs(cluster, name, wheels, place, asked)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def _mb(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:.0f} MB"


def main() -> int:
    """Exit code 1 on a wrong answer, 2 where no testbed can be made."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--specs", nargs="+", default=["testbed-8"])
    parser.add_argument("--networks", nargs="+", default=["alexnet", "densenet121"], choices=zoo.NAMES)
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    try:
        problems = [problem for name in asked.specs for problem in needs.missing(spec.read(name))]
        results = [] if problems else list(run(asked))
    except CleaveError as error:
        problems = list(error.sentences)
    if problems:
        print(*problems, sep="\n", file=sys.stderr)
        return 2
    print(HEADER, *results, sep="\n")
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
