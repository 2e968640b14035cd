"""An empty picture, and how it is written. matplotlib takes 0.3 s to load: only who draws waits for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runtime.draft import drafted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIXED = {".svg": {"Date": None}, ".png": {"Software": None}}
"""By kind of picture, what would not be the same the next time, or with another version."""


def blank(width_inches: float, height_inches: float) -> Figure:
    """A figure without axes."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width_inches, height_inches), layout="constrained")


def save(figure: Figure, out: Path, dpi: int) -> None:
    """All or nothing, and the same bytes for the same picture."""
    from matplotlib import rc_context

    with drafted(out) as draft, rc_context({"svg.hashsalt": "cleave"}):
        figure.savefig(draft, format=out.suffix[1:], dpi=dpi, metadata=FIXED[out.suffix])
