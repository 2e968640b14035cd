"""Predictions against measurements: latency, period, memory and busy time of many mappings, predicted before they run.

    python -m tests.campaign.predictions --platform calibrated/local2.txt [--networks alexnet …] [--mappings 60]
                                         [--ranks 2 4] [--turns 3] [--frames 20] [--seconds S [--least 6]]
                                         [--pace] [--out rows.csv] [--traces FOLDER] [--plot FILE.png]
                                         [--measured rows.csv] [--unseen [--budget S]]
                                         [--key FILE --known-hosts FILE --python PATH]

For each network so many mappings, in turn random (a device a layer), vertical (stretches of layers), hybrid (stretches,
and some layers split by channels) and from the front of a short search; each on two or more devices of the platform;
and besides them the whole network alone on a device of each type.
Each becomes a bundle that is benchmarked as ``dse bench`` does it, here or on the platform's hosts, which it gets to by
``--key``, ``--known-hosts`` and ``--python``; ``--seconds`` takes fewer frames of mappings that are slow, ``--least``
how few, and as few before them. Prints a line a mapping, then a table: for the analytical model, the simulator and the
thesis' equations (Eq. 4.7 to 4.10, one coefficient a kind of layer) the mean relative error and Spearman's rank
correlation, the thesis' own figures, and what misses most. ``--out`` also resumes; ``--traces`` keeps what happened
when. ``--turns`` measures all mappings so often, one turn after the other, so that a machine that becomes slower does
not favour those that come first; what counts is the median. ``--pace`` runs the network alone just before each mapping,
and predicts the mapping also for processors of that pace, which says what is left of the error when the machine's
changes of speed are taken out.
``--measured`` takes mappings and measurements of an earlier call and predicts them anew, by another calibration, say.
``--unseen`` predicts each network by what the calibration measured of all other ones, from its ``samples.jsonl``, with
the ``--budget`` that it had; where the first network is left out, the next is put on devices a layer alone, now.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from codegen import zoo
from codegen.bundle import write_bundle
from dse import ending
from dse.calibrate.command import SAMPLES
from dse.cli.access import Running, placed
from dse.inputs import Cnn, read_cnn
from dse.results import compact, from_compact
from model.cluster.coefficients import load
from model.cluster.platform import Platform
from model.cost.case import Case
from model.cost.confidence import expected_error
from model.cost.ledger import BUSY, MEMORY
from model.cost.priced import Priced, booked, priced
from model.mappings.mapping import Mapping
from model.network.graph import Graph
from model.simulator.simulated import play
from runtime.bench import TRIES, WARMUP, Bench, bench
from tests.campaign.accuracy import EXPECTED, MODELS, OF, PACED, Row, draw_plot, misses, promises, table, together
from tests.campaign.drawings import ALONE, Drawing, alone
from tests.campaign.login import add_login, login, login_words
from tests.command import done

NETWORKS = ("alexnet", "vgg16", "densenet121", "resnet50", "shufflenet")


def thesis(graph: Graph, platform: Platform, mapping: Mapping) -> Priced:
    """By the thesis' equations: of what was measured one coefficient a kind of layer is left, Eq. 4.7."""
    return priced(graph, platform.by_paper(), mapping)


def measured(cnn: Cnn, platform: Platform, mapping: Mapping, frames: int, access: Running) -> Bench:
    """Run a mapping, frames alone and a stream of them."""
    with tempfile.TemporaryDirectory(prefix="cleave-") as folder:
        bundle = Path(folder) / "predictions"
        write_bundle(cnn.graph, platform, mapping, cnn.source, bundle, force=False)
        with placed(platform, access, bundle) as ready:
            return bench(bundle, warmup=_warmup(frames), frames=frames, runner=ready.runner, tries=TRIES)


def _warmup(frames: int) -> int:
    """Frames before those that count."""
    return min(WARMUP, frames)


