"""What the command line is given, turned into graphs, platforms and mappings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from codegen import zoo
from codegen.bundle import Source, source
from model.network.graph import Graph
from model.network.load import load
from runtime.errors import CleaveError

ZOO = "zoo:"
LARGEST = 2**24
"""Size of an axis that is believed; one more is a slip of the finger."""


@dataclass(frozen=True, eq=False)
class Cnn:
    """A network as asked for: its graph, and what a bundle remembers of where it came from."""

    graph: Graph
    folded: bool
    shapes: dict[str, tuple[int, ...]]

    @cached_property
    def source(self) -> Source:
        """For ``bundle.json``. It hashes the whole file, so once for all bundles of a run."""
        return source(self.graph, self.folded, self.shapes)


def cnn_path(text: str) -> Path:
    """The file of ``zoo:NAME`` (made on first use), or the path itself."""
    return zoo.cached(text.removeprefix(ZOO)) if text.startswith(ZOO) else Path(text)


def read_cnn(text: str, shapes: list[str], folded: bool) -> Cnn:
    """Load ``--cnn``, with ``--shape`` and ``--fold`` as given."""
    sizes: dict[str, tuple[int, ...]] = {}
    for name, size in map(parse_shape, shapes):
        if sizes.setdefault(name, size) != size:
            raise CleaveError(f"--shape {name}: is given twice, with different sizes")
    if not text:
        raise CleaveError("--cnn: is empty; give an ONNX file or zoo:NAME")
    path = cnn_path(text)
    if path.is_dir():
        raise CleaveError(f"{path}: is a folder; give an ONNX file or zoo:NAME")
    return Cnn(load(path, sizes, folded), folded, sizes)


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """``name=1,3,224,224`` as name and sizes, each 1 to ``LARGEST``."""
    name, _, sizes = text.rpartition("=")
    words = sizes.split(",")
    if not name or not all(w.strip().isdecimal() and 0 < int(w) <= LARGEST for w in words):
        raise CleaveError(f"--shape {text}: write it as INPUT=1,3,224,224, with whole sizes from 1 to {LARGEST}")
    return name, tuple(int(w) for w in words)
