"""Text files that come with the distribution, and are known by a bare name: platforms, testbeds, coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from model.cluster.texts import read_text

ROOT = "platforms"


@dataclass(frozen=True)
class Shipped:
    """Those of one kind.

    kind:   as errors call them
    suffix: of their files
    folder: of them, in ``ROOT``
    """

    kind: str
    suffix: str
    folder: str = "."

    @property
    def names(self) -> list[str]:
        """Sorted, without the suffix."""
        return list(_names(self.folder, self.suffix))

    def place(self, name: str) -> Path:
        """The file that has a name."""
        return Path(str(files(ROOT) / self.folder / f"{name}{self.suffix}"))

    def find(self, path: Path) -> Path:
        """``path`` itself, or the shipped file of that name when there is no such file and no folder is given."""
        name = path.name.removesuffix(self.suffix)
        if path.is_file() or path != Path(path.name) or name not in self.names:
            return path
        return self.place(name)

    def text_of(self, path: Path) -> str:
        """What is in a file that was found; ``CleaveError`` where it cannot be read."""
        return read_text(path, f"file; shipped {self.kind}: {', '.join(self.names)}")


@cache
def _names(folder: str, suffix: str) -> tuple[str, ...]:
    there = (files(ROOT) / folder).iterdir()
    return tuple(sorted(each.name.removesuffix(suffix) for each in there if each.name.endswith(suffix)))
