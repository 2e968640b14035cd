"""The command, called as a person would: in this process, or in one of its own."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from dse.cli.main import main

PROGRAM = [sys.executable, "-c", "from dse.cli.main import main; main()"]
SMALL = ("--population", "20", "--generations", "4", "--no-verify")


@dataclass(frozen=True)
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def sentences(self) -> list[str]:
        """Of an error, each without what all begin with."""
        return [line.removeprefix("error: ") for line in self.err.splitlines()]


def dse(*words: object) -> Said:
    """Run a command in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err), patch("sys.argv", ["dse", *map(str, words)]):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return Said(code, out.getvalue(), err.getvalue())


def done(*words: object) -> str:
    """Standard output of a command that must end well."""
    said = dse(*words)
    assert said.code == 0, said
    return said.out


def apart(*words: object, **how: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run([*PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=120, **how)  # type: ignore[call-overload]


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a folder, by path; folders too, so that an empty one is noticed."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in sorted(folder.rglob("*"))}