def row(
    drawing: Drawing, platform: Platform, turn: int, number: int, asked: argparse.Namespace, access: Running
) -> Row:
    """Predict a mapping, run it, and put both beside each other."""
    cnn, (way, mapping) = drawing.cnn, drawing.mapping(number)
    slow_s = priced(cnn.graph, platform, mapping).latency_s
    frames = max(asked.least, int(min(asked.frames, asked.seconds / slow_s)))
    load_1 = os.getloadavg()[0]
    whole = Mapping.whole(cnn.graph, [0] * len(cnn.graph.layers))
    pace = measured(cnn, platform, whole, frames, access).latency_s if asked.pace and way != ALONE else math.nan
    said = predicted(cnn, platform, mapping, frames, pace)
    found = measured(cnn, platform, mapping, frames, access)
    if asked.traces:
        (asked.traces / f"{cnn.graph.name}-{turn}-{number}.jsonl").write_text(found.to_lines(), encoding="utf-8")
    seen = {f"measured_{of}": x for of, x in zip(OF, _seen(found), strict=True)}
    return Row(
        network=cnn.graph.name,
        way=way,
        number=number,
        ranks=len(found.ranks),
        load=load_1,
        turn=turn,
        frames=frames,
        pace=pace,
        stolen=found.stolen,
        mapping=json.dumps(compact(cnn.graph, mapping), separators=(",", ":")),
        **said,
        **seen,
    )


def again(cnn: Cnn, platform: Platform, row: Row) -> Row:
    """The same measurement with other predictions."""
    mapping = from_compact(cnn.graph, json.loads(row.mapping))
    return replace(row, **predicted(cnn, platform, mapping, row.frames, row.pace))


def predicted(cnn: Cnn, platform: Platform, mapping: Mapping, frames: int, pace: float) -> dict[str, Any]:
    """Fields of a row, by all models."""
    analytical, paced = priced(cnn.graph, platform, mapping), not math.isnan(pace)
    found = {
        MODELS[0]: _simulated(cnn.graph, platform, mapping, frames),
        MODELS[1]: _figures(analytical),
        MODELS[2]: _figures(thesis(cnn.graph, platform, mapping)),
        PACED: _simulated(cnn.graph, _slowed(cnn, platform, pace), mapping, frames) if paced else [math.nan] * len(OF),
    }
    if expected := expected_error(cnn.graph, platform, analytical):
        each = expected.latency, expected.period, expected.memory, expected.energy
        found[EXPECTED] = [math.nan if off is None else off for off in each]
    return {f"{model}_{of}": x for model, figures in found.items() for of, x in zip(OF, figures, strict=True)}


def _simulated(graph: Graph, platform: Platform, mapping: Mapping, frames: int) -> list[float]:
    case = Case.of(graph, platform, mapping)
    times = play(case, frames, _warmup(frames))
    return _figures(booked(case, times.latency_s, times.period_s))


def _slowed(cnn: Cnn, platform: Platform, pace: float) -> Platform:
    """With computing as much slower as the whole network on the first device took longer than it should."""
    slower = pace / priced(cnn.graph, platform, Mapping.whole(cnn.graph, [0] * len(cnn.graph.layers))).latency_s
    return platform.slowed([device.slowdown * slower for device in platform.devices])


def _figures(price: Priced) -> list[float]:
    busy, memory = float(price.account[:, BUSY].sum()), float(price.account[:, MEMORY].max())
    return [price.latency_s, price.period_s, memory, busy]


def _seen(found: Bench) -> list[float]:
    peaks = [rank.memory.without_input(rank.peak_bytes) for rank in found.ranks if rank.memory]
    return [found.latency_s, found.period_s or math.nan, max(peaks), sum(rank.busy_s for rank in found.ranks)]


