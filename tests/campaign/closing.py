"""What ``dse run --measure`` finds against the best of a campaign's mappings, both measured again in the same minutes.

    python -m tests.campaign.closing --platform calibrated/local2.txt --rows rows.csv --out FOLDER
                                     [--networks alexnet …] [--measure 40] [--budget 200] [--turns 7]
                                     [--key FILE --known-hosts FILE --python PATH]

``--rows`` is what ``tests.campaign.predictions`` has written. Each network is searched with so many measurements,
unless ``FOLDER/network`` is there from an earlier call. What it found best in latency, and the best that the campaign
has measured on two or more devices, are then benchmarked in turn so often: a machine's speed changes by more from hour
to hour than these differ. Prints the medians of both, in ms, and the median of the ratios.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median

from codegen import zoo
from dse import ending
from dse.cli.access import Running
from dse.inputs import read_cnn
from dse.results import from_compact
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping
from tests.campaign.accuracy import Row, together
from tests.campaign.drawings import ALONE
from tests.campaign.login import add_login, login, login_words
from tests.campaign.predictions import NETWORKS, measured, read
from tests.command import done

FRAMES = 20
BEST = Path("best-latency") / "mapping.json"


def searched(network: str, asked: argparse.Namespace, access: Running) -> Path:
    """The bundle folder of the network, made unless it is there."""
    folder: Path = asked.out / network
    if not (folder / BEST).is_file():
        done("run", "--cnn", f"zoo:{network}", "--platform", asked.platform, "--out", folder,
             "--population", "400", "--generations", "60",
             "--measure", asked.measure, "--measure-budget", asked.budget, *login_words(access))  # fmt: skip
    return folder


def compared(network: str, platform: Platform, rows: list[Row], asked: argparse.Namespace) -> str:
    """A line about one network. rows: of mappings on two or more devices, one at least"""
    cnn, access = read_cnn(f"zoo:{network}", [], False), login(asked)
    drawn = from_compact(cnn.graph, json.loads(min(together(rows), key=lambda row: row.measured_latency).mapping))
    found = Mapping.from_json((searched(network, asked, access) / BEST).read_text(), cnn.graph, platform)
    of_drawn: list[float] = []
    of_found: list[float] = []
    for turn in range(asked.turns):
        order = [(drawn, of_drawn), (found, of_found)]
        for mapping, times in order if turn % 2 else reversed(order):
            times.append(1e3 * measured(cnn, platform, mapping, FRAMES, access).latency_s)
    ratio = median(b / a for a, b in zip(of_drawn, of_found, strict=True))
    return (
        f"{network:12} best of the campaign {median(of_drawn):7.2f} ms  of the search {median(of_found):7.2f} ms"
        f"  ratio {ratio:.3f}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--networks", nargs="+", default=NETWORKS, choices=zoo.NAMES)
    parser.add_argument("--measure", type=int, default=40)
    parser.add_argument("--budget", type=int, default=200, help="seconds for measuring one network")
    parser.add_argument("--turns", type=int, default=7)
    add_login(parser)
    asked = parser.parse_args()
    for file in (asked.platform, asked.rows):
        if not file.is_file():
            parser.error(f"there is no file {file}")
    platform, several = Platform.from_file(str(asked.platform)), [r for r in read(asked.rows) if r.way != ALONE]
    rows = {network: [row for row in several if row.network == network] for network in asked.networks}
    for network in (name for name, known in rows.items() if not known):
        parser.error(f"{asked.rows} has no mapping of {network}; choose others with --networks")
    for network, known in rows.items():
        print(compared(network, platform, known, asked), flush=True)


if __name__ == "__main__":
    ending.run(main)
