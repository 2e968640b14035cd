"""How well predictions fit: a row a mapping, the table, what misses most, and the plot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullFormatter
from numpy.typing import NDArray
from scipy.stats import spearmanr

from tests.campaign.drawings import ALONE, WAYS

THESIS = {
    "latency": ((1.07, 0.56), (1.82, 0.85), (1.43, 0.57)),
    "memory": ((0.37, -0.60), (0.27, -0.22), (0.30, 0.60)),
}
"""Mean error and Spearman of the thesis' tables 3 and 6: AlexNet, VGG-16, DenseNet-121."""
OF = ("latency", "period", "memory", "busy")
MODELS = ("simulated", "analytical", "thesis")
MEASURED, PACED, EXPECTED = "measured", "paced", "expected"
WORST = 5


@dataclass(frozen=True)
class Row:
    """One mapping. Seconds and bytes, by model.

    busy: computing, of all ranks together; memory: the largest rank's, without frames that only the measurement keeps
    load: of the machine, the mean of a minute, before it was measured; mapping: as ``front.json`` has it
    turn: how often it had been measured before; frames: that counted; pace: seconds of a frame of the whole network on
    the platform's first device just before, not a number where nobody looked; paced: by the simulator, with computing
    as much slower as that was slower than told; stolen: the largest part of the time of a rank's cores that other
    virtual machines had; expected: relative errors that the prediction said of itself, not a number where it did not
    """

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
    load: float
    mapping: str
    turn: int
    frames: int = 20
    pace: float = float("nan")
    paced_latency: float = float("nan")
    paced_period: float = float("nan")
    paced_memory: float = float("nan")
    paced_busy: float = float("nan")
    stolen: float = 0.0
    expected_latency: float = float("nan")
    expected_period: float = float("nan")
    expected_memory: float = float("nan")
    expected_busy: float = float("nan")


def together(rows: Sequence[Row]) -> list[Row]:
    """One row a mapping: what was measured is the median over the turns."""
    of: dict[tuple[str, int], list[Row]] = {}
    for r in rows:
        of.setdefault((r.network, r.number), []).append(r)
    return [replace(mine[0], **_medians(mine)) for mine in of.values()]


def _medians(turns: Sequence[Row]) -> dict[str, Any]:
    return {f"{MEASURED}_{of}": float(np.median(column(turns, MEASURED, of))) for of in OF}


def table(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each network and model, one for each way of mapping; then the thesis' own.

    Where mappings were measured more than once, also how far the first turn is off the others: nothing can predict
    the first turn much better. Where the machine's pace was looked at, also the simulator with processors of that pace:
    a machine that is shared, or that becomes hot, runs whatever it runs faster at one time than at another.
    """
    heads = " ".join(f"{of + ' error':>14} {'Spearman':>8}" for of in OF)
    yield f"{'network':16} {'mappings':>8}  {'model':10} {heads}"
    for name, every in _groups(rows).items():
        mine, (first, others) = together(every), _first_and_others(every)
        for model in MODELS if mine else ():
            yield _line(name, model, model, mine, mine)
        if paced := [r for r in every if not math.isnan(r.paced_latency)]:
            yield _line(name, PACED, PACED, paced, paced)
        if others:
            yield _line(name, "one turn", MEASURED, first, others)
    for k, name in enumerate(("AlexNet", "VGG-16", "DenseNet-121")):
        cells = " ".join(f"{THESIS[of][k][0]:14.0%} {THESIS[of][k][1]:8.2f}" if of in THESIS else " " * 23 for of in OF)
        yield f"{name:16} {12:8}  {'its tables':10} {cells}"


def _groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of several devices by network and by way, then those of one device."""
    several = [r for r in rows if r.way != ALONE]
    groups = {name: [r for r in several if r.network == name] for name in dict.fromkeys(r.network for r in rows)}
    return groups | {f"all, {way}": [r for r in rows if r.way == way] for way in (*WAYS, ALONE)}


def _first_and_others(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The first turn and the median of the others, of mappings that have both, in the same order."""
    others = {(r.network, r.number): r for r in together([r for r in rows if r.turn > 0])}
    first = [r for r in rows if r.turn == 0 and (r.network, r.number) in others]
    return first, [others[r.network, r.number] for r in first]


def _line(name: str, label: str, who: str, said: Sequence[Row], seen: Sequence[Row]) -> str:
    """What some rows hold of a model, or of a turn, against what was measured in others, one by one."""
    cells = " ".join(_cell(column(said, who, of), column(seen, MEASURED, of)) for of in OF)
    return f"{name:16} {len(seen):8}  {label:10} {cells}"


def _cell(said: NDArray[np.float64], seen: NDArray[np.float64]) -> str:
    """Mean relative error and rank correlation."""
    told = min(len(set(said)), len(set(seen))) > 1
    rank = float(spearmanr(said, seen).statistic) if len(said) > 2 and told else float("nan")
    return f"{np.mean(np.abs(said / seen - 1)):14.1%} {rank:8.3f}"


def column(rows: Sequence[Row], who: str, of: str) -> NDArray[np.float64]:
    """One figure of all rows."""
    return np.array([getattr(r, f"{who}_{of}") for r in rows])


def promises(rows: Sequence[Row]) -> Iterator[str]:
    """What the simulator is expected to be off by, as predictions say of themselves, and how many mappings are within
    that and within twice as much; a line for each group.

    Were errors spread like a normal distribution, 58 % of mappings would be within the mean of them, 89 % within twice.
    """
    heads = " ".join(f"{of:>8} {'within':>7} {'twice':>6}" for of in OF)
    yield f"{'expected of':16} {'mappings':>8}  {heads}"
    for name, every in _groups([r for r in rows if not math.isnan(r.expected_latency)]).items():
        if mine := together(every):
            yield f"{name:16} {len(mine):8}  {' '.join(_promise(mine, of) for of in OF)}"


def _promise(rows: Sequence[Row], of: str) -> str:
    """One figure of all rows: what is expected in the mean, and the parts of them within that and twice that."""
    said, off = column(rows, EXPECTED, of), np.abs(column(rows, MODELS[0], of) / column(rows, MEASURED, of) - 1)
    once, twice = (np.mean(off <= times * said) for times in (1, 2))
    return f"{said.mean():8.1%} {once:7.0%} {twice:6.0%}"


def misses(rows: Sequence[Row]) -> Iterator[str]:
    """What the simulator misses most."""
    for of in OF:
        errors = column(rows, "simulated", of) / column(rows, MEASURED, of) - 1
        for k in np.argsort(-np.abs(errors))[:WORST]:
            r = rows[k]
            run = f"{r.network} {r.way} {r.number}, {r.ranks} ranks"
            yield f"  {of:8} {errors[k]:+7.1%}  {run}, load {r.load:.1f}"


def draw_plot(rows: Sequence[Row], file: Path) -> None:
    """Predicted over measured, both logarithmic."""
    mpl.use("Agg")
    figure, axes = plt.subplots(1, len(OF), figsize=(4.2 * len(OF), 4.2))
    for axis, of in zip(axes, OF, strict=True):
        scale = 1e-6 if of == "memory" else 1e3
        for network in dict.fromkeys(r.network for r in rows):
            mine = [r for r in rows if r.network == network]
            seen, said = (column(mine, who, of) * scale for who in (MEASURED, "simulated"))
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
