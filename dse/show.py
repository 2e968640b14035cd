"""Tables for a person at a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from codegen.verify import Verification
from dse import provenance
from dse.closing.attempts import Closed
from dse.evaluation import OBJECTIVES
from dse.place.cnn.bounds import Proven
from dse.run import Coding, Outcome
from dse.settings import Settings
from dse.units import UNITS, many, quantity, shown
from model.cluster import coefficients
from model.cluster.platform import Platform
from model.cost.confidence import Expected, untold
from model.mappings.mapping import extent
from model.network import boxes
from model.network.graph import Graph
from model.network.steps import steps
from runtime.bench import STOLEN, Bench
from runtime.infer import Answer
from runtime.plan import Plan, Recv, Send
from runtime.segment import CPU
from runtime.steady import counted
from runtime.trace import ESTIMATE

NOTHING = 1e-6
"""A gap so small is what rounding leaves."""


def table(headers: list[str], rows: list[list[Any]], text: int = 1) -> Table:
    """A plain table: the first ``text`` columns to the left, the rest to the right."""
    found = Table(box=None, pad_edge=False, header_style="bold")
    for i, header in enumerate(headers):
        found.add_column(header, justify="left" if i < text else "right", overflow="fold")
    for row in rows:
        found.add_row(*[str(cell) for cell in row])
    return found


def line(console: Console, text: str) -> None:
    """One line as it is: no markup, no colours."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def layer_rows(graph: Graph) -> list[dict[str, Any]]:
    """The layers as plain data."""
    return [
        {
            "index": layer.index,
            "name": layer.name,
            "op": layer.op,
            "types": [graph.tensors[names[0]].dtype for names in (layer.inputs, layer.outputs) if names],
            "quantised": bool(layer.before or layer.after),
            "output": list(graph.tensors[layer.outputs[0]].shape),
            "macs": layer.macs,
            "weights_bytes": graph.weight_bytes(layer),
            "splits": [
                name
                for kind, name in enumerate(boxes.KIND_NAMES)
                if boxes.rule(graph, layer, kind) and extent(graph, layer, kind) > 1
            ],
            "lop": boxes.is_heavy(graph, layer),
            "origins": list(layer.origins),
        }
        for layer in graph.layers
    ]


def layers(console: Console, graph: Graph, rows: list[dict[str, Any]]) -> None:
    """``dse inspect``. LOP: weights can be cut by output channels, which a search does; channels: splits freely."""
    cells = [
        [
            r["index"],
            r["name"],
            f"{r['op']} ({' to '.join(dict.fromkeys(r['types']))})" if r["quantised"] else r["op"],
            "x".join(map(str, r["output"])),
            f"{r['macs']:,}",
            f"{r['weights_bytes']:,}",
            ", ".join("LOP" if r["lop"] and split == "channels" else split for split in r["splits"]),
        ]
        for r in rows
    ]
    console.print(table(["#", "layer", "op", "output", "MACs", "weights B", "split"], cells, text=4), markup=False)
    macs, weights = sum(r["macs"] for r in rows), sum(graph.tensors[n].size_bytes for n in graph.constants)
    nodes = len({name for r in rows for name in r["origins"]})
    line(console, f"{graph.name}: {len(rows)} layers for {nodes} nodes of the file, {macs / 1e6:,.1f} M MACs, "
         f"{weights / 1e6:,.1f} MB of weights, {sum(r['lop'] for r in rows)} layers can be split (LOP)")  # fmt: skip


def announce(console: Console, graph: Graph, cluster: Platform, coding: Coding, settings: Settings) -> None:
    """What is about to be done."""
    line(console, f"{graph.name}: {len(graph.layers)} layers, {sum(i.macs for i in graph.layers) / 1e6:,.0f} M MACs")
    splits = f" with up to {coding.splits} parts a layer" if coding.kind == "hybrid" else ""
    line(console, f"{cluster.name}: {many(len(cluster.devices), 'device')} on {many(len(cluster.hosts), 'host')}")
    then = ", then a local search" if settings.local_search else ""
    line(console, f"NSGA-II, {coding.kind} chromosome{splits}, population {settings.population}, "
         f"{settings.generations} generations, seed {settings.seed}{then}")  # fmt: skip
    warn_rounded(console, graph, cluster)
    warn_unlike(console, graph, cluster)


def uncalibrated(cluster: Platform) -> list[str]:
    """Coefficient sets of the platform that were not measured."""
    return sorted({d.coefficients for d in cluster.devices if not coefficients.load(d.coefficients).calibrated})


def warn_uncalibrated(console: Console, cluster: Platform) -> None:
    """Predictions from figures that nobody measured are said to be such."""
    names = uncalibrated(cluster)
    if names:
        line(console, f"Predicted with coefficients that are not calibrated ({', '.join(names)}): "
             "good for comparing mappings, not as promises.")  # fmt: skip


