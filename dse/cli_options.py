"""What the commands of all files have in common: where they print, and the options that mean the same everywhere."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

WIDE = 160
"""Columns where the output is no terminal: a table in a file or a pipe is not squeezed into 80."""

console = Console(width=None if sys.stdout.isatty() else WIDE)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Check everything, say what would be done, write nothing")
]


def print_json(body: Any) -> None:
    """One JSON value, for machines."""
    sys.stdout.write(json.dumps(body, indent=1) + "\n")