def unseen(network: str, platform: Path, folder: Path, budget_s: float, access: Running) -> Platform:
    """The platform as a calibration without the network would have it, its devices as slow as they are now."""
    devices = Platform.from_file(str(platform)).devices
    (sets,) = {tuple(origin.networks) for d in devices if (origin := load(d.coefficients).measured)}
    folder.mkdir()
    lines = (platform.parent / SAMPLES).read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / SAMPLES).write_text(
        "".join(x for x in lines if json.loads(x).get("network") != network), encoding="utf-8"
    )
    cnns = [word for name in sets if name != network for word in ("--cnn", f"zoo:{name}")]
    done("calibrate", *cnns, "--platform", platform, "--budget", budget_s, *login_words(access), "--out", folder)
    return Platform.from_file(str(folder / platform.name)).slowed([device.slowdown for device in devices])


def read(file: Path | None) -> list[Row]:
    """Rows that an earlier call has written."""
    if file is None or not file.exists():
        return []
    with file.open(newline="") as text:
        return [
            Row(**{f.name: KINDS[f.type](line[f.name]) for f in fields(Row) if f.name in line})
            for line in csv.DictReader(text)
        ]


csv.field_size_limit(1 << 24)  # a mapping is long
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
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--frames", type=int, default=20, help="of a mapping")
    parser.add_argument("--seconds", type=float, default=math.inf, help="that frames of one mapping may take together")
    parser.add_argument("--least", type=int, default=6, help="frames of a mapping, however long they take")
    parser.add_argument("--pace", action="store_true", help="the network alone before each mapping")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="all figures, as CSV; what is in it is not measured again")
    parser.add_argument("--traces", type=Path, help="folder for traces, one file a measurement")
    parser.add_argument("--measured", type=Path, help="rows of an earlier call, to predict again")
    parser.add_argument("--unseen", action="store_true", help="each network by what was measured of the others")
    parser.add_argument("--budget", type=float, default=20.0, help="of the calibration, with --unseen")
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    add_login(parser)
    asked = parser.parse_args()
    if asked.least < 1:
        parser.error(f"--least {asked.least}: a mapping needs a frame at least")
    if asked.measured and not asked.measured.is_file():
        parser.error(f"there is no file {asked.measured}")
    if asked.traces:
        asked.traces.mkdir(exist_ok=True)
    platform = Platform.from_file(asked.platform)
    access = login(asked)
    cnns = {name: read_cnn(f"zoo:{name}", [], False) for name in asked.networks}
    rows = [] if asked.measured else read(asked.out)
    with tempfile.TemporaryDirectory(prefix="cleave-") as folder:
        of = {n: unseen(n, Path(asked.platform), Path(folder) / n, asked.budget, access) if asked.unseen else platform
              for n in cnns}  # fmt: skip
        if asked.measured:
            earlier = [r for r in read(asked.measured) if r.network in cnns]
            new = (again(cnns[r.network], of[r.network], r) for r in earlier)
        else:
            drawings = {name: Drawing(cnn, platform, asked.ranks, asked.seed) for name, cnn in cnns.items()}
            known = {(r.network, r.turn, r.number) for r in rows}
            new = (
                row(drawing, of[name], turn, number, asked, access)
                for turn in range(asked.turns)
                for number in (*alone(platform), *range(asked.mappings))
                for name, drawing in drawings.items()
                if (name, turn, number) not in known
            )
        for each in new:
            rows.append(each)
            print(_line(each), flush=True)
            write(asked.out, rows)
    print(*table(rows), "What predictions say of themselves:", *promises(rows), sep="\n")
    print("What the simulator misses most:", *misses(together(rows)), sep="\n")
    if asked.plot:
        draw_plot(together(rows), asked.plot)


def _line(r: Row) -> str:
    pairs = ((getattr(r, f"simulated_{of}"), getattr(r, f"measured_{of}")) for of in OF)
    said = "  ".join(f"{of} {p * k:8.1f} {m * k:8.1f} {u}" for (p, m), of, k, u in zip(
        pairs, OF, (1e3, 1e3, 1e-6, 1e3), ("ms", "ms", "MB", "ms"), strict=True))  # fmt: skip
    return f"{r.network:12} {r.way:8} {r.number:3} {r.ranks} ranks  {said}  load {r.load:.1f}"


if __name__ == "__main__":
    ending.run(main)
