"""Predictions against measurements: latency, period, memory and busy time of many mappings, predicted before they run.

    python -m tests.campaign.predictions --platform calibrated/local2.txt [--networks alexnet …] [--mappings 60]
                                         [--ranks 2 4] [--frames 20] [--out rows.csv] [--plot FILE.png]
                                         [--measured rows.csv --drawn-by PLATFORM] [OPTION …]

For each network so many mappings, in turn random (a device a layer), vertical (stretches of layers), hybrid (stretches,
and some layers split by channels) and from the front of a short search; each on two or more devices of the platform.
Each becomes a bundle that ``dse bench`` runs, here or on hosts: what follows the options goes to ``dse deploy`` and
``dse bench`` (``--key``, ``--known-hosts``, ``--python``). Prints a line a mapping, then a table: for the analytical
model, the simulator and the thesis' equations (Eq. 4.7 to 4.10, one coefficient a kind of layer) the mean relative
error and Spearman's rank correlation (and "as usual": what was measured, divided by how much slower processors were
than in the calibration), the thesis' own figures, and what misses most. ``--out`` also resumes.
``--measured`` takes the measurements of an earlier call and predicts them anew, by another calibration, say one without
the network itself: then ``--drawn-by`` is the platform that the mappings were drawn with (fronts depend on it).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullFormatter
from numpy.typing import NDArray
from scipy.stats import spearmanr

from codegen import zoo
from codegen.bundle import write_bundle
from dse.calibrate.speeds import YARDSTICKS
from dse.inputs import Cnn, read_cnn
from dse.run import Coding, prepare
from dse.search import Settings, search
from model import boxes
from model.coefficients import load
from model.graph import Graph
from model.mapping import Mapping, Shard
from model.platform import Platform
from model.priced import Priced, priced
from model.simulated import simulated
from model.spending import COMPUTE, MEMORY
from runtime.bench import WARMUP, bench
from tests.command import done

NETWORKS = ("alexnet", "vgg16", "densenet121", "resnet50", "shufflenet")
WAYS = ("random", "vertical", "hybrid", "front")
THESIS = {
    "latency": ((1.07, 0.56), (1.82, 0.85), (1.43, 0.57)),
    "memory": ((0.37, -0.60), (0.27, -0.22), (0.30, 0.60)),
}
"""Mean error and Spearman of the thesis' tables 3 and 6: AlexNet, VGG-16, DenseNet-121."""
OF = ("latency", "period", "memory", "busy")
MODELS = ("simulated", "analytical", "thesis")
AS_USUAL = "as usual"
"""In place of a model: the simulator, where what was measured is divided by how much slower processors were."""
WORST = 5


@dataclass(frozen=True)
class Row:
    """One mapping. Seconds and bytes, by model; busy: computing, of all ranks together; memory: the largest rank's,
    without frames that only the measurement keeps; slower: how many times as long processors took as in the
    calibration, by ``runtime.yardstick``, each rank as much as it computes."""

    network: str
    way: str
    number: int
    ranks: int
    simulated_latency: float
    simulated_period: float
    simulated_memory: float
    simulated_busy: float
    analytical_latency: float
    analytical_period: float
    analytical_memory: float
    analytical_busy: float
    thesis_latency: float
    thesis_period: float
    thesis_memory: float
    thesis_busy: float
    measured_latency: float
    measured_period: float
    measured_memory: float
    measured_busy: float
    slower: float
    load: float