def warn_unlike(console: Console, graph: Graph, cluster: Platform) -> None:
    """Coefficients that were measured of something else are said to be, as far as that is known here, and what of a
    network is like nothing that was measured."""
    text = provenance.warning(provenance.unlike(cluster, provenance.here(cluster)))
    if text:
        line(console, text)
    if unknown := untold(graph, cluster):
        line(console, f"No layer like {', '.join(unknown)} of {graph.name} was calibrated, so nobody knows how far "
             "times may be off. Go on with the calibration, with --cnn for this network, too.")  # fmt: skip


def warn_rounded(console: Console, graph: Graph, cluster: Platform) -> None:
    """What may come out otherwise than within one device: floats that become steps, and float16 that is passed on."""
    if made := steps(graph):
        more = f", and {many(len(made) - 1, 'other')}," if len(made) > 1 else ""
        line(console, f"{graph.name}: layer '{made[0].name}' ({made[0].op}){more} turns floats into steps. What "
             "parts sum up in another order may come out at the next one; --fold makes that rarer.")  # fmt: skip
    moved = {name for layer in graph.layers for name in layer.outputs if name not in graph.outputs}
    if any(graph.tensors[name].dtype == "float16" for name in moved) and any(
        d.provider == CPU for d in cluster.devices
    ):
        line(console, f"{graph.name} computes in float16. Processors do so in float32, and round where ONNX Runtime "
             "has to: at each border between segments, too. With --fold the network says itself where, and what is "
             "passed on is float32.")  # fmt: skip


def warn_expected(console: Console, cluster: Platform, error: Expected | None) -> None:
    """How far predictions may be off, or that nobody knows."""
    if error is not None:
        each = ", ".join(f"{what} by {off:.1%}" for what, off in asdict(error).items() if off is not None)
        line(console, f"Predictions are expected to be off: {each}.")
    warn_uncalibrated(console, cluster)


def outcome(console: Console, found: Outcome, cluster: Platform, generations: int, out: Path) -> None:
    """The end of ``dse run``, for which ``generations`` were asked for.

    Energy and memory are those of the device that has most of them.
    """
    front = found.front
    rows = []
    for s in found.shipped:
        scores = [shown(o, front.scores[s.point, k]) for k, o in enumerate(OBJECTIVES)]
        rows.append([s.name, len(s.mapping.devices), *scores, _verdict(s.verification)])
    line(console, "")
    console.print(table(["bundle", "ranks", "latency", "energy", "memory", "period", "answer"], rows))
    if found.closed:
        _closed(console, found.closed)
    for objective, known in found.proven.items():
        searched = any(s.objective == objective for s in found.shipped)
        about = ("as predicted: " if found.closed else "") + ("" if searched else "not searched for: ")
        line(console, about + proven_line(objective, known))
    warn_expected(console, cluster, front.expected(*(s.point for s in found.shipped)))
    share = front.scoring_s / front.search_s
    line(console, f"{front.evaluated} mappings in {front.search_s:.1f} s, {share:.0%} of it decode + lower + price; "
         f"{many(len(front.genes), 'point')} on the front")  # fmt: skip
    if len(front.best) < generations:
        line(console, f"stopped after generation {len(front.best)}: no new mapping could be made")
    line(console, f"results in {out}: front.csv, front.json, front.png, convergence.csv, convergence.png, summary.json")


def _closed(console: Console, closed: Closed) -> None:
    """What was measured, and how far predictions were off."""
    done, more = sum(not attempt.found.failed for attempt in closed.tried), f", {closed.before} were known before"
    line(console, f"measured {done} of {len(closed.tried)} mappings that were tried{more if closed.before else ''}; "
         "figures above are measured where they can be")  # fmt: skip
    for name, (model, corrected) in closed.errors().items():
        once = "" if corrected is None else f", {corrected:.1%} once corrected"
        line(console, f"{UNITS[name][0]}: the model was off by {model:.1%} on average{once}")


def proven_line(objective: str, known: Proven) -> str:
    """How far the best is from what could be."""
    best = f"best {quantity(objective)} {shown(objective, known.value)}"
    if known.gap is None:
        return f"{best}; nothing is known about what could be reached"
    if known.value < known.bound:
        least = shown(objective, known.bound)
        return f"{best} while the pipeline fills; in a long stream no mapping takes less than {least}"
    if known.gap < NOTHING:
        return f"{best}, the least that any mapping of this kind could reach"
    gap = f"{known.gap:.0%}" if known.gap > 0.1 else f"{100 * known.gap:.2g}%"
    return f"{best}, at most {gap} above what any mapping of this kind could reach"


def _verdict(found: Verification | None) -> str:
    if found is None:
        return "not checked"
    error = "" if found.error is None else f" ({found.error:.1e})"
    return ("the same" if found.passed else "WRONG") + error


