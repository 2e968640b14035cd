"""A picture of a simulated mapping: a row for each device and each link; one frame alone, and some of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dse import canvas
from model.simulator.bounds import Held
from model.simulator.ticks import TICK_S
from runtime.errors import CleaveError
from runtime.perfetto import Bar
from runtime.trace import COMPUTE, SEND, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FRAMES = 6
"""Of a stream that are shown, from the first one that counts."""
USES = {"computes": "#4c78a8", "sends": "#f58518", "carries a message": "#54a24b"}
OF_FRAME = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2")
PATH = "#c1121f"
INCHES_A_ROW, WIDTH_INCHES = 0.24, 12.0
MS = 1e3


@dataclass(frozen=True)
class Scene:
    """What one part of the picture shows. trace: of the ranks; links: by name, what they carried"""

    trace: Trace
    links: dict[str, list[Bar]]

    @property
    def rows(self) -> list[str]:
        """Names of devices, then of links."""
        return [*[usage.device for usage in self.trace.ranks], *self.links]

    @property
    def bars(self) -> Iterable[tuple[int, str, int, float, float]]:
        """Row, use, frame, start and stop in seconds."""
        uses = {COMPUTE: "computes", SEND: "sends"}
        for number, spans in enumerate(self.trace.frames):
            for span in spans:
                if span.kind in uses and (span.peer is not None or span.kind == COMPUTE):
                    yield span.rank, uses[span.kind], number, span.start_s, span.stop_s
        for row, bars in enumerate(self.links.values(), len(self.trace.ranks)):
            for bar in bars:
                yield row, "carries a message", bar.args["frame"], bar.start_s, bar.stop_s


def check(out: Path) -> None:
    """``CleaveError`` unless pictures can be of the kind that a name says."""
    if out.suffix not in canvas.FIXED:
        raise CleaveError(f"{out}: pictures are written as {' or '.join(canvas.FIXED)}; give a name that ends so")


def draw(out: Path, scenes: Sequence[Scene], path: Sequence[Held], title: str) -> None:
    """Write the picture of a frame alone, with its critical path, and of a stream if there is one."""
    rows = [len(scene.rows) for scene in scenes]
    figure = canvas.blank(WIDTH_INCHES, 1.1 * len(rows) + INCHES_A_ROW * sum(rows))
    axes = figure.subplots(len(scenes), 1, squeeze=False, height_ratios=rows)[:, 0]
    _alone(axes[0], scenes[0], path)
    for axis, scene in zip(axes[1:], scenes[1:], strict=True):
        _stream(axis, scene)
    figure.suptitle(title, fontsize=11)
    canvas.save(figure, out, dpi=130)


def _alone(axes: Axes, scene: Scene, path: Sequence[Held]) -> None:
    for use, colour in USES.items():
        _bars(axes, [bar for bar in scene.bars if bar[1] == use], [colour])
    _frame(axes, scene, "one frame alone; its critical path in red")
    axes.set_xlim(0, max(scene.trace.latencies_s) * MS)
    number = {name: row for row, name in enumerate(scene.rows)}
    steps = [(number[p.where], p.start * TICK_S * MS, (p.start + p.ticks) * TICK_S * MS) for p in path]
    axes.plot(
        [x for _, *ends in steps for x in ends],
        [row + 0.4 for row, *_ in steps for _ in range(2)],
        color=PATH,
        linewidth=1.3,
        solid_joinstyle="miter",
    )
    _legend(axes, USES)


def _stream(axes: Axes, scene: Scene) -> None:
    shown = min(FRAMES, len(scene.trace.frames))
    end_s = scene.trace.latencies_s[shown - 1]
    bars = [bar for bar in scene.bars if bar[3] < end_s]
    _bars(axes, bars, OF_FRAME)
    _frame(axes, scene, f"a stream of frames: the first {shown} that count, each in its colour")
    axes.set_xlim(0, end_s * MS)
    _legend(axes, {f"frame {frame}": OF_FRAME[frame] for frame in range(shown)})


def _bars(axes: Axes, bars: Iterable[tuple[int, str, int, float, float]], colours: Sequence[str]) -> None:
    """A rectangle each, in colours by frame; sends are thin, so that they do not hide what is computed next to them."""
    by_row: dict[tuple[int, bool], list[tuple[int, float, float]]] = {}
    for row, use, frame, start, stop in bars:
        by_row.setdefault((row, use == "sends"), []).append((frame, start * MS, (stop - start) * MS))
    for (row, thin), found in by_row.items():
        height, faces = 0.3 if thin else 0.7, [colours[frame % len(colours)] for frame, *_ in found]
        places = [(start, time) for _, start, time in found]
        axes.broken_barh(places, (row - height / 2, height), facecolors=faces, edgecolors=faces, linewidth=0.4)


def _frame(axes: Axes, scene: Scene, title: str) -> None:
    rows = scene.rows
    axes.set_yticks(range(len(rows)), rows, fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.axhline(len(scene.trace.ranks) - 0.5, color="0.4", linewidth=0.8)
    axes.set_xlabel("ms", fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.set_title(title, fontsize=9, loc="left")


def _legend(axes: Axes, colours: dict[str, str]) -> None:
    from matplotlib.patches import Patch

    patches = [Patch(color=colour, label=name) for name, colour in colours.items()]
    axes.legend(
        handles=patches, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(patches), fontsize=7, frameon=False
    )