class Drawing:
    """Mappings of a network on a platform."""

    def __init__(self, cnn: Cnn, platform: Platform, ranks: tuple[int, int], seed: int) -> None:
        self.cnn, self.platform, self.ranks, self.seed = cnn, platform, ranks, seed
        self.front: list[Mapping] = []

    def mapping(self, number: int) -> tuple[str, Mapping]:
        """The way of a mapping, and the mapping."""
        way, draw = WAYS[number % len(WAYS)], random.Random(f"{self.cnn.graph.name}/{self.seed}/{number}")
        most = min(self.ranks[1], len(self.platform.devices))
        devices = draw.sample(range(len(self.platform.devices)), draw.randint(min(self.ranks[0], most), most))
        if way == "front":
            return way, draw.choice(self._front())
        if way == "random":
            return way, Mapping.whole(self.cnn.graph, [draw.choice(devices) for _ in self.cnn.graph.layers])
        shards = stretches(self.cnn.graph, devices, draw)
        return way, shards if way == "vertical" else split(self.cnn.graph, shards, devices, draw)

    def _front(self) -> list[Mapping]:
        """Points of a short search that use two devices or more."""
        if not self.front:
            coding = Coding("hybrid", min(2, len(self.platform.devices)))
            chromosome, costs = prepare(self.cnn, self.platform, coding)
            found = search(chromosome, costs, Settings(population=100, generations=20, seed=self.seed))
            mappings = [chromosome.decode(genes) for genes in found.genes]
            self.front = [m for m in mappings if len(m.devices) > 1] or mappings
        return self.front


def stretches(graph: Graph, devices: list[int], draw: random.Random) -> Mapping:
    """A stretch of layers for each device."""
    cuts = sorted(draw.sample(range(1, len(graph.layers)), len(devices) - 1))
    bounds = [0, *cuts, len(graph.layers)]
    on = [device for k, device in enumerate(devices) for _ in range(bounds[k + 1] - bounds[k])]
    return Mapping.whole(graph, on)


def split(graph: Graph, mapping: Mapping, devices: list[int], draw: random.Random) -> Mapping:
    """Half of the layers that LOP can split are split in two somewhere."""
    return Mapping.of(shard for whole in mapping.shards for shard in _parts(graph, whole, devices, draw))


def _parts(graph: Graph, whole: Shard, devices: list[int], draw: random.Random) -> list[Shard]:
    layer = graph.layers[whole.layer]
    rule = boxes.rule(graph, layer, boxes.CHANNELS)
    inner = range(rule.grain, rule.size, rule.grain) if rule else range(0)
    if not boxes.is_heavy(graph, layer) or not inner or draw.random() < 0.5:
        return [whole]
    cut, other = draw.choice(inner), draw.choice([d for d in devices if d != whole.device])
    return [replace(whole, stop=cut), replace(whole, start=cut, device=other)]


def thesis(graph: Graph, platform: Platform, mapping: Mapping) -> Priced:
    """By the thesis' equations: of what was measured one coefficient a kind of layer is left, Eq. 4.7."""
    return priced(graph, platform.by_paper(), mapping)


def measured(cnn: Cnn, platform: Platform, mapping: Mapping, frames: int, access: list[str]) -> dict[str, Any]:
    """Run a mapping; what ``dse bench --json`` says."""
    with tempfile.TemporaryDirectory(prefix="cleave-") as folder:
        bundle = Path(folder) / "predictions"
        write_bundle(cnn.graph, platform, mapping, cnn.source, bundle, force=False)
        if all(host.address == "localhost" for host in platform.hosts):
            return json.loads(bench(bundle, frames=frames).to_json())
        done("deploy", bundle, *access)
        return json.loads(done("bench", bundle, *access, "--frames", frames, "--json"))


def row(drawing: Drawing, number: int, frames: int, access: list[str], platform: Platform, known: Row | None) -> Row:
    """Predict a mapping, run it, and put both beside each other. known: it was run already"""
    cnn = drawing.cnn
    way, mapping = drawing.mapping(number)
    found = simulated(cnn.graph, platform, mapping, WARMUP + frames, WARMUP)
    said = [found.price, found.analytical, thesis(cnn.graph, platform, mapping)]
    load_1 = os.getloadavg()[0]
    if known:
        names = [f"{model}_{of}" for model in MODELS for of in OF]
        return replace(known, **dict(zip(names, [x for price in said for x in _figures(price)], strict=True)))
    body = measured(cnn, platform, mapping, frames, access)
    peak = max(rank["peak_bytes"] - rank["memory"]["input_bytes"] for rank in body["ranks"])
    busy = sum(rank["compute_s"] for rank in body["ranks"])
    figures = [x for price in said for x in _figures(price)]
    seen = [body["median_s"], body["period_s"], peak, busy]
    return Row(
        cnn.graph.name, way, number, len(body["ranks"]), *figures, *seen, slower(platform, body["ranks"]), load_1
    )