def verification(console: Console, bundle: Path, found: Verification) -> None:
    """``dse verify``."""
    for output in found.outputs:
        line(console, str(output))
    verdict = "gives the whole model's answer" if found.passed else "does NOT give the whole model's answer"
    line(console, f"{bundle}: {verdict} ({found.frames} frames, tolerance {found.tolerance:g})")


def answer(console: Console, found: Answer) -> None:
    """``dse infer``."""
    for output in found.outputs:
        line(console, f"output {output.name!r}: {output.dtype} {(found.frames, *output.shape)}")
    line(console, f"{found.output}: {found.frames} frames in {found.time_s:.1f} s, with starting the ranks")


def rank_rows(plan: Plan) -> list[dict[str, Any]]:
    """What each rank of a plan does, in numbers."""
    return [
        {
            "rank": r.rank,
            "device": r.device,
            "segments": len(r.runs),
            "layers": sum(len(run.parts) for run in r.runs),
            "receives": sum(isinstance(s, Recv) for s in r.steps),
            "sends": sum(isinstance(s, Send) for s in r.steps),
        }
        for r in plan.ranks
    ]


def ranks(console: Console, rows: list[dict[str, Any]], out: Path) -> None:
    """``dse generate``."""
    headers = ["rank", "device", "segments", "layers", "receives", "sends"]
    console.print(table(headers, [[r[h] for h in headers] for r in rows], text=2))
    line(console, f"bundle in {out}; check it with: {shlex.join(['dse', 'verify', str(out)])}")


def bench(console: Console, bundle: Path, found: Bench) -> None:
    """``dse bench``."""
    times = [
        [r.rank, r.device]
        + [f"{v * 1e3:.2f}" for v in (r.compute_s, r.busy_s, r.wait_s, r.wire_s, r.send_s, r.processor_s)]
        for r in found.ranks
    ]
    headers = ["rank", "device", "compute ms", "of it busy", "wait ms", "of it wire", "send ms", "processor ms"]
    console.print(table(headers, times, text=2))
    _memory(console, found)
    line(console, "")
    line(console, f"{bundle}: latency of one frame {found.latency_s * 1e3:.2f} ms ({_frames(found.latencies_s)}; "
         f"min {found.min_s * 1e3:.2f}, max {found.max_s * 1e3:.2f})")  # fmt: skip
    if any(r.clock_uncertainty_s for r in found.ranks):
        apart = max(r.clock_uncertainty_s for r in found.ranks)
        line(console, f"clocks of the hosts are known to {apart * 1e6:.0f} us, and spans are by that of rank 0")
    _energies(console, found)
    if found.period_s is not None:
        line(
            console, f"streamed: a frame every {found.period_s * 1e3:.2f} ms, {1 / found.period_s:.1f} frames a second"
        )
    if found.stolen > STOLEN:
        line(
            console, f"disturbed: other virtual machines had {found.stolen:.0%} of a processor meanwhile; measure again"
        )


def _frames(latencies_s: Sequence[float]) -> str:
    """Which frames a latency is the mean of."""
    count, of = len(counted(latencies_s)), len(latencies_s)
    return f"mean of the middle {count} of {of}" if count < of else f"mean of {of}"


def _memory(console: Console, found: Bench) -> None:
    """What the peak of each rank is made of, if it is known."""
    cells = [
        [r.rank, r.device, *[f"{size / 1e6:.1f}" for size in (*parts, r.rest_bytes, r.peak_bytes, opening)]]
        for r in found.ranks
        if r.memory
        for *parts, opening in [vars(r.memory).values()]
    ]
    if cells:
        line(console, "")
        headers = [
            "rank",
            "device",
            "base MB",
            "buffers",
            "segments",
            "input",
            "frames",
            "the rest",
            "peak MB",
            "opening",
        ]
        console.print(table(headers, cells, text=2))


def _energies(console: Console, found: Bench) -> None:
    """What each host took for a frame, if any is known; an estimate is called one."""
    rows = found.energies()
    if not rows:
        return
    cells = [
        [row["rank"], row["device"], *[_joules(row[run]) for run in ("alone", "stream")], row["alone"]["samples"]]
        for row in rows
    ]
    line(console, "")
    console.print(table(["rank", "device", "energy J", "streamed J", "samples"], cells, text=2))
    line(console, f"energy of one frame, of the whole host, {'above' if found.above_idle else 'with'} its idle power")
    notes = [row[run]["note"] for row in rows for run in ("alone", "stream") if row[run] and row[run]["note"]]
    for note in dict.fromkeys(notes):
        line(console, f"no energy measured: {note}")


def _joules(energy: dict[str, Any] | None) -> str:
    if energy is None or energy["energy_j"] is None:
        return "-"
    return f"{energy['energy_j']:.4g}" + (" (estimate)" if energy["source"] == ESTIMATE else "")