def slower(platform: Platform, ranks: list[dict[str, Any]]) -> float:
    """How many times as long processors took as usually; nan where it is not known."""
    usual = {d.name: load(d.coefficients).measured.get(YARDSTICKS, {}).get(d.unit) for d in platform.devices}
    known = [(rank["yardstick_s"] / usual[rank["device"]], rank["compute_s"]) for rank in ranks
             if rank["yardstick_s"] and usual[rank["device"]]]  # fmt: skip
    ratios, weights = np.array(known).reshape(-1, 2).T
    return float(np.average(ratios, weights=weights)) if known else float("nan")


def _figures(price: Priced) -> list[float]:
    busy, memory = float(price.account[:, COMPUTE].sum()), float(price.account[:, MEMORY].max())
    return [price.latency_s, price.period_s, memory, busy]


def table(rows: list[Row]) -> Iterator[str]:
    """A line for each network and model, one for each way of mapping; then the thesis' own."""
    yield f"{'network':16} {'mappings':>8}  {'model':10} " + " ".join(
        f"{of + ' error':>14} {'Spearman':>8}" for of in OF
    )
    groups = {name: [r for r in rows if r.network == name] for name in dict.fromkeys(r.network for r in rows)}
    groups |= {f"all, {way}": [r for r in rows if r.way == way] for way in WAYS}
    for name, mine in groups.items():
        for model in (MODELS[0], AS_USUAL, *MODELS[1:]) if mine else ():
            yield f"{name:16} {len(mine):8}  {model:10} " + " ".join(_cell(mine, model, of) for of in OF)
    for k, name in enumerate(("AlexNet", "VGG-16", "DenseNet-121")):
        cells = " ".join(f"{THESIS[of][k][0]:14.0%} {THESIS[of][k][1]:8.2f}" if of in THESIS else " " * 23 for of in OF)
        yield f"{name:16} {12:8}  {'its tables':10} {cells}"


def _cell(rows: list[Row], model: str, of: str) -> str:
    if model == AS_USUAL and of != "memory":
        rows = [replace(r, **{f"measured_{of}": getattr(r, f"measured_{of}") / r.slower}) for r in rows]
    predicted, seen = column(rows, MODELS[0] if model == AS_USUAL else model, of), column(rows, "measured", of)
    told = min(len(set(predicted)), len(set(seen))) > 1
    rank = float(spearmanr(predicted, seen).statistic) if len(rows) > 2 and told else float("nan")
    return f"{np.mean(np.abs(predicted / seen - 1)):14.1%} {rank:8.3f}"


def column(rows: list[Row], who: str, of: str) -> NDArray[np.float64]:
    """One figure of all rows."""
    return np.array([getattr(r, f"{who}_{of}") for r in rows])


def misses(rows: list[Row]) -> Iterator[str]:
    """What the simulator misses most."""
    for of in OF:
        errors = column(rows, "simulated", of) / column(rows, "measured", of) - 1
        for k in np.argsort(-np.abs(errors))[:WORST]:
            r = rows[k]
            run = f"{r.network} {r.way} {r.number}, {r.ranks} ranks"
            yield f"  {of:8} {errors[k]:+7.1%}  {run}, load {r.load:.1f}, processors {r.slower - 1:+.1%}"


def draw_plot(rows: list[Row], file: Path) -> None:
    """Predicted over measured, both logarithmic."""
    mpl.use("Agg")
    figure, axes = plt.subplots(1, len(OF), figsize=(4.2 * len(OF), 4.2))
    for axis, of in zip(axes, OF, strict=True):
        scale = 1e-6 if of == "memory" else 1e3
        for network in dict.fromkeys(r.network for r in rows):
            mine = [r for r in rows if r.network == network]
            seen, said = (column(mine, who, of) * scale for who in ("measured", "simulated"))
            axis.loglog(seen, said, "o", ms=3.5, alpha=0.7, label=network)
        ends = [*axis.get_xlim(), *axis.get_ylim()]
        line = np.array([min(ends), max(ends)])
        axis.loglog(line, line, "k-", lw=0.8)
        axis.fill_between(line, line * 0.9, line * 1.1, color="k", alpha=0.1, lw=0)
        unit = "MB" if of == "memory" else "ms"
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set(title=of, xlabel=f"measured ({unit})", ylabel=f"predicted ({unit})")
    axes[0].legend(fontsize=8)
    figure.savefig(file, bbox_inches="tight", dpi=130)


def read(file: Path | None) -> list[Row]:
    """Rows that an earlier call has written."""
    if file is None or not file.exists():
        return []
    with file.open(newline="") as text:
        return [Row(*(KINDS[f.type](line[f.name]) for f in fields(Row))) for line in csv.DictReader(text)]


KINDS: dict[Any, Callable[[str], Any]] = {"str": str, "int": int, "float": float}


def write(file: Path | None, rows: list[Row]) -> None:
    """All rows so far."""
    if file is not None:
        draft = file.with_suffix(".part")
        with draft.open("w", newline="") as text:
            writer = csv.DictWriter(text, [f.name for f in fields(Row)])
            writer.writeheader()
            writer.writerows(map(asdict, rows))
        draft.replace(file)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="local2")
    parser.add_argument("--networks", nargs="+", default=NETWORKS, choices=zoo.NAMES)
    parser.add_argument("--mappings", type=int, default=60)
    parser.add_argument("--ranks", nargs=2, type=int, default=[2, 4], metavar=("LEAST", "MOST"))
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="all figures, as CSV; what is in it is not measured again")
    parser.add_argument("--measured", type=Path, help="rows of an earlier call, to predict again")
    parser.add_argument("--drawn-by", help="platform of that call")
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    asked, access = parser.parse_known_args()
    if asked.measured and not asked.measured.is_file():
        parser.error(f"there is no file {asked.measured}")
    platform = Platform.from_file(asked.platform)
    drawn_by = Platform.from_file(asked.drawn_by or asked.platform)
    measured_before = {(r.network, r.number): r for r in read(asked.measured)}
    access = ["--platform", asked.platform, *access]
    rows = read(asked.out)
    known = {(r.network, r.number) for r in rows}
    drawings = [Drawing(read_cnn(f"zoo:{n}", [], False), drawn_by, asked.ranks, asked.seed) for n in asked.networks]
    for number in range(asked.mappings):
        for drawing in drawings:
            if (drawing.cnn.graph.name, number) not in known:
                before = measured_before.get((drawing.cnn.graph.name, number))
                if before is None and asked.measured:
                    continue
                rows.append(row(drawing, number, asked.frames, access, platform, before))
                print(_line(rows[-1]), flush=True)
                write(asked.out, rows)
    print(*table(rows), "What the simulator misses most:", *misses(rows), sep="\n")
    if asked.plot:
        draw_plot(rows, asked.plot)


def _line(r: Row) -> str:
    pairs = ((getattr(r, f"simulated_{of}"), getattr(r, f"measured_{of}")) for of in OF)
    said = "  ".join(f"{of} {p * k:8.1f} {m * k:8.1f} {u}" for (p, m), of, k, u in zip(
        pairs, OF, (1e3, 1e3, 1e-6, 1e3), ("ms", "ms", "MB", "ms"), strict=True))  # fmt: skip
    return f"{r.network:12} {r.way:8} {r.number:3} {r.ranks} ranks  {said}  slower {r.slower:.3f} load {r.load:.1f}"


if __name__ == "__main__":
    sys.exit(main())
